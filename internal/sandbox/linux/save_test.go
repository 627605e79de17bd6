//go:build linux && (amd64 || arm64)

package linux

import (
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"paddock/internal/fault"
	"paddock/internal/sandbox"
)

// keptSpec is an interpreter in a box with a folder of the host.
func keptSpec(t testing.TB, runtime string) sandbox.Spec {
	return sandbox.Spec{
		Owner: "alice", Runtime: runtime, Box: "one", Dir: "/workspace",
		Mounts: []sandbox.Mount{{Guest: "/workspace", Host: folderFor(t, "workspace"), DiskBytes: 1 << 30}},
	}
}

// says runs a program and gives its result, or what it printed.
func says(t testing.TB, in sandbox.Instance, code string) string {
	t.Helper()
	var out bytes.Buffer
	exit, err := in.Run(t.Context(), sandbox.Command{Code: code, Stdout: &out})
	if err != nil || exit.Code != 0 {
		t.Fatalf("%s: %+v, %v", code, exit.Error, err)
	}
	if exit.Result != "" {
		return exit.Result
	}
	return strings.TrimSpace(out.String())
}

// saved is a box that was saved.
func saved(t testing.TB, b *Backend) *sandbox.MachineState {
	t.Helper()
	var data bytes.Buffer
	s, err := b.SaveMachine(t.Context(), "alice", "one", 1<<30, &data, func() error { return nil })
	if err != nil {
		t.Fatal(err)
	}
	return &sandbox.MachineState{State: s.State, Open: func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(data.Bytes())), nil }}
}

// Two interests that were found not to be ready together, of which one is removed: the
// other one still points to it in what is saved.
func TestASetOfARestoredBoxTellsOfNothingThatWasRemoved(t *testing.T) {
	b := newBackend(t)
	spec := keptSpec(t, "python")
	in := start(t, b, spec)
	says(t, in, `import os, select
set = select.epoll()
pipes = [os.pipe() for _ in range(3)]
for read, write in pipes:
    set.register(read)
    os.write(write, b"x")
    os.read(read, 1)
assert set.poll(0) == []
for read, write in pipes[1:]:
    set.unregister(read)
    os.close(read)
    os.close(write)`)
	spec.Machine = saved(t, b)
	in.Close()
	in = start(t, b, spec)
	if got := says(t, in, `set.poll(0)`); got != "[]" {
		t.Errorf("it tells of %s", got)
	}
	if got := says(t, in, `os.write(pipes[0][1], b"x"); set.poll(0) == [(pipes[0][0], select.EPOLLIN)]`); got != "True" {
		t.Error("it does not tell of what is in it")
	}
}

func TestABoxGoesOnWhereItWasSaved(t *testing.T) {
	b := newBackend(t)
	spec := keptSpec(t, "python")
	first := map[string]sandbox.Instance{}
	for _, r := range []string{"python", "javascript", "bash", sandbox.CommandRuntime} {
		spec.Runtime = r
		first[r] = start(t, b, spec)
	}
	says(t, first["python"], "x = 41; import subprocess; p = subprocess.Popen(['sleep', '1000']); f = open('/workspace/log', 'w'); f.write('one\\n'); f.flush()")
	says(t, first["javascript"], "var y = [1, 2]; var ticks = 0; setInterval(() => ticks++, 10).unref()")
	says(t, first["bash"], "cd /usr; z=three; f() { echo $z; }")
	says(t, first["bash"], "echo 'upon the root' > /dev/shm/mine")
	began := time.Now()
	state := saved(t, b)
	t.Log("saved in", time.Since(began))
	if got := says(t, first["python"], "x += 1; f.write('two\\n'); f.flush(); x"); got != "42" {
		t.Errorf("it does not go on: %s", got)
	}
	for _, in := range first {
		in.Close()
	}
	began = time.Now()
	spec.Machine = state
	again := map[string]sandbox.Instance{}
	for _, r := range []string{"python", "javascript", "bash", sandbox.CommandRuntime} {
		spec.Runtime = r
		again[r] = start(t, b, spec)
		if !again[r].(sandbox.RestoredInstance).WasRestored() {
			t.Errorf("%s is a fresh one", r)
		}
	}
	t.Log("restored in", time.Since(began))
	if got := says(t, again["python"], "f.write('three\\n'); f.flush(); x, p.poll(), open('/workspace/log').read()"); got != `(41, None, 'one\nthree\n')` {
		t.Errorf("python has %s", got)
	}
	t.Log("first result in", time.Since(began))
	if got := says(t, again["javascript"], "y.push(3); y.length"); got != "3" {
		t.Errorf("node has %s", got)
	}
	if got := says(t, again["bash"], "pwd; f; cat /dev/shm/mine"); got != "/usr\nthree\nupon the root" {
		t.Errorf("bash has %s", got)
	}
}

// fewBytes takes so many and no more.
type fewBytes int

func (f *fewBytes) Write(p []byte) (int, error) {
	if *f -= fewBytes(len(p)); *f < 0 {
		return 0, io.ErrShortWrite
	}
	return len(p), nil
}

