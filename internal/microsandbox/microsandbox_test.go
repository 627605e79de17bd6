package microsandbox_test

import (
	"context"
	"encoding/json"
	"io"
	"maps"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"paddock/internal/fault"
	"paddock/internal/membudget"
	"paddock/internal/microsandbox"
	"paddock/internal/sandbox"
	"paddock/internal/sandbox/sandboxtest"
	"paddock/internal/session"
)

const alice = session.Owner("alice")

// testService is a service over a fake.
type testService struct {
	*microsandbox.Service
	sessions *session.Manager
	backend  *sandboxtest.FakeMachines
	volume   string
}

// open makes one; reach is what it may use of namespaces.
func open(t *testing.T, dir string, reach ...string) testService {
	t.Helper()
	w := testService{volume: t.TempDir()}
	w.backend = sandboxtest.NewFakeMachines(sandboxtest.FakeConfig{Name: microsandbox.Isolation, OnStart: func(s sandbox.Spec) error {
		if s.Image == "missing" {
			return fault.New(fault.NotFound, "there is no image %q", s.Image)
		}
		return nil
	}})
	var err error
	w.sessions, err = session.New(session.Config{Dir: dir, Backends: []sandbox.Backend{w.backend}, MachineMemoryBytes: 512 << 20, MaxMachineMemoryBytes: 1 << 30})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		w.sessions.Close()
		w.backend.Close()
	})
	w.Service = microsandbox.New(microsandbox.Config{Sessions: w.sessions, Volumes: []string{w.volume}, Namespaces: func(context.Context) []string { return reach }})
	return w
}

func (w testService) start(t *testing.T, name microsandbox.Name, set *microsandbox.Settings) {
	t.Helper()
	switch st, err := w.Start(t.Context(), alice, name, set); {
	case err != nil:
		t.Fatal(err)
	case !st.Running:
		t.Fatalf("st.Running = false, want true: %+v", st)
	case st.Name != name:
		t.Fatalf("st.Name = %v, want %v: %+v", st.Name, name, st)
	}
}

// code runs a program, and gives what was printed.
func (w testService) code(t *testing.T, name microsandbox.Name, code string) (string, microsandbox.Result) {
	t.Helper()
	r, err := w.Run(t.Context(), alice, name, microsandbox.Request{Language: "python", Code: code})
	if err != nil {
		t.Fatal(err)
	}
	var all []string
	for _, l := range r.Output {
		all = append(all, l.Stream+": "+l.Text)
	}
	return strings.Join(all, "\n"), r
}

func kind(t *testing.T, err error, want fault.Kind, words ...string) {
	t.Helper()
	if fault.KindOf(err) != want {
		t.Errorf("got %v, want a fault of the kind %q", err, want)
		return
	}
	for _, word := range words {
		if p := fault.ProblemOf(err); !strings.Contains(p.Line(), word) {
			t.Errorf("%q does not speak of %q", p.Line(), word)
		}
	}
}

var box = microsandbox.Name{Namespace: "default", Sandbox: "box"}

