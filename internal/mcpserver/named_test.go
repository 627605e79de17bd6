package mcpserver

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"paddock/internal/expect"
	"paddock/internal/mcpserver/transport"
	"paddock/internal/session"
)

// spokenReply is what a test reads of a response to tools/call.
type spokenReply struct {
	Result struct {
		Content []struct{ Type, Text string }
		Data    struct {
			Result    string
			SessionID session.ID `json:"session_id"`
			Error     struct{ Code string }
		} `json:"structuredContent"`
	}
}

func (r spokenReply) texts() string {
	var all []string
	for _, c := range r.Result.Content {
		all = append(all, c.Text)
	}
	return strings.Join(all, "\n")
}

// modernCall calls execute_code as a client of 2026-07-28 does.
func modernCall(t *testing.T, url, code, more string, headers ...string) (r spokenReply) {
	t.Helper()
	arguments, _ := json.Marshal(map[string]any{"language": "python", "code": code})
	if more != "" {
		arguments = []byte(strings.TrimSuffix(string(arguments), "}") + "," + more + "}")
	}
	body := fmt.Sprintf(`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"execute_code","arguments":%s%s}`, arguments, fmt.Sprintf(modernMeta, "")) + "}"
	answer := bodyOf(t, post(t, url, body, append(modernHeaders("tools/call", "execute_code"), headers...)...))
	if _, event, ok := strings.Cut(answer, "data: "); ok && !strings.HasPrefix(answer, "{") { // it took its time
		answer = event
	}
	if err := json.Unmarshal([]byte(answer), &r); err != nil {
		t.Fatalf("%s: %v", answer, err)
	}
	return r
}

func TestACallThatMadeItsSessionSaysSoInItsText(t *testing.T) {
	_, _, url := newHTTP(t, transport.Config{})
	first := modernCall(t, url, "x = 1", "")
	line := fmt.Sprintf("session: %s (pass session_id to go on)", first.Result.Data.SessionID)
	if !strings.Contains(first.texts(), line) {
		t.Errorf("the texts are %q", first.texts())
	}
	named := fmt.Sprintf(`"session_id":%q`, first.Result.Data.SessionID)
	next := modernCall(t, url, "x", named, "Mcp-Param-Session-Id: "+string(first.Result.Data.SessionID))
	if next.Result.Data.Result != "1" {
		t.Errorf("with session_id: next.Result.Data.Result: got %q, want %q", next.Result.Data.Result, "1")
	}
	if strings.Contains(next.texts(), "session:") {
		t.Errorf("with session_id: next.texts(): got %q, want no %q in it", next.texts(), "session:")
	}
	legacy := initialize(t, url)
	if body := bodyOf(t, post(t, url, called(2, "1", "}"[:0]), legacy...)); strings.Contains(body, "pass session_id") {
		t.Errorf("a client with a session of its own: %s", body)
	}
	plain := bodyOf(t, post(t, url, `{"jsonrpc":"2.0","id":3,"method":"tools/call","params":{"name":"write_file","arguments":{"path":"a","content":"b"}}}`))
	if !strings.Contains(plain, "(pass session_id to go on)") {
		t.Errorf("a file is written: %s", plain)
	}
}

