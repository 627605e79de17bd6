package preview

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"paddock/internal/audit"
	"paddock/tests/paddocktest"
)

// fileServer serves the workspace, and returns when it listens.
const fileServer = `
mkdir -p site && echo '<h1>from the session</h1>' > site/index.html
(cd site && exec python3 -m http.server 8000 --bind 127.0.0.1) > server.log 2>&1 &
until (exec 3<>/dev/tcp/127.0.0.1/8000) 2>/dev/null; do :; done
echo listens`

// liveServer has events, a WebSocket and what it was asked; it returns when it listens.
const liveServer = `
cat > live.js <<'END'
const http = require("http"), crypto = require("crypto")
const s = http.createServer((req, res) => {
  if (req.url == "/events") {
    res.writeHead(200, {"Content-Type": "text/event-stream"})
    let n = 0
    const timer = setInterval(() => res.write("data: " + n++ + "\n\n"), 20)
    req.on("close", () => clearInterval(timer))
  } else if (req.url == "/endless") {
    const block = Buffer.alloc(65536)
    const more = () => { while (!res.destroyed && res.write(block)); }
    res.on("drain", more); more()
  } else {
    res.setHeader("Set-Cookie", "app=1; Domain=localhost; Path=/")
    res.end(JSON.stringify(req.headers))
  }
})
s.on("upgrade", (req, socket) => {
  const key = crypto.createHash("sha1").update(req.headers["sec-websocket-key"] + "258EAFA5-E914-47DA-95CA-C5AB0DC85B11").digest("base64")
  socket.write("HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Accept: " + key + "\r\n\r\n")
  socket.on("error", () => {})
  socket.on("data", d => {
    const n = d[1] & 127, mask = d.subarray(2, 6), text = Buffer.from(d.subarray(6, 6 + n).map((c, i) => c ^ mask[i % 4]))
    socket.write(Buffer.concat([Buffer.from([0x81, n + 5]), Buffer.from("echo "), text]))
  })
})
s.listen(3000)
END
node live.js > live.log 2>&1 &
until (exec 3<>/dev/tcp/127.0.0.1/3000) 2>/dev/null; do :; done
echo listens`

func TestAPersonOpensWhatASessionServes(t *testing.T) {
	s := start(t)
	id := s.session()
	if got := s.run(id, "bash", fileServer); got != "listens" {
		t.Fatalf("it says %q", got)
	}
	link, err := s.paddock("session", "preview", id, "8000", "--ttl", "30m")
	if err != nil {
		t.Fatal(err)
	}
	c, at := browser(t), origin(t, link)
	if status, body := get(t, c, at); status != 403 {
		t.Errorf("without the link: %d %s", status, body)
	}
	wantPage(t, "the link", c, link)
	if status, body := get(t, c, at+"/nothing"); status != 404 {
		t.Errorf("the program: status = %d, want 404: %s", status, body)
	} else if !strings.Contains(body, "File not found") {
		t.Errorf(`the program: body = %q, want "File not found" in it`, body)
	}
	if got := s.run(id, "bash", "cat server.log"); strings.Contains(got, ".paddock") {
		t.Errorf(`the program was asked: got %q, want no ".paddock" in it`, got)
	} else if !strings.Contains(got, "GET / HTTP/1.1") {
		t.Errorf(`the program was asked: got %q, want "GET / HTTP/1.1" in it`, got)
	}

	// Another server of the state folder's finds the machine as it was saved.
	s.stop()
	s.start()
	u, _ := url.Parse(at)
	old, _ := url.Parse(s.base)
	again := "http://" + u.Hostname() + ":" + old.Port()
	wantPage(t, "after a restart", c, again)

	// A model gets a URL like its user's.
	var linked struct {
		URL string `json:"preview_url"`
	}
	s.call("read_file", map[string]any{"session_id": id, "path": "http://localhost:8000/index.html", "link": true}, &linked)
	wantPage(t, "the model's URL", browser(t), linked.URL)

	revokesFromTheCommandLine(t, s, id)
	if status, _ := get(t, c, again); status != 403 {
		t.Errorf("revoked it is %d, want 403", status)
	}
	label, _, _ := strings.Cut(u.Hostname(), ".")
	isAudited(t, s, id, label)
	s.stop()
	isNotKept(t, s, link[strings.LastIndex(link, "/")+1:])
}