func TestASandboxIsStartedUsedStoppedAndFoundAgain(t *testing.T) {
	w := open(t, t.TempDir())
	_, err := w.Run(t.Context(), alice, box, microsandbox.Request{Command: "echo"})
	kind(t, err, fault.NotFound, "sandbox_start")
	_, err = w.Stop(t.Context(), alice, box)
	kind(t, err, fault.NotFound)
	w.start(t, box, &microsandbox.Settings{Image: "some"})
	w.start(t, box, nil)
	if out, r := w.code(t, box, "x = 41\nwrite('kept', 'text')\nprint('one')\neprint('two')\nx"); out != "stdout: one\nstderr: two\nstdout: 41" || !r.Success() {
		t.Errorf("it printed %q", out)
	}
	if out, _ := w.code(t, box, "x + 1"); out != "stdout: 42" {
		t.Errorf("it printed %q", out)
	}
	if out, r := w.code(t, box, "raise ValueError('no')"); out != "stderr: ValueError: no" || r.Success() {
		t.Errorf("it printed %q", out)
	}
	r, err := w.Run(t.Context(), alice, box, microsandbox.Request{Command: "echo", Args: []string{"a", "b"}})
	switch {
	case err != nil:
		t.Errorf("the command: %v", err)
	case r.Exit.Code != 0:
		t.Errorf("the command: r.Exit.Code = %v, want 0: %+v", r.Exit.Code, r)
	case !slices.Equal(r.Output, []microsandbox.Line{{Stream: "stdout", Text: "a b"}}):
		t.Errorf("the command: r.Output = %v, want %v: %+v",
			r.Output, []microsandbox.Line{{Stream: "stdout", Text: "a b"}}, r)
	}
	for range 2 {
		switch st, err := w.Stop(t.Context(), alice, box); {
		case err != nil:
			t.Fatal(err)
		case st.Running:
			t.Fatalf("st.Running = true, want false: %+v", st)
		case st.Image != "some":
			t.Fatalf(`st.Image = %q, want "some"`, st.Image)
		}
	}
	_, err = w.Run(t.Context(), alice, box, microsandbox.Request{Command: "echo"})
	kind(t, err, fault.Conflict, "not started", "sandbox_start")
	w.start(t, box, nil)
	if out, _ := w.code(t, box, "print(read('kept'))"); out != "stdout: text" {
		t.Errorf("it printed %q", out)
	}
	_, err = w.Run(t.Context(), "bob", box, microsandbox.Request{Command: "echo"})
	kind(t, err, fault.NotFound)
}

func TestAfterARestartAStartedSandboxGoesOnAndAStoppedOneDoesNot(t *testing.T) {
	dir := t.TempDir()
	stopped := microsandbox.Name{Namespace: "default", Sandbox: "stopped"}
	w := open(t, dir)
	w.start(t, box, nil)
	w.start(t, stopped, nil)
	w.code(t, box, "x = 1")
	if _, err := w.Stop(t.Context(), alice, stopped); err != nil {
		t.Fatal(err)
	}
	if err := w.sessions.Close(); err != nil {
		t.Fatal(err)
	}
	w = open(t, dir)
	all, err := w.Metrics(t.Context(), alice, microsandbox.AllNamespaces, "")
	switch {
	case err != nil:
		t.Error(err)
	case len(all) != 2:
		t.Errorf("len(all) = %d, want 2: %+v", len(all), all)
	case !all[0].Running:
		t.Errorf("all[0].Running = false, want true: %+v", all)
	case all[0].Memory != nil:
		t.Errorf("all[0].Memory = %v, want nil: %+v", all[0].Memory, all)
	case all[1].Running:
		t.Errorf("all[1].Running = true, want false: %+v", all)
	}
	if out, _ := w.code(t, box, "print(1)"); !strings.Contains(out, "stdout: 1") || !strings.Contains(out, "fresh python interpreter") {
		t.Errorf("it printed %q", out)
	}
	_, err = w.Run(t.Context(), alice, stopped, microsandbox.Request{Command: "echo"})
	kind(t, err, fault.Conflict, "not started")
}

func TestTwoProcessesShareTheStateFolder(t *testing.T) {
	dir := t.TempDir()
	first, second := open(t, dir), open(t, dir)
	first.start(t, box, nil)
	_, err := second.Start(t.Context(), alice, box, nil)
	kind(t, err, fault.Conflict, "another process")
	_, err = second.Run(t.Context(), alice, box, microsandbox.Request{Command: "echo"})
	kind(t, err, fault.Conflict, "another process")
	all, err := second.Metrics(t.Context(), alice, "default", "")
	switch {
	case err != nil:
		t.Error(err)
	case len(all) != 1:
		t.Errorf("len(all) = %d, want 1: %+v", len(all), all)
	case !all[0].Running:
		t.Errorf("all[0].Running = false, want true: %+v", all)
	case all[0].Memory != nil:
		t.Errorf("all[0].Memory = %v, want nil: %+v", all[0].Memory, all)
	case all[0].Disk == nil:
		t.Errorf("all[0].Disk is nil, want a value: %+v", all)
	}
}

