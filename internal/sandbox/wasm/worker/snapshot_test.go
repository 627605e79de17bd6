package worker

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"
	"unicode/utf8"

	"paddock/internal/fault"
	"paddock/internal/sandbox"
	"paddock/internal/sandbox/wasm/linear"
	"paddock/internal/sandbox/wasm/wasi"
	"paddock/internal/sandbox/wire"
	"paddock/internal/sandbox/wire/wiretest"
)

// taken is the layers that snapshots wrote, and the last one's state.
type taken struct {
	layers [][]byte
	state  []byte
}

// keep makes a snapshot of in and adds it.
func (l *taken) keep(t *testing.T, in *instance, body wire.SnapshotBody) sandbox.Snapshot {
	t.Helper()
	var b bytes.Buffer
	s, err := in.keep(body, &b)
	if err != nil {
		t.Fatal(err)
	}
	if s.Whole {
		l.layers = nil
	}
	if b.Len() > 0 {
		l.layers = append(l.layers, b.Bytes())
	}
	l.state = s.State
	return s
}

// arriving is the layers as they come from a server.
func (l *taken) arriving() *arriving {
	a := newArriving(func(int) {})
	for _, layer := range l.layers {
		a.frames = append(a.frames, layer, nil)
	}
	return a
}

// openedIn starts an interpreter, which sees dir as /tmp and which the test's
// end frees; it goes on from what was taken, if anything was.
func openedIn(t *testing.T, p *program, dir string, from *taken) *instance {
	t.Helper()
	in, err := resumedIn(t, p, dir, from, wire.ResumeBody{State: from.state, Layers: len(from.layers)})
	if err != nil {
		t.Fatal(err)
	}
	return in
}

