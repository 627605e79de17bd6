//go:build linux && (amd64 || arm64)

package linux

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"paddock/internal/fault"
	"paddock/internal/sandbox"
)

// bootAhead starts an interpreter for nobody upon a folder, and gives what it was
// started with.
func bootAhead(t testing.TB, b *Backend, disk int64) (*instance, sandbox.Spec) {
	t.Helper()
	spec := sandbox.Spec{Box: filepath.Base(t.TempDir()), Runtime: "python", Dir: "/mine", Mounts: []sandbox.Mount{
		{Guest: "/mine", Aliases: []string{"/also"}, Host: folderFor(t, "ahead"), DiskBytes: disk},
	}}
	return start(t, b, spec), spec
}

// moved renames the folder of a Spec, and gives the Spec of an owner that has it.
func moved(t testing.TB, spec sandbox.Spec, owner string) sandbox.Spec {
	t.Helper()
	to := filepath.Join(t.TempDir(), "taken")
	if err := os.Rename(spec.Mounts[0].Host, to); err != nil {
		t.Fatal(err)
	}
	spec.Owner, spec.Box = owner, "box"
	spec.Mounts = []sandbox.Mount{spec.Mounts[0]}
	spec.Mounts[0].Host = to
	return spec
}

func TestAnAdoptedMachineIsItsOwnersWithTheFoldersThatItHad(t *testing.T) {
	b := newBackend(t)
	in, ahead := bootAhead(t, b, 1<<20)
	if err := b.Suspend(in); err != nil {
		t.Fatal(err)
	}
	spec := moved(t, ahead, "alice")
	if err := os.WriteFile(filepath.Join(spec.Mounts[0].Host, "before"), []byte("a fork's"), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := b.Adopt(t.Context(), in, spec); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(spec.Mounts[0].Host, "in"), []byte("from outside"), 0o644); err != nil {
		t.Fatal(err)
	}
	exit, err := in.Run(t.Context(), sandbox.Command{Code: "open('/also/out', 'w').write('from inside')\nopen('in').read(), open('before').read()"})
	if err != nil || exit.Result != `('from outside', "a fork's")` {
		t.Errorf("it gave %+v, %v", exit, err)
	}
	if text, err := os.ReadFile(filepath.Join(spec.Mounts[0].Host, "out")); string(text) != "from inside" {
		t.Errorf("outside is %q, %v", text, err)
	}
	if other := start(t, b, spec); other.machine != in.machine {
		t.Error("the owner's next interpreter is in another machine")
	}
	if _, err := b.Machine(t.Context(), "alice", "box"); err != nil {
		t.Error(err)
	}
	if b.Memory("", ahead.Box) != 0 || b.Memory("alice", "box") == 0 {
		t.Error("it is where it was")
	}
}

// The limit of a folder holds where it is now.
func TestAnAdoptedMachinesFilesAreCounted(t *testing.T) {
	b := newBackend(t)
	in, ahead := bootAhead(t, b, 1<<20)
	if err := b.Adopt(t.Context(), in, moved(t, ahead, "alice")); err != nil {
		t.Fatal(err)
	}
	exit, err := in.Run(t.Context(), sandbox.Command{Code: "f = open('f', 'wb')\nwhile True: f.write(bytes(1 << 16)); f.flush()"})
	if err != nil || exit.Cause != sandbox.OutOfSpace {
		t.Errorf("it gave %+v, %v", exit, err)
	}
}