func TestSettingsHoldFromAStoppedSandboxOn(t *testing.T) {
	w := open(t, t.TempDir())
	small := &microsandbox.Settings{Image: "some", Memory: 256, CPUs: 1, Envs: []string{"A=1=2", "B="}}
	w.start(t, box, small)
	w.start(t, box, small)
	if out, _ := w.code(t, box, "print(env('A'))"); out != "stdout: 1=2" {
		t.Errorf("it printed %q", out)
	}
	large := &microsandbox.Settings{Image: "other", Memory: 512}
	_, err := w.Start(t.Context(), alice, box, large)
	kind(t, err, fault.Conflict, "other settings", "sandbox_stop")
	if _, err := w.Stop(t.Context(), alice, box); err != nil {
		t.Fatal(err)
	}
	if st, err := w.Start(t.Context(), alice, box, large); err != nil || st.Image != "other" {
		t.Errorf("it is %+v, %v", st, err)
	}
}

func TestASandboxThatCannotBeStartedIsWhatItWas(t *testing.T) {
	w := open(t, t.TempDir())
	_, err := w.Start(t.Context(), alice, box, &microsandbox.Settings{Image: "missing"})
	kind(t, err, fault.NotFound, "missing")
	if all, err := w.Metrics(t.Context(), alice, microsandbox.AllNamespaces, ""); len(all) != 0 || err != nil {
		t.Errorf("there is %+v, %v", all, err)
	}
	w.start(t, box, nil)
	if _, err := w.Stop(t.Context(), alice, box); err != nil {
		t.Fatal(err)
	}
	_, err = w.Start(t.Context(), alice, box, &microsandbox.Settings{Image: "missing"})
	kind(t, err, fault.NotFound)
	switch all, err := w.Metrics(t.Context(), alice, "default", "box"); {
	case err != nil:
		t.Error(err)
	case len(all) != 1:
		t.Errorf("len(all) = %d, want 1: %+v", len(all), all)
	case all[0].Running:
		t.Errorf("all[0].Running = true, want false: %+v", all)
	}
	_, err = w.Start(t.Context(), alice, box, &microsandbox.Settings{Memory: 1 << 20})
	kind(t, err, fault.Invalid, "1024 MiB")
}

