package crash

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"time"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"
)

// toolsRole is the variable that has this test binary be a server of tools instead, which
// writes down in the folder that it names what it was asked and what it answered.
const toolsRole = "PADDOCK_CRASH_TOOLS"

func TestMain(m *testing.M) {
	if dir := os.Getenv(toolsRole); dir != "" {
		serveTools(dir)
	}
	// Most of the time they wait: for a moment to kill at, for sleep, for two seconds to pass.
	if err := flag.Set("test.parallel", strconv.Itoa(2*runtime.GOMAXPROCS(0))); err != nil {
		panic(err)
	}
	os.Exit(m.Run())
}

// Its files: a line for each call, durable before it is answered; a line for each answer;
// and the names of calls that get none.
const (
	callsFile, answersFile, heldFile = "calls", "answers", "held"
)

// leaving is a reader at whose end the process ends, whatever it is at.
type leaving struct{ io.ReadCloser }

// Read implements [io.Reader].
func (l leaving) Read(p []byte) (int, error) {
	n, err := l.ReadCloser.Read(p)
	if n == 0 && err != nil {
		os.Exit(0)
	}
	return n, err
}

func serveTools(dir string) {
	s := sdk.NewServer(&sdk.Implementation{Name: "counts", Version: "1"}, nil)
	schema := json.RawMessage(`{"type":"object","properties":{"text":{"type":"string"}},"required":["text"]}`)
	s.AddTool(&sdk.Tool{Name: "act", InputSchema: schema}, func(ctx context.Context, r *sdk.CallToolRequest) (*sdk.CallToolResult, error) {
		var in struct{ Text string }
		if err := json.Unmarshal(r.Params.Arguments, &in); err != nil {
			return nil, err
		}
		if err := note(filepath.Join(dir, callsFile), fmt.Sprint(in.Text, " ", r.Params.Meta["paddock/idempotencyKey"])); err != nil {
			return nil, err
		}
		if held, err := os.ReadFile(filepath.Join(dir, heldFile)); err == nil && strings.Contains(string(held), in.Text) {
			select {} // until whoever asks has gone
		}
		if err := note(filepath.Join(dir, answersFile), in.Text); err != nil {
			return nil, err
		}
		return &sdk.CallToolResult{Content: []sdk.Content{&sdk.TextContent{Text: "did " + in.Text}}}, nil
	})
	_ = s.Run(context.Background(), &sdk.IOTransport{Reader: leaving{os.Stdin}, Writer: os.Stdout})
	os.Exit(0)
}

func note(path, line string) error {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	_, err = f.WriteString(line + "\n")
	return errors.Join(err, f.Sync(), f.Close())
}

// waitingPrograms wait for two calls that somebody has to allow, at once. What came of
// each is in a variable; "over" tells that it got that far.
var waitingPrograms = map[string]string{
	"python": `
import asyncio
from servers.counts import act
said, over = {}, False
async def one(text):
    try:
        said[text] = await act.aio(text=text)
    except Exception as e:
        said[text] = getattr(e, "kind", type(e).__name__)
print("before")
await asyncio.gather(one("a"), one("b"))
over = True
print("after", said["a"] + ",", said["b"])
`,
	"javascript": `
import { act } from "servers/counts";
globalThis.said = {}; globalThis.over = false;
const one = async (text) => { try { said[text] = await act({ text }); } catch (e) { said[text] = e.kind ?? e.name; } };
console.log("before");
await Promise.all([one("a"), one("b")]);
over = true;
console.log("after", said.a + ",", said.b);
`,
}

// leftBehind shows the programs' variables: how far it got.
var leftBehind = map[string]string{
	"python":     "print(globals().get('over'), globals().get('said'))",
	"javascript": "console.log(globalThis.over, JSON.stringify(globalThis.said))",
}

// asks calls the tool once more, and does not wait for long.
var asks = map[string]string{
	"python":     "from servers.counts import act\nact(text='a')",
	"javascript": "import { act } from 'servers/counts'; await act({ text: 'a' })",
}

// waitingRun is a place in which a program waits for two calls to be allowed.
type waitingRun struct {
	*place
	t        *testing.T
	tools    string // the folder of the server of tools
	language string
	c        *process
	session  string
	began    <-chan []byte // the answer to the program's first request
	running  string        // its execution
}

