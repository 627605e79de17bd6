//go:build linux && (amd64 || arm64)

package linux

import (
	"bytes"
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"testing"
	"time"

	"paddock/internal/fault"
	"paddock/internal/sandbox"
)

// load is a program that takes what it can get.
type load struct {
	runtime, code string
	causes        []sandbox.Cause // how it may end; 0: with the machine, and a typed error
}

// over runs a load, and tells how it ended: a typed error counts as no cause.
func (l load) over(t *testing.T, in *instance, limit time.Duration) sandbox.Cause {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	defer cancel()
	var out bytes.Buffer
	begun := time.Now()
	exit, err := in.Run(ctx, sandbox.Command{Code: l.code, Stdout: &out, Stderr: &out, Limits: sandbox.RunLimits{StdoutBytes: 1 << 20, StderrBytes: 1 << 20}})
	if err != nil && fault.KindOf(err) != fault.Unavailable {
		t.Errorf("the error is %v", err)
	}
	if bytes.Contains(out.Bytes(), []byte("AssertionError")) {
		t.Errorf("it could do what it should not: %s", out.Bytes())
	}
	if took := time.Since(begun); took > limit+20*time.Second {
		t.Errorf("it took %v", took)
	}
	if !slices.Contains(l.causes, exit.Cause) && (err == nil || len(l.causes) > 0) {
		t.Errorf("it ended as %+v %+v, %v: %.500s", exit, exit.Error, err, out.String())
	}
	return exit.Cause
}

// worksAgain checks that an owner's next call has a machine, the old or a new one.
func worksAgain(t *testing.T, b *Backend, in *instance, spec sandbox.Spec) {
	t.Helper()
	again := in
	select {
	case <-in.Done():
		again = start(t, b, spec)
	default:
	}
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	defer cancel()
	exit, err := again.Run(ctx, sandbox.Command{Code: "1"})
	if spec.Runtime == "bash" {
		exit, err = again.Run(ctx, sandbox.Command{Code: "/bin/true"})
	}
	if err != nil || exit.Cause != sandbox.Exited || exit.Code != 0 {
		t.Errorf("the next call ended as %+v %+v, %v", exit, exit.Error, err)
	}
	again.Close()
	in.Close()
}

// Attacks 1, 12 and 19: processes, threads and descriptors without end.
func TestNothingMultipliesWithoutEnd(t *testing.T) {
	b := openBackend(t, Config{Processes: 64, OpenFiles: 256})
	t.Cleanup(func() { b.Close() })
	ends := []sandbox.Cause{0, sandbox.Exited, sandbox.TimedOut, sandbox.OutOfMemory, sandbox.Crashed}
	for name, l := range map[string]load{
		"fork in Python":      {"python", "import os\nwhile True:\n  try: os.fork()\n  except OSError: pass", ends},
		"a fork bomb in bash": {"bash", ":(){ :|:& };:; wait; sleep 100", ends},
		"threads":             {"python", "import threading, time\nwhile True:\n  try: threading.Thread(target=time.sleep, args=(1000,), daemon=True).start()\n  except RuntimeError: break", ends},
		"daemons":             {"python", "import os\nfor n in range(1000):\n  try:\n    if os.fork() == 0:\n      os.setsid()\n      if os.fork() == 0:\n        while True: pass\n      os._exit(0)\n    os.wait()\n  except OSError: break", ends},
		"in user namespaces":  {"python", "import ctypes, os, resource, time\nassert ctypes.CDLL(None).unshare(0x10000000) == 0\nopen('/proc/self/uid_map', 'w').write('0 1000 1')\nfor k in resource.RLIMIT_NPROC, resource.RLIMIT_NOFILE, resource.RLIMIT_CORE:\n  try: resource.setrlimit(k, (1 << 20, 1 << 20))\n  except (OSError, ValueError): continue\n  assert 0, k\nn = 0\ntry:\n  while n < 500:\n    if os.fork() == 0: time.sleep(1000)\n    n += 1\nexcept OSError: pass\nassert n < 64, n", ends},
		"descriptors":         {"python", "import os\nfs = []\ntry:\n  while True: fs.append(os.open('/mine/f', 66))\nexcept OSError as e: assert e.errno == 24 and len(fs) < 257, (e, len(fs))", []sandbox.Cause{sandbox.Exited}},
		"many's descriptors":  {"python", "import os, time\nfor n in range(40):\n  if os.fork() == 0:\n    fs = []\n    try:\n      while True: fs.append(os.open('/mine/f', 66))\n    except OSError: time.sleep(1000)\ntime.sleep(1)", ends},
		"sockets and epolls":  {"python", "import select, socket\nfs = []\ntry:\n  while True: fs += [*socket.socketpair(), select.epoll()]\nexcept OSError: pass", []sandbox.Cause{sandbox.Exited}},
		"children in Node.js": {"javascript", "const c = require('child_process'); for (let n = 0; n < 300; n++) c.spawn('sleep', ['100']).on('error', () => {}); await new Promise((r) => setTimeout(r, 1000))", ends},
	} {
		t.Run(name, func(t *testing.T) {
			spec := sandbox.Spec{Owner: "eve", Runtime: l.runtime, Box: name, Mounts: []sandbox.Mount{{Guest: "/mine", Host: folderFor(t, "work"), DiskBytes: 1 << 20}}}
			in := start(t, b, spec)
			pid := in.machine.box.sentry.cmd.Process.Pid
			l.over(t, in, 2*time.Second)
			threads := 0
			for _, p := range family(pid) {
				tasks, _ := os.ReadDir(fmt.Sprintf("/proc/%d/task", p.pid))
				threads += len(tasks)
			}
			if threads > sentryTasks+processTasks*64 {
				t.Errorf("the box has %d threads on the host", threads)
			}
			worksAgain(t, b, in, spec)
			if n := len(family(pid)); n > 1 {
				t.Errorf("%d processes are left", n)
			}
		})
	}
}

