// Package crash tests that nothing acknowledged is ever lost: the built binary
// is killed at any moment, in every role, and whoever comes next has to find
// all that was answered, and of what was not the old or the new, whole.
package crash

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"paddock/internal/sandbox/sandboxtest"
)

// place is a state folder and the binary that is used on it.
type place struct {
	t          testing.TB
	bin, state string
	env        []string
}

// newPlace makes an empty one. settings are lines of a configuration file. It lies in
// memory, where there is room: what is written is there after a kill, synced or not, and
// more is done between two kills.
func newPlace(t testing.TB, settings string) *place {
	t.Helper()
	return placeAt(t, sandboxtest.Memory(t), settings)
}

func placeAt(t testing.TB, state, settings string) *place {
	t.Helper()
	config := filepath.Join(t.TempDir(), "paddock.toml")
	if err := os.WriteFile(config, []byte(settings), 0o600); err != nil {
		t.Fatal(err)
	}
	p := &place{t: t, bin: sandboxtest.Binary(t), state: state}
	p.env = append(os.Environ(), "PADDOCK_STATE_DIR="+state, "PADDOCK_CACHE_DIR="+sandboxtest.PreparedCache(t), "PADDOCK_CONFIG="+config)
	return p
}

// command is one of the command line, not started.
func (p *place) command(args ...string) *exec.Cmd {
	cmd := exec.Command(p.bin, args...)
	cmd.Env, cmd.WaitDelay = p.env, time.Second
	return cmd
}

// do runs a command, gives what it printed, and says in its error what it said.
func (p *place) do(args ...string) (string, error) {
	out, err := p.command(args...).Output()
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		err = fmt.Errorf("paddock %s: %w: %s", strings.Join(args, " "), err, exit.Stderr)
	}
	return strings.TrimSpace(string(out)), err
}

// listed is a session as paddock session ls has it.
type listed struct {
	ID    string `json:"session_id"`
	Name  string `json:"name"`
	State string `json:"state"`
}

func (p *place) list() ([]listed, error) {
	out, err := p.do("session", "ls", "--json")
	if err != nil {
		return nil, err
	}
	var all struct{ Sessions []listed }
	err = json.Unmarshal([]byte(out), &all)
	return all.Sessions, err
}

// errDead says that a process ended before it answered.
var errDead = errors.New("the process ended before it answered")

// process is one paddock mcp.
type process struct {
	cmd   *exec.Cmd
	in    io.WriteCloser
	ready chan struct{} // closed when it has greeted
	dead  chan struct{} // closed when all that it said has been read
	sent  chan struct{} // gets one for each change that was sent, unless it is full

	sending sync.Mutex // held while a message is written

	mu      sync.Mutex // guards what follows
	log     bytes.Buffer
	next    int
	waiting map[int]chan []byte
}

// Write takes its log.
func (c *process) Write(p []byte) (int, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.log.Write(p)
}

func (c *process) said() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.log.String()
}

// start starts one, and waits for nothing.
func (p *place) start() *process {
	p.t.Helper()
	c := &process{cmd: p.command("mcp", "--tools", "core,files,history"), ready: make(chan struct{}), dead: make(chan struct{}), sent: make(chan struct{}, 100), waiting: map[int]chan []byte{}}
	c.cmd.Stderr = c
	var err error
	if c.in, err = c.cmd.StdinPipe(); err != nil {
		p.t.Fatal(err)
	}
	out, err := c.cmd.StdoutPipe()
	if err != nil {
		p.t.Fatal(err)
	}
	if err := c.cmd.Start(); err != nil {
		p.t.Fatal(err)
	}
	go c.read(out)
	greeted := c.request("initialize", map[string]any{
		"protocolVersion": "2025-11-25", "capabilities": map[string]any{}, "clientInfo": map[string]any{"name": "crash", "version": "1"},
	})
	go func() {
		if _, err := c.await(greeted); err == nil {
			c.write(map[string]any{"jsonrpc": "2.0", "method": "notifications/initialized"})
			close(c.ready)
		}
	}()
	return c
}

// read hands out what it answers, until it ends.
func (c *process) read(out io.Reader) {
	defer close(c.dead)
	lines := bufio.NewReaderSize(out, 1<<16)
	for {
		line, err := lines.ReadBytes('\n')
		if err != nil {
			return // what is cut was not answered
		}
		var id struct{ ID *int }
		if json.Unmarshal(line, &id) != nil || id.ID == nil {
			continue
		}
		c.mu.Lock()
		waits := c.waiting[*id.ID]
		delete(c.waiting, *id.ID)
		c.mu.Unlock()
		if waits != nil {
			waits <- line
		}
	}
}