func TestAnAddressNamesASession(t *testing.T) {
	s, _, url := newHTTP(t, transport.Config{})
	mine, hers := "Owner: ann", "Owner: eve"
	first := modernCall(t, url+"/s/work", "x = 41", "", mine)
	if first.Result.Data.SessionID != "work" {
		t.Errorf("the first call: first.Result.Data.SessionID: got %q, want %q",
			first.Result.Data.SessionID, "work")
	}
	if !strings.Contains(first.texts(), "session: work (new") {
		t.Errorf("the first call: first.texts(): got %q, want %q in it", first.texts(), "session: work (new")
	}
	for name, r := range map[string]spokenReply{
		"the next":   modernCall(t, url+"/s/work", "x", "", mine),
		"the header": modernCall(t, url, "x", "", mine, "Paddock-Session: work"),
		"both":       modernCall(t, url+"/s/work", "x", "", mine, "Paddock-Session: work"),
	} {
		if r.Result.Data.Result != "41" {
			t.Errorf("%s: r.Result.Data.Result: got %q, want %q", name, r.Result.Data.Result, "41")
		}
		if strings.Contains(r.texts(), "session:") {
			t.Errorf("%s: r.texts(): got %q, want no %q in it", name, r.texts(), "session:")
		}
	}
	legacy := bodyOf(t, post(t, url+"/s/work", called(2, "x", "}"[:0]), initialize(t, url+"/s/work", mine)...))
	if !strings.Contains(legacy, `"result":"41"`) {
		t.Errorf("a legacy client: %s", legacy)
	}
	if r := modernCall(t, url+"/s/work", "x = 7", "", hers); !strings.Contains(r.texts(), "session: work (new") {
		t.Errorf("another principal's session of the same name: %+v", r)
	}
	if r := modernCall(t, url+"/s/work", "x", "", mine); r.Result.Data.Result != "41" {
		t.Errorf("after another principal's: %+v", r)
	}
	if err := s.config.Sessions.Destroy(t.Context(), "ann", "work"); err != nil {
		t.Fatal(err)
	}
	if r := modernCall(t, url+"/s/work", "x = 2", "", mine); !strings.Contains(r.texts(), "session: work (new") {
		t.Errorf("after its end: %+v", r)
	}
	gone := "s-abcdefghijklmnopqrstuvwxyz"
	if r := modernCall(t, url+"/s/"+gone, "1", "", mine); r.Result.Data.Error.Code != "not_found" {
		t.Errorf("an id of paddock's own making: %+v", r)
	}
	if _, err := s.config.Sessions.Info("ann", session.ID(gone)); err == nil {
		t.Error("it was made again")
	}
}

func TestANameThatACallGivesMakesASession(t *testing.T) {
	s, _, url := newHTTP(t, transport.Config{})
	call := func(tool, arguments, owner string) (r spokenReply) {
		body := bodyOf(t, post(t, url, fmt.Sprintf(`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":%q,"arguments":%s}}`, tool, arguments), "Owner: "+owner))
		if err := json.Unmarshal([]byte(body), &r); err != nil {
			t.Fatalf("%s: %v", body, err)
		}
		return r
	}
	run := func(code string) string {
		return fmt.Sprintf(`{"language":"python","code":%q,"session_id":"notes"}`, code)
	}
	if r := call("execute_code", run("x = 41"), "ann"); r.Result.Data.SessionID != "notes" {
		t.Errorf("the first call: r.Result.Data.SessionID: got %q, want %q", r.Result.Data.SessionID, "notes")
	} else if !strings.Contains(r.texts(), "session: notes (new") {
		t.Errorf("the first call: r.texts(): got %q, want %q in it", r.texts(), "session: notes (new")
	}
	if r := call("execute_code", run("x"), "ann"); r.Result.Data.Result != "41" {
		t.Errorf("the next: r.Result.Data.Result: got %q, want %q", r.Result.Data.Result, "41")
	} else if strings.Contains(r.texts(), "session:") {
		t.Errorf("the next: r.texts(): got %q, want no %q in it", r.texts(), "session:")
	}
	if r := call("execute_code", run("x = 1"), "eve"); !strings.Contains(r.texts(), "session: notes (new") {
		t.Errorf("another principal's of the same name: %+v", r)
	}
	if r := call("execute_code", run("x"), "ann"); r.Result.Data.Result != "41" {
		t.Errorf("after another principal's: %+v", r)
	}
	if r := call("write_file", `{"path":"a","content":"b","session_id":"files"}`, "ann"); r.Result.Data.SessionID != "files" {
		t.Errorf("a file: r.Result.Data.SessionID: got %q, want %q", r.Result.Data.SessionID, "files")
	} else if !strings.Contains(r.texts(), "session: files (new") {
		t.Errorf("a file: r.texts(): got %q, want %q in it", r.texts(), "session: files (new")
	}
	for tool, arguments := range map[string]string{
		"read_file": `{"path":"a","session_id":"none"}`, "reset_workspace": `{"session_id":"none"}`, "get_workspace_info": `{"session_id":"none"}`,
		"execute_code": `{"language":"python","code":"1","session_id":"s-abcdef"}`, "destroy_session": `{"session_id":"none"}`,
	} {
		if r := call(tool, arguments, "ann"); r.Result.Data.Error.Code != "not_found" {
			t.Errorf("%s: %+v", tool, r)
		}
	}
	if r := call("execute_code", `{"language":"python","code":"1","session_id":"../x"}`, "ann"); r.Result.Data.Error.Code != "invalid" {
		t.Errorf("no name: %+v", r)
	}
	if all, err := s.config.Sessions.List("ann"); err != nil {
		t.Error(err)
	} else if len(all) != 2 {
		t.Errorf("len(all): got %d, want 2: %v", len(all), all)
	}
}

