package mcpserver

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"paddock/internal/expect"
	"paddock/internal/mcpserver/transport"
	"paddock/internal/session"
)

const handshake = `{"jsonrpc":"2.0","id":"init","method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"hostile","version":"1"}}}
{"jsonrpc":"2.0","method":"notifications/initialized"}
`

func calling(tool, arguments string) string {
	return fmt.Sprintf(`{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":%s,"arguments":%s}}`, transport.Encoded(tool), arguments)
}

// TestHostileLinesAreContained sends one line after a handshake, looks at the
// answer, and expects the connection to go on.
func TestHostileLinesAreContained(t *testing.T) {
	deep := strings.Repeat("[", 100_000) + strings.Repeat("]", 100_000)
	tests := []struct{ name, line, want string }{
		{"deep nesting", `{"jsonrpc":"2.0","id":7,"method":"ping","params":{"a":` + deep + `}}`, `"code":-32600`},
		{"deep nesting that does not end", strings.Repeat(`{"a":`, 1_000_000), `"code":-32600`},
		{"deep nesting in arguments", calling("list_files", `{"glob":`+deep+`}`), `"code":-32600`},
		{"moderate nesting in arguments", calling("list_files", `{"glob":`+strings.Repeat("[", 100)+strings.Repeat("]", 100)+`}`), "glob is a string"},
		{"a line of 17 MiB", calling("execute_code", `{"language":"python","code":"`+strings.Repeat("a", 17<<20)+`"}`), "a line of more than 16777216 bytes"},
		{"code of 2 MiB", calling("execute_code", `{"language":"python","code":"`+strings.Repeat("a", 2<<20)+`"}`), "code has 1 to 1048576 characters"},
		{"a batch of a million", "[" + strings.Repeat("1,", 1_000_000) + "1]", "a batch has 1 to 100 messages"},
		{"a batch in a batch", `[[{"jsonrpc":"2.0","id":7,"method":"ping"}]]`, `"code":-32600`},
		{"bytes that are no UTF-8", calling("execute_code", "{\"language\":\"python\",\"code\":\"\xff\xfe\"}"), `"code":-32700`},
		{"overlong UTF-8", calling("read_file", "{\"path\":\"\xc0\xae\xc0\xae/x\"}"), `"code":-32700`},
		{"a NUL", "{\"jsonrpc\":\"2.0\",\"id\":7,\"method\":\"ping\x00\"}", `"code":-32700`},
		{"NaN", calling("execute_code", `{"language":"python","code":"1","timeout":NaN}`), `"code":-32700`},
		{"a huge number", calling("execute_code", `{"language":"python","code":"1","timeout":1`+strings.Repeat("0", 5000)+`}`), "timeout is a whole number"},
		{"a huge exponent", calling("read_file", `{"path":"a","offset":1e1000000000}`), "offset is a whole number"},
		{"a negative offset", calling("read_file", `{"path":"a","offset":-1}`), "offset is a whole number"},
		{"a huge id", `{"jsonrpc":"2.0","id":1e400,"method":"ping"}`, `"id":null,"error":{"code":-32600`},
		{"keys that differ in case", `{"jsonrpc":"2.0","id":7,"METHOD":"ping"}`, `"code":-32600`},
		{"a key twice in arguments", calling("execute_code", `{"code":"1","code":"2"}`), `stands twice`},
		{"a key twice, once escaped", calling("execute_code", `{"code":"1","\u0063ode":"2"}`), `stands twice`},
		{"a tool that there is not", calling("rm -rf /\u001b[31m", `{}`), "unknown tool"},
		{"arguments of the wrong type", calling("execute_code", `[1]`), "not a JSON object"},
		{"every argument of the wrong type", calling("execute_code", `{"code":{},"language":[],"timeout":true,"session_id":1}`), "code is a string; language is a string; timeout is a whole"},
		{"a session id of 10 kB", calling("execute_code", `{"code":"1","session_id":"`+strings.Repeat("a", 10_000)+`"}`), "session_id has 1 to 100"},
		{"a session id as path", calling("destroy_session", `{"session_id":"../../other"}`), "session_id has 1 to 100"},
		{"a session id that is empty", calling("destroy_session", `{"session_id":""}`), "session_id has 1 to 100"},
		{"a path that climbs", calling("read_file", `{"path":"a/../../session.json"}`), "denied: the path holds .."},
		{"an absolute path", calling("read_file", `{"path":"/etc/passwd"}`), "lies outside of the workspace"},
		{"a path with a NUL", calling("write_file", `{"path":"a\u0000b","content":""}`), "bytes that no file name can have"},
		{"a path of Windows", calling("write_file", `{"path":"C:\\x","content":""}`), "backslash"},
		{"a pattern that would backtrack", calling("search_files", `{"pattern":"(a+)+$"}`), `"matches":[]`},
		{"a pattern with a huge repetition", calling("search_files", `{"pattern":"(a{1000}){1000}"}`), "malformed"},
		{"a glob that explodes", calling("list_files", `{"glob":"`+strings.Repeat("{a,b}", 40)+`"}`), "invalid"},
		{"a forged progress token", `{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":"execute_code","arguments":{"language":"python","code":"1"},"_meta":{"progressToken":{"a":[1]}}}}`, `"id":7`},
		{"a cancel without an id", `{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":{}}}`, ""},
		{"an answer that nobody asked for", `{"jsonrpc":"2.0","id":99,"result":{"roots":[]}}`, ""},
		{"a second handshake", strings.SplitAfter(handshake, "\n")[0], `"id":"init","error":{"code":-32600`},
		{"a resource that climbs", `{"jsonrpc":"2.0","id":7,"method":"resources/read","params":{"uri":"paddock://sessions/../files/x"}}`, `"code":-32602`},
		{"a cursor from nowhere", `{"jsonrpc":"2.0","id":7,"method":"tools/list","params":{"cursor":"AAAA"}}`, `"code":-32602`},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			inBubble(t, func(t *testing.T) {
				w := serve(t, t.Context(), newServer(t, Config{}, session.Config{}))
				w.send(t, handshake)
				synctest.Wait()
				w.received()
				w.send(t, test.line+"\n")
				synctest.Wait()
				if got := strings.Join(w.received(), "\n"); !strings.Contains(got, test.want) {
					t.Errorf(`strings.Join(w.received(), "\n"): got %q, want %q in it`, got, test.want)
				} else if len(got) > 4000 {
					t.Errorf("len(got): got %v, want at most 4000", len(got))
				}
				w.send(t, `{"jsonrpc":"2.0","id":"after","method":"ping"}`+"\n")
				synctest.Wait()
				if got := w.received(); len(got) != 1 {
					t.Errorf("afterwards the connection: len(got): got %d, want 1: %v", len(got), got)
				} else if got[0] != `{"jsonrpc":"2.0","id":"after","result":{}}` {
					t.Errorf("afterwards the connection: got[0]: got %q, want %q",
						got[0], `{"jsonrpc":"2.0","id":"after","result":{}}`)
				}
				w.in.Close()
				if err := <-w.ended; err != nil {
					t.Errorf("serving ended with %v", err)
				}
			})
		})
	}
}

