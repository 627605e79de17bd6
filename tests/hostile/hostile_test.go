// Package hostile proves with the built paddock that clients who want to harm the server
// itself do not: it lives, its memory stays below a stated figure, and the calls of
// another client are answered, correctly and nearly as fast as when it is alone.
package hostile

import (
	"bytes"
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"maps"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"paddock/internal/sandbox/sandboxtest"
	"paddock/tests/paddocktest"
)

// strict has the test judge how long calls take; a busy machine is no judge.
var strict = flag.Bool("strict", false, "an honest client's calls may take three times as long beside attacks")

// soakFor is how long TestHostileOwnersForLong lasts; SECURITY.md has what came of an hour.
var soakFor = flag.Duration("soak", 0, "how long four hostile owners attack")

const (
	// mostMemory is what the server may have at any time, in bytes, whatever its clients
	// do: the budget of what it holds for them, and its own needs (internal/app/helpers.go).
	mostMemory = 1536 << 20
	// mostRatio is how many times as long the calls of the honest client may take.
	mostRatio = 3
)

// settings let clients reach the hostile servers of the test, and be as fast as they can.
const settings = `
[tools]
enabled = ["core", "files", "code-mode", "skills", "history"]
[mcp]
allowlist = ["%[1]s!private"]
call_interval_seconds = 0
[packages.pypi]
index = ["http://%[1]s/simple"]
[packages.npm]
index = ["http://%[1]s/npm"]
[transport_http]
rate_limit_requests = 1000000
[limits]
max_requests = 1000000
[audit]
mode = "best_effort"
`

// server is a `paddock serve` with clients.
type server struct {
	*paddocktest.Server
	t      testing.TB
	env    []string
	site   string           // of the hostile servers
	counts map[string]int64 // how often each attack was made
}

func newServer(t testing.TB) *server {
	t.Helper()
	if runtime.GOOS != "linux" {
		t.Skip("what a process holds is read from /proc")
	}
	paddocktest.Require(t, "wasm")
	state := sandboxtest.Memory(t)
	w := &server{t: t, site: startSite(t), counts: map[string]int64{}}
	file := filepath.Join(t.TempDir(), "paddock.toml")
	if err := os.WriteFile(file, fmt.Appendf(nil, settings, w.site), 0o600); err != nil {
		t.Fatal(err)
	}
	w.env = append(paddocktest.Environment(t, state), "PADDOCK_CONFIG="+file)
	w.Server = paddocktest.Serve(t, state, w.env)
	t.Cleanup(func() {
		if t.Failed() {
			log := w.Log()
			t.Logf("the end of paddock's log:\n%s", log[max(0, len(log)-8000):])
		}
	})
	return w
}

// client is somebody with a token of their own.
type client struct {
	t                testing.TB // nil: in a process of its own
	url, token, site string
	http             *http.Client
}

func newClient(t testing.TB, url, token, site string) *client {
	return &client{t, url, token, site, &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 100}}}
}

func (w *server) client(name string) *client {
	w.t.Helper()
	cmd := exec.CommandContext(w.t.Context(), sandboxtest.Binary(w.t), "token", "create", name)
	cmd.Env = w.env
	out, err := cmd.Output()
	if err != nil {
		w.t.Fatalf("making a token: %v", err)
	}
	c := newClient(w.t, w.URL, strings.TrimSpace(string(out)), w.site)
	w.t.Cleanup(c.http.CloseIdleConnections)
	return c
}

// post sends the body of a request for MCP.
func (c *client) post(ctx context.Context, body io.Reader) (*http.Response, error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, c.url, body)
	if err != nil {
		return nil, err
	}
	r.Header.Set("Authorization", "Bearer "+c.token)
	r.Header.Set("Content-Type", "application/json")
	return c.http.Do(r)
}

func called(tool string, arguments map[string]any) []byte {
	text, err := json.Marshal(map[string]any{"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": map[string]any{"name": tool, "arguments": arguments}})
	if err != nil {
		panic(err) // the tests' own arguments
	}
	return text
}

// call calls a tool, and gives its structured result; failed tells that it is an error.
func (c *client) call(ctx context.Context, tool string, arguments map[string]any) (result map[string]any, failed bool, err error) {
	resp, err := c.post(ctx, bytes.NewReader(called(tool, arguments)))
	if err != nil {
		return nil, false, err
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		return nil, false, err
	}
	if i := bytes.LastIndex(text, []byte("\ndata: ")); i >= 0 { // it took its time: a stream of events
		text = text[i+7:]
	} else if rest, ok := bytes.CutPrefix(text, []byte("data: ")); ok {
		text = rest
	}
	var answer struct {
		Result struct {
			IsError           bool
			StructuredContent map[string]any
		}
		Error any
	}
	if err := json.Unmarshal(bytes.TrimSpace(text), &answer); err != nil || answer.Error != nil {
		return nil, false, fmt.Errorf("%s: %s %.300s", tool, resp.Status, text)
	}
	return answer.Result.StructuredContent, answer.Result.IsError, nil
}

