package mcpserver

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"paddock/internal/expect"
	"paddock/internal/fault"
	"paddock/internal/mcpserver/transport"
	"paddock/internal/session"
)

func TestConnectionsHaveTheirOwnDefaultSession(t *testing.T) {
	s := newServer(t, Config{}, session.Config{})
	one, two := connect(t, s, "one", nil), connect(t, s, "two", nil)
	first := use(t, one, "execute_code", map[string]any{"language": "python", "code": "x = 1"})
	second := use(t, two, "execute_code", map[string]any{"language": "python", "code": "x"})
	if field[string](t, first, "session_id") == field[string](t, second, "session_id") {
		t.Errorf(`field[string](t, first, "session_id"): got %v, want another`,
			field[string](t, first, "session_id"))
	}
	if field[bool](t, second, "success") {
		t.Error("a variable of the other connection: got it, want an error")
	}
	named := use(t, two, "execute_code", map[string]any{"code": "x", "session_id": field[string](t, first, "session_id")})
	if field[string](t, named, "result") != "1" {
		t.Error("the same user's session cannot be named")
	}
}

func TestTheDefaultSessionIsMadeOnce(t *testing.T) {
	s := newServer(t, Config{}, session.Config{})
	cs := connect(t, s, "test", nil)
	var wg sync.WaitGroup
	for range 20 {
		wg.Go(func() {
			if _, err := cs.CallTool(t.Context(), &mcp.CallToolParams{Name: "list_files"}); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	if all, err := s.config.Sessions.List(session.Local); err != nil {
		t.Error(err)
	} else if len(all) != 1 {
		t.Errorf("len(all): got %d, want 1: %v", len(all), all)
	}
}

// inMemory connects without ServeStdio, as another transport would.
func inMemory(t *testing.T, s *Server) *mcp.ClientSession {
	t.Helper()
	clientEnd, serverEnd := mcp.NewInMemoryTransports()
	ss, err := s.mcp.Connect(t.Context(), serverEnd, nil)
	if err != nil {
		t.Fatal(err)
	}
	cs, err := mcp.NewClient(&mcp.Implementation{Name: "test", Version: "1"}, nil).Connect(t.Context(), clientEnd, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { cs.Close(); ss.Wait() })
	return cs
}

func TestRequestsThatNobodyBindsAreDenied(t *testing.T) {
	cs := inMemory(t, newServer(t, Config{}, session.Config{}))
	res := use(t, cs, "execute_code", map[string]any{"language": "python", "code": "1"})
	if problem := field[map[string]any](t, res, "error"); problem["code"] != "denied" {
		t.Errorf("got %v", problem)
	}
	if _, err := cs.ListResources(t.Context(), nil); err == nil {
		t.Error("resources are listed")
	}
	if _, err := cs.ReadResource(t.Context(), &mcp.ReadResourceParams{URI: "paddock://sessions/a/files/b"}); err == nil {
		t.Error("reading a resource: got no error, want one")
	} else if !strings.Contains(err.Error(), "denied") {
		t.Errorf("reading a resource: got error %v, want %q in it", err, "denied")
	}
}

func TestTheBindingDecidesWhoseSessionsThereAre(t *testing.T) {
	var bound Bound
	var refused error
	s := newServer(t, Config{Binding: func(context.Context, transport.Caller) (Bound, error) { return bound, refused }}, session.Config{})
	cs := inMemory(t, s)
	bound = Bound{Owner: "alice", Default: "a"}
	made := use(t, cs, "write_file", map[string]any{"path": "a.txt", "content": "hers"})
	id := field[string](t, made, "session_id")

	bound = Bound{Owner: "bob", Default: "a"} // the same name, another owner
	for name, args := range map[string]map[string]any{
		"execute_code": {"code": "1"}, "read_file": {"path": "a.txt"}, "get_workspace_info": {}, "reset_workspace": {}, "cancel_execution": {}, "destroy_session": {},
	} {
		args["session_id"] = id
		res := use(t, cs, name, args)
		if problem := field[map[string]any](t, res, "error"); problem["code"] != "not_found" {
			t.Errorf("%s of somebody else's session gives %v", name, problem)
		}
	}
	if _, err := cs.ReadResource(t.Context(), &mcp.ReadResourceParams{URI: "paddock://sessions/" + id + "/files/a.txt"}); err == nil {
		t.Error("somebody else's file is read as a resource")
	}
	if list, err := cs.ListResources(t.Context(), nil); err != nil {
		t.Errorf("bob: got error %v, want none", err)
	} else if len(list.Resources) != 0 {
		t.Errorf("bob: list.Resources: got %v, want none", list.Resources)
	}

	bound = Bound{Owner: "bob"} // without a default every call has a session of its own
	one := use(t, cs, "list_files", nil)
	two := use(t, cs, "list_files", nil)
	if field[string](t, one, "session_id") == field[string](t, two, "session_id") {
		t.Error("two calls share a session")
	}

	refused = fault.New(fault.Denied, "the token is not known")
	if problem := field[map[string]any](t, use(t, cs, "list_files", nil), "error"); problem["message"] != "the token is not known" {
		t.Errorf("got %v", problem)
	}
}

func TestClientsAtTheSameTime(t *testing.T) {
	s := newServer(t, Config{}, session.Config{})
	var wg sync.WaitGroup
	for k := range 6 {
		cs := connect(t, s, fmt.Sprint("client", k), nil)
		wg.Go(func() {
			var calls sync.WaitGroup
			for n := range 15 {
				calls.Go(func() { oneOfMany(t, cs, k, n) })
			}
			calls.Wait()
			res, err := cs.CallTool(t.Context(), &mcp.CallToolParams{Name: "get_workspace_info"})
			if err != nil {
				t.Errorf("client %d: got error %v, want none", k, err)
			} else {
				expect.Equal(t, fmt.Sprintf(`client %d: field[float64](t, res, "execution_count")`, k),
					field[float64](t, res, "execution_count"), 10)
				expect.Equal(t, fmt.Sprintf(`client %d: len(field[[]any](t, res, "files"))`, k),
					len(field[[]any](t, res, "files")), 5)
			}
		})
	}
	wg.Wait()
}

// oneOfMany makes one call that can be told from the others, and a second time
// for every third.
func oneOfMany(t *testing.T, cs *mcp.ClientSession, client, n int) {
	name, args := "execute_code", map[string]any{"language": "python", "code": fmt.Sprintf("print(%d)", client*1000+n)}
	if n%3 == 0 {
		name, args = "write_file", map[string]any{"path": fmt.Sprintf("f%d.txt", n), "content": "x"}
	}
	params := &mcp.CallToolParams{Name: name, Arguments: args}
	params.SetProgressToken(fmt.Sprint(n))
	res, err := cs.CallTool(t.Context(), params)
	if err != nil {
		t.Errorf("%s: got error %v, want none", name, err)
		return
	}
	if res.IsError {
		t.Errorf("%s: res.IsError: got true, want false: %v", name, res)
		return
	}
	if name == "execute_code" && field[string](t, res, "stdout") != fmt.Sprintln(client*1000+n) {
		t.Errorf("client %d got %v", client, res.StructuredContent)
	}
}

func TestACancelledCallStopsItsProgram(t *testing.T) {
	printed := make(chan struct{}, 100)
	cs := connect(t, newServer(t, Config{}, session.Config{}), "test", &mcp.ClientOptions{
		ProgressNotificationHandler: func(context.Context, *mcp.ProgressNotificationClientRequest) { printed <- struct{}{} },
	})
	use(t, cs, "execute_code", map[string]any{"language": "python", "code": "z = 1"})
	ctx, cancel := context.WithCancel(t.Context())
	go func() { <-printed; cancel() }()
	params := &mcp.CallToolParams{Name: "execute_code", Arguments: map[string]any{"language": "python", "code": "z = 2\nprint(1)\nloop", "timeout": 600}}
	params.SetProgressToken("p")
	if _, err := cs.CallTool(ctx, params); !errors.Is(err, context.Canceled) {
		t.Errorf("the call gave %v", err)
	}
	if res := use(t, cs, "execute_code", map[string]any{"language": "python", "code": "z"}); field[string](t, res, "result") != "2" {
		t.Error("the state is lost")
	}
}

func TestOneExecutionIsCancelledByItsID(t *testing.T) {
	printed := make(chan struct{}, 1)
	cs := connect(t, newServer(t, Config{}, session.Config{}), "test", &mcp.ClientOptions{
		ProgressNotificationHandler: func(context.Context, *mcp.ProgressNotificationClientRequest) { printed <- struct{}{} },
	})
	use(t, cs, "create_session", map[string]any{"language": "python", "session_id": "mine"})
	params := &mcp.CallToolParams{Name: "execute_code", Arguments: map[string]any{"code": "print(1)\nloop", "session_id": "mine", "timeout": 600}}
	params.SetProgressToken("p")
	ended := make(chan *mcp.CallToolResult, 1)
	go func() {
		res, err := cs.CallTool(t.Context(), params)
		if err != nil {
			t.Error(err)
		}
		ended <- res
	}()
	<-printed // it has begun
	res := use(t, cs, "get_workspace_info", map[string]any{"session_id": "mine"})
	if state, notice := field[string](t, res, "state"), field[string](t, res, "notice"); state != "running" {
		t.Errorf("state: got %q, want %q", state, "running")
	} else if !strings.Contains(notice, "busy") {
		t.Errorf("notice: got %q, want %q in it", notice, "busy")
	}
	if res := use(t, cs, "cancel_execution", map[string]any{"session_id": "mine", "execution_id": "x-other"}); field[bool](t, res, "cancelled") {
		t.Error("an unknown id stopped something")
	}
	if res := use(t, cs, "cancel_execution", map[string]any{"session_id": "mine"}); !field[bool](t, res, "cancelled") {
		t.Error("it cannot be cancelled")
	}
	if res := <-ended; field[string](t, res, "stopped_by") != "cancelled" {
		t.Errorf("got %v", res.StructuredContent)
	}
}

func TestMistakesInAConfigAreTold(t *testing.T) {
	m := newServer(t, Config{}, session.Config{}).config.Sessions
	tests := []struct {
		name   string
		config Config
		want   string
	}{
		{"no sessions", Config{}, "needs sessions"},
		{"a set that there is not", Config{Sessions: m, Tools: []string{"core", "cor"}}, `no set of tools called "cor"`},
		{"instructions that nobody sees whole", Config{Sessions: m, Instructions: strings.Repeat("ä", maxInstructions+1)}, "2049 characters"},
	}
	for _, test := range tests {
		if _, err := New(test.config); err == nil {
			t.Errorf("%s: got no error, want one", test.name)
		} else if !strings.Contains(err.Error(), test.want) {
			t.Errorf("%s: got error %v, want %q in it", test.name, err, test.want)
		}
	}
	s, err := New(Config{Sessions: m, Tools: []string{"files"}, Instructions: "hi"})
	if err != nil {
		t.Fatal(err)
	}
	cs := connect(t, s, "test", nil)
	list, err := cs.ListTools(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	expect.Equal(t, "len(list.Tools)", len(list.Tools), 5)
	expect.Equal(t, "cs.InitializeResult().Instructions", cs.InitializeResult().Instructions, "hi")
}

// TestALongFileIsReadInParts follows what each answer says about the next.
func TestALongFileIsReadInParts(t *testing.T) {
	tests := []struct{ name, content string }{
		{"short lines", strings.Repeat("a line of text\n", 20_000)},
		{"lines of any length", strings.Repeat("x\n"+strings.Repeat("y", 40_000)+"\n\n", 8)},
		{"no end to the last line", strings.Repeat("line\n", 30_000) + "end"},
		{"one long line", strings.Repeat("ä€😀", 30_000)},
		{"CRLF", strings.Repeat("line\r\n", 30_000)},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			cs := connect(t, newServer(t, Config{}, session.Config{}), "test", nil)
			use(t, cs, "write_file", map[string]any{"path": "f", "content": test.content})
			var got strings.Builder
			args := map[string]any{"path": "f"}
			for range 1000 {
				res := use(t, cs, "read_file", args)
				part := field[string](t, res, "content")
				if len(part) > maxReadText {
					t.Fatalf("a part has %d bytes", len(part))
				}
				got.WriteString(part)
				if !field[bool](t, res, "more") {
					break
				}
				args["offset"] = field[float64](t, res, "next_offset")
				if strings.Contains(res.Content[1].(*mcp.TextContent).Text, "bytes: true") {
					args["bytes"] = true
				}
			}
			if got.String() != test.content {
				t.Errorf("the parts are %d bytes and not %d", got.Len(), len(test.content))
			}
		})
	}
}

func TestResourcesAreListedInPages(t *testing.T) {
	cs := connect(t, newServer(t, Config{}, session.Config{}), "test", nil)
	const files = resourcePage + 20
	code := strings.Builder{}
	for k := range files {
		fmt.Fprintf(&code, "write(\"%04d\", \"\")\n", k)
	}
	use(t, cs, "execute_code", map[string]any{"language": "python", "code": code.String()})
	seen := 0
	for r, err := range cs.Resources(t.Context(), nil) {
		if err != nil {
			t.Fatal(err)
		}
		if r.Name != fmt.Sprintf("%04d", seen) {
			t.Fatalf("the resource %d is %s", seen, r.Name)
		}
		seen++
	}
	if seen != files {
		t.Errorf("%d of %d files are listed", seen, files)
	}
	read, err := cs.ReadResource(t.Context(), &mcp.ReadResourceParams{URI: fileURI(onlySession(t, cs), "0001")})
	if err != nil {
		t.Fatalf("an empty file: got error %v, want none", err)
	}
	if len(read.Contents) != 1 {
		t.Errorf("an empty file: len(read.Contents): got %d, want 1: %v", len(read.Contents), read.Contents)
	}
}

func onlySession(t *testing.T, cs *mcp.ClientSession) session.ID {
	t.Helper()
	return session.ID(field[string](t, use(t, cs, "list_files", map[string]any{"glob": "none"}), "session_id"))
}