func TestALineThatTheInputEndsInIsRead(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		w := serve(t, t.Context(), newServer(t, Config{}, session.Config{}))
		w.send(t, handshake+`{"jsonrpc":"2.0","id":1,"meth`)
		w.in.Close()
		if err := <-w.ended; err != nil {
			t.Error(err)
		}
		if got := strings.Join(w.received(), "\n"); !strings.Contains(got, `"code":-32700`) {
			t.Errorf("got %s", got)
		}
	})
}

// TestAClientsMistakesAreNoErrorsInTheLog: they would fill it.
func TestAClientsMistakesAreNoErrorsInTheLog(t *testing.T) {
	hello, ready, _ := strings.Cut(handshake, "\n")
	for name, level := range map[string]slog.Level{"usually nothing": slog.LevelInfo, "at most debug lines": slog.LevelDebug} {
		t.Run(name, func(t *testing.T) {
			var log bytes.Buffer
			s := newServer(t, Config{Log: slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: level}))}, session.Config{})
			w := serve(t, t.Context(), s)
			w.send(t, calling("list_files", "{}")+"\n"+ready+handshake+ready+strings.Replace(hello, `"init"`, `"again"`, 1)+"\n")
			w.in.Close()
			if err := <-w.ended; err != nil {
				t.Error(err)
			}
			if text := log.String(); strings.Contains(text, "level=ERROR") {
				t.Errorf("the log: got %q, want no %q in it", text, "level=ERROR")
			} else if strings.Contains(text, "initializ") != (level == slog.LevelDebug) {
				t.Errorf("the log is\n%s", text)
			}
		})
	}
}

