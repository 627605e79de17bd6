//go:build unix

package mcpserver

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"strings"
	"testing"
	"time"

	"paddock/internal/mcpserver/transport"
	"paddock/internal/session"
)

// pipes serves over real pipes and starts a program; it gives what the client
// holds of them, once the program runs.
func pipes(t *testing.T, s *Server, code string) (in, out *os.File, lines *bufio.Reader, ended chan error) {
	t.Helper()
	serverIn, in, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	out, serverOut, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { in.Close(); out.Close() })
	ended = make(chan error, 1)
	go func() { ended <- s.ServeStdio(t.Context(), serverIn, serverOut) }()
	call := fmt.Sprintf(`{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":"execute_code","arguments":{"language":"python","timeout":600,"code":%s},"_meta":{"progressToken":"p"}}}`, transport.Encoded(code))
	if _, err := io.WriteString(in, handshake+call+"\n"); err != nil {
		t.Fatal(err)
	}
	lines = bufio.NewReader(out)
	for {
		line, err := lines.ReadString('\n')
		if err != nil {
			t.Fatal(err)
		}
		if strings.Contains(line, "notifications/progress") {
			return in, out, lines, ended
		}
	}
}

func TestAClientThatIsGoneStopsItsProgram(t *testing.T) {
	for name, first := range map[string]string{"the input is closed first": "in", "the output is closed first": "out"} {
		t.Run(name, func(t *testing.T) {
			s := newServer(t, Config{}, session.Config{})
			in, out, _, ended := pipes(t, s, "x = 42\nprint(1)\nloop")
			one, two := in, out
			if first == "out" {
				one, two = out, in
			}
			one.Close()
			time.Sleep(200 * time.Millisecond) // the program runs on, and it is looked again
			two.Close()
			select {
			case err := <-ended:
				if err != nil {
					t.Errorf("serving ended with %v", err)
				}
			case <-time.After(10 * time.Second):
				t.Fatal("the program runs on")
			}
			all, err := s.config.Sessions.List(session.Local)
			if err != nil {
				t.Fatal(err)
			}
			if len(all) != 1 {
				t.Fatalf("len(all): got %d, want 1: %v", len(all), all)
			}
			if res, err := s.config.Sessions.Execute(t.Context(), session.Local, all[0].ID, session.Request{Code: "x"}); err != nil {
				t.Errorf("the session: got error %v, want none", err)
			} else if res.Exit.Result != "42" {
				t.Errorf("the session: res.Exit.Result: got %q, want %q", res.Exit.Result, "42")
			}
		})
	}
}

func TestAClientThatStillReadsGetsItsAnswerAfterTheInputsEnd(t *testing.T) {
	in, _, lines, ended := pipes(t, newServer(t, Config{}, session.Config{}), "print(1)\nsleep(0.5)\n40 + 2")
	in.Close()
	rest, err := io.ReadAll(lines)
	if err != nil {
		t.Fatalf("at the end: got error %v, want none: %s", err, rest)
	}
	if !strings.Contains(string(rest), `"result":"42"`) {
		t.Errorf("at the end: rest: got %q, want %q in it", string(rest), `"result":"42"`)
	}
	if err := <-ended; err != nil {
		t.Errorf("serving ended with %v", err)
	}
}