func TestABoxWhoseSavingIsGivenUpGoesOn(t *testing.T) {
	b := newBackend(t)
	in := start(t, b, keptSpec(t, "python"))
	says(t, in, "import os; x = 41; held = os.urandom(32 << 20)")
	for _, few := range []fewBytes{0, 1, 4 << 20} {
		if _, err := b.SaveMachine(t.Context(), "alice", "one", 1<<30, &few, func() error { return nil }); !errors.Is(err, io.ErrShortWrite) {
			t.Errorf("it gave %v", err)
		}
		if got := says(t, in, "x, len(held)"); got != "(41, 33554432)" {
			t.Errorf("then it has %s", got)
		}
	}
	saved(t, b)
	if got := says(t, in, "x"); got != "41" {
		t.Errorf("in the end it has %s", got)
	}
}

// draws has each runtime draw random numbers in every way that programs do.
var draws = map[string]string{
	"python":     "import random, uuid, secrets, tempfile, ssl, os; [random.random(), str(uuid.uuid4()), secrets.token_hex(8), next(tempfile._get_candidate_names()), ssl.RAND_bytes(8).hex(), os.urandom(8).hex()]",
	"javascript": "var c = require('crypto'); JSON.parse(JSON.stringify([Math.random(), c.randomUUID(), c.randomBytes(8).toString('hex'), c.randomInt(2**40), c.generatePrimeSync(64, {bigint: true}).toString(), crypto.getRandomValues(new Uint32Array(2)).join(), await new Promise(d => c.randomBytes(8, (e, b) => d(b.toString('hex')))), c.generateKeyPairSync('ec', {namedCurve: 'P-256'}).publicKey.export({format: 'jwk'}).x]))",
	"bash":       "echo $RANDOM.$RANDOM.$RANDOM $SRANDOM $(head -c 8 /dev/urandom | od -An -tx1 | tr -d ' ')",
}

func TestTwoThatGoOnFromOneStateDrawOtherNumbers(t *testing.T) {
	b := newBackend(t)
	spec := keptSpec(t, "")
	drawn := func(first bool) map[string]string {
		all := map[string]string{}
		for runtime, code := range draws {
			spec.Runtime = runtime
			in := start(t, b, spec)
			defer in.Close()
			all[runtime] = says(t, in, code)
		}
		if first { // all of it is there now
			spec.Machine = saved(t, b)
		}
		return all
	}
	drawn(true)
	seen := map[string]bool{}
	for n, anew := range []bool{false, false, true, true} {
		spec.Machine.Reseed = anew
		for runtime, got := range drawn(false) {
			again := 0
			for word := range strings.FieldsFuncSeq(got, func(r rune) bool { return strings.ContainsRune(" [],'\n", r) }) {
				if len(word) > 5 && seen[word] {
					again++
				}
				seen[word] = true
			}
			if (again > 0) != (n == 1) {
				t.Errorf("%s, number %d, drew %d of its numbers again: %s", runtime, n, again, got)
			}
		}
	}
}

// Clocks are true, and what is measured does not jump back; a timer fires once, and
// a file without a name is there; what listens is listened to.
func TestWhatGoesOnInARestoredBox(t *testing.T) {
	b := newBackend(t)
	spec := keptSpec(t, "python")
	in := start(t, b, spec)
	says(t, in, `import os, threading, time, socket
fired = []
f = open("/workspace/gone", "w+"); f.write("nameless"); f.flush(); os.unlink("/workspace/gone")
g = open("/workspace/kept", "wb+")
g.write(b"0123456789"); g.flush(); g.seek(4)
s = socket.create_server(("127.0.0.1", 8000))
def serve():
    while True:
        c, _ = s.accept()
        c.sendall(b"hello"); c.close()
threading.Thread(target=serve, daemon=True).start()
began, wall = time.monotonic(), time.time()
threading.Timer(0.3, lambda: fired.append(1)).start()`)
	state := saved(t, b)
	in.Close()
	spec.Machine = state
	again := start(t, b, spec)
	if got := says(t, again, `import time
time.sleep(0.7)
(fired, f.seek(0), f.read(), g.read(), os.listdir("/workspace"), 0.3 < time.monotonic() - began < 600, 0.3 < time.time() - wall < 600)`); got != "([1], 0, 'nameless', b'456789', ['kept'], True, True)" {
		t.Errorf("it has %s", got)
	}
	c, err := b.Dial(t.Context(), "alice", "one", 8000)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if text, err := io.ReadAll(c); string(text) != "hello" {
		t.Errorf("who listens says %q, %v", text, err)
	}
}