func TestAPanicCostsOneCall(t *testing.T) {
	var log bytes.Buffer
	s := newServer(t, Config{Log: slog.New(slog.NewTextHandler(&log, nil))}, session.Config{})
	object := map[string]string{"type": "object"}
	s.mcp.AddTool(&mcp.Tool{Name: "panics", InputSchema: object}, func(context.Context, *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		panic("a secret")
	})
	s.mcp.AddResource(&mcp.Resource{URI: "test://panics", Name: "panics"}, func(context.Context, *mcp.ReadResourceRequest) (*mcp.ReadResourceResult, error) {
		panic(errors.New("a secret"))
	})
	cs := connect(t, s, "test", nil)
	res, err := cs.CallTool(t.Context(), &mcp.CallToolParams{Name: "panics"})
	if err != nil {
		t.Fatalf("the tool: got error %v, want none", err)
	}
	expect.Equal(t, "the tool: res.IsError", res.IsError, true)
	expect.NoPart(t, "the tool: string(transport.Encoded(res))", string(transport.Encoded(res)), "secret")
	if problem := field[map[string]any](t, res, "error"); problem["code"] != "internal" {
		t.Errorf("the error is %v", problem)
	}
	if _, err := cs.ReadResource(t.Context(), &mcp.ReadResourceParams{URI: "test://panics"}); err == nil {
		t.Error("the resource: got no error, want one")
	} else if strings.Contains(err.Error(), "secret") {
		t.Errorf("the resource: got error %v, want no %q in it", err, "secret")
	}
	if res := use(t, cs, "execute_code", map[string]any{"language": "python", "code": "1 + 1"}); field[string](t, res, "result") != "2" {
		t.Error("a later call fails")
	}
	if text := log.String(); strings.Count(text, "a secret") < 2 {
		t.Errorf(`the log: strings.Count(text, "a secret"): got %v, want at least 2`,
			strings.Count(text, "a secret"))
	} else if !strings.Contains(text, "goroutine") {
		t.Errorf("the log: got %q, want %q in it", text, "goroutine")
	}
}

