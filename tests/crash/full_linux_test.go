package crash

import (
	"fmt"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"paddock/internal/sandbox/sandboxtest"
)

// grow counts and writes half a megabyte that cannot be made smaller; what it
// printed before is of the moment before.
const grow = `
import os
if 'n' not in globals(): n = 0; data = b''
n += 1
data = os.urandom(1 << 19)
open(f'/workspace/{n % 8}', 'wb').write(data)
open('/workspace/n', 'w').write(str(n))
print(n)
`

const grown = `
import os
print(n if 'n' in globals() else 0, open('/workspace/n').read() if os.path.exists('/workspace/n') else 0, os.path.exists(f'/workspace/{n % 8}') and open(f'/workspace/{n % 8}', 'rb').read() == data)
`

// filled is a session on a small disk.
type filled struct {
	*place
	t     *testing.T
	c     *process
	acked int // the highest count that was answered without a notice
	most  int // the highest that it may be at
}

// grow has it count until so many calls in a row could not be kept; it gives how
// many could.
func (f *filled) grow(bad int) (good int) {
	f.t.Helper()
	for row := 0; row < bad; {
		got, err := f.c.call("execute_code", execution("full", "python", grow))
		if err != nil {
			f.t.Fatalf("%v\n%s", err, last(f.c.said()))
		}
		if p := got.failed(); p != nil {
			row++
			switch {
			case p.Code == "internal":
				f.t.Errorf(`a call on the full disk: p.Code = %q, want other than "internal"`, p.Code)
			case p.Message == "":
				f.t.Errorf("a call on the full disk: p.Message is empty, want a text: %+v, %s", *p, last(f.c.said()))
			case p.Hint == "":
				f.t.Errorf("a call on the full disk: p.Hint is empty, want a text: %+v, %s", *p, last(f.c.said()))
			}
			continue
		}
		n, err := strconv.Atoi(strings.TrimSpace(got.Stdout))
		if err != nil && *got.ExitCode == 0 {
			f.t.Fatalf("a call gave %+v", got)
		}
		f.most++ // it counts, whether it could write or not
		switch {
		case unkept(got.Notice):
			row++
		case *got.ExitCode != 0: // what it holds now is on the disk, all the same
			row++
		default:
			row = 0
			good++
			f.acked = n
		}
		if good > 1000 {
			f.t.Fatal("the disk does not get full")
		}
	}
	return good
}

// check sees that what it holds is of one moment, and not before what was
// acknowledged.
func (f *filled) check(when string) {
	f.t.Helper()
	got := f.c.must(f.t, "execute_code", execution("full", "python", grown))
	var n, file int
	var whole string
	switch _, err := fmt.Sscan(got.Stdout, &n, &file, &whole); {
	case err != nil:
		f.t.Errorf("%s it is %q %s: %v", when, got.Stdout, got.Stderr, err)
	case n < f.acked:
		f.t.Errorf("%s it is %q %s: n = %v, want at least %v: %d, %q",
			when, got.Stdout, got.Stderr, n, f.acked, f.most, got.Notice)
	case n > f.most:
		f.t.Errorf("%s it is %q %s: n = %v, want at most %v: %d, %q",
			when, got.Stdout, got.Stderr, n, f.most, f.acked, got.Notice)
	}
	if n == f.acked && (file != n || whole != "True") {
		f.t.Errorf("%s it is %q: not of one moment; notice %q", when, got.Stdout, got.Notice)
	}
	f.most = max(n, f.acked)
}

// restart kills the process and starts the next one.
func (f *filled) restart() {
	f.c.kill()
	f.c = f.start()
}

// Attack 62: the disk is full. What cannot be kept is said to be so, nothing that
// was acknowledged is lost, and with some room it goes on.
func TestAFullDisk(t *testing.T) {
	t.Parallel()
	f := &filled{place: placeAt(t, sandboxtest.SmallDisk(t, 64), "[sessions]\nmax_checkpoints = 1000\n"), t: t}
	f.c = f.start()
	defer func() { f.c.kill() }()
	for _, id := range []string{"full", "ballast", "more"} {
		f.c.must(t, "create_session", map[string]any{"session_id": id})
	}
	for _, id := range []string{"ballast", "more"} {
		f.c.must(t, "execute_code", execution(id, "python", "import os\nfor i in range(6): open(f'/workspace/{i}', 'wb').write(os.urandom(1 << 20))"))
	}
	good := f.grow(5)
	t.Logf("%d calls were kept on a disk of 64 MB", good)
	if good < 5 {
		t.Fatal("that is not much of a disk")
	}

	// A process that starts on a full disk may say so, and no more.
	f.restart()
	got, err := f.c.call("execute_code", execution("full", "python", grown))
	if err != nil {
		t.Fatalf("%v\n%s", err, last(f.c.said()))
	}
	if p := got.failed(); p == nil {
		f.check("on the full disk")
	} else if p.Code == "not_found" || p.Code == "internal" || p.Hint == "" {
		t.Errorf("on the full disk it says %+v\n%s", *p, last(f.c.said()))
	}
	f.room("ballast")
	f.check("after room was made")

	// What is in memory alone is kept when there is room again.
	f.grow(3)
	f.room("more")
	got = f.c.must(t, "execute_code", execution("full", "python", grow))
	n, err := strconv.Atoi(strings.TrimSpace(got.Stdout))
	switch {
	case err != nil:
		t.Fatalf("with room again: %v", err)
	case unkept(got.Notice):
		t.Fatalf("with room again: unkept(got.Notice) = true, want false: %+v", got)
	case n <= f.acked:
		t.Fatalf("with room again: n = %v, want more than %v: %+v", n, f.acked, got)
	}
	f.acked, f.most = n, n
	f.restart()
	f.check("after the next start")
	f.c.must(t, "undo", map[string]any{"session_id": "full"})
	f.c.must(t, "fork_session", map[string]any{"session_id": "full"})
}

// room destroys a session and collects what was its.
func (f *filled) room(session string) {
	f.t.Helper()
	f.c.must(f.t, "destroy_session", map[string]any{"session_id": session})
	if _, err := f.do("session", "gc"); err != nil {
		f.t.Fatal(err)
	}
	var disk syscall.Statfs_t
	if err := syscall.Statfs(f.state, &disk); err != nil || int64(disk.Bavail)*disk.Bsize < 4<<20 {
		f.t.Errorf("%d MB are free after a collection, %v", int64(disk.Bavail)*disk.Bsize>>20, err)
	}
}