func TestWhatIsWrongWithSettingsIsSaidAtOnce(t *testing.T) {
	w := open(t, t.TempDir())
	link := filepath.Join(w.volume, "link")
	if err := os.Symlink("/etc", link); err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(w.volume, "hosts")
	if err := os.WriteFile(file, []byte("10.1.2.3 mine\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		set   microsandbox.Settings
		kind  fault.Kind
		words []string
	}{
		"several mistakes":               {microsandbox.Settings{CPUs: -1, Envs: []string{"no"}, Ports: []string{"x"}}, fault.Invalid, []string{"cpus", `"no"`, `"x"`}},
		"a folder that nobody allowed":   {microsandbox.Settings{Volumes: []string{"/etc:/data"}}, fault.Denied, []string{"/etc", "sandbox.volumes"}},
		"a link that leads out":          {microsandbox.Settings{Volumes: []string{link + ":/data"}}, fault.Denied, nil},
		"dots that lead out":             {microsandbox.Settings{Volumes: []string{w.volume + "/../..:/data"}}, fault.Denied, nil},
		"a folder that is not there":     {microsandbox.Settings{Volumes: []string{w.volume + "/none:/data"}}, fault.Denied, nil},
		"a relative folder":              {microsandbox.Settings{Volumes: []string{"data:/data"}}, fault.Invalid, nil},
		"a volume upon the workspace":    {microsandbox.Settings{Volumes: []string{w.volume + ":/workspace"}}, fault.Invalid, []string{"/workspace"}},
		"a volume upon the system":       {microsandbox.Settings{Volumes: []string{w.volume + ":/usr/../usr/lib"}}, fault.Invalid, nil},
		"a folder upon the system's":     {microsandbox.Settings{Volumes: []string{w.volume + ":/etc/ssl"}}, fault.Invalid, []string{"/etc/hosts"}},
		"a file upon the kernel's":       {microsandbox.Settings{Volumes: []string{file + ":/proc/version"}}, fault.Invalid, nil},
		"a script's name":                {microsandbox.Settings{Scripts: map[string]string{"../up": "true"}}, fault.Invalid, []string{`"../up"`}},
		"a script that is too long":      {microsandbox.Settings{Scripts: map[string]string{"long": strings.Repeat("x", 65<<10)}}, fault.Invalid, []string{`"long"`}},
		"a shell that is none":           {microsandbox.Settings{Shell: "sh -c\n", Scripts: map[string]string{"a": "true"}}, fault.Invalid, []string{"/bin/bash"}},
		"two volumes at the same place":  {microsandbox.Settings{Volumes: []string{w.volume + ":/data", w.volume + ":/data/"}}, fault.Invalid, []string{"two volumes"}},
		"a port of the machine's own":    {microsandbox.Settings{Ports: []string{"80:80"}}, fault.Denied, []string{"1024"}},
		"a port twice":                   {microsandbox.Settings{Ports: []string{"8080:80", "8080:81"}}, fault.Invalid, []string{"twice"}},
		"a port beyond the last":         {microsandbox.Settings{Ports: []string{"65536:80"}}, fault.Invalid, nil},
		"a port of another address":      {microsandbox.Settings{Ports: []string{"0.0.0.0:8080:80"}}, fault.Invalid, nil},
		"a variable without a name":      {microsandbox.Settings{Envs: []string{"=x"}}, fault.Invalid, nil},
		"more variables than there are":  {microsandbox.Settings{Envs: slices.Repeat([]string{"A=1"}, 65)}, fault.Invalid, nil},
		"memory beyond what is possible": {microsandbox.Settings{Memory: 1 << 60}, fault.Invalid, nil},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := w.Start(t.Context(), alice, box, &c.set)
			kind(t, err, c.kind, c.words...)
		})
	}
	for _, name := range []microsandbox.Name{{}, {Namespace: "a", Sandbox: "-a"}, {Namespace: "*", Sandbox: "a"}, {Namespace: "a", Sandbox: strings.Repeat("a", 64)}, {Namespace: "a", Sandbox: "a/b"}} {
		_, err := w.Start(t.Context(), alice, name, nil)
		kind(t, err, fault.Invalid)
	}
	w.start(t, microsandbox.Name{Namespace: strings.Repeat("n", 63), Sandbox: strings.Repeat("s", 63)}, nil)
}

// An operator may take a folder back, and a sandbox may put a link where it was.
func TestAVolumeIsCheckedAgainBeforeItIsUsed(t *testing.T) {
	w := open(t, t.TempDir())
	data := filepath.Join(w.volume, "data")
	if err := os.Mkdir(data, 0o755); err != nil {
		t.Fatal(err)
	}
	w.start(t, box, &microsandbox.Settings{Volumes: []string{data + ":/data:ro"}})
	if err := os.Remove(data); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("/etc", data); err != nil {
		t.Fatal(err)
	}
	_, err := w.Run(t.Context(), alice, box, microsandbox.Request{Command: "echo"})
	kind(t, err, fault.Denied)
	if _, err := w.Stop(t.Context(), alice, box); err != nil {
		t.Fatal(err)
	}
	_, err = w.Start(t.Context(), alice, box, nil)
	kind(t, err, fault.Denied)
}

func TestATokenReachesItsNamespacesAlone(t *testing.T) {
	dir := t.TempDir()
	w := open(t, dir)
	other := microsandbox.Name{Namespace: "other", Sandbox: "box"}
	w.start(t, box, nil)
	w.start(t, other, nil)
	if err := w.sessions.Close(); err != nil {
		t.Fatal(err)
	}
	w = open(t, dir, "default")
	w.code(t, box, "1")
	_, err := w.Start(t.Context(), alice, other, nil)
	kind(t, err, fault.Denied, "other", "default")
	_, err = w.Stop(t.Context(), alice, other)
	kind(t, err, fault.Denied)
	_, err = w.Run(t.Context(), alice, other, microsandbox.Request{Command: "echo"})
	kind(t, err, fault.Denied)
	_, err = w.Metrics(t.Context(), alice, "other", "")
	kind(t, err, fault.Denied)
	switch all, err := w.Metrics(t.Context(), alice, microsandbox.AllNamespaces, ""); {
	case err != nil:
		t.Error(err)
	case len(all) != 1:
		t.Errorf("len(all) = %d, want 1: %+v", len(all), all)
	case all[0].Namespace != "default":
		t.Errorf(`all[0].Namespace = %q, want "default"`, all[0].Namespace)
	}
}