// write sends one message; that it cannot is seen by whoever waits for an answer.
func (c *process) write(message any) {
	line, err := json.Marshal(message)
	if err != nil {
		panic(err)
	}
	c.sending.Lock()
	defer c.sending.Unlock()
	_, _ = c.in.Write(append(line, '\n'))
}

// request sends one, and gives where its answer will be.
func (c *process) request(method string, params any) <-chan []byte {
	answer := make(chan []byte, 1)
	c.mu.Lock()
	c.next++
	id := c.next
	c.waiting[id] = answer
	c.mu.Unlock()
	c.write(map[string]any{"jsonrpc": "2.0", "id": id, "method": method, "params": params})
	return answer
}

// mostWait bounds the wait for any answer: far more than any takes.
const mostWait = 4 * time.Minute

func (c *process) await(answer <-chan []byte) ([]byte, error) {
	select {
	case line := <-answer:
		return line, nil
	case <-c.dead:
	case <-time.After(mostWait):
		return nil, fmt.Errorf("no answer in %v\n%s", mostWait, c.said())
	}
	select { // it may have been the last thing that it said
	case line := <-answer:
		return line, nil
	default:
		return nil, errDead
	}
}

// answer is what a tool's result holds, of whatever tool.
type answer struct {
	ID          string `json:"session_id"`
	Execution   string `json:"execution_id"`
	Waiting     *struct{}
	Stdout      string
	Stderr      string
	ExitCode    *int `json:"exit_code"`
	Result      string
	Notice      string
	State       string
	Checkpoint  string
	Undone      string
	Checkpoints []checkpoint
	Forks       []string
	Error       *problem
}

type checkpoint struct {
	Checkpoint, Label, Previous string
	Current                     bool
}

// problem is paddock's own error, or a program's.
type problem struct{ Code, Message, Hint, Type string }

// failed is paddock's own error; nil: there was none.
func (a *answer) failed() *problem {
	if a.ExitCode != nil {
		return nil
	}
	return a.Error
}

// call calls a tool. The error says that there was no answer, or none that was
// a tool's.
func (c *process) call(tool string, arguments map[string]any) (*answer, error) {
	return c.answer(c.begin(tool, arguments))
}

// begin is call without the wait.
func (c *process) begin(tool string, arguments map[string]any) <-chan []byte {
	return c.request("tools/call", map[string]any{"name": tool, "arguments": arguments})
}

func (c *process) answer(waits <-chan []byte) (*answer, error) {
	line, err := c.await(waits)
	if err != nil {
		return nil, err
	}
	var reply struct {
		Result struct{ StructuredContent *answer }
		Error  json.RawMessage
	}
	if err := json.Unmarshal(line, &reply); err != nil || reply.Result.StructuredContent == nil {
		return nil, fmt.Errorf("the answer is %.500s (%v)", line, err)
	}
	return reply.Result.StructuredContent, nil
}

// must is call for what has to work.
func (c *process) must(t testing.TB, tool string, arguments map[string]any) *answer {
	t.Helper()
	a, err := c.call(tool, arguments)
	if err != nil {
		t.Fatalf("%s: %v\n%s", tool, err, c.said())
	}
	if p := a.failed(); p != nil {
		t.Fatalf("%s: %+v\n%s", tool, *p, c.said())
	}
	return a
}

// kill ends it with SIGKILL and reads what it had said.
func (c *process) kill() {
	_ = c.cmd.Process.Kill() // it may have ended
	c.wait()
}

// hangUp ends it as a client does.
func (c *process) hangUp() {
	c.sending.Lock()
	_ = c.in.Close()
	c.sending.Unlock()
	c.wait()
}

func (c *process) wait() {
	<-c.dead
	_ = c.cmd.Wait() // how it ended is not the question
	_ = c.in.Close()
}

// children are the processes that a process has started: its workers.
func children(of int) (pids []int) {
	stats, err := filepath.Glob("/proc/[0-9]*/stat")
	if err != nil {
		panic(err)
	}
	for _, path := range stats {
		text, err := os.ReadFile(path)
		if err != nil {
			continue // it has ended meanwhile
		}
		// The second field, in parentheses, may hold anything.
		fields := strings.Fields(string(text[bytes.LastIndexByte(text, ')')+1:]))
		if pid, err := strconv.Atoi(filepath.Base(filepath.Dir(path))); err == nil && len(fields) > 1 && fields[0] != "Z" && fields[1] == strconv.Itoa(of) {
			pids = append(pids, pid)
		}
	}
	return pids
}
