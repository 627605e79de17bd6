package linear

import (
	"fmt"
	"os"
	"slices"
	"sync"
	"unsafe"

	"golang.org/x/sys/unix"
)

// What was written since the last checkpoint is found by write protection that
// the kernel takes away by itself when a page is written, and remembers
// (userfaultfd in its asynchronous mode, since 6.7).
//
// What that costs, on two cores of an EPYC with Linux 6.18: arming 60 ns a
// page, the first write to an armed page 1.2 us, the search 25 to 80 ns for each
// page that is there in the image and 10 ns for one beyond it. Comparing a page
// costs 0.15 us in the cache and 0.4 us beyond it, written or not.

// worthMarking is from how many own pages on a memory is marked. Python's
// smallest program writes 130 pages, so marking adds 0.3 ms to it; comparing
// what a session has takes as long with 1500 pages, and 7 ms with 64 MiB.
const worthMarking = 2048

// Of linux/userfaultfd.h.
const (
	userModeOnly = 1 // of the system call: no right is needed for it

	uffdAPI        = 0xc018aa3f
	uffdRegister   = 0xc020aa00
	uffdUnregister = 0x8010aa01

	featureUnpopulated = 1 << 13
	featureAsync       = 1 << 15
	modeWriteProtect   = 1 << 1
)

// marks is what a Memory knows of its own pages.
type marks struct {
	own        int      // how many Dirty found last
	registered uint64   // how much of the memory, from its beginning, can be armed
	marked     uint64   // how much of it was armed by the last Mark
	told       []uint32 // what Changed told since
	found      []region // scratch
	scratch    []uint32
}

// tracker is the descriptor by which ranges of memory are armed; -1 where the
// kernel does not do it. Like pagemap it has to be opened early.
var tracker = sync.OnceValue(func() int {
	fd, _, e := unix.Syscall(unix.SYS_USERFAULTFD, unix.O_CLOEXEC|userModeOnly, 0, 0)
	if e != 0 {
		return -1
	}
	api := struct{ version, features, ioctls uint64 }{0xaa, featureUnpopulated | featureAsync, 0}
	_, err := ioctl(int(fd), uffdAPI, unsafe.Pointer(&api))
	if err != nil || !tells(int(fd)) {
		_ = unix.Close(int(fd)) // it was opened for nothing
		return -1
	}
	return int(fd)
})

// tells tries whether what was written is found by a tracker.
func tells(fd int) bool {
	m, err := New(nil, wasmPage)
	if err != nil {
		return false
	}
	defer m.unmap(wasmPage)
	m.Reallocate(wasmPage)
	m.Page(0)[0], m.Page(1)[0] = 1, 1
	if m.arm(fd, nil) != nil {
		return false
	}
	m.marked = m.length
	m.Page(1)[0], m.Page(2)[0] = 2, 2
	pages, err := m.written(nil)
	return err == nil && !slices.Contains(pages, 0) == (os.Getpagesize() == PageSize) && slices.Contains(pages, 1) && slices.Contains(pages, 2)
}

// Marks tells whether the system can tell what was written since a Mark.
func Marks() bool { return tracker() >= 0 }

// Mark begins again what Changed tells. Nothing may write to the memory between
// a Changed and the Mark that follows it. Where the system cannot tell what was
// written, and for a memory that has few pages of its own, it does nothing.
func (m *Memory) Mark() { m.MarkBut(nil) }

// MarkBut is Mark but for some pages, ascending, in long runs: Changed tells these
// again, written or not. It is for what is written again soon, since the first write
// to an armed page takes longer than to find out later that it is as it was.
func (m *Memory) MarkBut(pages []uint32) {
	if m.marked == 0 && m.own < worthMarking || !Marks() {
		return
	}
	if m.arm(tracker(), pages) != nil {
		m.Unmark()
		return
	}
	m.marked, m.told = m.length, m.told[:0]
}

// Renew is Changed and then Mark, in one go: until the caller has kept what it is
// told nothing may write to the memory.
func (m *Memory) Renew(pages []uint32) ([]uint32, error) {
	if m.marked > 0 || m.own >= worthMarking && Marks() {
		found, err := m.rearm(pages)
		if err == nil {
			return found, nil
		}
		m.Unmark() // some may be armed that nobody was told of
	}
	pages, err := m.Changed(pages)
	if err == nil {
		m.Mark()
	}
	return pages, err
}