func TestSandboxesAreMeasured(t *testing.T) {
	w := open(t, t.TempDir())
	names := []microsandbox.Name{{Namespace: "a", Sandbox: "2"}, {Namespace: "a", Sandbox: "1"}, {Namespace: "b", Sandbox: "1"}}
	for _, n := range names {
		w.start(t, n, nil)
		w.code(t, n, "write('f', 'text')")
	}
	if _, err := w.sessions.Create(t.Context(), alice, "sb-not-one", session.Settings{}); err != nil {
		t.Fatal(err)
	}
	if _, err := w.Stop(t.Context(), alice, names[0]); err != nil {
		t.Fatal(err)
	}
	for of, want := range map[[2]string]string{{"*", ""}: "a/1 a/2 b/1", {"a", ""}: "a/1 a/2", {"a", "2"}: "a/2", {"*", "1"}: "a/1 b/1", {"none", ""}: ""} {
		all, err := w.Metrics(t.Context(), alice, of[0], of[1])
		var got []string
		for _, m := range all {
			got = append(got, m.Namespace+"/"+m.Sandbox)
			switch stopped := m.Name == names[0]; {
			case m.Running == stopped:
				t.Errorf("m.Running = %v, want other than %v: %v, %+v", m.Running, stopped, m.Name, m)
			case m.Disk == nil:
				t.Errorf("m.Disk is nil, want a value: %v, %+v", m.Name, m)
			case *m.Disk == 0:
				t.Errorf("*m.Disk = %v, want other than 0: %v, %+v", *m.Disk, m.Name, m)
			case (m.Memory == nil) != stopped:
				t.Errorf("m.Memory == nil = %v, want %v: %v, %+v", m.Memory == nil, stopped, m.Name, m)
			case (m.CPU == nil) != stopped:
				t.Errorf("m.CPU == nil = %v, want %v: %v, %+v", m.CPU == nil, stopped, m.Name, m)
			}
		}
		if strings.Join(got, " ") != want || err != nil {
			t.Errorf("%v: %q, %v", of, got, err)
		}
	}
	_, err := w.Metrics(t.Context(), alice, "a", "none")
	kind(t, err, fault.NotFound)
	if all, err := w.Metrics(t.Context(), "bob", "*", ""); len(all) != 0 || err != nil {
		t.Errorf("another owner sees %+v, %v", all, err)
	}
}

func TestManyStartAndStopTheSameSandboxAtOnce(t *testing.T) {
	w := open(t, t.TempDir())
	var all sync.WaitGroup
	for n := range 12 {
		all.Go(func() {
			var err error
			if n%3 == 0 {
				_, err = w.Stop(t.Context(), alice, box)
			} else {
				_, err = w.Start(t.Context(), alice, box, &microsandbox.Settings{Image: "some"})
			}
			if err != nil && fault.KindOf(err) != fault.NotFound {
				t.Error(err)
			}
		})
	}
	all.Wait()
	if _, err := w.Stop(t.Context(), alice, box); err != nil || w.backend.Live() != 0 {
		t.Errorf("%v, and %d live", err, w.backend.Live())
	}
}