func newWaitingRun(t *testing.T, language string) *waitingRun {
	p := newTools(t, language, "tools.ask = [\"act\"]\n")
	p.began = p.run(waitingPrograms[language], 60)
	return p
}

// newTools is a waitingRun whose program has not begun; settings are more lines about the
// server of tools.
func newTools(t *testing.T, language, settings string) *waitingRun {
	dir := t.TempDir()
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	text := fmt.Sprintf("[servers.counts]\ncommand = %q\nenv = { %s = %q }\n%s[mcp]\ncall_interval_seconds = 0\n", exe, toolsRole, dir, settings)
	p := &waitingRun{place: newPlace(t, text), t: t, tools: dir, language: language}
	p.c = p.start()
	p.session = p.c.must(t, "create_session", nil).ID
	return p
}

func (p *waitingRun) run(code string, timeout int) <-chan []byte {
	return p.c.begin("execute_code", map[string]any{"session_id": p.session, "language": p.language, "code": code, "timeout": timeout})
}

// until waits for something that another process does.
func (p *waitingRun) until(what string, done func() bool) {
	p.t.Helper()
	for end := time.Now().Add(mostWait); !done(); time.Sleep(2 * time.Millisecond) {
		if time.Now().After(end) {
			p.t.Fatalf("it never came to this: %s\n%s", what, p.c.said())
		}
	}
}

// lines are those of one of the server's files.
func (p *waitingRun) lines(file string) []string {
	text, _ := os.ReadFile(filepath.Join(p.tools, file)) // not there: nothing yet
	return strings.Split(strings.TrimSuffix(string(text), "\n"), "\n")[:strings.Count(string(text), "\n")]
}

// asked waits for both calls to be asked about.
func (p *waitingRun) asked() {
	p.t.Helper()
	p.until("both calls are asked about", func() bool {
		files, _ := filepath.Glob(filepath.Join(p.state, "approvals", "local", "*.json"))
		return len(files) == 2
	})
}

// suspended waits until the program's first request is answered: it waits.
func (p *waitingRun) suspended() {
	p.t.Helper()
	a, err := p.c.answer(p.began)
	switch {
	case err != nil:
		p.t.Fatalf("it does not wait: %v", err)
	case a.Waiting == nil:
		p.t.Fatalf("it does not wait: a.Waiting is nil, want a value: %+v, %s", a, p.c.said())
	case a.Execution == "":
		p.t.Fatalf("it does not wait: a.Execution is empty, want a text: %+v, %s", a, p.c.said())
	}
	p.running = a.Execution
}

// listed are the approvals in a state, by the text of their calls.
func (p *waitingRun) listed(state string) map[string]string {
	p.t.Helper()
	out, err := p.do("approvals", "ls", "--over", "--json")
	if err != nil {
		p.t.Fatal(err)
	}
	var all struct {
		Approvals []struct {
			ID, State string
			Arguments struct{ Text string }
		}
	}
	if err := json.Unmarshal([]byte(out), &all); err != nil {
		p.t.Fatal(err)
	}
	found := map[string]string{}
	for _, a := range all.Approvals {
		if a.State == state {
			found[a.Arguments.Text] = a.ID
		}
	}
	return found
}

// grant allows calls, if they wait; none: all that do.
func (p *waitingRun) grant(texts ...string) {
	p.t.Helper()
	for text, id := range p.listed("pending") {
		if len(texts) == 0 || strings.Contains(strings.Join(texts, ""), text) {
			if _, err := p.do("approvals", "grant", id); err != nil {
				p.t.Error(err)
			}
		}
	}
}

func (p *waitingRun) goOn() <-chan []byte {
	return p.c.begin("execute_code", map[string]any{"session_id": p.session, "execution_id": p.running})
}

