//go:build linux && (amd64 || arm64)

package gvisorfix

import (
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"unsafe"

	"golang.org/x/sys/unix"
	"gvisor.dev/gvisor/pkg/hostarch"
)

// unit is the size of a huge page, and pages how many others are in one.
const (
	unit  = hostarch.HugePageSize
	pages = unit / hostarch.PageSize
)

// ShmemSetting is the kernel's for huge pages of memory files, and DefragSetting that for
// how hard it looks for them.
const (
	ShmemSetting  = "/sys/kernel/mm/transparent_hugepage/shmem_enabled"
	DefragSetting = "/sys/kernel/mm/transparent_hugepage/defrag"
)

// HugePageSettings are what gVisor is to believe of this machine's settings for huge
// pages.
func HugePageSettings() (shmem, defrag string) {
	shmem, defrag = chosen(ShmemSetting), chosen(DefragSetting)
	if HugePagesWork() && (shmem == "never" || shmem == "advise") {
		shmem = "force" // gVisor makes room for them, and leaves the rest to us
	}
	return shmem, defrag
}

// chosen is the value in brackets of those that a setting may have.
func chosen(path string) string {
	text, _ := os.ReadFile(path) // what cannot be read says nothing
	_, after, _ := strings.Cut(string(text), "[")
	value, _, _ := strings.Cut(after, "]")
	return value
}

// HugePagesWork reports whether the kernel makes a huge page of a memory file's, which it
// does since 6.1 unless ShmemSetting says deny. It tries, once.
var HugePagesWork = sync.OnceValue(func() bool {
	fd, err := unix.MemfdCreate("huge", unix.MFD_CLOEXEC)
	if err != nil {
		return false
	}
	defer unix.Close(fd)
	if unix.Ftruncate(fd, unit) != nil {
		return false
	}
	w := newWindow()
	if w == nil {
		return false
	}
	defer w.release()
	return w.show(fd, 0) && w.collapse() == 0
})

// trust decides which units of memory become huge pages when nothing is known of them
// but that they have been touched. Whoever has filled a unit is lent some, and twice as
// many the next time; whoever has not, none.
type trust struct {
	most   int // units that may be lent at once
	lent   int // units that were at the last time
	left   int // of them
	probed bool
	probe  piece // the last unit that was left as it is
}

// HugePagesAhead is how many units a process may be lent at once in a box with so much
// memory, in bytes: a sixty-fourth of it, at most 64 MiB.
func HugePagesAhead(memory int64) int { return int(min(memory/64, 64<<20) / unit) }

// lend tells whether a unit that is touched for the first time may become huge at once.
// full looks at an earlier one.
func (t *trust) lend(u piece, full func(piece) bool) bool {
	if t.left == 0 && t.probed {
		t.judge(full)
	}
	if t.left == 0 {
		t.probed, t.probe = true, u
		return false
	}
	t.left--
	return true
}

// judge looks what became of the unit that was left as it is.
func (t *trust) judge(full func(piece) bool) {
	t.probed = false
	if full(t.probe) {
		t.lent = min(max(1, 2*t.lent), t.most)
	} else {
		t.lent = 0
	}
	t.left = t.lent
}

// forget is told what is about to be unmapped: nothing can be seen of it afterwards.
func (t *trust) forget(start, end hostarch.Addr, full func(piece) bool) {
	if t.probed && t.probe.start < end && start < t.probe.end {
		t.judge(full)
	}
}

// prepare backs those units of a piece with huge pages that it is lent.
func (s *space) prepare(p piece) {
	if s.window == nil || !p.access.Write || uint64(p.start)%unit != p.offset%unit {
		return
	}
	for start := (p.start + unit - 1) &^ (unit - 1); start >= p.start && start < p.end && p.end-start >= unit; start += unit {
		if u := p.part(start, start+unit); s.trust.lend(u, s.window.full) {
			s.window.fill(u)
		}
	}
}

// window is where this process looks at memory of boxes. It is safe for concurrent
// use.
type window struct {
	mu   sync.Mutex
	held []byte // the addresses that are reserved
	addr uintptr
}

// newWindow is nil where there is no place for one.
func newWindow() *window {
	held, err := unix.Mmap(-1, 0, 2*unit, unix.PROT_NONE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS|unix.MAP_NORESERVE)
	if err != nil {
		return nil
	}
	addr := uintptr(unsafe.Pointer(unsafe.SliceData(held)))
	return &window{held: held, addr: (addr + unit - 1) &^ (unit - 1)}
}

func (w *window) release() { _ = unix.Munmap(w.held) }

// show shows a unit of a file; hide has to follow.
func (w *window) show(fd int, offset uint64) bool {
	_, _, e := unix.Syscall6(unix.SYS_MMAP, w.addr, unit, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED|unix.MAP_FIXED, uintptr(fd), uintptr(offset))
	return e == 0
}

// hide shows nothing; gVisor's filter lets through no mapping without rights here.
func (w *window) hide() {
	_, _, _ = unix.Syscall6(unix.SYS_MMAP, w.addr, unit, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS|unix.MAP_FIXED, ^uintptr(0), 0)
}

// there is how many pages of the unit that is shown the file has.
func (w *window) there() int {
	var present [pages]byte
	if _, _, e := unix.Syscall(unix.SYS_MINCORE, w.addr, unit, uintptr(unsafe.Pointer(&present))); e != 0 {
		return 0
	}
	n := 0
	for _, p := range present {
		n += int(p & 1)
	}
	return n
}

// collapse makes the unit that is shown a huge page.
func (w *window) collapse() unix.Errno {
	// The kernel makes one only where there is a page already. A plain load whose value
	// nobody wants may be left out.
	first := unsafe.SliceData(w.held)
	atomic.LoadUint32((*uint32)(unsafe.Add(unsafe.Pointer(first), w.addr-uintptr(unsafe.Pointer(first)))))
	const collapse = 25 // MADV_COLLAPSE
	_, _, e := unix.Syscall(unix.SYS_MADVISE, w.addr, unit, collapse)
	return e
}

// full tells whether most of a unit has been used.
func (w *window) full(u piece) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if !w.show(u.file.FD(), u.offset) {
		return false
	}
	defer w.hide()
	return w.there() >= pages*7/8
}

// fill makes a unit a huge page, if little of it is there; what is would be copied.
// Where the kernel has none it stays as it is.
func (w *window) fill(u piece) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if !w.show(u.file.FD(), u.offset) {
		return
	}
	defer w.hide()
	if w.there() <= pages/8 {
		_ = w.collapse()
	}
}