func TestOutputIsBoundedAndPassedOn(t *testing.T) {
	w := open(t, t.TempDir())
	w.start(t, box, nil)
	var stdout strings.Builder
	r, err := w.Run(t.Context(), alice, box, microsandbox.Request{Language: "nodejs", Code: "print('ä' + 'bcdefghij')\neprint('more')", Limit: 12, Stdout: &stdout})
	want := []microsandbox.Line{{Stream: "stdout", Text: "äbcdefg"}, {Stream: "stdout", Text: "[… 2 bytes left out …]"}, {Stream: "stdout", Text: "j"}, {Stream: "stderr", Text: "[… 3 bytes left out …]"}, {Stream: "stderr", Text: "e"}}
	if err != nil || !slices.Equal(r.Output, want) {
		t.Errorf("it printed %q, %v", r.Output, err)
	}
	if stdout.String() != "äbcdefghij\n" {
		t.Errorf("passed on was %q", &stdout)
	}
	r, err = w.Run(t.Context(), alice, box, microsandbox.Request{Language: "python", Code: "loop", Timeout: 50 * time.Millisecond})
	switch {
	case err != nil:
		t.Errorf("at its time limit: %v", err)
	case r.Success():
		t.Errorf("at its time limit: r.Success() = true, want false: %+v", r.Output)
	case !slices.Contains(r.Output, microsandbox.Line{Stream: "stderr", Text: "[timed out]"}):
		t.Errorf("at its time limit: r.Output = %v, want %q in it",
			r.Output, microsandbox.Line{Stream: "stderr", Text: "[timed out]"})
	}
	_, err = w.Run(t.Context(), alice, box, microsandbox.Request{Language: "perl", Code: "1"})
	kind(t, err, fault.Invalid, "perl", "python and nodejs")
}

// Each line is one of the result's, but of a million empty ones nobody wants to read
// a million times that there is nothing.
func TestManyLinesAreOneText(t *testing.T) {
	w := open(t, t.TempDir())
	w.start(t, box, nil)
	code := strings.Repeat("print(1)\neprint(2)\n", 5000) + "7"
	r, err := w.Run(t.Context(), alice, box, microsandbox.Request{Language: "python", Code: code})
	switch {
	case err != nil:
		t.Fatal(err)
	case !r.Success():
		t.Fatal("r.Success() = false, want true")
	case len(r.Output) > 2010:
		t.Fatalf("len(r.Output) = %d, want at most 2010", len(r.Output))
	}
	said := map[string]string{}
	for _, line := range r.Output {
		said[line.Stream] += line.Text + "\n"
	}
	if want := (map[string]string{"stdout": strings.Repeat("1\n", 5000) + "7\n", "stderr": strings.Repeat("2\n", 5000)}); !maps.Equal(said, want) {
		t.Errorf("it printed %d and %d bytes", len(said["stdout"]), len(said["stderr"]))
	}
}

func TestPortsOfASandbox(t *testing.T) {
	w := open(t, t.TempDir())
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	at := l.Addr().String()
	_, port, _ := net.SplitHostPort(at)
	set := &microsandbox.Settings{Ports: []string{port + ":80"}}
	_, err = w.Start(t.Context(), alice, box, set)
	kind(t, err, fault.Conflict, port, "taken")
	l.Close()
	w.start(t, box, set)
	if _, err := w.Run(t.Context(), alice, box, microsandbox.Request{Command: "serve", Args: []string{"80"}}); err != nil {
		t.Fatal(err)
	}
	conn, err := net.Dial("tcp", at)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if _, err := io.WriteString(conn, "hello"); err != nil {
		t.Fatal(err)
	}
	if got, err := io.ReadAll(io.LimitReader(conn, 5)); string(got) != "hello" {
		t.Errorf("it says %q, %v", got, err)
	}
}

// rpc sends a body, and gives the answer.
func rpc(t *testing.T, h http.Handler, body string) (answer struct {
	Result json.RawMessage
	Error  struct {
		Code    int
		Message string
	}
	ID json.RawMessage
}) {
	t.Helper()
	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequest(http.MethodPost, "/", strings.NewReader(body)))
	if err := json.Unmarshal(w.Body.Bytes(), &answer); err != nil || w.Code != http.StatusOK {
		t.Fatalf("%s: %d %s", body, w.Code, w.Body)
	}
	return answer
}