// rearm is Renew for a memory that is marked, or worth it: where nothing is armed
// all that the memory has of its own counts as written.
func (m *Memory) rearm(pages []uint32) ([]uint32, error) {
	if err := m.register(tracker()); err != nil {
		return nil, err
	}
	q := ownPages(true)
	q.flags = scanArm | scanOnlyArmed
	found, err := m.scan(q, 0, m.length, pages)
	if err == nil {
		if m.marked == 0 {
			m.own = len(found) - len(pages)
		}
		m.marked, m.told = m.length, m.told[:0]
	}
	return found, err
}

// farApart is how many pages may lie between two that are armed in one call.
const farApart = 64

// arm write-protects the pages that Changed has told; at first all that the
// memory has of its own. What is not armed is told again.
func (m *Memory) arm(fd int, but []uint32) error {
	if err := m.register(fd); err != nil {
		return err
	}
	if m.marked == 0 {
		return m.armAround(but)
	}
	told := m.told
	if len(but) > 0 {
		told = slices.DeleteFunc(slices.Clone(told), func(n uint32) bool {
			_, found := slices.BinarySearch(but, n)
			return found
		})
	}
	return runs(told, farApart, func(first, last uint32) error {
		return m.armBetween(uint64(first)*PageSize, uint64(last+1)*PageSize)
	})
}

// armAround arms all of the memory but for these pages.
func (m *Memory) armAround(but []uint32) error {
	from := uint64(0)
	err := runs(but, 1, func(first, last uint32) error {
		err := m.armBetween(from, uint64(first)*PageSize)
		from = uint64(last+1) * PageSize
		return err
	})
	if err != nil {
		return err
	}
	return m.armBetween(from, m.length)
}

// runs calls do for each run of ascending numbers that are not further apart.
func runs(numbers []uint32, apart uint32, do func(first, last uint32) error) error {
	for len(numbers) > 0 {
		n := 1
		for n < len(numbers) && numbers[n]-numbers[n-1] <= apart {
			n++
		}
		if err := do(numbers[0], numbers[n-1]); err != nil {
			return err
		}
		numbers = numbers[n:]
	}
	return nil
}

// register makes all of the memory such that it can be armed.
func (m *Memory) register(fd int) error {
	if m.registered == m.length {
		return nil
	}
	more := struct{ from, length, mode, ioctls uint64 }{uint64(uintptr(m.Base())) + m.registered, m.length - m.registered, modeWriteProtect, 0}
	if _, err := ioctl(fd, uffdRegister, unsafe.Pointer(&more)); err != nil {
		return fmt.Errorf("marking memory: %w", err)
	}
	m.registered = m.length
	return nil
}

// armBetween write-protects what lies between two addresses, multiples of the
// system's page, and is the memory's own.
func (m *Memory) armBetween(from, to uint64) (err error) {
	if from >= to {
		return nil
	}
	q := ownPages(true)
	q.flags = scanArm | scanOnlyArmed
	m.scratch, err = m.scan(q, from, to, m.scratch[:0])
	return err
}

// Unmark ends what Mark began, until the next one: Changed tells what Dirty does.
// It is for a memory of which much is about to be written, since the first write
// to an armed page takes longer than to find out later that it is as it was; and
// for one that is done, since the image's pages are faulted in more slowly into
// what can be armed.
func (m *Memory) Unmark() {
	m.marked = 0
	if m.registered == 0 {
		return
	}
	all := struct{ from, length uint64 }{uint64(uintptr(m.Base())), m.registered}
	_, _ = ioctl(tracker(), uffdUnregister, unsafe.Pointer(&all)) // what stays is armed for nothing, no more
	m.registered = 0
}

// Changed appends the numbers of the pages that may have been written since
// the last Mark, in ascending order; before the first these are Dirty's.
func (m *Memory) Changed(pages []uint32) ([]uint32, error) {
	if m.marked > 0 {
		found, err := m.written(pages)
		if err == nil {
			m.told = append(m.told[:0], found[len(pages):]...)
			return found, nil
		}
		m.Unmark()
	}
	return m.Dirty(pages)
}

// written is Changed for a memory that is marked.
func (m *Memory) written(pages []uint32) ([]uint32, error) {
	q := ownPages(true)
	q.flags = scanOnlyArmed
	pages, err := m.scan(q, 0, m.marked, pages)
	if err != nil {
		return nil, err
	}
	return m.scan(ownPages(false), m.marked, m.length, pages) // what it grew by is not marked yet
}
