package wasm_test

import (
	"bytes"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"paddock/internal/fault"
	"paddock/internal/sandbox"
	"paddock/internal/sandbox/sandboxtest"
	"paddock/internal/sandbox/wasm"
	"paddock/internal/sandbox/wasm/worker"
)

// startFor starts an interpreter of an owner, whose folder is called like it.
func startFor(t *testing.T, b *wasm.Backend, owners, owner, runtime string, env map[string]string) sandbox.Instance {
	t.Helper()
	dir := folder(t, owners, owner+"/w")
	in, err := b.Start(t.Context(), sandbox.Spec{Owner: owner, Runtime: runtime, Mounts: workspace(dir), Dir: "/workspace", Env: env})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { in.Close() })
	return in
}

// children are the processes that this one has started and that have not
// been waited for.
func children(t *testing.T) map[int]bool {
	t.Helper()
	return childrenOf(t, os.Getpid())
}

func childrenOf(t *testing.T, parent int) map[int]bool {
	t.Helper()
	all, err := filepath.Glob("/proc/[0-9]*/stat")
	if err != nil {
		t.Fatal(err)
	}
	found := map[int]bool{}
	for _, path := range all {
		stat, err := os.ReadFile(path)
		if err != nil {
			continue // it has ended meanwhile
		}
		// The second field, in parentheses, may hold anything; the parent's id
		// is the second after it.
		fields := bytes.Fields(stat[bytes.LastIndexByte(stat, ')')+1:])
		if pid, err := strconv.Atoi(filepath.Base(filepath.Dir(path))); err == nil && len(fields) > 1 && string(fields[1]) == strconv.Itoa(parent) {
			found[pid] = true
		}
	}
	return found
}

// born is the one process that do starts.
func born(t *testing.T, do func()) int {
	t.Helper()
	before := children(t)
	do()
	after := children(t)
	maps.DeleteFunc(after, func(pid int, _ bool) bool { return before[pid] })
	if len(after) != 1 {
		t.Fatalf("the processes %v were started, not one", slices.Collect(maps.Keys(after)))
	}
	for pid := range after {
		return pid
	}
	panic("unreachable")
}

func kill(t *testing.T, pid int) {
	t.Helper()
	if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
}

// settlesAt waits until there are n more children than before.
func settlesAt(t *testing.T, before map[int]bool, n int) {
	t.Helper()
	for deadline := time.Now().Add(timeout); ; time.Sleep(5 * time.Millisecond) {
		now := children(t)
		maps.DeleteFunc(now, func(pid int, _ bool) bool { return before[pid] })
		if len(now) == n {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("the processes %v are there, not %d", slices.Collect(maps.Keys(now)), n)
		}
	}
}

// isGone checks that an instance says that it has ended, whatever it is asked.
func isGone(t *testing.T, in sandbox.Instance) {
	t.Helper()
	await(t, "the end of the instance", in.Done())
	_, err := in.Run(t.Context(), sandbox.Command{Code: "1"})
	isUnavailable(t, err)
	_, err = in.Inspect(t.Context())
	isUnavailable(t, err)
	if err := in.Close(); err != nil {
		t.Error(err)
	}
}

func isUnavailable(t *testing.T, err error) {
	t.Helper()
	f := fault.Of(err)
	if f == nil || f.Kind != fault.Unavailable || f.Message == "" || f.Hint == "" || !f.Retryable() {
		t.Errorf("got %+v, not a fault that says what to do", f)
	}
}