// begins makes a client's session.
func (c *client) begins(id string) {
	c.t.Helper()
	if got, failed, err := c.call(c.t.Context(), "create_session", map[string]any{"session_id": id, "language": "python"}); err != nil || failed {
		c.t.Fatalf("create_session: %v %v", got, err)
	}
}

// honest makes the calls of somebody who works: each is one sample of how long it took.
// A call that fails is an error of the test.
func (c *client) honest(ctx context.Context, rounds int) (samples []sample) {
	t := c.t
	must := func(tool string, arguments map[string]any, holds func(map[string]any) bool) {
		began := time.Now()
		arguments["session_id"] = "honest-work"
		got, failed, err := c.call(ctx, tool, arguments)
		if ctx.Err() != nil {
			return
		}
		switch {
		case err != nil:
			t.Errorf("a call of the honest client, %s: %v", tool, err)
		case failed:
			t.Errorf("a call of the honest client, %s: failed = true, want false: %v", tool, got)
		case !holds(got):
			t.Errorf("a call of the honest client, %s: holds(got) = false, want true: %v", tool, got)
		}
		samples = append(samples, sample{tool, time.Since(began)})
	}
	for n := 0; n < rounds && ctx.Err() == nil; n++ {
		text := fmt.Sprintf("line one\nline %d\n", n)
		must("execute_code", map[string]any{"language": "python", "code": fmt.Sprintf("total = sum(range(%d))\ntotal", n)}, func(r map[string]any) bool {
			return r["success"] == true && r["result"] == strconv.Itoa(n*(n-1)/2)
		})
		must("write_file", map[string]any{"path": "notes.txt", "content": text}, func(map[string]any) bool { return true })
		must("edit_file", map[string]any{"path": "notes.txt", "old": "line one", "new": "line two"}, func(map[string]any) bool { return true })
		must("search_files", map[string]any{"pattern": `line \d+`}, func(r map[string]any) bool {
			found, _ := r["matches"].([]any)
			return len(found) == 1
		})
		must("read_file", map[string]any{"path": "notes.txt"}, func(r map[string]any) bool { return true })
	}
	return samples
}

// sample is how long a call took.
type sample struct {
	tool string
	took time.Duration
}

// rate gives the middle and the ninth of ten, of the calls of a tool or (empty) of all.
func rate(samples []sample, tool string) (median, ninth time.Duration) {
	var sorted []time.Duration
	for _, s := range samples {
		if tool == "" || s.tool == tool {
			sorted = append(sorted, s.took)
		}
	}
	slices.Sort(sorted)
	if len(sorted) == 0 {
		return 0, 0
	}
	return sorted[len(sorted)/2], sorted[len(sorted)*9/10]
}

// status reads a number of kB from the server's /proc/PID/status.
func (w *server) status(field string) int64 {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", w.Cmd.Process.Pid))
	if err != nil {
		return 0
	}
	_, rest, _ := strings.Cut(string(text), field+":")
	line, _, _ := strings.Cut(rest, "\n")
	n, _ := strconv.ParseInt(strings.TrimSpace(strings.TrimSuffix(strings.TrimSpace(line), "kB")), 10, 64)
	return n << 10
}

func (w *server) descriptors() int {
	entries, _ := os.ReadDir(fmt.Sprintf("/proc/%d/fd", w.Cmd.Process.Pid))
	return len(entries)
}

// lives tells whether the server answers.
func (w *server) lives() bool {
	resp, err := http.Get(w.Base() + "/healthz")
	if err != nil {
		return false
	}
	defer resp.Body.Close()
	return resp.StatusCode == http.StatusOK
}

// during has hostile clients make attacks, each in a process of its own which gives way to
// the server's and the honest client's, while f runs.
func (w *server) during(hostile []*client, names []string, f func(context.Context)) {
	w.t.Helper()
	ctx, cancel := context.WithCancel(w.t.Context())
	defer cancel()
	exe, err := os.Executable()
	if err != nil {
		w.t.Fatal(err)
	}
	var ends []func()
	for _, c := range hostile {
		cmd := exec.CommandContext(ctx, "nice", "-n", "19", exe)
		told, err := json.Marshal(order{URL: w.URL, Token: c.token, Site: w.site, Names: names})
		if err != nil {
			w.t.Fatal(err)
		}
		var out bytes.Buffer
		cmd.Env, cmd.Stdout, cmd.Stderr = append(os.Environ(), orderEnv+"="+string(told)), &out, os.Stderr
		in, err := cmd.StdinPipe()
		if err == nil {
			err = cmd.Start()
		}
		if err != nil {
			w.t.Fatal(err)
		}
		ends = append(ends, func() {
			in.Close() // then it ends
			_ = cmd.Wait()
			var counts map[string]int64
			if err := json.Unmarshal(out.Bytes(), &counts); err != nil {
				w.t.Errorf("a hostile client did not come to its end: %v", err)
			}
			for name, n := range counts {
				w.counts[name] += n
			}
		})
	}
	f(ctx)
	for _, end := range ends {
		end()
	}
}

