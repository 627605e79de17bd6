package execution

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"

	"paddock/internal/fault"
	"paddock/internal/session"
	"paddock/internal/table"
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

// The states of a task.
const (
	taskWorking   = "working"
	taskCompleted = "completed"
	taskFailed    = "failed"
	taskCancelled = "cancelled"
)

var (
	errTaskCancelled = fault.New(fault.Cancelled, "the task was cancelled")
	taskID           = regexp.MustCompile(`^[A-Z2-7]{26}$`)
)

// Tasks are the calls that took longer than their clients waited for (the
// extension io.modelcontextprotocol/tasks). Each is a document of a table: a task that a
// client has heard of is there after a restart, with its result or as one that failed.
// It is safe for concurrent use.
type Tasks struct {
	table table.Table
	log   *slog.Logger
	ctx   context.Context // what runs is cancelled at its end

	writer  Writer
	running sync.WaitGroup // those that have not settled

	mu   sync.Mutex // guards what follows, and the documents
	byID map[string]*task
}

// Writer is who runs tasks: this process, among those that share a table.
type Writer struct {
	// Name is its name in records, which it has for as long as it lives.
	Name string
	// Dead reports whether another one has ended: what ran in it has failed.
	Dead func(name string) bool
	// Close is called when all has settled; nil: nothing is.
	Close func()
}

// task is one of them. The result is in its document alone.
type task struct {
	taskRecord
	revision  table.Revision
	cancel    context.CancelCauseFunc // nil: it has ended
	cancelled bool
	bytes     int64          // of its document
	asks      *TaskQuestions // what it asks while it runs; nil: nothing
}

// taskRecord is a task's document.
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

// OpenTasks reads the tasks of a folder, which is made when it is not there.
// What ran in a process that has ended has failed; what runs in another one is
// that one's.
func OpenTasks(ctx context.Context, dir string, log *slog.Logger) (*Tasks, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("making the tasks' folder: %w", err)
	}
	w, err := newTaskWriter(dir)
	if err != nil {
		return nil, err
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, fmt.Errorf("reading the tasks: %w", err)
	}
	for _, e := range entries {
		if !isTask(e.Name()) {
			w.removeLeft(e)
		}
	}
	in := table.NewFolder(table.FolderConfig{Dir: dir, Document: isTask, Unlocked: true, Most: 2 * mostTaskBytes})
	return TasksIn(ctx, in, Writer{Name: w.name, Dead: w.dead, Close: w.close}, log)
}

// TasksIn is [OpenTasks] for a table.
func TasksIn(ctx context.Context, in table.Table, w Writer, log *slog.Logger) (*Tasks, error) {
	t := &Tasks{table: in, log: log, ctx: ctx, byID: map[string]*task{}, writer: w}
	names, err := in.Names(ctx, "")
	if err != nil {
		return nil, fmt.Errorf("reading the tasks: %w", err)
	}
	for _, name := range names {
		if !isTask(name) {
			continue
		}
		id := strings.TrimSuffix(name, taskEnd)
		k := &task{}
		d, err := t.read(id, &k.taskRecord)
		if err != nil || k.ID != id {
			log.Warn("a task cannot be read", "task", id, "cause", err)
			continue
		}
		if k.Status == taskWorking && !w.Dead(k.Writer) {
			continue
		}
		k.Result, k.revision, k.bytes = nil, d.Revision, int64(len(d.Data))
		t.byID[id] = k
		if k.Status == taskWorking {
			k.Error = &taskError{jsonrpc.CodeInternalError, "paddock ended while it ran; the session is as the last finished run left it"}
			err := t.settle(k, taskFailed, nil)
			if errors.Is(err, table.ErrChanged) {
				delete(t.byID, id) // another has settled it
			} else if err != nil {
				log.Warn("a task cannot be written", "task", id, "cause", err)
			}
		}
	}
	return t, nil
}

// Close waits for what runs, which the end of the context stops, and lets go of what shows
// that this process lives.
func (t *Tasks) Close() {
	t.running.Wait()
	if t.writer.Close != nil {
		t.writer.Close()
	}
}

// Create makes a task of a call that runs: result waits for its result, as JSON, and asks
// are its questions meanwhile. It gives what the call is answered. When Create returns, the
// task is on disk.
func (t *Tasks) Create(owner session.Owner, tool string, cancel context.CancelCauseFunc, result func() json.RawMessage, asks *TaskQuestions) (map[string]any, error) {
	now := time.Now().UTC().Truncate(time.Millisecond)
	k := &task{taskRecord: taskRecord{ID: rand.Text(), Owner: owner, Writer: t.writer.Name, Tool: tool, Status: taskWorking, Created: now, Updated: now}, cancel: cancel, asks: asks}
	t.mu.Lock()
	defer t.mu.Unlock()
	if err := t.makeRoom(owner, now); err != nil {
		return nil, err
	}
	if err := t.write(k, k.taskRecord); err != nil {
		return nil, fault.New(fault.Unavailable, "the task cannot be kept").WithCause(err)
	}
	t.byID[k.ID] = k
	t.running.Go(func() { t.follow(k, result) })
	res := k.fields()
	res["resultType"] = "task"
	return res, nil
}

