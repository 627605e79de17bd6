package mcpserver

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"paddock/internal/blob"
	"paddock/internal/fault"
	"paddock/internal/lock"
	"paddock/internal/session"
)

const (
	// taskTTL is how long a task can be asked for after it was made, and as long
	// as it runs.
	taskTTL = 24 * time.Hour
	// pollEvery is how often a client is told to ask.
	pollEvery = time.Second
	// mostTasks and mostTaskBytes bound the tasks of one owner, and what their
	// results take on disk together: beyond that the oldest results go.
	mostTasks     = 200
	mostTaskBytes = 64 << 20
)

// taskLock begins the names of processes' locks, and goes on with the process's name. One
// is held while its process lives.
const taskLock = "lock-"

// oldTemp begins the names of files that an earlier version of paddock was writing.
const oldTemp = "new-"

// writingTime is longer than it takes to write a task: a file that is still being written
// then is one that was left behind.
const writingTime = time.Hour

// The states of a task.
const (
	taskWorking   = "working"
	taskCompleted = "completed"
	taskFailed    = "failed"
	taskCancelled = "cancelled"
)

// taskMethods are those of the tasks extension.
var taskMethods = map[string]bool{"tasks/get": true, "tasks/update": true, "tasks/cancel": true}

var (
	errTaskCancelled = fault.New(fault.Cancelled, "the task was cancelled")
	taskID           = regexp.MustCompile(`^[A-Z2-7]{26}$`)
)

// tasks are the calls that took longer than their clients waited for (the
// extension io.modelcontextprotocol/tasks). Each is a file: a task that a client
// has heard of is there after a restart, with its result or as one that failed.
// It is safe for concurrent use.
type tasks struct {
	dir string
	log *slog.Logger
	ctx context.Context // what runs is cancelled at its end

	writer  string         // this process's name in records
	unlock  func()         // lets go of writer's lock
	running sync.WaitGroup // those that have not settled

	mu   sync.Mutex // guards what follows, and the files
	byID map[string]*task
}

// task is one of them. The result is in its file alone.
type task struct {
	taskRecord
	cancel    context.CancelCauseFunc // nil: it has ended
	cancelled bool
	bytes     int64     // of its file
	asks      *taskAsks // what it asks while it runs; nil: nothing
}

// taskRecord is a task's file.
type taskRecord struct {
	ID      string          `json:"id"`
	Owner   session.Owner   `json:"owner"`
	Writer  string          `json:"writer"` // whose process it runs in
	Tool    string          `json:"tool"`
	Status  string          `json:"status"`
	Created time.Time       `json:"created"`
	Updated time.Time       `json:"updated"`
	Result  json.RawMessage `json:"result,omitempty"`
	Error   *taskError      `json:"error,omitempty"`
}

// taskError is what failed in place of a result: a JSON-RPC error.
type taskError struct {
	Code    int    `json:"code"`
	Message string `json:"message"`
}

// openTasks reads the tasks of a folder, which is made when it is not there.
// What ran in a process that has ended has failed; what runs in another one is
// that one's.
func openTasks(ctx context.Context, dir string, log *slog.Logger) (*tasks, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("making the tasks' folder: %w", err)
	}
	t := &tasks{dir: dir, log: log, ctx: ctx, byID: map[string]*task{}, writer: rand.Text()}
	var err error
	if t.unlock, err = lock.Try(t.lockOf(t.writer), os.O_CREATE|os.O_RDWR); err != nil || t.unlock == nil {
		return nil, fault.New(fault.Unavailable, "the tasks' folder cannot be used").WithHint("check that %s can be written", dir).WithCause(err)
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, fmt.Errorf("reading the tasks: %w", err)
	}
	for _, e := range entries {
		id, ok := strings.CutSuffix(e.Name(), ".json")
		if !ok || !taskID.MatchString(id) {
			t.removeLeft(e)
			continue
		}
		k := &task{}
		if k.taskRecord, err = t.read(id); err != nil || k.ID != id {
			log.Warn("a task cannot be read", "task", id, "cause", err)
			continue
		}
		if k.Status == taskWorking && !t.dead(k.Writer) {
			continue
		}
		k.Result = nil
		t.byID[id] = k
		if info, err := e.Info(); err == nil {
			k.bytes = info.Size()
		}
		if k.Status == taskWorking {
			k.Error = &taskError{jsonrpc.CodeInternalError, "paddock ended while it ran; the session is as the last finished run left it"}
			if err := t.settle(k, taskFailed, nil); err != nil {
				log.Warn("a task cannot be written", "task", id, "cause", err)
			}
		}
	}
	return t, nil
}

// removeLeft removes a file that is not a task, if its process has ended.
func (t *tasks) removeLeft(e fs.DirEntry) {
	if writer, ok := strings.CutPrefix(e.Name(), taskLock); ok {
		t.dead(writer) // removes it
		return
	}
	temp := strings.HasPrefix(e.Name(), blob.TempPrefix) || strings.HasPrefix(e.Name(), oldTemp)
	if info, err := e.Info(); err == nil && temp && time.Since(info.ModTime()) > writingTime {
		_ = os.Remove(filepath.Join(t.dir, e.Name())) // the next process does it too
	}
}