func TestHostileNamesInAddressesAreRefused(t *testing.T) {
	s, _, url := newHTTP(t, transport.Config{})
	for name, to := range map[string][]string{
		"none": {"/s/"}, "dots": {"/s/%2e%2e"}, "slash": {"/s/a%2Fb"}, "below": {"/s/a/b"}, "slash at the end": {"/s/a/"},
		"zero": {"/s/a%00"}, "newline": {"/s/a%0A"}, "long": {"/s/" + strings.Repeat("a", 101)}, "other letters": {"/s/%C3%A4"}, "markup": {"/s/%3Cb%3E"},
		"header": {"", "Paddock-Session: ../x"}, "empty header": {"", "Paddock-Session: "}, "two headers": {"", "Paddock-Session: a", "Paddock-Session: b"},
		"twice the same": {"", "Paddock-Session: a", "Paddock-Session: a"}, "two names": {"/s/a", "Paddock-Session: b"},
	} {
		r := post(t, url+to[0], called(1, "1", ""), append([]string{"Owner: ann"}, to[1:]...)...)
		body := bodyOf(t, r)
		expect.Equal(t, fmt.Sprintf("%s: r.StatusCode", name), r.StatusCode, http.StatusBadRequest)
		expect.Part(t, name, body, `"code":-32600`)
		expect.Equal(t, fmt.Sprintf(`%s: strings.Count(body, "invalid")`, name), strings.Count(body, "invalid"), 1)
	}
	if all, err := s.config.Sessions.List("ann"); err != nil {
		t.Error(err)
	} else if len(all) != 0 {
		t.Errorf(`s.config.Sessions.List("ann"): got %v, want none`, all)
	}
}

func TestWhatIsSaidOfSessionsIsTrueForTheClient(t *testing.T) {
	_, _, url := newHTTP(t, transport.Config{})
	for _, test := range []struct {
		version, path string
		alone         bool
	}{{"2025-11-25", "", false}, {"2026-07-28", "", true}, {"2026-07-28", "/s/a", false}} {
		cs, err := mcp.NewClient(&mcp.Implementation{Name: "test", Version: "1"}, nil).
			Connect(t.Context(), &mcp.StreamableClientTransport{Endpoint: url + test.path}, &mcp.ClientSessionOptions{ProtocolVersion: test.version})
		if err != nil {
			t.Fatal(err)
		}
		defer cs.Close()
		tools, err := cs.ListTools(t.Context(), nil)
		if err != nil {
			t.Fatal(err)
		}
		for _, tool := range tools.Tools {
			text := string(transport.Encoded(tool))
			if stays := strings.Contains(text, staying); tool.Name == "execute_code" && stays == test.alone {
				t.Errorf("%+v: it says that sessions stay: got %v, want %v: %s", test, stays, !test.alone, text)
			}
			if test.alone && strings.Contains(text, aboutSession) {
				t.Errorf("%+v: got %s, want nothing about sessions in it", test, text)
			}
		}
		if told := cs.InitializeResult().Instructions; strings.Contains(told, "NEW session") != test.alone {
			t.Errorf("%+v: the instructions are %q", test, told)
		}
	}
}

func TestCodeInAMarkdownBlockRuns(t *testing.T) {
	_, _, url := newHTTP(t, transport.Config{})
	if r := modernCall(t, url, "```python\nx = 41\n```\n", ""); r.Result.Data.Error.Code != "" {
		t.Errorf("a block: r.Result.Data.Error.Code: got %q, want none", r.Result.Data.Error.Code)
	} else if !strings.Contains(r.texts(), "session:") {
		t.Errorf("a block: r.texts(): got %q, want %q in it", r.texts(), "session:")
	}
	if r := modernCall(t, url+"/s/block", "```python\nx = 41\n```", "", "Owner: ann"); r.Result.Data.SessionID != "block" {
		t.Errorf("a block: %+v", r)
	}
	if r := modernCall(t, url+"/s/block", "```\nx\n```", "", "Owner: ann"); r.Result.Data.Result != "41" {
		t.Errorf("a block without a language: %+v", r)
	}
}