// TestDeathOfAWorker kills an owner's worker at several moments.
func TestDeathOfAWorker(t *testing.T) {
	for name, c := range map[string]struct {
		runtime, code string // code prints something and does not end; empty: the worker is idle
		stdin         bool
	}{
		"while it is idle":                {runtime: "python"},
		"while a program loops":           {runtime: "python", code: "print(1)\nwhile True: pass"},
		"while a program sleeps":          {runtime: "javascript", code: "console.log(1); await new Promise((r) => setTimeout(r, 1e9))"},
		"while a program prints":          {runtime: "javascript", code: "for (;;) console.log('x'.repeat(1000))"},
		"while a program waits for input": {runtime: "python", code: "print(1)\ninput()", stdin: true},
	} {
		t.Run(name, func(t *testing.T) {
			owners, before := t.TempDir(), children(t)
			b := newBackend(t, owners)
			var other, in sandbox.Instance
			born(t, func() { other = startFor(t, b, owners, "other", "python", nil) })
			prints(t, other, "kept = 1", "")
			pid := born(t, func() { in = startFor(t, b, owners, "owner", c.runtime, nil) })
			sibling := startFor(t, b, owners, "owner", "python", nil)
			prints(t, sibling, "open('f', 'w').write('x'); print(1)", "1")
			if c.code != "" {
				printed := make(chan struct{}, 1)
				cmd := sandbox.Command{Code: c.code, Stdout: signal(printed)}
				if c.stdin {
					never, writer, err := os.Pipe()
					if err != nil {
						t.Fatal(err)
					}
					defer never.Close()
					defer writer.Close() // first: it ends the reading
					cmd.Stdin = never
				}
				answer := goRun(t.Context(), in, cmd)
				await(t, "its output", printed)
				kill(t, pid)
				isUnavailable(t, await(t, "the end of the run", answer).err)
			} else {
				kill(t, pid)
			}
			isGone(t, in)
			isGone(t, sibling)
			prints(t, other, "print(kept)", "1")
			var next sandbox.Instance
			if reborn := born(t, func() { next = startFor(t, b, owners, "owner", "python", nil) }); reborn == pid {
				t.Errorf("the process %d is the one that was killed", reborn)
			}
			prints(t, next, "print('kept' in globals(), open('f').read())", "False x")
			prints(t, other, "print(kept)", "1")
			settlesAt(t, before, 2)
			if err := b.Close(); err != nil {
				t.Error(err)
			}
			settlesAt(t, before, 0)
			isGone(t, other)
			isGone(t, next)
		})
	}
}

// TestDeathAgainAndAgain kills a worker as often as it is started, from many
// starts at once.
func TestDeathAgainAndAgain(t *testing.T) {
	owners, before := t.TempDir(), children(t)
	b := newBackend(t, owners)
	other := startFor(t, b, owners, "other", "javascript", nil)
	prints(t, other, "globalThis.kept = 1; undefined", "")
	for range 5 {
		var in sandbox.Instance
		kill(t, born(t, func() { in = startFor(t, b, owners, "owner", "python", nil) }))
		isGone(t, in)
	}
	prints(t, other, "console.log(kept)", "1")
	settlesAt(t, before, 1)
}

