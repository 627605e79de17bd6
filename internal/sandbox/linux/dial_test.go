//go:build linux && (amd64 || arm64)

package linux

import (
	"errors"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"paddock/internal/fault"
	"paddock/internal/sandbox"
)

// server serves HTTP in a thread of the interpreter, at a port that it prints.
const server = `
import http.server, threading
class Handler(http.server.BaseHTTPRequestHandler):
    def do_POST(self):
        data = self.rfile.read(int(self.headers['Content-Length']))
        self.send_response(200)
        self.send_header('Content-Length', str(len(data)))
        self.end_headers()
        self.wfile.write(data)
    def log_message(self, *args): pass
httpd = http.server.ThreadingHTTPServer(('127.0.0.1', 8000), Handler)
threading.Thread(target=httpd.serve_forever, daemon=True).start()
`

func TestAPortOfABoxIsReached(t *testing.T) {
	b := newBackend(t)
	spec := specFor(t, b)
	spec.Runtime, spec.Box = "python", "served"
	if _, err := b.Dial(t.Context(), spec.Owner, spec.Box, 8000); fault.KindOf(err) != fault.NotFound {
		t.Errorf("before it is booted: %v", err)
	}
	in := start(t, b, spec)
	if _, err := b.Dial(t.Context(), spec.Owner, spec.Box, 8000); fault.KindOf(err) != fault.Unavailable {
		t.Errorf("where nobody listens: %v", err)
	}
	if exit, err := in.Run(t.Context(), sandbox.Command{Code: server}); err != nil || exit.Error != nil {
		t.Fatal(exit.Error, err)
	}
	for range 3 { // each over a connection of its own
		s, err := b.Dial(t.Context(), spec.Owner, spec.Box, 8000)
		if err != nil {
			t.Fatal(err)
		}
		body := strings.Repeat("text ", 1<<18)
		req, err := http.NewRequest(http.MethodPost, "http://box/", strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		req.Close = true
		go func() { _ = req.Write(s) }() // the answer tells
		answer, err := io.ReadAll(s)
		if err != nil || !strings.HasSuffix(string(answer), body) {
			t.Errorf("the answer has %d bytes, %v", len(answer), err)
		}
		s.Close()
	}
	if _, err := b.Dial(t.Context(), "bob", spec.Box, 8000); fault.KindOf(err) != fault.NotFound {
		t.Errorf("another owner: %v", err)
	}
	s, err := b.Dial(t.Context(), spec.Owner, spec.Box, 8000)
	if err != nil {
		t.Fatal(err)
	}
	in.Close()
	if n, err := s.Read(make([]byte, 1)); n > 0 || err == nil {
		t.Error("a connection outlives the box")
	}
}

// What ends with its connection, as an answer of HTTP may, would look whole.
func TestAConnectionToABoxThatDiesIsCutOff(t *testing.T) {
	b := newBackend(t)
	spec := specFor(t, b)
	spec.Runtime, spec.Box = "python", "dies"
	in := start(t, b, spec)
	says(t, in, `
import socket
l = socket.create_server(('127.0.0.1', 8000))
import threading
def serve():
    c, _ = l.accept()
    c.sendall(b'HTTP/1.0 200 OK\r\n\r\nhalf')
    c.recv(1)
threading.Thread(target=serve, daemon=True).start()`)
	s, err := b.Dial(t.Context(), spec.Owner, spec.Box, 8000)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	half := make([]byte, len("HTTP/1.0 200 OK\r\n\r\nhalf"))
	if _, err := io.ReadFull(s, half); err != nil {
		t.Fatal(err)
	}
	if err := in.machine.box.sentry.cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	if rest, err := io.ReadAll(s); !errors.Is(err, io.ErrUnexpectedEOF) || fault.KindOf(err) != fault.Unavailable {
		t.Errorf("after half of it come %q, %v", rest, err)
	}
}

// A guest that may write into a folder could put a link where another of its
// sandboxes will have a folder of the host.
func TestAFolderThatMayHaveNoLinksIsNotReachedThroughOne(t *testing.T) {
	b := newBackend(t)
	spec := specFor(t, b)
	outer := folderFor(t, "outer")
	for _, dir := range []string{"in", "in/side", "secret"} {
		if err := os.Mkdir(filepath.Join(outer, dir), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Symlink("../secret", filepath.Join(outer, "in", "link")); err != nil {
		t.Fatal(err)
	}
	mount := func(host string) error {
		spec := spec
		spec.Mounts = []sandbox.Mount{{Guest: "/data", Host: filepath.Join(outer, host), DiskBytes: sandbox.Unbounded, NoLinks: true}}
		in, err := b.Start(t.Context(), spec)
		if err == nil {
			in.Close()
		}
		return err
	}
	if err := mount("in/side"); err != nil {
		t.Error(err)
	}
	for _, through := range []string{"in/link", "in/link/."} {
		if err := mount(through); err == nil {
			t.Errorf("%s is shown", through)
		}
	}
}