// Attack 2: memory in each of the ways in which a program can have some, and in
// which gVisor has it for a program.
func TestNothingTakesAllMemory(t *testing.T) {
	b := newBackend(t)
	const limit = 128 << 20
	ends := []sandbox.Cause{sandbox.Exited, sandbox.OutOfMemory, sandbox.OutOfSpace, sandbox.Crashed}
	every := "import ctypes, itertools, mmap, os, socket, time\ndef all(f):\n  for n in range(12):\n    if os.fork() == 0:\n      keep = []\n      try:\n        while True: keep.append(f())\n      except (OSError, MemoryError): time.sleep(1000)\n  time.sleep(4)\n"
	for name, l := range map[string]load{
		"one piece":          {"python", "b'x' * (1 << 40)", ends},
		"slowly":             {"python", "l = []\nwhile True: l.append(bytearray(1 << 20))", ends},
		"in JavaScript":      {"javascript", "const l = []; for (;;) l.push(Buffer.alloc(1 << 20, 1))", ends},
		"by many processes":  {"python", every + "all(lambda: bytearray(b'x' * 100000))", ends},
		"shared":             {"python", every + "def f():\n  m = mmap.mmap(-1, 1 << 20); m[:] = b'x' * (1 << 20); return m\nall(f)", ends},
		"files in memory":    {"python", every + "f = os.memfd_create('x')\nall(lambda: os.write(f, b'x' * (1 << 20)))", ends},
		"/dev/shm":           {"bash", "head -c 1000000000 /dev/zero > /dev/shm/f & head -c 1000000000 /dev/zero > /dev/shm/g; wait; exit 3", ends},
		"a tmpfs of its own": {"bash", "unshare -Urm bash -c 'mount -t tmpfs -o size=100g none /mnt && head -c 1000000000 /dev/zero > /mnt/f'; exit 3", ends},
		"System V":           {"python", every + "c = ctypes.CDLL(None)\nc.shmat.restype = ctypes.c_void_p\ndef f():\n  p = c.shmat(c.shmget(0, 1 << 20, 0o1600), None, 0)\n  if p in (None, 2**64 - 1): raise OSError()\n  ctypes.memset(p, 1, 1 << 20)\nall(f)", ends},
		"pipes":              {"python", every + "def f():\n  r, w = os.pipe(); os.set_blocking(w, False)\n  try:\n    while True: os.write(w, b'x' * 65536)\n  except BlockingIOError: pass\nall(f)", ends},
		"sockets":            {"python", every + "def f():\n  a, b = socket.socketpair(); a.setblocking(False)\n  try:\n    while True: a.send(b'x' * 65536)\n  except BlockingIOError: pass\n  return a, b\nall(f)", ends},
		"names":              {"python", "import itertools, os\nos.chdir('/dev/shm')\nfor i in itertools.count(): os.symlink('t' * 4000, str(i))", ends},
	} {
		t.Run(name, func(t *testing.T) {
			spec := sandbox.Spec{Owner: "eve", Runtime: l.runtime, Box: name, Limits: sandbox.Limits{MemoryBytes: limit}}
			in := start(t, b, spec)
			most := make(chan int64, 1)
			stop := make(chan struct{})
			go func() { // what the box has, from outside
				var n int64
				defer func() { most <- n }()
				for {
					select {
					case <-stop:
						return
					case <-time.After(10 * time.Millisecond):
						n = max(n, in.machine.watch.used()+residentOf(in.machine.box.sentry.cmd.Process.Pid)+residentOf(in.machine.box.gofer.cmd.Process.Pid))
					}
				}
			}()
			l.over(t, in, 30*time.Second)
			close(stop)
			// Between two looks a program takes more, here and on a slow machine.
			if n := <-most; n > limit+agentMemory+sentryMemory+512<<20 {
				t.Errorf("it had %d MiB", n>>20)
			} else {
				t.Logf("it had %d MiB", n>>20)
			}
			worksAgain(t, b, in, spec)
		})
	}
}

