package crash

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
)

// served is one paddock serve.
type served struct {
	*place
	cmd *exec.Cmd
	url string // of MCP
}

var addressLine = regexp.MustCompile(`served at (http\S+)`)

func serve(t *testing.T, settings string) *served {
	t.Helper()
	s := &served{place: newPlace(t, settings)}
	s.cmd = s.command("serve", "--port", "0", "--tools", "core,files,history")
	out, err := s.cmd.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := s.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewReader(out)
	for said := ""; s.url == ""; {
		line, err := lines.ReadString('\n')
		said += line
		if m := addressLine.FindStringSubmatch(line); m != nil {
			s.url = m[1]
		}
		if err != nil {
			t.Fatalf("it does not serve: %v\n%s", err, said)
		}
	}
	read := make(chan struct{})
	go func() {
		defer close(read)
		_, _ = io.Copy(io.Discard, lines) // until it ends
	}()
	t.Cleanup(func() {
		_ = s.cmd.Process.Signal(syscall.SIGTERM) // it may have ended
		<-read
		_ = s.cmd.Wait() // how it ended is not the question
	})
	return s
}

// token makes one.
func (s *served) token(name string) string {
	s.t.Helper()
	token, err := s.do("token", "create", name)
	if err != nil {
		s.t.Fatal(err)
	}
	return token
}

// ask sends a request with a token.
func (s *served) ask(method, url, token, body string) (int, string) {
	s.t.Helper()
	r, err := http.NewRequest(method, url, strings.NewReader(body))
	if err != nil {
		s.t.Fatal(err)
	}
	r.Header.Set("Authorization", "Bearer "+token)
	r.Header.Set("Content-Type", "application/json")
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		s.t.Fatal(err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		s.t.Fatal(err)
	}
	return resp.StatusCode, string(text)
}

// call calls a tool with a token.
func (s *served) call(token, tool string, arguments map[string]any) *answer {
	s.t.Helper()
	body, err := json.Marshal(map[string]any{"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": map[string]any{"name": tool, "arguments": arguments}})
	if err != nil {
		s.t.Fatal(err)
	}
	status, text := s.ask(http.MethodPost, s.url, token, string(body))
	if i := strings.LastIndex(text, "\ndata: "); i >= 0 { // a stream: its last event is the answer
		text = text[i+len("\ndata: "):]
	}
	var reply struct {
		Result struct{ StructuredContent *answer }
	}
	if err := json.NewDecoder(bytes.NewReader([]byte(text))).Decode(&reply); err != nil || reply.Result.StructuredContent == nil {
		s.t.Fatalf("%s: %d %s (%v)", tool, status, text, err)
	}
	return reply.Result.StructuredContent
}

// fine is call for what has to work.
func (s *served) fine(token, tool string, arguments map[string]any) *answer {
	s.t.Helper()
	got := s.call(token, tool, arguments)
	if p := got.failed(); p != nil {
		s.t.Fatalf("%s: %+v", tool, *p)
	}
	return got
}