// follow waits for a task's result.
func (t *Tasks) follow(k *task, result func() json.RawMessage) {
	cancel := k.cancel
	stop := context.AfterFunc(t.ctx, func() { cancel(context.Cause(t.ctx)) })
	res := result()
	stop()
	t.mu.Lock()
	defer t.mu.Unlock()
	cancel(nil)
	k.cancel = nil
	status := taskCompleted
	if k.cancelled {
		status, res = taskCancelled, nil
	}
	if err := t.settle(k, status, res); err != nil {
		t.log.Error("a task's result cannot be kept", "task", k.ID, "cause", err)
		k.Status, k.Error = taskFailed, &taskError{jsonrpc.CodeInternalError, "the result could not be kept"}
		_ = t.write(k, k.taskRecord) // it may be the result that is too large
	}
}

// settle writes how a task ended; t.mu is held, or nobody else has t yet.
func (t *Tasks) settle(k *task, status string, result json.RawMessage) error {
	k.Status, k.Updated = status, time.Now().UTC().Truncate(time.Millisecond)
	record := k.taskRecord
	record.Result = result
	k.bytes = int64(len(record.Result))
	t.fit(k)
	return t.write(k, record)
}

// fit forgets the oldest ended tasks of k's owner that are too many bytes with
// it.
func (t *Tasks) fit(k *task) {
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

// Sweep forgets what is over its time.
func (t *Tasks) Sweep(now time.Time) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, k := range t.byID {
		if k.cancel == nil && now.Sub(k.Created) > taskTTL {
			t.forget(k)
		}
	}
}

// WaitUntil waits for what runs, but not beyond that time.
func (t *Tasks) WaitUntil(end time.Time) {
	done := make(chan struct{})
	go func() { t.running.Wait(); close(done) }()
	select {
	case <-done:
	case <-time.After(time.Until(end)):
	}
}

// makeRoom forgets what is over its time, and refuses more than mostTasks.
func (t *Tasks) makeRoom(owner session.Owner, now time.Time) error {
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

func (t *Tasks) forget(k *task) {
	delete(t.byID, k.ID)
	if err := t.table.Delete(context.Background(), k.ID+taskEnd, table.Any); err != nil && !errors.Is(err, fs.ErrNotExist) {
		t.log.Warn("a task cannot be removed", "task", k.ID, "cause", err)
	}
}

const taskEnd = ".json"

// isTask reports whether a document is a task.
func isTask(name string) bool {
	id, ok := strings.CutSuffix(name, taskEnd)
	return ok && taskID.MatchString(id)
}

func (t *Tasks) read(id string, r *taskRecord) (table.Document, error) {
	d, err := t.table.Get(context.Background(), id+taskEnd, table.None)
	if err == nil {
		err = json.Unmarshal(d.Data, r)
	}
	return d, err
}

// write puts a task's record in place, whole or not at all.
func (t *Tasks) write(k *task, r taskRecord) error {
	data, err := json.Marshal(r)
	if err != nil {
		return fmt.Errorf("encoding a task: %w", err)
	}
	revision, err := t.table.Put(context.Background(), r.ID+taskEnd, data, k.revision)
	if err == nil {
		k.revision = revision
	}
	return err
}

// fields are what every answer about a task holds.
func (k *task) fields() map[string]any {
	return map[string]any{
		"taskId": k.ID, "status": k.Status, "createdAt": k.Created.Format(time.RFC3339Nano), "lastUpdatedAt": k.Updated.Format(time.RFC3339Nano),
		"ttlMs": taskTTL.Milliseconds(), "pollIntervalMs": pollEvery.Milliseconds(),
	}
}

// Get is a task with what came of it, as tasks/get answers.
func (t *Tasks) Get(owner session.Owner, id string) (map[string]any, *jsonrpc.Error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	k := t.findLocked(owner, id)
	if k == nil {
		return nil, noTask()
	}
	return t.getLocked(k)
}

// Answer takes what the client's user said about what a task asks, as tasks/update gives it.
func (t *Tasks) Answer(owner session.Owner, id string, responses json.RawMessage) *jsonrpc.Error {
	t.mu.Lock()
	defer t.mu.Unlock()
	k := t.findLocked(owner, id)
	if k == nil {
		return noTask()
	}
	return k.asks.hear(responses)
}

// Cancel stops what a task runs.
func (t *Tasks) Cancel(owner session.Owner, id string) *jsonrpc.Error {
	t.mu.Lock()
	defer t.mu.Unlock()
	k := t.findLocked(owner, id)
	if k == nil {
		return noTask()
	}
	if k.cancel != nil {
		k.cancelled = true
		k.cancel(errTaskCancelled)
	}
	return nil
}

func noTask() *jsonrpc.Error {
	return &jsonrpc.Error{Code: jsonrpc.CodeInvalidParams, Message: "there is no such task"}
}

// findLocked gives an owner's task, also one of another process's, which only that one can
// cancel; nil: there is none. What is another owner's does not exist.
func (t *Tasks) findLocked(owner session.Owner, id string) *task {
	k := t.byID[id]
	if k == nil && taskID.MatchString(id) {
		other := &task{}
		if _, err := t.read(id, &other.taskRecord); err == nil && other.ID == id {
			k = other
		}
	}
	if k == nil || k.Owner != owner {
		return nil
	}
	return k
}

// getLocked is Get of a task.
func (t *Tasks) getLocked(k *task) (map[string]any, *jsonrpc.Error) {
	res := k.fields()
	switch k.Status {
	case taskWorking:
		k.asks.describe(res)
	case taskCompleted:
		var record taskRecord
		if _, err := t.read(k.ID, &record); err != nil {
			t.log.Error("a task's result cannot be read", "task", k.ID, "cause", err)
			return nil, &jsonrpc.Error{Code: jsonrpc.CodeInternalError, Message: "the task's result cannot be read"}
		}
		res["result"] = record.Result
	case taskFailed:
		res["error"] = k.Error
	}
	return res, nil
}