// moments are when paddock is killed. Each returns then; what is granted while nobody
// runs is granted after the kill, by then.
var moments = []struct {
	name string
	come func(p *waitingRun)
}{
	{"the program began", func(*waitingRun) {}},
	{"its calls are asked about", func(p *waitingRun) { p.asked() }},
	{"one was granted before it was suspended", func(p *waitingRun) { p.asked(); p.grant("a") }},
	{"both were granted before it was suspended", func(p *waitingRun) { p.asked(); p.grant() }},
	{"it is suspended", func(p *waitingRun) { p.suspended() }},
	{"one was granted", func(p *waitingRun) { p.suspended(); p.grant("a") }},
	{"both were granted", func(p *waitingRun) { p.suspended(); p.grant() }},
	{"one was denied", func(p *waitingRun) {
		p.suspended()
		if _, err := p.do("approvals", "deny", p.listed("pending")["b"]); err != nil {
			p.t.Error(err)
		}
	}},
	{"it goes on", func(p *waitingRun) { p.suspended(); p.grant("a"); p.goOn() }},
	{"it goes on, 3 ms later", func(p *waitingRun) { p.grantedWhileNobodyRuns(); p.goOn(); time.Sleep(3 * time.Millisecond) }},
	{"it goes on, 10 ms later", func(p *waitingRun) { p.grantedWhileNobodyRuns(); p.goOn(); time.Sleep(10 * time.Millisecond) }},
	{"it goes on, 30 ms later", func(p *waitingRun) { p.grantedWhileNobodyRuns(); p.goOn(); time.Sleep(30 * time.Millisecond) }},
	{"it goes on, 100 ms later", func(p *waitingRun) { p.grantedWhileNobodyRuns(); p.goOn(); time.Sleep(100 * time.Millisecond) }},
	{"a grant is used", func(p *waitingRun) {
		p.suspended()
		p.hold("ab")
		p.grant("a")
		p.until("the grant is used", func() bool { return p.listed("used")["a"] != "" })
	}},
	{"a call is sent", func(p *waitingRun) { p.held("ab", "a") }},
	{"both calls are sent", func(p *waitingRun) { p.held("ab", "a", "b") }},
	{"a call is answered, the other is under way", func(p *waitingRun) {
		p.held("b", "a", "b")
		p.until("one is answered", func() bool { return len(p.lines(answersFile)) == 1 })
	}},
	{"a call is answered, the other waits", func(p *waitingRun) {
		p.suspended()
		p.grant("a")
		p.until("it is answered", func() bool { return len(p.lines(answersFile)) == 1 })
	}},
	{"both calls are answered", func(p *waitingRun) {
		p.suspended()
		p.grant()
		p.until("both are answered", func() bool { return len(p.lines(answersFile)) == 2 })
	}},
	{"the result is delivered", func(p *waitingRun) {
		p.suspended()
		p.grant()
		if out := p.delivered(); out != "did a, did b" {
			p.t.Errorf("its calls gave %q", out)
		}
	}},
}

// hold has the server answer some calls never.
func (p *waitingRun) hold(texts string) {
	if err := os.WriteFile(filepath.Join(p.tools, heldFile), []byte(texts), 0o600); err != nil {
		p.t.Fatal(err)
	}
}

// held waits until calls have come to the server, which does not answer those in texts.
func (p *waitingRun) held(texts string, calls ...string) {
	p.t.Helper()
	p.suspended()
	p.hold(texts)
	p.grant(calls...)
	p.until("the calls come", func() bool { return len(p.lines(callsFile)) == len(calls) })
}

// grantedWhileNobodyRuns has both calls granted between two processes.
func (p *waitingRun) grantedWhileNobodyRuns() {
	p.t.Helper()
	p.suspended()
	p.c.kill()
	p.grant()
	p.c = p.start()
	<-p.c.ready
}

// printed is what the program prints at its end.
var printed = regexp.MustCompile(`after (.*)\n`)

// delivered goes on with the program until it is over, and gives what its calls came to;
// "": there is nothing to go on with.
func (p *waitingRun) delivered() string {
	p.t.Helper()
	for range 50 {
		a, err := p.c.answer(p.goOn())
		switch {
		case err != nil:
			p.t.Fatalf("%v\n%s", err, p.c.said())
		case a.Waiting != nil:
			p.grant()
		case a.failed() == nil:
			if m := printed.FindStringSubmatch(a.Stdout); m != nil {
				return m[1]
			}
			p.t.Fatalf("it ended with %q, %q, %+v", a.Stdout, a.Notice, a.Error)
		case a.failed().Code == "not_found":
			return ""
		case a.failed().Code != "conflict": // it goes on by itself, just now
			p.t.Fatalf("it cannot be gone on with: %+v", *a.failed())
		}
	}
	p.t.Fatal("it goes on without end")
	return ""
}