// Attack 66: somebody else's sessions and checkpoints are not there for anybody,
// awake or asleep, and destroyed ones for nobody.
func TestSomebodyElsesPastIsOutOfReach(t *testing.T) {
	t.Parallel()
	s := serve(t, sleepy)
	one, two := s.token("one"), s.token("two")
	made := s.fine(one, "execute_code", map[string]any{"language": "python", "code": "open('f', 'w').write('secret'); x = 'secret'"})
	kept := s.fine(one, "checkpoint_session", map[string]any{"session_id": made.ID, "label": "mine"})
	s.fine(one, "execute_code", execution(made.ID, "python", "x = 'newer'"))
	attack := func(token, when string) {
		t.Helper()
		for tool, more := range map[string]map[string]any{
			"restore_session": {"checkpoint": "mine"}, "undo": {}, "fork_session": {}, "list_checkpoints": {}, "checkpoint_session": {"label": "yours"},
			"execute_code": {"code": "x"}, "get_workspace_info": {}, "read_file": {"path": "f"}, "reset_workspace": {}, "destroy_session": {},
		} {
			more["session_id"] = made.ID
			switch got := s.call(token, tool, more); {
			case got.failed() == nil:
				t.Errorf("%s, %s: no fault, want one: %+v", when, tool, got)
			case got.failed().Code != "not_found":
				t.Errorf(`%s, %s: the fault is %+v, want the code "not_found"`, when, tool, *got.failed())
			case strings.Contains(fmt.Sprint(got), "secret"):
				t.Errorf(`%s, %s: the answer is %+v, want no "secret" in it`, when, tool, got)
			}
		}
		for _, number := range []string{kept.Checkpoint, "1"} {
			if got := s.call(token, "fork_session", map[string]any{"session_id": made.ID, "checkpoint": number}); got.failed() == nil || got.failed().Code != "not_found" {
				t.Errorf("%s, a fork of checkpoint %s: %+v", when, number, got)
			}
		}
		if status, text := s.ask(http.MethodGet, strings.TrimSuffix(s.url, "/mcp")+"/v1/sessions/"+made.ID+"/archive", token, ""); status != http.StatusNotFound {
			t.Errorf("%s, its archive: %d %s", when, status, text)
		}
	}
	attack(two, "awake")
	if out, err := s.do("session", "export", "--principal", "two", made.ID, filepath.Join(t.TempDir(), "archive")); err == nil || !strings.Contains(err.Error(), "no session") {
		t.Errorf("an export in another name: %s %v", out, err)
	}
	for n := 0; n == 0; { // until it sleeps
		out, err := s.do("session", "ls", "--all", "--json")
		if err != nil {
			t.Fatal(err)
		}
		n = strings.Count(out, `"asleep"`)
	}
	attack(two, "asleep")
	if got := s.fine(one, "restore_session", map[string]any{"session_id": made.ID, "checkpoint": "mine"}); got.Checkpoint != kept.Checkpoint {
		t.Errorf("its owner restored %+v", got)
	}
	if got := s.fine(one, "execute_code", execution(made.ID, "python", "print(x)")); got.Stdout != "secret\n" {
		t.Errorf("its owner sees %q", got.Stdout)
	}
	s.fine(one, "destroy_session", map[string]any{"session_id": made.ID})
	attack(one, "destroyed")
	attack(two, "destroyed")
}

// full tells whether a call was refused as a quota is used up.
func full(a *answer) bool {
	p := a.failed()
	return p != nil && p.Code == "exhausted" && p.Hint != ""
}

// Attack 66: what sleeps counts against the quotas.
func TestNobodySleepsPastAQuota(t *testing.T) {
	t.Parallel()
	s := serve(t, "[sessions]\nsleep_after_seconds = 1\nmax_sessions_per_client = 2\nmax_stored_per_client = 4\n")
	one, two := s.token("one"), s.token("two")
	var ids []string
	for range 4 { // others are put to sleep for them
		ids = append(ids, s.fine(one, "create_session", map[string]any{}).ID)
	}
	if got := s.call(one, "create_session", map[string]any{}); !full(got) {
		t.Errorf("the fifth session: %+v", got)
	}
	if got := s.call(one, "fork_session", map[string]any{"session_id": ids[0]}); !full(got) {
		t.Errorf("a fork as the fifth session: %+v", got)
	}
	s.fine(two, "create_session", map[string]any{}) // another's are another's
	s.fine(one, "destroy_session", map[string]any{"session_id": ids[0]})
	s.fine(one, "fork_session", map[string]any{"session_id": ids[1]})
}

// The same of the disk.
func TestSleepersFilesCount(t *testing.T) {
	t.Parallel()
	const limit = 16
	s := serve(t, fmt.Sprintf("[sessions]\nmax_sessions_per_client = 2\nmax_disk_mb = 2\n[limits]\nmax_disk_per_client_mb = %d\n", limit))
	one, two := s.token("one"), s.token("two")
	file := strings.Repeat("a line of sixteen", 100_000)
	var ids []string
	for {
		made := s.call(one, "create_session", map[string]any{})
		if full(made) {
			break
		}
		ids = append(ids, made.ID)
		if got := s.call(one, "write_file", map[string]any{"session_id": made.ID, "path": "f", "content": file}); full(got) {
			break
		}
		if len(ids) > limit {
			t.Fatalf("there are %d sessions with files of %d bytes", len(ids), len(file))
		}
	}
	if len(ids) < 3 || len(ids)*len(file) < limit<<19 {
		t.Errorf("it is full with %d sessions", len(ids))
	}
	s.fine(two, "write_file", map[string]any{"session_id": s.fine(two, "create_session", map[string]any{}).ID, "path": "f", "content": file})
	for _, id := range ids[2:] {
		s.fine(one, "destroy_session", map[string]any{"session_id": id})
	}
	s.fine(one, "write_file", map[string]any{"session_id": ids[0], "path": "g", "content": file[:100_000]})
}
