package envd

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"
	"mime/multipart"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"paddock/internal/expect"
)

// client speaks to a daemon whose users live in folders of the test.
type client struct {
	t    *testing.T
	url  string
	home string
}

func newClient(t *testing.T) client {
	home := t.TempDir()
	d := New(Config{
		Users: map[string]string{"user": home, "root": t.TempDir()}, Default: "user", Env: map[string]string{"PATH": os.Getenv("PATH")},
	})
	server := httptest.NewServer(d)
	t.Cleanup(func() {
		server.CloseClientConnections()
		server.Close()
		d.Close()
	})
	return client{t, server.URL, home}
}

// call makes a unary call, and gives the answer's status and body.
func (c client) call(method, body string) (int, string) {
	c.t.Helper()
	resp, err := http.Post(c.url+method, "application/json", strings.NewReader(body))
	must(c.t, err)
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	must(c.t, err)
	return resp.StatusCode, strings.TrimSpace(string(text))
}

// frames are the messages of a stream, which next reads one by one.
type frames struct {
	t    *testing.T
	body io.ReadCloser
}

func (c client) stream(method, body string, header ...string) frames {
	c.t.Helper()
	head := binary.BigEndian.AppendUint32([]byte{0}, uint32(len(body)))
	r, err := http.NewRequestWithContext(c.t.Context(), http.MethodPost, c.url+method, bytes.NewReader(append(head, body...)))
	must(c.t, err)
	r.Header.Set("Content-Type", "application/connect+json")
	for i := 0; i < len(header); i += 2 {
		r.Header.Set(header[i], header[i+1])
	}
	resp, err := http.DefaultClient.Do(r)
	must(c.t, err)
	return frames{c.t, resp.Body}
}

// next gives a message and whether it is the last.
func (f frames) next() (string, bool) {
	f.t.Helper()
	var head [5]byte
	_, err := io.ReadFull(f.body, head[:])
	must(f.t, err)
	text := make([]byte, binary.BigEndian.Uint32(head[1:]))
	_, err = io.ReadFull(f.body, text)
	must(f.t, err)
	return string(text), head[0] == endOfStream
}

// started reads the first message, and gives the process.
func (f frames) started() int {
	f.t.Helper()
	first, _ := f.next()
	var m struct {
		Event struct{ Start struct{ PID int } }
	}
	must(f.t, json.Unmarshal([]byte(first), &m))
	if m.Event.Start.PID == 0 {
		f.t.Fatalf("the process was not started: %s", first)
	}
	return m.Event.Start.PID
}

// rest reads to the end: what was printed, the end event and the last message.
func (f frames) rest() (printed, end, last string) {
	f.t.Helper()
	for {
		text, over := f.next()
		if over {
			return printed, end, text
		}
		var m struct {
			Event struct {
				Data map[string][]byte
				End  json.RawMessage
			}
		}
		must(f.t, json.Unmarshal([]byte(text), &m))
		for _, name := range []string{"stdout", "stderr", "pty"} {
			printed += string(m.Event.Data[name])
		}
		if m.Event.End != nil {
			end = string(m.Event.End)
		}
	}
}

func start(command, more string) string {
	return fmt.Sprintf(`{"process":{"cmd":"/bin/bash","args":["-c",%q]}%s}`, command, more)
}

func TestAProgramPrintsAndEnds(t *testing.T) {
	c := newClient(t)
	for _, test := range []struct{ command, printed, end string }{
		{"echo -n hello", "hello", `{"exitCode":0,"exited":true,"status":"exit status 0"}`},
		{"echo -n bad >&2; exit 3", "bad", `{"exitCode":3,"exited":true,"status":"exit status 3","error":"exit status 3"}`},
		{"kill -9 $$", "", `{"exitCode":-1,"exited":false,"status":"signal: killed","error":"signal: killed"}`},
		{"echo -n $HOME $USER; pwd >/dev/null", c.home + " user", `{"exitCode":0,"exited":true,"status":"exit status 0"}`},
	} {
		f := c.stream("/process.Process/Start", start(test.command, ""))
		f.started()
		printed, end, last := f.rest()
		expect.Equal(t, "the answer", printed, test.printed)
		expect.Equal(t, "the answer", end, test.end)
		expect.Equal(t, "the answer", last, "{}")
	}
}