// TestNothingForeignGetsIntoTheLog: neither what ran, nor what it printed, nor
// a line that a client would like to see there.
func TestNothingForeignGetsIntoTheLog(t *testing.T) {
	forged := "x\ntime=2030 level=ERROR msg=\"all is lost\" \x1b[31m"
	for name, handler := range map[string]func(io.Writer, *slog.HandlerOptions) slog.Handler{
		"text": func(w io.Writer, o *slog.HandlerOptions) slog.Handler { return slog.NewTextHandler(w, o) },
		"json": func(w io.Writer, o *slog.HandlerOptions) slog.Handler { return slog.NewJSONHandler(w, o) },
	} {
		t.Run(name, func(t *testing.T) {
			var log bytes.Buffer
			s := newServer(t, Config{Log: slog.New(handler(&log, &slog.HandlerOptions{Level: slog.LevelDebug}))}, session.Config{})
			cs := connect(t, s, forged, nil)
			use(t, cs, "execute_code", map[string]any{"language": "python", "code": `print("a " + "secret")`})
			use(t, cs, "execute_code", map[string]any{"language": "python", "code": "1", "session_id": forged})
			use(t, cs, "cancel_execution", map[string]any{"execution_id": forged})
			use(t, cs, "write_file", map[string]any{"path": forged, "content": "a secret"})
			use(t, cs, "search_files", map[string]any{"pattern": "a secret"})
			text := log.String()
			if strings.Contains(text, "secret") {
				t.Errorf("the log: text: got %q, want no %q in it", text, "secret")
			}
			if strings.ContainsRune(text, 0x1b) {
				t.Errorf("the log: got\n%s\nwant no escape in it", text)
			}
			lines := strings.Split(strings.TrimSuffix(text, "\n"), "\n")
			for _, line := range lines {
				if !strings.HasPrefix(line, "time=20") && !strings.HasPrefix(line, `{"time":`) {
					t.Errorf("the log: got the line %q, want it to begin as paddock's do", line)
				}
				if strings.HasPrefix(line, "time=2030") {
					t.Errorf("line: got %q, want it not to begin with %q", line, "time=2030")
				}
			}
			expect.Equal(t, "len(lines)", len(lines), 5)
			expect.Part(t, "text", text, "execute_code")
			expect.Part(t, "text", text, "x-")
		})
	}
}

func TestWhatRunsIsCancelledWhenServingEnds(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		ctx, stop := context.WithCancel(t.Context())
		w := serve(t, ctx, newServer(t, Config{}, session.Config{}))
		w.send(t, handshake+calling("execute_code", `{"language":"python","code":"print(1)\nsleep(600)","timeout":900}`)+"\n")
		synctest.Wait()
		w.received()
		began := time.Now()
		stop()
		if err := <-w.ended; err != nil {
			t.Errorf("serving ended with %v", err)
		}
		got := strings.Join(w.received(), "\n")
		if !strings.Contains(got, `"stopped_by":"cancelled"`) {
			t.Errorf("got %q, want %q in it", got, `"stopped_by":"cancelled"`)
		}
		if !strings.Contains(got, `"stdout":"1\n"`) {
			t.Errorf("got %q, want %q in it", got, `"stdout":"1\n"`)
		}
		if took := time.Since(began); took > time.Second {
			t.Errorf("it took %v", took)
		}
	})
}

func TestServingEndsEvenIfACallDoesNot(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		s := newServer(t, Config{}, session.Config{})
		release := make(chan struct{})
		s.mcp.AddTool(&mcp.Tool{Name: "stubborn", InputSchema: map[string]string{"type": "object"}}, func(context.Context, *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
			<-release
			return &mcp.CallToolResult{}, nil
		})
		w := serve(t, t.Context(), s)
		w.send(t, handshake+calling("stubborn", `{}`)+"\n")
		synctest.Wait()
		w.in.Close()
		began := time.Now()
		if err := <-w.ended; err == nil {
			t.Error("serving ended as if the call had been answered")
		}
		// Half a minute for answers, and a few seconds for what runs to stop.
		if got, want := time.Since(began), 35*time.Second; got != want {
			t.Errorf("serving ended after %v, want %v", got, want)
		}
		close(release)
	})
}

// blocked is an output that has no reader, until it is closed.
type blocked struct{ closed chan struct{} }

func (b blocked) Write([]byte) (int, error) { <-b.closed; return 0, io.ErrClosedPipe }
func (b blocked) Close() error              { close(b.closed); return nil }

func TestAClientThatDoesNotReadIsLeft(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		s := newServer(t, Config{}, session.Config{})
		in, toServer := io.Pipe()
		ended := make(chan error, 1)
		go func() { ended <- s.ServeStdio(t.Context(), in, blocked{make(chan struct{})}) }()
		if _, err := io.WriteString(toServer, handshake); err != nil {
			t.Fatal(err)
		}
		synctest.Wait() // an answer waits to be taken
		toServer.Close()
		if err := <-ended; err == nil {
			t.Error("it ended as if the answers had been taken")
		}
	})
}
