//go:build linux && (amd64 || arm64)

package linux

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"paddock/internal/sandbox"
	"paddock/internal/sandbox/linux/gvisorfix"
	"paddock/internal/sandbox/sandboxtest"
)

// filled is a Python program that fills memory and does with it what a kernel's
// mapping of it could get wrong; its result is a list of what it found wrong.
const filled = `
import mmap, os
PAGE, SIZE, wrong = 4096, 64 << 20, []
def new(): return mmap.mmap(-1, SIZE, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
def fill(m, add):
    for at in range(0, SIZE, PAGE): m[at + 7] = (at // PAGE + add) % 251
def check(m, add, what):
    if any(m[at + 7] != (at // PAGE + add) % 251 or m[at + 8] for at in range(0, SIZE, PAGE)): wrong.append(what)
def child(f):
    pid = os.fork()
    if pid == 0:
        try: f()
        finally: os._exit(len(wrong))
    if os.waitpid(pid, 0)[1]: wrong.append("the child's")
m = new()
fill(m, 0); check(m, 0, "first")
def other(): check(m, 0, "inherited"); fill(m, 1); check(m, 1, "written by a child")
child(other)
check(m, 0, "after a child")
m.madvise(mmap.MADV_DONTNEED, 3 * PAGE, 20 << 20)
if any(m[at + 7] for at in range(3 * PAGE, 20 << 20, PAGE)) or m[(21 << 20) + 7] != ((21 << 20) // PAGE) % 251: wrong.append("given back")
fill(m, 2); check(m, 2, "filled again")
n = new()
if any(n[at + 7] for at in range(0, SIZE, PAGE)): wrong.append("not empty")
fill(n, 3); check(n, 3, "second"); check(m, 2, "first beside the second")
m.close(); m = new()
if any(m[at + 7] for at in range(0, SIZE, PAGE)): wrong.append("not empty, the second time")
fill(m, 4); check(n, 3, "second after the first"); check(m, 4, "third")
wrong`

func TestMemoryThatIsFilledIsHugeAndWhatItWas(t *testing.T) {
	b := newBackend(t)
	sandboxtest.Require(t, "linux", gvisorfix.HugePagesWork(), "this kernel makes no huge pages of memory files")
	in := start(t, b, sandbox.Spec{Owner: "alice", Runtime: "python"})
	if got := says(t, in, filled); got != "[]" {
		t.Errorf("wrong: %s", got)
	}
	if n := hugeOf(in.machine.box); n < 64<<10 {
		t.Errorf("%d KiB of it are huge pages", n)
	}
}

// hugeOf is how much of a box's programs' memory is mapped as huge pages, in KiB.
func hugeOf(b *box) (most int) {
	for _, p := range family(b.sentry.cmd.Process.Pid) {
		text, _ := os.ReadFile(fmt.Sprintf("/proc/%d/smaps_rollup", p.pid)) // it may have ended
		for line := range strings.Lines(string(text)) {
			var n int
			if _, err := fmt.Sscanf(line, "ShmemPmdMapped: %d kB", &n); err == nil {
				most = max(most, n)
			}
		}
	}
	return most
}

// Who touches a page here and there is given pages, and no huge ones.
func TestMemoryThatIsTouchedHereAndThereStaysSmall(t *testing.T) {
	b := newBackend(t)
	in := start(t, b, sandbox.Spec{Owner: "alice", Runtime: "python", Box: "one"})
	before := in.machine.watch.used()
	says(t, in, `
import mmap
m = mmap.mmap(-1, 512 << 20, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
for at in range(0, 512 << 20, 1 << 20): m[at] = 1`)
	if grown := in.machine.watch.used() - before; grown > 16<<20 {
		t.Errorf("512 pages took %d MiB", grown>>20)
	}
}