// Attack 10, and 56: what stops or ends the box's first program stops or ends the
// box, and nothing else.
func TestWhoEndsTheMachineHasNone(t *testing.T) {
	b := newBackend(t)
	witness := start(t, b, sandbox.Spec{Owner: "witness", Runtime: "bash"})
	runs(t, witness, "before=1")
	t.Cleanup(func() {
		if exit, err := witness.Run(context.Background(), sandbox.Command{Code: "(( before == 1 ))"}); err != nil || exit.Code != 0 {
			t.Errorf("the other box's program ended as %+v, %v", exit, err)
		}
	})
	none := []sandbox.Cause{0, sandbox.Crashed, sandbox.TimedOut}
	for name, l := range map[string]load{
		"killing the first program":  {"bash", "kill -9 1; sleep 100", none},
		"stopping the first program": {"bash", "kill -STOP 1; sleep 100", none},
		"killing all":                {"bash", "kill -9 -1; sleep 100", none},
		"stopping all":               {"python", "import os; os.kill(-1, 19)", append(slices.Clone(none), sandbox.Exited)},
		"each signal":                {"bash", "for n in {1..64}; do kill -$n 1; done; sleep 100", none},
		"the interpreter":            {"python", "import os; os.kill(os.getpid(), 9)", none},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel() // most of it is waiting
			spec := sandbox.Spec{Owner: "eve", Runtime: l.runtime, Box: name}
			in := start(t, b, spec)
			l.over(t, in, 2*time.Second)
			worksAgain(t, b, in, spec)
		})
	}
}

// Attack 56: odd system calls. gVisor may end the box for one; the server goes on,
// and says what happened.
func TestOddSystemCallsHarmTheirBoxAlone(t *testing.T) {
	b := newBackend(t)
	witness := start(t, b, sandbox.Spec{Owner: "witness", Runtime: "bash"})
	runs(t, witness, "before=1")
	for range 2 {
		seed := rand.Uint32()
		t.Logf("seed %d", seed)
		spec := sandbox.Spec{Owner: "eve", Runtime: "python", Mounts: []sandbox.Mount{{Guest: "/mine", Host: folderFor(t, "work"), DiskBytes: 1 << 20}}, Dir: "/mine"}
		in := start(t, b, spec)
		load{"python", fmt.Sprintf(oddCalls, seed), []sandbox.Cause{0, sandbox.Exited, sandbox.Crashed, sandbox.TimedOut, sandbox.OutOfMemory, sandbox.OutOfSpace, sandbox.OutputExceeded}}.over(t, in, 10*time.Second)
		worksAgain(t, b, in, spec)
	}
	if exit := runs(t, witness, "(( before == 1 ))"); exit.Code != 0 {
		t.Errorf("the other box's program ended as %+v", exit)
	}
}

// oddCalls makes system calls with arguments by chance, each few in a process of
// their own: numbers of calls, of descriptors, sizes, flags, and addresses of things
// that may be meant.
const oddCalls = `
import ctypes, os, random, signal, time
r = random.Random(%d)
c = ctypes.CDLL(None, use_errno=True)
end = time.time() + 2
room = ctypes.create_string_buffer(bytes(r.getrandbits(8) for _ in range(1 << 16)), 1 << 16)
names = [ctypes.create_string_buffer(n) for n in (b'/mine/f', b'/proc/self/mem', b'/proc/self/maps', b'/dev/shm/f', b'/', b'', b'/dev/ptmx', b'/sys', b'/mine', b'tmpfs', b'/proc/self/fd/3')]
def argument():
    k = r.randrange(8)
    if k == 0: return r.randrange(-2, 32)
    if k == 1: return ctypes.addressof(room) + r.randrange(1 << 15)
    if k == 2: return ctypes.addressof(r.choice(names))
    if k == 3: return 1 << r.randrange(64)
    if k == 4: return r.getrandbits(64)
    if k == 5: return r.choice((0, -1, 1 << 63, (1 << 63) - 1, 1 << 47, 4096, 0xFFFFFFFF))
    if k == 6: return r.getrandbits(12)
    return r.randrange(4096)
ends = {60, 231, 57, 58, 56, 34, 435}
while time.time() < end:
    child = os.fork()
    if child == 0:
        signal.alarm(1)
        os.closerange(3, 200)
        for n in range(3, 20): os.dup2(os.open(r.choice(['/mine/f', '/dev/null', '/dev/zero', '/dev/shm/g', '/proc/self/status', '/']) if n %% 2 else '/dev/shm/h', os.O_RDONLY if n %% 2 else os.O_RDWR | os.O_CREAT), n)
        for _ in range(200):
            n = r.randrange(470)
            if n not in ends: c.syscall(n, *[ctypes.c_long(ctypes.c_int64(argument() & (1 << 64) - 1).value) for _ in range(6)])
        os._exit(0)
    r.random()
    os.waitpid(child, 0)
`