func TestJSONRPC(t *testing.T) {
	w := open(t, t.TempDir())
	var denied error
	memory := membudget.New(64<<20, 64<<20)
	h := w.RPC(func(*http.Request) (session.Owner, error) { return alice, denied }, memory)
	request := func(method, params string) string {
		return `{"jsonrpc":"2.0","id":7,"method":"` + method + `","params":{"sandbox":"box","namespace":"default"` + params + `}}`
	}
	for _, c := range []struct{ body, want string }{
		{request("sandbox.start", `,"config":{"image":"some","memory":512,"cpus":1,"shell":"/bin/sh","scripts":{}}`), `"Sandbox box started successfully"`},
		{request("sandbox.repl.run", `,"language":"python","code":"x = 1\nprint('a<b')\nx"`), `{"status":"success","language":"python","output":[{"stream":"stdout","text":"a<b"},{"stream":"stdout","text":"1"}],"error":"","has_error":false}`},
		{request("sandbox.repl.run", `,"language":"python","code":"raise ValueError('no')","timeout":2.5`), `{"status":"error","language":"python","output":[{"stream":"stderr","text":"ValueError: no"}],"error":"ValueError: no\n","has_error":true}`},
		{request("sandbox.command.run", `,"command":"echo","args":["hi"]`), `{"command":"echo","args":["hi"],"exit_code":0,"success":true,"output":[{"stream":"stdout","text":"hi"}]}`},
		{request("sandbox.command.run", `,"command":"false"`), `{"command":"false","args":[],"exit_code":1,"success":false,"output":[]}`},
		{request("sandbox.stop", ""), `"Sandbox box stopped successfully"`},
		{`{"jsonrpc":"2.0","id":7,"method":"sandbox.metrics.get","params":{"namespace":"*"}}`, `{"sandboxes":[{"name":"box","namespace":"default","running":false,"cpu_usage":null,"memory_usage":null,"disk_usage":0}]}`},
	} {
		if a := rpc(t, h, c.body); string(a.Result) != c.want || string(a.ID) != "7" {
			t.Errorf("%s\ngot  %s (%+v)\nwant %s", c.body, a.Result, a.Error, c.want)
		}
	}
	for body, want := range map[string]int{
		`{`: -32700, `[]`: -32600, `3`: -32600, `{"id":1}`: -32600, `{"jsonrpc":"1.0","id":1,"method":"x"}`: -32600, `{"jsonrpc":"2.0","id":{},"method":"sandbox.stop"}`: -32600,
		request("sandbox.none", ""): -32601, request("sandbox.start", `,"config":7`): -32602, request("sandbox.start", `,"config":{"cpus":-1}`): -32602,
		request("sandbox.command.run", ""): -32602, request("sandbox.repl.run", `,"timeout":-1`): -32602, request("sandbox.repl.run", `,"timeout":1e300`): -32602,
		request("sandbox.repl.run", `,"language":"python","code":"1"`): -32603, `{"jsonrpc":"2.0","id":1,"method":"sandbox.stop","params":{"sandbox":"none","namespace":"default"}}`: -32603,
		request("sandbox.start", `,"config":{"volumes":["/etc:/data"]}`): -32002,
	} {
		if a := rpc(t, h, body); a.Error.Code != want || a.Error.Message == "" {
			t.Errorf("%s: %+v, want %d", body, a.Error, want)
		}
	}
	if a := rpc(t, h, request("sandbox.repl.run", `,"language":"python","code":"1"`)); !strings.Contains(a.Error.Message, "sandbox.start") || strings.Contains(a.Error.Message, "sandbox_") {
		t.Errorf("of a sandbox that is not started it says %q", a.Error.Message)
	}
	for params, want := range map[string]string{`{"config":{"image":5}}`: "config.image cannot be number", `{"args":"-la"}`: "args cannot be string", `7`: "params is an object"} {
		if a := rpc(t, h, `{"jsonrpc":"2.0","id":1,"method":"sandbox.start","params":`+params+`}`); a.Error.Code != -32602 || !strings.Contains(a.Error.Message, want) {
			t.Errorf("%s: %+v", params, a.Error)
		}
	}
	denied = fault.New(fault.Denied, "no")
	if a := rpc(t, h, request("sandbox.start", "")); a.Error.Code != -32002 {
		t.Errorf("who may not is told %+v", a.Error)
	}
	denied = nil
	recorder := httptest.NewRecorder()
	h.ServeHTTP(recorder, httptest.NewRequest(http.MethodPost, "/", strings.NewReader(`{"jsonrpc":"2.0","method":"sandbox.start","params":{"sandbox":"quiet","namespace":"default"}}`)))
	if recorder.Code != http.StatusNoContent || recorder.Body.Len() != 0 {
		t.Errorf("a notification is answered with %d %s", recorder.Code, recorder.Body)
	}
	recorder = httptest.NewRecorder()
	h.ServeHTTP(recorder, httptest.NewRequest(http.MethodGet, "/", nil))
	if recorder.Code != http.StatusMethodNotAllowed {
		t.Errorf("GET is answered with %d", recorder.Code)
	}
	if a := rpc(t, h, `{"jsonrpc":"2.0","id":1,"method":"sandbox.stop","params":"`+strings.Repeat("x", 9<<20)+`"}`); a.Error.Code != -32600 {
		t.Errorf("a body of 9 MiB: %+v", a.Error)
	}
	if held := memory.Held(); held != 0 {
		t.Errorf("%d bytes are held of requests that have ended", held)
	}
	little := w.RPC(func(*http.Request) (session.Owner, error) { return alice, nil }, membudget.New(1<<20, 1<<20))
	large := `{"jsonrpc":"2.0","id":1,"method":"sandbox.stop","params":{"sandbox":"` + strings.Repeat("x", 1<<20) + `"}}`
	if a := rpc(t, little, large); a.Error.Code != -32603 || !strings.Contains(a.Error.Message, "memory") {
		t.Errorf("a body beyond the budget: %+v", a.Error)
	}
	// What costs much more than its bytes is refused before anything is made of it.
	for name, params := range map[string]string{"deep": strings.Repeat("[", 1<<20) + strings.Repeat("]", 1<<20), "many": `{"args":[""` + strings.Repeat(`,""`, 1<<20) + `]}`} {
		body := `{"jsonrpc":"2.0","id":1,"method":"sandbox.command.run","params":` + params + `}`
		if a := rpc(t, h, body); a.Error.Code != -32600 || !strings.Contains(a.Error.Message, "costs") {
			t.Errorf("%s: %+v", name, a.Error)
		}
	}
	recorder = httptest.NewRecorder()
	microsandbox.Health(recorder, httptest.NewRequest(http.MethodGet, "/", nil))
	if recorder.Body.String() != `{"message":"Service is healthy"}`+"\n" {
		t.Errorf("its health is %s", recorder.Body)
	}
}