// TestOwnersSeeNothingOfEachOther has one owner look for another's files and
// for anything of the server's.
func TestOwnersSeeNothingOfEachOther(t *testing.T) {
	const secret = "nobody else may read this"
	t.Setenv("PADDOCK_TEST_SECRET", secret)
	owners := t.TempDir()
	b := newBackend(t, owners)
	a := startFor(t, b, owners, "a", "python", map[string]string{"OF_A": secret})
	prints(t, a, fmt.Sprintf("n = open('secret', 'w').write(%q)", secret), "")
	host := filepath.Join(owners, "a", "w", "secret")
	if got, err := os.ReadFile(host); err != nil || string(got) != secret {
		t.Fatalf("the secret is %q, %v", got, err)
	}
	dir := folder(t, owners, "b/w")
	for link, target := range map[string]string{"host": host, "up": "../../a/w/secret", "owners": owners, "root": "/"} {
		if err := os.Symlink(target, filepath.Join(dir, link)); err != nil {
			t.Fatal(err)
		}
	}
	paths := []string{
		"secret", host, "/secret", "../../a/w/secret", "/workspace/../../a/w/secret", "/app/../../a/w/secret", "/../" + host, "//" + host,
		"host", "up", "owners/a/w/secret", "root" + host, "planted0", "planted1", "planted2/a/w/secret", "planted3" + host,
		"/proc/self/environ", "/proc/self/cwd/a/w/secret", "/proc/1/environ", "/proc/self/root" + host, "/dev/fd/0", "/etc/passwd",
	}
	for runtime, look := range map[string]struct{ link, read, env string }{
		"python": {
			"import os, sys\nfor n, target in enumerate(sys.argv[1:]):\n  try: os.symlink(target, f'planted{n}')\n  except OSError: pass",
			"import os, sys\nfor p in sys.argv[1:]:\n  for f in (lambda: open(p).read(), lambda: os.listdir(p), lambda: os.stat(p + '/secret'), lambda: os.link(p, 'hard'), lambda: os.rename(p, 'stolen')):\n    try: print(p, f())\n    except (OSError, UnicodeError): pass",
			"import os; print(dict(os.environ))",
		},
		"javascript": {
			"process.argv.slice(2).forEach((target, n) => { try { require('fs').symlinkSync(target, `planted${n}`) } catch {} })",
			"const fs = require('fs'); for (const p of process.argv.slice(2)) for (const f of [() => fs.readFileSync(p, 'utf8'), () => fs.readdirSync(p), () => fs.statSync(p + '/secret'), () => fs.copyFileSync(p, 'copy'), () => fs.renameSync(p, 'stolen')]) try { console.log(p, f()) } catch {}",
			"console.log(JSON.stringify(process.env))",
		},
	} {
		t.Run(runtime, func(t *testing.T) {
			if out, _ := outputOf(t, startFor(t, b, owners, "a", runtime, nil), sandbox.Command{Code: look.read, Args: []string{"secret"}}); !strings.Contains(out, secret) {
				t.Errorf("the owner finds no secret, but %q", out)
			}
			if err := os.Rename(filepath.Join(owners, "a", "w", "stolen"), host); err != nil {
				t.Error(err)
			}
			in := startFor(t, b, owners, "b", runtime, map[string]string{"MINE": "1"})
			_, exit := outputOf(t, in, sandbox.Command{Code: look.link, Args: []string{host, "../../a/w/secret", owners, "/"}})
			if exit.Cause != sandbox.Exited || exit.Code != 0 {
				t.Errorf("it ended as %+v, error %+v", exit, exit.Error)
			}
			out, exit := outputOf(t, in, sandbox.Command{Code: look.read, Args: paths})
			if exit.Cause != sandbox.Exited || exit.Code != 0 {
				t.Errorf("it ended as %+v, error %+v", exit, exit.Error)
			}
			if strings.Contains(out, secret) || strings.Contains(out, "root:") || strings.Contains(out, "PADDOCK") {
				t.Errorf("it found\n%s", out)
			}
			out, _ = outputOf(t, in, sandbox.Command{Code: look.env})
			if got := strings.NewReplacer("'", "\"", " ", "", "\n", "").Replace(out); got != `{"MINE":"1"}` {
				t.Errorf("its environment is %s", out)
			}
		})
	}
	prints(t, a, "import os; print(os.environ['OF_A'])", secret)
}

// What is damaged in the cache is made again before anybody notices.
func TestADamagedCacheIsMended(t *testing.T) {
	inForce := newBackend(t, t.TempDir()).Probe(t.Context()).Engine // and is there a guest at all?
	dir := t.TempDir()
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	start := func() {
		t.Helper()
		owners := t.TempDir()
		b, err := wasm.New(wasm.Config{CacheDir: dir, OwnersDir: owners, Engine: inForce})
		if err != nil {
			t.Fatal(err)
		}
		defer b.Close()
		prints(t, startIn(t, b, "javascript", folder(t, owners, "o/w")), "console.log(1)", "1")
	}
	if err := os.Symlink(filepath.Join(sandboxtest.PreparedCache(t), "compiled"), filepath.Join(dir, "compiled")); err != nil {
		t.Fatal(err)
	}
	start()
	damage := func(pattern string, least int) {
		t.Helper()
		files, err := filepath.Glob(filepath.Join(dir, pattern))
		if err != nil || len(files) < least {
			t.Fatal(files, err)
		}
		for _, file := range files {
			if err := os.Remove(file); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(file, []byte("paddock image 1\n"), 0o755); err != nil {
				t.Fatal(err)
			}
		}
	}
	damage("images/*.img", 2)
	start()
	if worker.EngineName == wasm.Wazero && inForce == wasm.Native {
		damage("native/*", 1) // the worker's program
		start()
	}
}