func resumedIn(t *testing.T, p *program, dir string, from *taken, body wire.ResumeBody) (*instance, error) {
	t.Helper()
	root, err := os.OpenRoot(dir)
	if err == nil {
		err = os.MkdirAll(filepath.Join(dir, "files"), 0o755)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { root.Close() })
	in := &instance{program: p, log: io.Discard, worker: &worker{root: root, folders: folders{}}}
	in.saved.pages = newPages()
	in.connect(wire.NewConn(&wiretest.Recorder{}))
	if from.state != nil {
		if err := in.resumeFrom(body, from.arriving()); err != nil {
			if in.saved.pages.used != 0 {
				t.Errorf("%d pages are left of a state that was refused", in.saved.pages.used)
			}
			return nil, err
		}
	}
	if in.mounts, err = in.worker.openMounts([]wire.MountBody{{Guest: "/tmp", Host: "files", DiskBytes: 1 << 20}}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(in.discard)
	return in, in.open(body.Reseed)
}

func testProgram(t *testing.T, name string) *program {
	t.Helper()
	p, err := loaderIn(t, preparedCache(t)).load(t.Context(), name, true)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// A program's code may run when its variables are looked at. What it does then
// costs nothing that was kept.
func TestALookThatTheInterpreterDoesNotSurviveCostsNothing(t *testing.T) {
	in := openedIn(t, testProgram(t, "javascript"), t.TempDir(), &taken{})
	in.gives(t, "let x = 41; globalThis.trap = new Proxy({}, { ownKeys() { for (;;) try { for (;;); } catch {} finally { continue } } }); 0")
	var l taken
	in.touched = true
	if s := l.keep(t, in, wire.SnapshotBody{}); s.Known || !s.Whole {
		t.Fatalf("it is known %v, whole %v", s.Known, s.Whole)
	}
	if got := in.gives(t, "x + 1"); got != "42" {
		t.Errorf("x is %s", got)
	}
	in.touched = true
	if s := l.keep(t, in, wire.SnapshotBody{}); s.Known || s.Whole {
		t.Errorf("then it is known %v, whole %v", s.Known, s.Whole)
	}
	in.gives(t, "trap = 0")
	in.touched = true
	if s := l.keep(t, in, wire.SnapshotBody{}); !s.Known || s.Whole || len(l.layers) != 3 {
		t.Errorf("at last it is known %v, whole %v, number %d", s.Known, s.Whole, len(l.layers))
	}
}

// Where a snapshot was to follow a run and did not, the run is not lost all the
// same.
func TestARunThatNobodyKeptIsNotLost(t *testing.T) {
	in := openedIn(t, testProgram(t, "python"), t.TempDir(), &taken{})
	in.start.Snapshots = true
	in.worker.conn = wire.NewConn(&wiretest.Recorder{})
	(&taken{}).keep(t, in, wire.SnapshotBody{})
	in.ends.Control.Begin(0)
	in.Run(wire.RunBody{Code: "x = 1"})
	if !in.unkept {
		t.Fatal("it was kept without being asked for")
	}
	in.ends.Control.Begin(time.Millisecond)
	stop := time.AfterFunc(20*time.Millisecond, func() { in.ends.Control.Force(sandbox.TimedOut) })
	defer stop.Stop()
	in.Run(wire.RunBody{Code: "x = 2\nwhile True:\n  try:\n    while True: pass\n  except BaseException: pass"})
	if got := in.gives(t, "x"); got != "1" {
		t.Errorf("x is %s", got)
	}
}

// What waits in the background is given up when the interpreter goes back, and
// clean-up that takes no end does not keep it from that: it is not done.
func TestNoCleanUpKeepsAnInterpreterFromGoingBack(t *testing.T) {
	in := openedIn(t, testProgram(t, "python"), t.TempDir(), &taken{})
	in.gives(t, `
import asyncio
x, log, event = 1, [], asyncio.Event()
async def stubborn():
  try: await event.wait()
  finally:
    log.append("cleaned up")
    while True:
      try:
        while True: pass
      except BaseException: pass
t = asyncio.create_task(stubborn())
await asyncio.sleep(0)`)
	in.touched = true
	var l taken
	l.keep(t, in, wire.SnapshotBody{Mark: "m"})
	in.gives(t, "x = 2")
	if err := in.restoreTo(in.saved.find("m")); err != nil {
		t.Fatal(err)
	}
	again, err := resumedIn(t, in.program, t.TempDir(), &l, wire.ResumeBody{State: l.state, Layers: 1, Reseed: true})
	if err != nil {
		t.Fatal(err)
	}
	for _, each := range []*instance{in, again} {
		if got := each.gives(t, "event.set(); await asyncio.sleep(0.01); x, log, t.cancelled()"); got != "(1, [], True)" {
			t.Errorf("it gives %s", got)
		}
	}
}

// A machine that is too slow says nothing about what was kept.
func TestAnInterpreterThatTakesTooLongToAwakenIsNotCalledUnusable(t *testing.T) {
	in := openedIn(t, testProgram(t, "python"), t.TempDir(), &taken{})
	in.gives(t, `
import _paddock_driver
def endless(seed):
  while True:
    try:
      while True: pass
    except BaseException: pass
_paddock_driver.reseed = endless`)
	f := fault.Of(in.reseed())
	if f == nil || f.Kind != fault.Unavailable || f.Hint == "" {
		t.Errorf("it gives %+v", f)
	}
}

// A name that a program chooses is no reason for a state that cannot be kept.
func TestNamesInAnInspectionAreBounded(t *testing.T) {
	for name, code := range map[string]string{
		"python": `
import sys, types
long = "a" * 9_000_000
globals()[long] = 1
C = type(long, (), {"__module__": long}); c = C()
m = types.ModuleType(long)
many = {f"module{n}": types.ModuleType(f"m{n}") for n in range(1000)}
globals().update(many)
del long`,
		"javascript": `
globalThis["a".repeat(500_000)] = 1;
globalThis.c = new ({ ["b".repeat(500_000)]: class {} })["b".repeat(500_000)];
globalThis.odd = new (class { static name = { toString() { return "Odd"; } } });
process.noteImport("c".repeat(500_000));
for (let n = 0; n < 1000; n++) process.noteImport("m" + n); 0`,
	} {
		t.Run(name, func(t *testing.T) {
			in := openedIn(t, testProgram(t, name), t.TempDir(), &taken{})
			in.gives(t, code)
			o, err := in.askWithTimeout(map[string]any{"op": "inspect"}, testTime)
			if err != nil {
				t.Fatal(err)
			}
			text, err := json.Marshal(o)
			if err != nil || len(text) > 200<<10 {
				t.Errorf("the driver tells %d bytes (%v)", len(text), err)
			}
			if len(o.Variables) < 2 || len(o.Imports) < 200 || len(o.Imports) > 200 {
				t.Errorf("there are %d variables, %d imports", len(o.Variables), len(o.Imports))
			}
			cut := 0
			for _, v := range o.Variables {
				if n := utf8.RuneCountInString(v.Name); n > 256 {
					t.Errorf("a name has %d characters", n)
				} else if n == 256 && strings.HasSuffix(v.Name, "a…") {
					cut++
				}
				if n := utf8.RuneCountInString(v.Type); n > 100 {
					t.Errorf("a type has %d characters", n)
				}
			}
			if cut != 1 {
				t.Errorf("the long name is told %d times", cut)
			}
			for _, v := range o.Imports {
				if n := utf8.RuneCountInString(v); n > 200 {
					t.Errorf("an import has %d characters", n)
				}
			}
		})
	}
}

// A snapshot that could not be written leads nowhere.
func TestAfterASnapshotThatFailedTheNextIsWhole(t *testing.T) {
	in := openedIn(t, testProgram(t, "javascript"), t.TempDir(), &taken{})
	var l taken
	l.keep(t, in, wire.SnapshotBody{Mark: "good"})
	in.gives(t, "let x = 41; 0")
	in.touched = true
	if _, err := in.keep(wire.SnapshotBody{Mark: "torn"}, &narrow{100}); !errors.Is(err, errNarrow) {
		t.Fatalf("it gives %v", err)
	}
	if in.saved.find("torn") != nil {
		t.Error("it can be gone back to")
	}
	if s := l.keep(t, in, wire.SnapshotBody{}); !s.Whole {
		t.Error("the next one is not whole")
	}
	if got := openedIn(t, in.program, t.TempDir(), &l).gives(t, "x + 1"); got != "42" {
		t.Errorf("x is %s", got)
	}
}

// What comes over the memory that a state may have, or is not of this
// interpreter, is refused before anything is started.
func TestAStateIsForItsInterpreter(t *testing.T) {
	p := testProgram(t, "python")
	in := openedIn(t, p, t.TempDir(), &taken{})
	var l taken
	l.keep(t, in, wire.SnapshotBody{})
	var good savedState
	if err := json.Unmarshal(l.state, &good); err != nil {
		t.Fatal(err)
	}
	digest := p.image.Digest
	for name, c := range map[string]struct {
		image  string
		change func(s *savedState)
		kind   fault.Kind
	}{
		"another build":       {digest, func(s *savedState) { s.Guest = "another" }, fault.Unsupported},
		"another runtime":     {digest, func(s *savedState) { s.Runtime = "javascript" }, fault.Unsupported},
		"another version":     {digest, func(s *savedState) { s.Version++ }, fault.Unsupported},
		"another image":       {"another", func(*savedState) {}, fault.Unsupported},
		"too much memory":     {digest, func(s *savedState) { s.Bytes = 1 << 40 }, fault.Invalid},
		"less than the image": {digest, func(s *savedState) { s.Bytes = 1 << 16 }, fault.Unsupported},
		"half a page":         {digest, func(s *savedState) { s.Bytes += 7 }, fault.Unsupported},
		"another moment":      {digest, func(s *savedState) { s.Moment = "another" }, fault.Unsupported},
		"a damaged descriptor": {digest, func(s *savedState) {
			s.Files.Descriptors = append(s.Files.Descriptors, wasi.Descriptor{FD: -1, Kind: wasi.KindFile})
		}, fault.Unsupported},
		"itself": {digest, func(*savedState) {}, ""},
	} {
		s := good
		s.Files.Descriptors = append([]wasi.Descriptor(nil), good.Files.Descriptors...)
		c.change(&s)
		text, err := json.Marshal(s)
		if err != nil {
			t.Fatal(err)
		}
		p.image.Digest = c.image
		_, err = resumedIn(t, p, t.TempDir(), &taken{l.layers, text}, wire.ResumeBody{State: text, Layers: 1})
		if fault.KindOf(err) != c.kind {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// A portable state does not depend on the image, and takes no more room than
// any other once it is there.
func TestAPortableStateIsLikeAnyOther(t *testing.T) {
	p := testProgram(t, "python")
	in := openedIn(t, p, t.TempDir(), &taken{})
	in.gives(t, "x = 41")
	var l, portable taken
	in.touched = true
	l.keep(t, in, wire.SnapshotBody{})
	portable.keep(t, in, wire.SnapshotBody{Portable: true})
	p.image.Digest = "another"
	again := openedIn(t, p, t.TempDir(), &portable)
	if got := again.gives(t, "x + 1"); got != "42" {
		t.Errorf("x is %s", got)
	}
	if a, b := len(in.saved.newest.pages), len(again.saved.newest.pages); a != b || b != again.saved.pages.used {
		t.Errorf("it has %d pages of its own, and not %d; %d are used", b, a, again.saved.pages.used)
	}
}

func TestAStateIsNeverTooLong(t *testing.T) {
	long := strings.Repeat("x", 200)
	var many []wasi.Descriptor
	for fd := range 200 {
		names := make([]string, 500)
		for i := range names {
			names[i] = fmt.Sprint(long, i)
		}
		many = append(many, wasi.Descriptor{FD: fd, Kind: wasi.KindFile, Path: "/" + strings.Repeat(long+"/", 10), Names: names})
	}
	p := testProgram(t, "python")
	for _, count := range []int{1, 20, 200} {
		in := &instance{program: p}
		in.saved.newest = &snapshot{id: "m", files: wasi.State{Descriptors: many[:count]}}
		text := in.state()
		var s savedState
		if err := json.Unmarshal(text, &s); err != nil || len(text) > wire.MaxState || len(s.Files.Descriptors) != count {
			t.Fatalf("%d descriptors: %d bytes, %d descriptors, %v", count, len(text), len(s.Files.Descriptors), err)
		}
		if first := s.Files.Descriptors[0]; first.Kind != wasi.KindFile || first.Path == "" {
			t.Errorf("the first of %d is %+v", count, first)
		}
		if last := s.Files.Descriptors[count-1]; (last.Kind == wasi.KindDead) != (count == 200) || last.FD != count-1 {
			t.Errorf("the last of %d is %+v", count, last)
		}
	}
}

func TestASnapshotWaitsForItsCreditOrIsGivenUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := &wiretest.Recorder{}
		s := newSaving(wire.NewConn(p), 7)
		written := make(chan error, 1)
		go func() {
			_, err := s.Write(make([]byte, 3*wire.Window))
			written <- err
		}()
		synctest.Wait()
		if n := len(wiretest.Text(p.Frames(t), wire.KindData)); n != wire.Window {
			t.Errorf("%d bytes came without credit", n)
		}
		s.Grant(1000)
		synctest.Wait()
		if n := len(wiretest.Text(p.Frames(t), wire.KindData)); n != 1000 {
			t.Errorf("%d bytes came for a credit of 1000", n)
		}
		s.cancel()
		s.cancel()
		if err := <-written; !errors.Is(err, errGivenUp) {
			t.Errorf("it ends with %v", err)
		}
		if _, err := s.Write([]byte("x")); !errors.Is(err, errGivenUp) {
			t.Errorf("more of it gives %v", err)
		}
	})
}

func TestLayersArrive(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		asked := 0
		a := newArriving(func(n int) { asked += n })
		read := make(chan string, 1)
		go func() {
			for range 2 {
				a.next()
				b, err := io.ReadAll(a)
				read <- fmt.Sprintf("%d bytes, %v", len(b), err)
			}
			a.next()
			_, err := io.ReadAll(a)
			read <- fmt.Sprint(err)
		}()
		for range 4 {
			a.push(make([]byte, wire.Window/4))
			synctest.Wait()
		}
		a.push(nil)
		a.push(nil)
		for _, want := range []string{fmt.Sprintf("%d bytes, <nil>", wire.Window), "0 bytes, <nil>"} {
			if got := <-read; got != want {
				t.Errorf("it read %s, not %s", got, want)
			}
		}
		if asked != wire.Window {
			t.Errorf("it asked for %d", asked)
		}
		a.close()
		if got := <-read; got != errHungUp.Error() {
			t.Errorf("after its end it says %s", got)
		}
	})
	a := newArriving(func(int) {})
	a.push(make([]byte, wire.Window))
	a.push(make([]byte, 1))
	if _, err := a.Read(make([]byte, 1)); !errors.Is(err, errHungUp) {
		t.Errorf("more than may come gives %v", err)
	}
}