func TestAProcessOutlivesItsClient(t *testing.T) {
	c := newClient(t)
	f := c.stream("/process.Process/Start", start("read line; echo got $line", `,"tag":"mine","stdin":true`))
	pid := f.started()
	f.body.Close()
	again := c.stream("/process.Process/Connect", `{"process":{"tag":"mine"}}`)
	expect.Equal(t, "the answer", again.started(), pid)
	status, _ := c.call("/process.Process/SendInput", fmt.Sprintf(`{"process":{"pid":%d},"input":{"stdin":"aGkK"}}`, pid))
	expect.Equal(t, "the answer", status, http.StatusOK)
	printed, _, _ := again.rest()
	expect.Equal(t, "the answer", printed, "got hi\n")
	status, text := c.call("/process.Process/SendSignal", fmt.Sprintf(`{"process":{"pid":%d},"signal":"SIGNAL_SIGKILL"}`, pid))
	expect.Equal(t, "the answer", status, http.StatusNotFound)
	expect.Part(t, "the answer", text, `"code":"not_found"`)
}

func TestAProcessIsKilled(t *testing.T) {
	c := newClient(t)
	f := c.stream("/process.Process/Start", start("sleep 1000 & sleep 1000; echo never", ""))
	pid := f.started()
	_, list := c.call("/process.Process/List", "{}")
	expect.Part(t, "the answer", list, fmt.Sprintf(`"pid":%d`, pid))
	status, _ := c.call("/process.Process/SendSignal", fmt.Sprintf(`{"process":{"pid":%d},"signal":"SIGNAL_SIGKILL"}`, pid))
	expect.Equal(t, "the answer", status, http.StatusOK)
	_, end, _ := f.rest()
	expect.Part(t, "the answer", end, "signal: killed")
	_, list = c.call("/process.Process/List", "{}")
	expect.Equal(t, "the answer", list, `{"processes":[]}`)
}

func TestATimeoutKillsTheProcess(t *testing.T) {
	c := newClient(t)
	f := c.stream("/process.Process/Start", start("sleep 1000", ""), "Connect-Timeout-Ms", "200")
	pid := f.started()
	_, _, last := f.rest()
	expect.Part(t, "the answer", last, deadlineExceeded)
	_, end, _ := c.stream("/process.Process/Connect", fmt.Sprintf(`{"process":{"pid":%d}}`, pid)).rest()
	expect.Part(t, "the answer", end, "signal: killed")
}

func TestATerminal(t *testing.T) {
	c := newClient(t)
	f := c.stream("/process.Process/Start", `{"process":{"cmd":"/bin/bash","args":["-c","stty size; read x; stty size"]},"pty":{"size":{"cols":80,"rows":24}}}`)
	pid := f.started()
	first, _ := f.next()
	var m struct {
		Event struct{ Data struct{ Pty []byte } }
	}
	must(t, json.Unmarshal([]byte(first), &m))
	expect.Equal(t, "the answer", string(m.Event.Data.Pty), "24 80\r\n")
	status, _ := c.call("/process.Process/Update", fmt.Sprintf(`{"process":{"pid":%d},"pty":{"size":{"cols":100,"rows":30}}}`, pid))
	expect.Equal(t, "the answer", status, http.StatusOK)
	status, _ = c.call("/process.Process/SendInput", fmt.Sprintf(`{"process":{"pid":%d},"input":{"pty":"DQ=="}}`, pid))
	expect.Equal(t, "the answer", status, http.StatusOK)
	printed, _, _ := f.rest()
	expect.Part(t, "the answer", printed, "30 100")
}

func TestRefusals(t *testing.T) {
	c := newClient(t)
	must(t, os.WriteFile(filepath.Join(c.home, "file"), nil, 0o600))
	for _, test := range []struct {
		method, body string
		status       int
		says         string
	}{
		{"/process.Process/SendSignal", `{"process":{"pid":999999},"signal":"SIGNAL_SIGKILL"}`, 404, "999999 not found"},
		{"/process.Process/CloseStdin", `{"process":{"tag":"none"}}`, 404, "tag none not found"},
		{"/process.Process/List", `{`, 400, "cannot be read"},
		{"/filesystem.Filesystem/Stat", `{"path":"none"}`, 404, "not found"},
		{"/filesystem.Filesystem/ListDir", `{"path":"file"}`, 400, "not a directory"},
		{"/filesystem.Filesystem/ListDir", `{"path":"none"}`, 404, "not found"},
		{"/filesystem.Filesystem/MakeDir", `{"path":"~"}`, 409, "already exists"},
		{"/filesystem.Filesystem/MakeDir", `{"path":"file"}`, 400, "not a directory"},
		{"/filesystem.Filesystem/Move", `{"source":"none","destination":"x"}`, 404, "not found"},
		{"/filesystem.Filesystem/GetWatcherEvents", `{"watcherId":"none"}`, 404, "not found"},
		{"/filesystem.Filesystem/CreateWatcher", `{"path":"file"}`, 400, "not a directory"},
		{"/filesystem.Filesystem/Remove", `{"path":"none"}`, 200, "{}"},
	} {
		status, text := c.call(test.method, test.body)
		if status != test.status || !strings.Contains(text, test.says) {
			t.Errorf("%s %s: %d %s", test.method, test.body, status, text)
		}
	}
	_, last := "", ""
	f := c.stream("/process.Process/Start", `{"process":{"cmd":"true","cwd":"/none"}}`)
	last, _ = f.next()
	expect.Part(t, "the answer", last, invalidArgument)
	f = c.stream("/process.Process/Start", `{"process":{"cmd":"true"}}`, "Authorization", "Basic bm9uZTo=")
	last, _ = f.next()
	expect.Part(t, "the answer", last, unauthenticated)
}