func (w *server) told() string {
	var b strings.Builder
	for _, name := range slices.Sorted(maps.Keys(w.counts)) {
		fmt.Fprintf(&b, "%s %d, ", name, w.counts[name])
	}
	return strings.TrimSuffix(b.String(), ", ")
}

// All attacks at once by one owner: another owner's calls are answered within three times
// what they take alone, and the server's memory stays below its bound.
func TestOneHostileOwnerHarmsNobodyElse(t *testing.T) {
	w := newServer(t)
	ann, mallory := w.client("ann"), w.client("mallory")
	ann.begins("honest-work")
	mallory.begins(session)
	ann.honest(t.Context(), 5) // so that all is there
	alone := ann.honest(t.Context(), 100)
	var beside []sample
	w.during([]*client{mallory}, every(), func(ctx context.Context) {
		time.Sleep(time.Second) // until all of them have begun
		beside = ann.honest(ctx, 400)
	})
	if !w.lives() {
		t.Fatal("the server does not live")
	}
	median, ninth := rate(alone, "")
	median2, ninth2 := rate(beside, "")
	ratio := float64(median2) / float64(median)
	t.Logf("alone %v (nine of ten %v), beside the attacks %v (%v): %.1f times; at most %d MB of memory; %s",
		median, ninth, median2, ninth2, ratio, w.status("VmHWM")/1e6, w.told())
	for _, tool := range []string{"execute_code", "write_file", "edit_file", "search_files", "read_file"} {
		before, _ := rate(alone, tool)
		after, ninth := rate(beside, tool)
		t.Logf("%s: alone %v, beside %v (nine of ten %v)", tool, before, after, ninth)
	}
	if *strict && ratio > mostRatio {
		t.Errorf("the calls of the honest client took %.1f times as long", ratio)
	}
	if peak := w.status("VmHWM"); peak > mostMemory {
		t.Errorf("the server had %d MB of memory", peak/1e6)
	}
}

// BenchmarkBesideEach tells how long an honest client's calls take beside each attack.
func BenchmarkBesideEach(b *testing.B) {
	w := newServer(b)
	ann, mallory := w.client("ann"), w.client("mallory")
	ann.begins("honest-work")
	mallory.begins(session)
	ann.honest(b.Context(), 5)
	alone, _ := rate(ann.honest(b.Context(), 40), "")
	for _, name := range slices.Sorted(maps.Keys(attacks)) {
		b.Run(name, func(b *testing.B) {
			var samples []sample
			w.during([]*client{mallory}, []string{name}, func(ctx context.Context) {
				time.Sleep(time.Second)
				for b.Loop() {
					samples = append(samples, ann.honest(ctx, 1)...)
				}
			})
			median, _ := rate(samples, "")
			b.ReportMetric(float64(median)/float64(alone), "times-alone")
			b.ReportMetric(float64(w.status("VmRSS"))/1e6, "MB")
		})
	}
}

// Four hostile owners for as long as -soak says.
func TestHostileOwnersForLong(t *testing.T) {
	if *soakFor == 0 {
		t.Skip("-soak says how long: make soak")
	}
	w := newServer(t)
	ann := w.client("ann")
	var hostile []*client
	for n := range 4 {
		hostile = append(hostile, w.client(fmt.Sprintf("mallory%d", n)))
	}
	ann.begins("honest-work")
	for _, c := range hostile {
		c.begins(session)
	}
	until := time.Now().Add(*soakFor)
	type look struct {
		memory      int64
		descriptors int
	}
	var looks []look
	calls := 0
	w.during(hostile, every(), func(ctx context.Context) {
		for part := *soakFor / 12; time.Now().Before(until); {
			end := time.Now().Add(part)
			var samples []sample
			for time.Now().Before(end) {
				samples = append(samples, ann.honest(ctx, 10)...)
			}
			calls += len(samples)
			median, ninth := rate(samples, "")
			l := look{w.status("VmRSS"), w.descriptors()}
			looks = append(looks, l)
			t.Logf("%s: %d calls, %v (nine of ten %v), %d MB (at most %d), %d descriptors", time.Now().Format(time.TimeOnly), len(samples), median, ninth, l.memory/1e6, w.status("VmHWM")/1e6, l.descriptors)
		}
	})
	t.Logf("%d calls of the honest client; %s", calls, w.told())
	if !w.lives() {
		t.Fatal("the server does not live")
	}
	if peak := w.status("VmHWM"); peak > mostMemory {
		t.Errorf("the server had %d MB of memory", peak/1e6)
	}
	if first, last := looks[len(looks)/4], looks[len(looks)-1]; last.descriptors > 2*first.descriptors+100 {
		t.Errorf("%d descriptors became %d", first.descriptors, last.descriptors)
	}
}