// A layer can name any page below the memory's length, and a state may have
// many layers: no more is held than the memory that they make.
func TestLayersHoldNoMoreThanTheMemory(t *testing.T) {
	p := testProgram(t, "python")
	bytes := p.image.Bytes
	full := make([]byte, linear.PageSize)
	for i := range full {
		full[i] = byte(i)
	}
	l := taken{}
	for n := range 3 {
		head := layerHead{To: fmt.Sprint(n), Bytes: bytes}
		if n > 0 {
			head.From = fmt.Sprint(n - 1)
		}
		var numbers []uint32
		pages := map[uint32][]byte{}
		for page := range uint32(bytes / linear.PageSize) {
			numbers, pages[page] = append(numbers, page), full
		}
		l.layers = append(l.layers, layerOf(t, head, numbers, nil, pages))
	}
	text, err := json.Marshal(savedState{Version: stateVersion, Runtime: "python", Guest: p.guest.Digest, Moment: "2", Bytes: bytes})
	if err != nil {
		t.Fatal(err)
	}
	in := &instance{program: p}
	in.saved.pages = newPages()
	if err := in.resumeFrom(wire.ResumeBody{State: text, Layers: len(l.layers)}, l.arriving()); err != nil {
		t.Fatal(err)
	}
	if n, most := in.saved.pages.used, int(bytes/linear.PageSize); n > most {
		t.Errorf("it holds %d pages of %d", n, most)
	}
	in.saved.drop()
}
