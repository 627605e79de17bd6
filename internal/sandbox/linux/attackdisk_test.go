//go:build linux && (amd64 || arm64)

package linux

import (
	"context"
	"os"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"paddock/internal/sandbox"
)

// diskLimit is what the folder of a disk attack may have.
const diskLimit = 4 << 20

// inFolder gives a shell that works in a folder of the host.
func inFolder(t *testing.T, b *Backend) (in *instance, dir string) {
	t.Helper()
	dir = folderFor(t, "work")
	return shell(t, b, sandbox.Spec{Mounts: []sandbox.Mount{{Guest: "/mine", Host: dir, DiskBytes: diskLimit}}, Dir: "/mine"}), dir
}

// Attack 11: what fills a disk, with and without writing. Each program would go on
// for as long as it is let.
func TestNothingFillsTheDisk(t *testing.T) {
	b := newBackend(t)
	for name, code := range map[string]string{
		"many files":          "for ((i = 0; ; i++)); do head -c 100000 /dev/zero > f$i; done",
		"empty files":         "python3 -c 'import itertools\nfor i in itertools.count(): open(f\"f{i}\", \"w\").close()'",
		"empty folders":       "python3 -c 'import itertools, os\nfor i in itertools.count(): os.mkdir(f\"d{i}\")'",
		"links":               "python3 -c 'import itertools, os\nfor i in itertools.count(): os.symlink(\"x\" * 4000, f\"l{i}\")'",
		"holes":               "for ((i = 0; ; i++)); do truncate -s 1M f$i || exit; done",
		"reserved room":       "for ((i = 0; ; i++)); do python3 -c 'import os, sys; os.posix_fallocate(os.open(sys.argv[1], 66), 0, 1 << 20)' f$i || exit; done",
		"without an end":      "trap '' INT; python3 -c 'import itertools, signal\nsignal.signal(signal.SIGINT, signal.SIG_IGN)\nfor i in itertools.count():\n  try: open(f\"f{i}\", \"wb\").write(b\"x\" * 1000000)\n  except OSError: pass'",
		"mapped memory":       "python3 -c 'import itertools, mmap, os\nfor i in itertools.count():\n  f = os.open(f\"f{i}\", 66); os.ftruncate(f, 1 << 19); m = mmap.mmap(f, 1 << 19); m[:] = b\"x\" * (1 << 19); m.close(); os.close(f)'",
		"files without names": "python3 -c 'import itertools, os\nfs = []\nfor i in itertools.count(): f = os.open(\"f\", 66); os.unlink(\"f\"); os.write(f, b\"x\" * (1 << 17)); fs.append(f)'",
		"hidden folders":      "mkdir -p a/b; mkfifo p 2> /dev/null; cd a/b; chmod 0300 . ..; for ((i = 0; ; i++)); do head -c 100000 /dev/zero > f$i || exit; done",
		"folders in folders":  "python3 -c 'import os\nwhile True:\n  try: os.mkdir(\"d\"); os.chdir(\"d\")\n  except OSError: pass'", // its depth meets other limits, too
		"beyond any path":     "python3 -c 'import os\nfor i in range(30): os.mkdir(\"d\" * 200); os.chdir(\"d\" * 200)\nwhile True: open(os.urandom(8).hex(), \"wb\").write(b\"x\" * 100000)'",
	} {
		t.Run(name, func(t *testing.T) {
			in, dir := inFolder(t, b)
			ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
			defer cancel()
			exit, err := in.Run(ctx, sandbox.Command{Code: code})
			if err != nil {
				t.Fatal(err)
			}
			if exit.Cause != sandbox.OutOfSpace {
				t.Errorf("it ended as %+v %+v", exit, exit.Error)
			}
			if n := mustSize(t, dir); n > 1<<30 { // a machine that is busy looks late
				t.Errorf("the files take %d bytes", n)
			}
			in.Close()
			if os.Geteuid() != 0 {
				_ = unix.Chmod(filepath.Join(dir, "a"), 0o700)
				_ = unix.Chmod(filepath.Join(dir, "a", "b"), 0o700)
			}
		})
	}
}

// Attack 11, without a byte being written: what reserves room does so at once, and the
// limit of one file's size cannot be raised.
func TestNothingReservesTheDisk(t *testing.T) {
	b := newBackend(t)
	in, dir := inFolder(t, b)
	exit := runs(t, in, "command -v fallocate > /dev/null || exit 2\n"+
		"python3 -c 'import resource; resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 40, 1 << 40))' 2> /dev/null && exit 3\n"+
		"for i in 1 2 3; do fallocate -l 3M f$i 2> /dev/null && exit 4; done; true")
	if exit.Cause != sandbox.Exited || exit.Code != 0 {
		t.Errorf("it ended as %+v %+v", exit, exit.Error)
	}
	if n := mustSize(t, dir); n > 64<<10 {
		t.Errorf("the files take %d bytes", n)
	}
}

// Attack 19: a program's process that goes on after the run.
func TestNothingFillsTheDiskFromTheBackground(t *testing.T) {
	b := newBackend(t)
	in, dir := inFolder(t, b)
	if exit := runs(t, in, "(for ((i = 0; ; i++)); do head -c 100000 /dev/zero > f$i; done) > /dev/null 2>&1 &"); exit.Cause != sandbox.Exited {
		t.Fatalf("%+v", exit)
	}
	<-in.Done()
	if n := mustSize(t, dir); n < diskLimit || n > 1<<30 {
		t.Errorf("the files take %d bytes", n)
	}
	in.Close()
	again := shell(t, b, sandbox.Spec{Mounts: []sandbox.Mount{{Guest: "/mine", Host: dir, DiskBytes: diskLimit}}, Dir: "/mine"})
	if exit := runs(t, again, "rm f*; ls | wc -l"); exit.Cause != sandbox.Exited || exit.Code != 0 {
		t.Errorf("files cannot be removed: %+v", exit)
	}
}