func TestAMachineIsAdoptedOnlyAsItIs(t *testing.T) {
	image := Image{Host: true}
	b := openBackend(t, Config{Image: "some", Images: func(context.Context, string) (Image, error) { return image, nil }})
	t.Cleanup(func() { b.Close() })
	in, ahead := bootAhead(t, b, 1<<20)
	spec := moved(t, ahead, "alice")
	for name, change := range map[string]func(*sandbox.Spec){
		"another image":   func(s *sandbox.Spec) { s.Image = "other" },
		"more memory":     func(s *sandbox.Spec) { s.Limits.MemoryBytes = 1 << 30 },
		"more processors": func(s *sandbox.Spec) { s.CPUs = 2 },
		"another folder":  func(s *sandbox.Spec) { s.Mounts = append(s.Mounts, sandbox.Mount{Guest: "/x", Host: "/"}) },
		"none":            func(s *sandbox.Spec) { s.Mounts = nil },
		"more disk":       func(s *sandbox.Spec) { s.Mounts = []sandbox.Mount{s.Mounts[0]}; s.Mounts[0].DiskBytes++ },
		"one to be read":  func(s *sandbox.Spec) { s.Mounts = []sandbox.Mount{s.Mounts[0]}; s.Mounts[0].ReadOnly = true },
		"a name that is taken": func(s *sandbox.Spec) {
			s.Box = "taken"
			start(t, b, *s)
		},
	} {
		other := spec
		change(&other)
		if err := b.Adopt(t.Context(), in, other); fault.KindOf(err) != fault.Conflict {
			t.Errorf("with %s: %v", name, err)
		}
	}
	foreign := newBackend(t)
	if err := foreign.Adopt(t.Context(), in, spec); fault.KindOf(err) != fault.Conflict {
		t.Errorf("by another backend: %v", err)
	}
	second := start(t, b, ahead)
	if err := b.Adopt(t.Context(), in, spec); fault.KindOf(err) != fault.Conflict {
		t.Errorf("with somebody else in it: %v", err)
	}
	second.Close()
	image = Image{Dir: t.TempDir()}
	if err := b.Adopt(t.Context(), in, spec); fault.KindOf(err) != fault.Conflict {
		t.Errorf("when its image is another one: %v", err)
	}
	image = Image{Host: true}
	if err := b.Adopt(t.Context(), in, spec); err != nil {
		t.Errorf("as it is: %v", err)
	}
	in.machine.box.close()
	if err := b.Adopt(t.Context(), in, spec); fault.KindOf(err) != fault.Unavailable {
		t.Errorf("when it has ended: %v", err)
	}
}

// A machine that nobody has yet takes no processor, and ends like others.
func TestAMachineRestsUntilItIsAdopted(t *testing.T) {
	b := newBackend(t)
	in, ahead := bootAhead(t, b, 1<<20)
	resting := func() bool {
		text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", in.machine.box.sentry.cmd.Process.Pid))
		return err == nil && strings.Contains(string(text), ") T ")
	}
	if err := b.Suspend(in); err != nil {
		t.Fatal(err)
	}
	eventually(t, "its rest", resting)
	if err := b.Adopt(t.Context(), in, moved(t, ahead, "alice")); err != nil {
		t.Fatal(err)
	}
	if exit, err := in.Run(t.Context(), sandbox.Command{Code: "6 * 7"}); err != nil || exit.Result != "42" || resting() {
		t.Errorf("it gave %+v, %v", exit, err)
	}
	other, _ := bootAhead(t, b, 1<<20)
	if err := b.Suspend(other); err != nil {
		t.Fatal(err)
	}
	if err := other.Close(); err != nil || other.machine.client.Err() == nil {
		t.Errorf("it did not end: %v", err)
	}
	last, _ := bootAhead(t, b, 1<<20) // which ends with the backend
	if err := errors.Join(b.Suspend(last), b.Close()); err != nil {
		t.Fatal(err)
	}
	if !last.machine.over() {
		t.Error("one is left")
	}
}

// BenchmarkAdopt is a first result from a machine that was booted ahead, beside one
// that is booted for it.
func BenchmarkAdopt(b *testing.B) {
	backend := newBackend(b)
	for name, ahead := range map[string]bool{"cold": false, "ahead": true} {
		b.Run(name, func(b *testing.B) {
			var sum time.Duration
			for b.Loop() {
				spec := sandbox.Spec{Owner: "bench", Box: "box", Runtime: "python", Mounts: []sandbox.Mount{{Guest: "/mine", Host: folderFor(b, "w"), DiskBytes: 1 << 20}}}
				var in sandbox.Instance
				if ahead {
					one, was := bootAhead(b, backend, 1<<20)
					in, spec = one, moved(b, was, "bench")
					if err := backend.Suspend(one); err != nil {
						b.Fatal(err)
					}
				}
				began := time.Now()
				var err error
				if ahead {
					err = backend.Adopt(b.Context(), in, spec)
				} else {
					in, err = backend.Start(b.Context(), spec)
				}
				if err != nil {
					b.Fatal(err)
				}
				runOne(b, in, "1")
				sum += time.Since(began)
				in.Close()
			}
			b.ReportMetric(sum.Seconds()*1000/float64(b.N), "first-result-ms")
		})
	}
}
