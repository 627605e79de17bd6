//go:build linux && (amd64 || arm64)

package linux

import (
	"fmt"
	"os"
	"sync"
	"sync/atomic"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"paddock/internal/sandbox/linux/gvisorfix"
)

// pageBytes is the size of the page that a server shares with a sentry.
const pageBytes = 4096

// changes tells a sentry that files have changed from outside: a number in memory that
// both have, that the server raises and the sentry can only read. It is safe for
// concurrent use, also a nil one.
type changes struct {
	file *os.File // the sentry is given it

	mu   sync.Mutex
	page []byte    // nil: it is closed
	told time.Time // when the number was raised last
}

// untoldAfter is how long after the last comparison a run that begins has all compared
// again, in case something changed that was not told. A comparison takes 1 to 3 µs for each
// name that is remembered, which is nothing beside a second, and much beside a short call.
const untoldAfter = time.Second

// newChanges is nil where there is nothing to tell of, or no such memory.
func newChanges(folders []gvisorfix.CachedFolder) *changes {
	if len(folders) == 0 {
		return nil
	}
	fd, err := unix.MemfdCreate("changes", unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING)
	if err != nil {
		return nil
	}
	c := &changes{file: os.NewFile(uintptr(fd), "changes")}
	if unix.Ftruncate(fd, pageBytes) != nil {
		c.file.Close()
		return nil
	}
	if c.page, err = unix.Mmap(fd, 0, pageBytes, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED); err != nil {
		c.file.Close()
		return nil
	}
	// What is mapped already stays writable, and nothing else.
	const seals = unix.F_SEAL_SHRINK | unix.F_SEAL_GROW | unix.F_SEAL_FUTURE_WRITE | unix.F_SEAL_SEAL
	if _, err := unix.FcntlInt(uintptr(fd), unix.F_ADD_SEALS, seals); err != nil {
		c.close()
		return nil
	}
	c.tell()
	return c
}

// tell raises the number: what was changed before is seen by the next system call of
// each program in the box.
func (c *changes) tell() {
	if c == nil {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.tellLocked()
}

// begin is called before a run begins.
func (c *changes) begin() {
	if c == nil {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if time.Since(c.told) >= untoldAfter {
		c.tellLocked()
	}
}

func (c *changes) tellLocked() {
	if c.page != nil {
		c.told = time.Now()
		numberIn(c.page).Add(1)
	}
}

func (c *changes) close() {
	if c == nil {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.page != nil {
		_ = unix.Munmap(c.page)
		c.page = nil
		c.file.Close()
	}
}

func numberIn(page []byte) *atomic.Uint64 {
	return (*atomic.Uint64)(unsafe.Pointer(unsafe.SliceData(page)))
}

// cacheFolders has this sentry remember folders, or no more remember what a saved box
// did.
func cacheFolders(setup sentrySetup) error {
	if len(setup.Cached) == 0 {
		return nil
	}
	if setup.Page == 0 {
		return gvisorfix.CacheFolders(nil, setup.Cached)
	}
	page, err := unix.Mmap(setup.Page, 0, pageBytes, unix.PROT_READ, unix.MAP_SHARED)
	unix.Close(setup.Page)
	if err != nil {
		return fmt.Errorf("mapping the number of changes: %w", err)
	}
	return gvisorfix.CacheFolders(numberIn(page), setup.Cached)
}