func (t *tasks) lockOf(writer string) string { return filepath.Join(t.dir, taskLock+writer) }

// dead reports whether a process has ended: its lock can be had. The lock's file goes.
func (t *tasks) dead(writer string) bool {
	if writer == t.writer {
		return false
	}
	if !taskID.MatchString(writer) {
		return true
	}
	unlock, err := lock.Try(t.lockOf(writer), os.O_CREATE|os.O_RDWR)
	if err != nil || unlock == nil {
		return false
	}
	unlock()
	_ = os.Remove(t.lockOf(writer)) // each name is one process's
	return true
}

// close lets go of what shows that this process lives.
func (t *tasks) close() {
	t.unlock()
	_ = os.Remove(t.lockOf(t.writer)) // the next process does it too
}

// create makes a task of a call that runs: done gives its result, once, and asks what it
// asks meanwhile. When
// create returns, the task is on disk.
func (t *tasks) create(owner session.Owner, tool string, cancel context.CancelCauseFunc, done <-chan *mcp.CallToolResult, asks *taskAsks) (map[string]any, error) {
	now := time.Now().UTC().Truncate(time.Millisecond)
	k := &task{taskRecord: taskRecord{ID: rand.Text(), Owner: owner, Writer: t.writer, Tool: tool, Status: taskWorking, Created: now, Updated: now}, cancel: cancel, asks: asks}
	t.mu.Lock()
	defer t.mu.Unlock()
	if err := t.makeRoom(owner, now); err != nil {
		return nil, err
	}
	if err := t.write(k.taskRecord); err != nil {
		return nil, fault.New(fault.Unavailable, "the task cannot be kept").WithCause(err)
	}
	t.byID[k.ID] = k
	t.running.Go(func() { t.follow(k, done) })
	res := k.fields()
	res["resultType"] = "task"
	return res, nil
}

// follow waits for a task's result.
func (t *tasks) follow(k *task, done <-chan *mcp.CallToolResult) {
	cancel := k.cancel
	stop := context.AfterFunc(t.ctx, func() { cancel(context.Cause(t.ctx)) })
	res := <-done
	stop()
	t.mu.Lock()
	defer t.mu.Unlock()
	cancel(nil)
	k.cancel = nil
	status, result := taskCompleted, wireOf(res)
	out := &result
	if k.cancelled {
		status, out = taskCancelled, nil
	}
	if err := t.settle(k, status, out); err != nil {
		t.log.Error("a task's result cannot be kept", "task", k.ID, "cause", err)
		k.Status, k.Error = taskFailed, &taskError{jsonrpc.CodeInternalError, "the result could not be kept"}
	}
}

// settle writes how a task ended; t.mu is held, or nobody else has t yet.
func (t *tasks) settle(k *task, status string, result *wireResult) error {
	k.Status, k.Updated = status, time.Now().UTC().Truncate(time.Millisecond)
	record := k.taskRecord
	if result != nil {
		record.Result = result.appendTo(nil)
	}
	k.bytes = int64(len(record.Result))
	t.fit(k)
	return t.write(record)
}

// fit forgets the oldest ended tasks of k's owner that are too many bytes with
// it.
func (t *tasks) fit(k *task) {
	var ended []*task
	bytes := k.bytes
	for _, other := range t.byID {
		if other.Owner == k.Owner && other != k && other.cancel == nil {
			ended, bytes = append(ended, other), bytes+other.bytes
		}
	}
	slices.SortFunc(ended, func(a, b *task) int { return a.Created.Compare(b.Created) })
	for _, old := range ended {
		if bytes <= mostTaskBytes {
			return
		}
		bytes -= old.bytes
		t.forget(old)
	}
}

// sweep forgets what is over its time.
func (t *tasks) sweep(now time.Time) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, k := range t.byID {
		if k.cancel == nil && now.Sub(k.Created) > taskTTL {
			t.forget(k)
		}
	}
}

// waitUntil waits for what runs, but not beyond that time.
func (t *tasks) waitUntil(end time.Time) {
	done := make(chan struct{})
	go func() { t.running.Wait(); close(done) }()
	select {
	case <-done:
	case <-time.After(time.Until(end)):
	}
}

// makeRoom forgets what is over its time, and refuses more than mostTasks.
func (t *tasks) makeRoom(owner session.Owner, now time.Time) error {
	var own []*task
	for _, k := range t.byID {
		if k.cancel == nil && now.Sub(k.Created) > taskTTL {
			t.forget(k)
		} else if k.Owner == owner {
			own = append(own, k)
		}
	}
	if len(own) < mostTasks {
		return nil
	}
	oldest := slices.MinFunc(own, func(a, b *task) int { return a.Created.Compare(b.Created) })
	f := fault.New(fault.Exhausted, "there are %d tasks already", len(own)).WithHint("they are kept for %v", taskTTL)
	f.RetryAfter = max(0, taskTTL-now.Sub(oldest.Created))
	return f
}