// TestApprovalsSurviveAKillAtEachStep kills paddock at each step that a program takes
// which waits for somebody to allow its calls. Whatever comes next makes no call twice,
// uses no grant twice, and says of what it does not know that it does not.
func TestApprovalsSurviveAKillAtEachStep(t *testing.T) {
	t.Parallel()
	for k, m := range moments {
		t.Run(m.name, func(t *testing.T) {
			t.Parallel()
			p := newWaitingRun(t, []string{"python", "javascript"}[k%2])
			m.come(p)
			p.c.kill()
			if err := os.RemoveAll(filepath.Join(p.tools, heldFile)); err != nil {
				t.Fatal(err)
			}
			before := p.counted()
			p.c = p.start()
			defer p.c.hangUp()
			p.judge(before)
		})
	}
}

// counted is how often each call has come to the server. None may have come twice.
func (p *waitingRun) counted() map[string]int {
	p.t.Helper()
	count, keys := map[string]int{}, map[string]bool{}
	for _, line := range p.lines(callsFile) {
		text, key, _ := strings.Cut(line, " ")
		switch count[text]++; {
		case count[text] > 1:
			p.t.Errorf("a call came twice, or without a key of its own: %q: count[text] = %v, want at most 1",
				p.lines(callsFile), count[text])
		case keys[key]:
			p.t.Errorf("a call came twice, or without a key of its own: %q: keys[key] = true, want false",
				p.lines(callsFile))
		case key == "":
			p.t.Errorf("a call came twice, or without a key of its own: %q: key is empty, want a text",
				p.lines(callsFile))
		case key == "<nil>":
			p.t.Errorf(`a call came twice, or without a key of its own: %q: key = %q, want other than "<nil>"`,
				p.lines(callsFile), key)
		}
		keys[key] = true
	}
	return count
}

// judge goes on with the program after a kill, and compares what it and the server know.
func (p *waitingRun) judge(before map[string]int) {
	t := p.t
	t.Helper()
	out := ""
	if p.running != "" {
		out = p.delivered()
	}
	now := p.counted()
	left, err := p.c.answer(p.run(leftBehind[p.language], 60))
	if err != nil || left.failed() != nil {
		t.Fatalf("%+v, %v", left, err)
	}
	interrupted := strings.Contains(left.Notice, "was interrupted when the server ended")
	whole := strings.HasPrefix(strings.ToLower(left.Stdout), "true")
	t.Logf("it gave %q, and left %q; calls: %v, then %v; notice: %s", out, left.Stdout, before, now, left.Notice)
	switch a, b, two := strings.Cut(out, ", "); {
	case out != "" && !two:
		t.Errorf("it gave %q", out)
	case two:
		for text, came := range map[string]string{"a": a, "b": b} {
			known := came == "did "+text && now[text] == 1 || came == "denied" && now[text] == 0 || came == "unknown"
			if !known {
				t.Errorf("the program was told %q about %s, which came %d times", came, text, now[text])
			}
		}
	case p.running == "": // its client was not told of a run, and it does not go on
		if !maps.Equal(before, now) {
			t.Errorf("calls are made by nobody: %v, then %v", before, now)
		}
	case !interrupted && !whole:
		t.Errorf("it is lost, and nobody says so: %q, notice %q", left.Stdout, left.Notice)
	}
	p.isAskedAnew()
}

// isAskedAnew sees to it that nothing that was granted counts for another call.
func (p *waitingRun) isAskedAnew() {
	p.t.Helper()
	before := p.lines(callsFile)
	switch a, err := p.c.answer(p.run(asks[p.language], 1)); {
	case err != nil:
		p.t.Errorf("another call of the tool: %v", err)
	case a.failed() != nil:
		p.t.Errorf("another call of the tool: a.failed() = %+v, want nil: %+v", *a.failed(), a)
	case a.Waiting == nil && a.Error == nil:
		p.t.Errorf("another call of the tool: Waiting and Error are nil, want one of them: %+v", a)
	}
	if now := p.lines(callsFile); len(now) != len(before) {
		p.t.Errorf("another call of the tool was made: %q, then %q", before, now)
	}
}