// wantPage checks that an address gives the page of the session's server.
func wantPage(t *testing.T, about string, c *http.Client, at string) {
	t.Helper()
	const page = "<h1>from the session</h1>\n"
	if status, body := get(t, c, at); status != 200 {
		t.Errorf("%s: %s has the status %d, want 200: %s", about, at, status, body)
	} else if body != page {
		t.Errorf("%s: %s gives %q, want %q", about, at, body, page)
	}
}

// revokesFromTheCommandLine lists a session's previews, and revokes them.
func revokesFromTheCommandLine(t *testing.T, s *server, id string) {
	t.Helper()
	listed, err := s.paddock("session", "preview", id)
	switch {
	case err != nil:
		t.Error(err)
	case !strings.Contains(listed, "8000"):
		t.Errorf(`listed = %q, want "8000" in it`, listed)
	case strings.Contains(listed, "open/"):
		t.Errorf(`listed = %q, want no "open/" in it`, listed)
	}
	if _, err := s.paddock("session", "preview", id, "--revoke"); err != nil {
		t.Error(err)
	}
}

// isAudited checks that the audit log says who made, opened and revoked a preview.
func isAudited(t *testing.T, s *server, id, label string) {
	t.Helper()
	var actions []string
	for r, err := range audit.Read(filepath.Join(s.state, "audit"), audit.Filter{}) {
		if err != nil {
			t.Fatal(err)
		}
		if r.Session == id && strings.HasPrefix(r.Action, "preview_") && strings.Contains(r.Target, label) {
			actions = append(actions, r.Action+" "+r.Target)
		}
	}
	want := fmt.Sprintf("preview_create port 8000 %s,preview_open port 8000 %s from 127.0.0.1,preview_revoke port 8000 %s", label, label, label)
	if got := strings.Join(actions, ","); got != want {
		t.Errorf("the audit log has %s, want %s", got, want)
	}
}

// isNotKept checks that what opens a preview is neither on disk nor in the log.
func isNotKept(t *testing.T, s *server, signature string) {
	t.Helper()
	err := filepath.WalkDir(s.state, func(path string, d os.DirEntry, err error) error {
		if err == nil && d.Type().IsRegular() {
			if data, err := os.ReadFile(path); err == nil && bytes.Contains(data, []byte(signature)) {
				t.Errorf("what opens the preview is in %s", path)
			}
		}
		return nil
	})
	if err != nil {
		t.Errorf("reading the state: got error %v, want none", err)
	}
	if strings.Contains(s.Log(), signature) {
		t.Error("what opens the preview is in the log")
	}
}

// preview asks the API for one.
func (s *server) preview(id string, port int) (link string) {
	s.t.Helper()
	r, err := http.NewRequestWithContext(s.t.Context(), "POST", s.base+"/api/v1/sessions/"+id+"/previews", strings.NewReader(fmt.Sprintf(`{"port": %d}`, port)))
	if err != nil {
		s.t.Fatal(err)
	}
	r.Header.Set("Authorization", "Bearer "+s.Token)
	res, err := http.DefaultClient.Do(r)
	if err != nil {
		s.t.Fatal(err)
	}
	defer res.Body.Close()
	var made struct{ URL string }
	if err := json.NewDecoder(res.Body).Decode(&made); err != nil {
		s.t.Fatalf("got error %v, want none", err)
	} else if res.StatusCode != 201 {
		s.t.Fatalf("res.StatusCode = %d, want 201", res.StatusCode)
	}
	return made.URL
}