func TestFilesGoUpAndDown(t *testing.T) {
	c := newClient(t)
	var form bytes.Buffer
	w := multipart.NewWriter(&form)
	for _, name := range []string{"a/one.txt", "~/two.txt"} {
		part, err := w.CreateFormFile("file", name)
		must(t, err)
		_, _ = io.WriteString(part, "in "+name)
	}
	must(t, w.Close())
	resp, err := http.Post(c.url+"/files", w.FormDataContentType(), &form)
	must(t, err)
	text, _ := io.ReadAll(resp.Body)
	resp.Body.Close()
	expect.Equal(t, "the answer", strings.TrimSpace(string(text)), fmt.Sprintf(`[{"name":"one.txt","path":"%[1]s/a/one.txt","type":"file"},{"name":"two.txt","path":"%[1]s/two.txt","type":"file"}]`, c.home))

	r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, c.url+"/files?path=raw.bin", strings.NewReader("raw"))
	must(t, err)
	r.Header.Set("Content-Type", "application/octet-stream")
	r.Header.Set("X-Metadata-Author", "ann")
	resp, err = http.DefaultClient.Do(r)
	must(t, err)
	resp.Body.Close()
	_, stat := c.call("/filesystem.Filesystem/Stat", `{"path":"raw.bin"}`)
	expect.Part(t, "the answer", stat, `"metadata":{"author":"ann"}`)
	expect.Part(t, "the answer", stat, `"size":"3"`)

	_, list := c.call("/filesystem.Filesystem/ListDir", `{"path":".","depth":2}`)
	var all struct{ Entries []struct{ Path, Type string } }
	must(t, json.Unmarshal([]byte(list), &all))
	var paths []string
	for _, e := range all.Entries {
		paths = append(paths, strings.TrimPrefix(e.Path, c.home))
	}
	expect.Equal(t, "the answer", strings.Join(paths, " "), "/a /a/one.txt /raw.bin /two.txt")

	for path, want := range map[string]string{"raw.bin": "200 raw", "none": "404", "a": "400"} {
		resp, err := http.Get(c.url + "/files?path=" + path)
		must(t, err)
		text, _ := io.ReadAll(resp.Body)
		resp.Body.Close()
		expect.Part(t, "the answer", fmt.Sprint(resp.StatusCode, " ", string(text)), want)
	}
}

func TestChangesAreWatched(t *testing.T) {
	c := newClient(t)
	f := c.stream("/filesystem.Filesystem/WatchDir", `{"path":".","recursive":true,"includeEntry":true}`)
	first, _ := f.next()
	expect.Equal(t, "the answer", first, `{"start":{}}`)
	_, made := c.call("/filesystem.Filesystem/CreateWatcher", `{"path":"."}`)
	must(t, os.WriteFile(filepath.Join(c.home, "new"), []byte("x"), 0o600))
	event, _ := f.next()
	expect.Part(t, "the answer", event, `"name":"new","type":"EVENT_TYPE_CREATE","entry":{`)
	for kept := ""; !strings.Contains(kept, "EVENT_TYPE_WRITE"); {
		status := 0
		status, kept = c.call("/filesystem.Filesystem/GetWatcherEvents", made)
		expect.Equal(t, "the answer", status, http.StatusOK)
	}
	status, _ := c.call("/filesystem.Filesystem/RemoveWatcher", made)
	expect.Equal(t, "the answer", status, http.StatusOK)
	status, _ = c.call("/filesystem.Filesystem/RemoveWatcher", made)
	expect.Equal(t, "the answer", status, http.StatusNotFound)
}

// must ends the test after an error.
func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