// A client that gives up without a word leaves its program running.
func TestNobodyWaitsForAProgramThatHoldsASandbox(t *testing.T) {
	w := open(t, t.TempDir())
	w.start(t, box, nil)
	began := make(chan string, 1)
	done := make(chan struct{})
	go func() {
		defer close(done)
		_, _ = w.Run(t.Context(), alice, box, microsandbox.Request{Language: "python", Code: "loop", Started: func(id string) { began <- id }})
	}()
	id := <-began
	time.Sleep(20 * time.Millisecond)
	_, err := w.Run(t.Context(), alice, box, microsandbox.Request{Language: "python", Code: "1", QueueTimeout: 10 * time.Millisecond})
	switch p := fault.ProblemOf(err); {
	case p.Code != fault.Conflict:
		t.Errorf("p.Code = %v, want %v: %+v", p.Code, fault.Conflict, p)
	case !strings.Contains(p.Message, id):
		t.Errorf("p.Message = %q, want %q in it", p.Message, id)
	case !strings.Contains(p.Hint, "sandbox_stop"):
		t.Errorf(`p.Hint = %q, want "sandbox_stop" in it`, p.Hint)
	}
	if _, err := w.Stop(t.Context(), alice, box); err != nil {
		t.Error(err)
	}
	<-done
}