func TestEventsAndWebSocketsOfASession(t *testing.T) {
	s := start(t)
	id := s.session()
	s.run(id, "bash", liveServer)
	link := s.preview(id, 3000)
	c, at := browser(t), origin(t, link)
	seesNoCredentials(t, s, c, link, at)
	u, _ := url.Parse(at)
	cookies := map[string]string{}
	for _, k := range c.Jar.Cookies(u) {
		cookies[k.Name] = k.Value
	}
	if cookies["app"] != "1" {
		t.Errorf(`the browser: cookies["app"] = %q, want "1"`, cookies["app"])
	} else if cookies["paddock-preview"] == "" {
		t.Error(`the browser: cookies["paddock-preview"] is empty, want some`)
	}
	other, _ := url.Parse("http://other.localhost:" + u.Port())
	if all := c.Jar.Cookies(other); len(all) != 0 {
		t.Errorf("another host has %v", all)
	}

	sendsEvents(t, c, at)
	conn, r := webSocket(t, u, cookies["paddock-preview"])
	echoes(t, conn, r)
	// An answer without end goes on for as long as somebody reads, and then not.
	res, err := c.Get(at + "/endless")
	if err != nil {
		t.Fatal(err)
	}
	if n, err := io.CopyN(io.Discard, res.Body, 64<<20); err != nil {
		t.Errorf("after %d bytes: %v", n, err)
	}
	res.Body.Close()

	s.call("destroy_session", map[string]any{"session_id": id}, nil)
	if _, err := r.ReadByte(); err == nil {
		t.Error("a WebSocket outlives its session")
	}
	if status, _ := get(t, c, at); status != 403 {
		t.Errorf("without its session it is %d", status)
	}
}

// seesNoCredentials checks what the session's program sees of a request through its preview.
func seesNoCredentials(t *testing.T, s *server, c *http.Client, link, at string) {
	t.Helper()
	status, body := get(t, c, link, "Authorization", "Bearer "+s.Token)
	var seen map[string]string
	if err := json.Unmarshal([]byte(body), &seen); err != nil {
		t.Fatalf("got error %v, want none", err)
	} else if status != 200 {
		t.Fatalf("status = %d, want 200: %s", status, body)
	}
	switch {
	case strings.Contains(body, s.Token):
		t.Errorf("the program sees: body = %q, want no %q in it", body, s.Token)
	case strings.Contains(body, "paddock-preview"):
		t.Errorf(`the program sees: body = %q, want no "paddock-preview" in it`, body)
	case seen["host"] != strings.TrimPrefix(at, "http://"):
		t.Errorf(`the program sees: seen["host"] = %v, want %v: %s`,
			seen["host"], strings.TrimPrefix(at, "http://"), body)
	case seen["x-forwarded-host"] != seen["host"]:
		t.Errorf(`the program sees: seen["x-forwarded-host"] = %v, want %v: %s`,
			seen["x-forwarded-host"], seen["host"], body)
	}
}

// sendsEvents reads three events as they come.
func sendsEvents(t *testing.T, c *http.Client, at string) {
	t.Helper()
	res, err := c.Get(at + "/events")
	if err != nil {
		t.Fatal(err)
	}
	events := bufio.NewScanner(res.Body)
	for n := 0; n < 3 && events.Scan(); {
		if events.Text() == fmt.Sprintf("data: %d", n) {
			n++
		}
	}
	if err := events.Err(); err != nil {
		t.Error(err)
	}
	res.Body.Close()
}

// echoes sends two texts over a WebSocket and reads them back.
func echoes(t *testing.T, conn net.Conn, r *bufio.Reader) {
	t.Helper()
	for _, text := range []string{"one", "two"} {
		if _, err := conn.Write(append([]byte{0x81, 0x80 | byte(len(text)), 0, 0, 0, 0}, text...)); err != nil {
			t.Fatal(err)
		}
		frame := make([]byte, 2+5+len(text))
		if _, err := io.ReadFull(r, frame); err != nil {
			t.Errorf("got error %v, want none", err)
		} else if string(frame[2:]) != "echo "+text {
			t.Errorf("string(frame[2:]) = %q, want %q", string(frame[2:]), "echo "+text)
		}
	}
}