func (t *tasks) forget(k *task) {
	delete(t.byID, k.ID)
	if err := os.Remove(t.path(k.ID)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		t.log.Warn("a task cannot be removed", "task", k.ID, "cause", err)
	}
}

func (t *tasks) path(id string) string { return filepath.Join(t.dir, id+".json") }

func (t *tasks) read(id string) (r taskRecord, err error) {
	data, err := os.ReadFile(t.path(id))
	if err == nil {
		err = json.Unmarshal(data, &r)
	}
	return r, err
}

// write puts a record in place, whole or not at all.
func (t *tasks) write(r taskRecord) error { return blob.WriteFile(blob.OS, t.path(r.ID), encoded(r)) }

// fields are what every answer about a task holds.
func (k *task) fields() map[string]any {
	return map[string]any{
		"taskId": k.ID, "status": k.Status, "createdAt": k.Created.Format(time.RFC3339Nano), "lastUpdatedAt": k.Updated.Format(time.RFC3339Nano),
		"ttlMs": taskTTL.Milliseconds(), "pollIntervalMs": pollEvery.Milliseconds(),
	}
}

// serve answers one request of the extension.
func (t *tasks) serve(w http.ResponseWriter, r *http.Request, m *message, owner session.Owner) {
	result, no := t.answer(r, m, owner)
	w.Header().Set("Content-Type", "application/json")
	if no != nil {
		w.WriteHeader(http.StatusBadRequest)
		_, _ = w.Write(encoded(map[string]any{"jsonrpc": "2.0", "id": m.ID, "error": no})) // who is gone needs no answer
		return
	}
	result["resultType"] = "complete"
	_, _ = w.Write(encoded(response{JSONRPC: "2.0", ID: m.ID, Result: result}))
}

func (t *tasks) answer(r *http.Request, m *message, owner session.Owner) (map[string]any, *jsonrpc.Error) {
	meta := m.Params.Meta
	switch {
	case m.ID == nil:
		return nil, &jsonrpc.Error{Code: codeInvalidRequest, Message: "invalid request: it has no id"}
	case meta.Version != modern, meta.Capabilities == nil:
		return nil, &jsonrpc.Error{Code: jsonrpc.CodeInvalidParams, Message: "invalid params: _meta says neither the protocol's version nor the client's capabilities"}
	case r.Header.Get(headerVersion) != modern, r.Header.Get(headerMethod) != m.Method, r.Header.Get(headerName) != m.Params.TaskID:
		return nil, &jsonrpc.Error{Code: mcp.CodeHeaderMismatch, Message: fmt.Sprintf("%s, %s and %s do not repeat what the body says", headerVersion, headerMethod, headerName)}
	case !m.knowsTasks():
		return nil, &jsonrpc.Error{
			Code: mcp.CodeMissingRequiredClientCapabilities, Message: "the client did not declare " + tasksExtension,
			Data: encoded(map[string]any{"requiredCapabilities": map[string]any{"extensions": map[string]any{tasksExtension: map[string]any{}}}}),
		}
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	k := t.find(m.Params.TaskID)
	if k == nil || k.Owner != owner { // what is another owner's does not exist
		return nil, &jsonrpc.Error{Code: jsonrpc.CodeInvalidParams, Message: "there is no such task"}
	}
	switch m.Method {
	case "tasks/get":
		return t.get(k)
	case "tasks/update":
		if no := k.asks.hear(m.Params.Responses); no != nil {
			return nil, no
		}
	case "tasks/cancel":
		if k.cancel != nil {
			k.cancelled = true
			k.cancel(errTaskCancelled)
		}
	}
	return map[string]any{}, nil
}

// find gives a task, also one of another process's, which only that one can
// cancel; nil: there is none. t.mu is held.
func (t *tasks) find(id string) *task {
	if k := t.byID[id]; k != nil || !taskID.MatchString(id) {
		return k
	}
	r, err := t.read(id)
	if err != nil || r.ID != id {
		return nil
	}
	return &task{taskRecord: r}
}

// get is a task with what came of it; t.mu is held.
func (t *tasks) get(k *task) (map[string]any, *jsonrpc.Error) {
	res := k.fields()
	switch k.Status {
	case taskWorking:
		k.asks.describe(res)
	case taskCompleted:
		record, err := t.read(k.ID)
		if err != nil {
			t.log.Error("a task's result cannot be read", "task", k.ID, "cause", err)
			return nil, &jsonrpc.Error{Code: jsonrpc.CodeInternalError, Message: "the task's result cannot be read"}
		}
		res["result"] = record.Result
	case taskFailed:
		res["error"] = k.Error
	}
	return res, nil
}
