// Package secrets proves with the built paddock that programs use secrets without having
// them: it fills sessions with them, has these kept in every way there is, and looks for
// the values in every byte that is left.
package secrets

import (
	"bytes"
	"compress/gzip"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"paddock/internal/mcpserver"
	"paddock/internal/sandbox/sandboxtest"
	"paddock/tests/paddocktest"
)

// core is in every value, and nowhere else: whoever finds it has found a value.
const core = "Zq7RtvK2mXw9Ld4H"

// values are the secrets, with what is hard about each place.
var values = map[string]string{
	"HEADER_KEY": "hdr-" + core + "-1",
	"LOGIN_KEY":  "pa:ss " + core + "\u00e9",
	"QUERY_KEY":  "q r+" + core + "=/%&",
	"BODY_KEY":   `bo"dy\` + core + "<&>\u00e9",
}

var placesOf = map[string]string{"HEADER_KEY": "header", "LOGIN_KEY": "basic", "QUERY_KEY": "query:key", "BODY_KEY": "body"}

// site is a server on this host over TLS, which says in many forms what it was asked with.
type site struct {
	*httptest.Server
	address string // host:port
	pem     []byte
	heard   chan struct{} // holds a token when something was asked

	mu    sync.Mutex // guards what follows
	saw   map[string]int
	asked []string // requests, in full
}

// open opens a server; redirects to / + anything below /to/ lead to that address.
func open(t *testing.T) *site {
	t.Helper()
	s := &site{saw: map[string]int{}, heard: make(chan struct{}, 1)}
	s.Server = paddocktest.Site(t, true, http.HandlerFunc(s.serve))
	s.address = s.Listener.Addr().String()
	s.pem = pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: s.TLS.Certificates[0].Certificate[0]})
	return s
}

// serve notes which values came where, and gives back whatever came, in all its forms.
func (s *site) serve(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	_, password, _ := r.BasicAuth()
	var decoded struct{ K string }
	_ = json.Unmarshal(body, &decoded) // of others than JSON nothing is expected
	text := fmt.Sprint(r.Method, " ", r.URL, " ", r.Header, " ", string(body))
	s.mu.Lock()
	s.asked = append(s.asked, text)
	for name, came := range map[string]bool{
		"HEADER_KEY": r.Header.Get("Authorization") == "Bearer "+values["HEADER_KEY"], "LOGIN_KEY": password == values["LOGIN_KEY"],
		"QUERY_KEY": r.URL.Query().Get("key") == values["QUERY_KEY"], "BODY_KEY": decoded.K == values["BODY_KEY"],
	} {
		if came && r.URL.Path != "/uncounted" {
			s.saw[name]++
		}
	}
	s.mu.Unlock()
	select {
	case s.heard <- struct{}{}:
	default:
	}
	if to, ok := strings.CutPrefix(r.URL.Path, "/to/"); ok {
		w.Header().Set("Location", "https://"+to+"/moved")
		w.WriteHeader(http.StatusFound)
		return
	}
	for _, v := range values {
		text += "\n" + v + " " + base64.StdEncoding.EncodeToString([]byte("x"+v)) + " " + hex.EncodeToString([]byte(v)) + " " + url.QueryEscape(v)
	}
	w.Header().Set("X-Key", values["HEADER_KEY"])
	w.Header().Set("Set-Cookie", "key="+url.QueryEscape(values["QUERY_KEY"]))
	if r.Header.Get("X-Pack") == "" {
		fmt.Fprint(w, text)
		return
	}
	w.Header().Set("Content-Encoding", "gzip")
	packed := gzip.NewWriter(w)
	fmt.Fprint(packed, text)
	packed.Close()
}

// came gives how often each value came, and forgets it.
func (s *site) came() map[string]int {
	s.mu.Lock()
	defer s.mu.Unlock()
	saw := s.saw
	s.saw = map[string]int{}
	return saw
}

// setup is a state folder with the secrets, and where what is printed ends up.
type setup struct {
	dir, state, log string
	env             []string
}

func build(t *testing.T, bound *site, others ...*site) *setup {
	t.Helper()
	dir := t.TempDir()
	h := &setup{dir: dir, state: filepath.Join(dir, "state"), log: filepath.Join(dir, "log")}
	roots := filepath.Join(dir, "roots.pem")
	all := bound.pem
	for _, o := range others {
		all = slices.Concat(all, o.pem)
	}
	if err := os.WriteFile(roots, all, 0o600); err != nil {
		t.Fatal(err)
	}
	paddocktest.Admit(t, filepath.Dir(dir), dir, h.state)
	h.env = paddocktest.Environment(t, h.state, "PADDOCK_SANDBOX_POOL=1", "PADDOCK_LOGGING_LEVEL=debug", "PADDOCK_AUDIT_INCLUDE_CODE=true",
		"PADDOCK_TOOLS_ENABLED=core,history,files", "SSL_CERT_FILE="+roots)
	for name, value := range values {
		cmd := exec.CommandContext(t.Context(), sandboxtest.Binary(t), "secret", "set", name, "--host", bound.address, "--in", placesOf[name])
		cmd.Env, cmd.Stdin = h.env, strings.NewReader(value)
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
	}
	return h
}

func (h *setup) start(t *testing.T, args ...string) *paddocktest.Client {
	t.Helper()
	to, err := os.OpenFile(h.log, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { to.Close() })
	t.Cleanup(func() {
		if t.Failed() {
			t.Log(h.logged(t))
		}
	})
	return paddocktest.Connect(t, h.env, to, args...)
}

func (h *setup) logged(t *testing.T) string {
	t.Helper()
	text, err := os.ReadFile(h.log)
	if err != nil {
		t.Fatal(err)
	}
	return string(text[max(0, len(text)-20_000):])
}

// call calls a tool, notes what it answers, and reads that into out; the error is the tool's.
func (h *setup) call(t *testing.T, m *paddocktest.Client, tool string, args map[string]any, out any) (failed string) {
	t.Helper()
	res, f := paddocktest.Call(t, m.ClientSession, tool, args, out)
	whole, err := json.Marshal(res)
	if err != nil {
		t.Fatal(err)
	}
	h.note(t, whole)
	if f != nil {
		return f.Text
	}
	return ""
}

// note keeps what was given out, where it is looked for values.
func (h *setup) note(t *testing.T, text []byte) {
	t.Helper()
	f, err := os.OpenFile(filepath.Join(h.dir, "outputs"), os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err == nil {
		_, err = f.Write(append(text, '\n'))
		f.Close()
	}
	if err != nil {
		t.Fatal(err)
	}
}

func (h *setup) create(t *testing.T, m *paddocktest.Client, args map[string]any) string {
	t.Helper()
	var made struct {
		ID string `json:"session_id"`
	}
	if failed := h.call(t, m, "create_session", args, &made); failed != "" {
		t.Fatal(failed)
	}
	return made.ID
}

// run runs a program, which has to succeed.
func (h *setup) run(t *testing.T, m *paddocktest.Client, id, language, code string) mcpserver.Execution {
	t.Helper()
	var e mcpserver.Execution
	if failed := h.call(t, m, "execute_code", map[string]any{"session_id": id, "language": language, "code": code, "timeout": int(paddocktest.Timeout.Seconds())}, &e); failed != "" {
		t.Fatal(failed)
	}
	if !e.Success {
		t.Fatalf("%s\nstdout %s\nstderr %s\nerror %+v\nnotice %s", code, e.Stdout, e.Stderr, e.Error, e.Notice)
	}
	return e
}

// paddock runs a command.
func (h *setup) paddock(t *testing.T, args ...string) string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), sandboxtest.Binary(t), args...)
	cmd.Env = h.env
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	h.note(t, slices.Concat(out, stderr.Bytes()))
	if err != nil {
		t.Fatalf("%v: %v\n%s%s", args, err, out, stderr.String())
	}
	return strings.TrimSpace(string(out))
}