func webSocket(t *testing.T, u *url.URL, cookie string) (net.Conn, *bufio.Reader) {
	t.Helper()
	conn, err := net.Dial("tcp", net.JoinHostPort("127.0.0.1", u.Port()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	_ = conn.SetDeadline(time.Now().Add(paddocktest.Timeout))
	fmt.Fprintf(conn, "GET /ws HTTP/1.1\r\nHost: %s\r\nOrigin: http://%s\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nCookie: paddock-preview=%s\r\n\r\n", u.Host, u.Host, cookie)
	r := bufio.NewReader(conn)
	res, err := http.ReadResponse(r, nil)
	switch {
	case err != nil:
		t.Fatal(err)
	case res.StatusCode != 101:
		t.Fatalf("res.StatusCode = %v, want 101: %+v", res.StatusCode, res)
	case res.Header.Get("Sec-WebSocket-Accept") != "s3pPLMBiTxaQ9kYGzzhZRbK+xOo=":
		t.Fatalf(`header Sec-WebSocket-Accept = %q, want "s3pPLMBiTxaQ9kYGzzhZRbK+xOo="`,
			res.Header.Get("Sec-WebSocket-Accept"))
	}
	return conn, r
}

// Attack 42: what a sandbox binds is never taken for another's preview, or for paddock.
func TestASessionThatBindsAPortIsNobodyElse(t *testing.T) {
	s := start(t)
	evil, good := s.session(), s.session()
	s.run(good, "bash", fileServer)
	port := strings.TrimPrefix(s.base[strings.LastIndex(s.base, ":"):], ":")
	// It listens wherever it can: at the other's port, at paddock's, for all names.
	s.run(evil, "bash", `
cat > evil.py <<'END'
import http.server, sys, threading
class H(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200); self.end_headers(); self.wfile.write(b"evil")
    do_POST = do_GET
    def log_message(self, *a): pass
for p in sys.argv[1:]:
    threading.Thread(target=http.server.ThreadingHTTPServer(("", int(p)), H).serve_forever).start()
END
python3 evil.py 8000 `+port+` > /dev/null 2>&1 &
for p in 8000 `+port+`; do until (exec 3<>/dev/tcp/127.0.0.1/$p) 2>/dev/null; do :; done; done`)
	c := browser(t)
	goods, evils := s.preview(good, 8000), s.preview(evil, 8000)
	if status, body := get(t, c, evils); status != 200 {
		t.Fatalf("status = %d, want 200: %s", status, body)
	} else if body != "evil" {
		t.Fatalf(`body = %q, want "evil"`, body)
	}
	if status, body := get(t, c, goods); status != 200 {
		t.Errorf("the other's preview: status = %d, want 200: %s", status, body)
	} else if strings.Contains(body, "evil") {
		t.Errorf(`the other's preview: body = %q, want no "evil" in it`, body)
	}
	if status, body := get(t, c, s.base+"/healthz"); status != 200 {
		t.Errorf("paddock: status = %d, want 200: %s", status, body)
	} else if !strings.Contains(body, "ok") {
		t.Errorf(`paddock: body = %q, want "ok" in it`, body)
	}
	// Its cookie and its signature open its own preview alone, also at the other's address.
	u, _ := url.Parse(evils)
	cookie := "paddock-preview=" + c.Jar.Cookies(u)[0].Value
	stranger := browser(t)
	if status, _ := get(t, stranger, origin(t, goods), "Cookie", cookie); status != 403 {
		t.Errorf("with its cookie: %d", status)
	}
	if status, _ := get(t, stranger, origin(t, goods)+u.Path); status != 403 {
		t.Errorf("with its signature: %d", status)
	}
	// What its page sends to the other's, or to paddock, is refused.
	for _, to := range []string{origin(t, goods), s.base + "/mcp", s.base + "/api/v1/sessions/" + good + "/previews"} {
		if status, body := get(t, c, to, "Origin", origin(t, evils), "Sec-Fetch-Site", "same-site"); status != 403 {
			t.Errorf("at %s its page finds %d %s", to, status, body)
		}
	}
	// The machine's own way out, and paddock's port of this host, are not the box's.
	if status, body := get(t, c, s.preview(evil, 1)); status != 502 {
		t.Errorf("where no program listens: status = %d, want 502: %s", status, body)
	} else if !strings.Contains(body, "no program in the sandbox listens at port 1") {
		t.Errorf(`where no program listens: body = %q, want "no program in the sandbox listens at port 1" in it`, body)
	}
	s.run(good, "bash", "kill %1 2>/dev/null; pkill -f http.server || true")
}