func TestWhatASavedBoxCannotGoOnWithIsRefusedAndNothingIsLeft(t *testing.T) {
	b := newBackend(t)
	spec := keptSpec(t, "python")
	in := start(t, b, spec)
	says(t, in, "f = open('/workspace/open', 'w'); x = 1")
	state := saved(t, b)
	in.Close()
	r, err := state.Open()
	if err != nil {
		t.Fatal(err)
	}
	data, err := io.ReadAll(r)
	if err != nil {
		t.Fatal(err)
	}
	content := func(change func([]byte) []byte) *sandbox.MachineState {
		text := change(bytes.Clone(data))
		return &sandbox.MachineState{State: state.State, Open: func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(text)), nil }}
	}
	origin := func(from, to string) *sandbox.MachineState {
		if !bytes.Contains(state.State, []byte(from)) {
			t.Fatalf("%s has no %s", state.State, from)
		}
		return &sandbox.MachineState{State: bytes.Replace(state.State, []byte(from), []byte(to), 1), Open: state.Open}
	}
	file := filepath.Join(spec.Mounts[0].Host, "open")
	for name, c := range map[string]struct {
		change func(*sandbox.Spec)
		why    string
	}{
		"another build":    {func(s *sandbox.Spec) { s.Machine = origin(`"build":"`, `"build":"0`) }, "another build"},
		"another image":    {func(s *sandbox.Spec) { s.Machine = origin(`"image":"host"`, `"image":"guest"`) }, "image"},
		"another platform": {func(s *sandbox.Spec) { s.Machine = origin(`systrap`, `kvm`) }, "kind of machine"},
		"other folders":    {func(s *sandbox.Spec) { s.Mounts[0].Guest = "/elsewhere" }, "folders"},
		"another limit":    {func(s *sandbox.Spec) { s.Limits.MemoryBytes = 600 << 20 }, "limits"},
		"no origin":        {func(s *sandbox.Spec) { s.Machine = &sandbox.MachineState{Open: state.Open} }, "damaged"},
		"half of it":       {func(s *sandbox.Spec) { s.Machine = content(func(p []byte) []byte { return p[:len(p)/2] }) }, "does not fit"},
		"nothing":          {func(s *sandbox.Spec) { s.Machine = content(func(p []byte) []byte { return nil }) }, "does not fit"},
		"something else": {func(s *sandbox.Spec) {
			s.Machine = content(func(p []byte) []byte { return bytes.Repeat([]byte("x"), 1<<20) })
		}, "does not fit"},
		"other bytes in it": {func(s *sandbox.Spec) {
			s.Machine = content(func(p []byte) []byte { clear(p[1<<15 : 1<<16]); return p })
		}, "does not fit"},
		"a file is not there": {func(s *sandbox.Spec) { rename(t, file, file+"-away") }, "does not fit"},
		"a file is a folder":  {func(s *sandbox.Spec) { rename(t, file, file+"-away"); makeFolder(t, file) }, "does not fit"},
	} {
		t.Run(name, func(t *testing.T) {
			spec := spec
			spec.Mounts = slices.Clone(spec.Mounts)
			spec.Machine = state
			c.change(&spec)
			if in, err := b.Start(t.Context(), spec); fault.KindOf(err) != fault.Unsupported || !strings.Contains(err.Error(), c.why) {
				t.Errorf("it gave %v, %v", in, err)
			}
			if len(b.machines) != 0 || len(b.all) != 0 {
				t.Errorf("%d machines are left", len(b.all))
			}
			if _, err := os.Stat(file + "-away"); err == nil {
				os.RemoveAll(file)
				rename(t, file+"-away", file)
			}
		})
	}
	spec.Machine = state
	if got := says(t, start(t, b, spec), "f.write('x'), x"); got != "(1, 1)" {
		t.Errorf("after all that it gives %s", got)
	}
}

func rename(t *testing.T, from, to string) {
	t.Helper()
	if err := os.Rename(from, to); err != nil {
		t.Fatal(err)
	}
}

func makeFolder(t *testing.T, path string) {
	t.Helper()
	if err := os.Mkdir(path, 0o755); err != nil {
		t.Fatal(err)
	}
}

// A name may have another image by now.
func TestASavedBoxGoesOnInTheImageThatItHad(t *testing.T) {
	there, dir := true, t.TempDir()
	b := &Backend{home: &home{name: "home"}, config: Config{Images: func(_ context.Context, name string) (Image, error) {
		switch {
		case name == "tools":
			return Image{Dir: dir, ID: "new"}, nil
		case name == "old" && there:
			return Image{Dir: dir, ID: "old"}, nil
		}
		return Image{}, fault.New(fault.NotFound, "there is no %s", name)
	}}}
	for _, c := range []struct {
		state string
		there bool
		want  string
	}{{`{"image": "old"}`, true, "old"}, {`{"image": "old"}`, false, "new"}, {`{"image": "host"}`, true, "new"}, {`?`, true, "new"}} {
		there = c.there
		p, err := b.planOf(t.Context(), newMachine("", sandbox.Spec{Image: "tools", Machine: &sandbox.MachineState{State: []byte(c.state)}}))
		if err != nil {
			t.Fatal(err)
		}
		if p.root.release(); p.root.name != c.want {
			t.Errorf("with %s, %t, it goes on in %s", c.state, c.there, p.root.name)
		}
	}
}
