package confine

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"time"
	"unsafe"

	"github.com/tetratelabs/wazero"
	"golang.org/x/sys/unix"

	"paddock/internal/sandbox/wasm/linear"
)

// compiling is what only a worker needs that compiles its guests.
func compiling() []try {
	return []try{
		{name: "compiling and running WebAssembly", do: runModule},
		{name: "memory that becomes executable", do: executable},
	}
}

// needs are what a worker does all day.
func needs() []try {
	return []try{
		{name: "reading what may be read", do: func(c *confined) error {
			b, err := os.ReadFile(c.readable + "/file")
			return errors.Join(err, equal(string(b), "to be read"))
		}},
		{name: "goroutines on new threads", do: newThreads},
		{name: "collecting garbage while a loop runs that calls nothing", do: collectUnderLoop},
		{name: "timers", do: timers},
		{name: "random bytes", do: func(*confined) error { _, err := rand.Read(make([]byte, 64)); return err }},
		{name: "making, moving, linking and removing files", do: changeTree},
		{name: "writing, cutting, syncing and dating a file", do: changeFile},
		{name: "copying a file", do: copyFile},
		{name: "a file in memory", do: memoryFile},
		{name: "a private mapping of a file", do: privateMapping},
		{name: "the page map opened before", do: readPagemap},
		{name: "a memory that knows what was written since it was marked", do: markMemory},
		{name: "a pipe", do: pipe},
		{name: "a deadline on the inherited socket", do: func(c *confined) error {
			if err := c.conn.SetReadDeadline(time.Now().Add(time.Millisecond)); err != nil {
				return err
			}
			if _, err := c.conn.Read(make([]byte, 1)); !errors.Is(err, os.ErrDeadlineExceeded) {
				return fmt.Errorf("reading ended with %v", err)
			}
			return c.conn.SetReadDeadline(time.Time{})
		}},
	}
}

func equal[T comparable](got, want T) error {
	if got != want {
		return fmt.Errorf("it is %v, want %v", got, want)
	}
	return nil
}

// newThreads has the runtime start threads and, as the goroutines end with
// theirs locked, end them.
func newThreads(*confined) error {
	const n = 40
	var all, together sync.WaitGroup
	together.Add(n)
	ids := make([]int, n)
	for i := range n {
		all.Go(func() {
			runtime.LockOSThread()
			ids[i] = unix.Gettid()
			together.Done()
			together.Wait()
		})
	}
	all.Wait()
	seen := map[int]bool{}
	for _, id := range ids {
		seen[id] = true
	}
	return equal(len(seen), n)
}

// collectUnderLoop ends only if the runtime can stop the loop with a signal.
func collectUnderLoop(*confined) error {
	var started, stop atomic.Bool
	var all sync.WaitGroup
	for range 2 {
		all.Go(func() {
			started.Store(true)
			for !stop.Load() {
			}
		})
	}
	for !started.Load() {
		runtime.Gosched()
	}
	garbage := make([][]byte, 0, 64)
	for range 64 {
		garbage = append(garbage, make([]byte, 1<<16))
	}
	runtime.GC()
	runtime.KeepAlive(garbage)
	stop.Store(true)
	all.Wait()
	return nil
}

func timers(*confined) error {
	ctx, cancel := context.WithTimeout(context.Background(), time.Millisecond)
	defer cancel()
	tick := time.NewTicker(time.Microsecond)
	defer tick.Stop()
	<-tick.C
	<-ctx.Done()
	return nil
}

func changeTree(c *confined) error {
	r := c.root
	err := errors.Join(
		r.MkdirAll("a/b", 0o755), r.Mkdir("c", 0o755), r.WriteFile("a/b/f", []byte("hello"), 0o644),
		r.Rename("a/b/f", "c/g"), r.Rename("a/b", "c/b"), // between folders
		r.Symlink("g", "c/l"), r.Link("c/g", "a/h"), r.Remove("c/g"))
	if err != nil {
		return err
	}
	if _, err := r.Stat("c/l"); !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("the link's end is there: %v", err)
	}
	to, err := r.Readlink("c/l")
	if err := errors.Join(err, equal(to, "g")); err != nil {
		return err
	}
	d, err := r.Open("c")
	if err != nil {
		return err
	}
	names, err := d.ReadDir(-1)
	return errors.Join(err, d.Close(), equal(len(names), 2), r.RemoveAll("a"), r.RemoveAll("c"))
}

func changeFile(c *confined) error {
	f, err := c.root.OpenFile("file", os.O_RDWR|os.O_CREATE|os.O_TRUNC, 0o644)
	if err != nil {
		return err
	}
	defer f.Close()
	_, err = f.Write([]byte("0123456789"))
	then := time.Unix(1e9, 0)
	err = errors.Join(err, f.Truncate(5), f.Sync(), c.root.Chtimes("file", then, then))
	if err != nil {
		return err
	}
	info, err := c.root.Stat("file")
	if err != nil {
		return err
	}
	if _, err := f.Seek(2, io.SeekStart); err != nil {
		return err
	}
	rest, err := io.ReadAll(f)
	return errors.Join(err, equal(string(rest), "234"), equal(info.Size(), 5), equal(info.ModTime().Unix(), then.Unix()))
}

// copyFile takes the ways that Go has for speed, which are closed, and comes
// to the plain one.
func copyFile(c *confined) error {
	if err := c.root.WriteFile("from", bytes.Repeat([]byte("x"), 1<<17), 0o644); err != nil {
		return err
	}
	from, err := c.root.Open("from")
	if err != nil {
		return err
	}
	defer from.Close()
	to, err := c.root.Create("to")
	if err != nil {
		return err
	}
	n, err := io.Copy(to, from)
	return errors.Join(err, to.Close(), equal(n, 1<<17))
}

// double is a module with a function "f" that gives twice its argument.
var double = []byte{0, 'a', 's', 'm', 1, 0, 0, 0,
	1, 6, 1, 0x60, 1, 0x7f, 1, 0x7f, // one type: an i32 to an i32
	3, 2, 1, 0, // one function of it
	7, 5, 1, 1, 'f', 0, 0, // exported
	10, 9, 1, 7, 0, 0x20, 0, 0x20, 0, 0x6a, 0x0b} // local.get 0, local.get 0, i32.add

func runModule(*confined) error {
	ctx := context.Background()
	r := wazero.NewRuntimeWithConfig(ctx, wazero.NewRuntimeConfigCompiler())
	m, err := r.Instantiate(ctx, double)
	if err != nil {
		return err
	}
	got, err := m.ExportedFunction("f").Call(ctx, 21)
	if err != nil {
		return err
	}
	return errors.Join(equal(got[0], 42), r.Close(ctx))
}

func executable(*confined) error {
	b, err := unix.Mmap(-1, 0, 1<<16, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANON)
	if err != nil {
		return err
	}
	return errors.Join(unix.Mprotect(b, unix.PROT_READ|unix.PROT_EXEC), unix.Munmap(b))
}

func memoryFile(*confined) error {
	fd, err := unix.MemfdCreate("memory", unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING)
	if err != nil {
		return err
	}
	f := os.NewFile(uintptr(fd), "memory")
	defer f.Close()
	if err := f.Truncate(1 << 16); err != nil {
		return err
	}
	b, err := unix.Mmap(fd, 0, 1<<16, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		return err
	}
	b[0] = 7
	got := make([]byte, 1)
	_, err = f.ReadAt(got, 0)
	_, seal := unix.FcntlInt(f.Fd(), unix.F_ADD_SEALS, unix.F_SEAL_SHRINK)
	return errors.Join(err, seal, equal(got[0], 7), unix.Munmap(b))
}

func privateMapping(c *confined) error {
	if err := c.root.WriteFile("image", []byte("image"), 0o644); err != nil {
		return err
	}
	f, err := c.root.Open("image")
	if err != nil {
		return err
	}
	defer f.Close()
	b, err := unix.Mmap(int(f.Fd()), 0, 5, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE)
	if err != nil {
		return err
	}
	b[0] = 'I'
	own := string(b)
	theirs, err := c.root.ReadFile("image")
	return errors.Join(err, equal(own, "Image"), equal(string(theirs), "image"), unix.Munmap(b))
}

// readPagemap sees which of two new pages has been written.
func readPagemap(c *confined) error {
	size := os.Getpagesize()
	b, err := unix.Mmap(-1, 0, 2*size, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANON)
	if err != nil {
		return err
	}
	b[size] = 1
	entries := make([]byte, 16)
	_, err = c.pagemap.ReadAt(entries, int64(uintptr(unsafe.Pointer(&b[0])))/int64(size)*8)
	const present = 1 << 63
	return errors.Join(err,
		equal(binary.NativeEndian.Uint64(entries)&present, 0), equal(binary.NativeEndian.Uint64(entries[8:])&present, present),
		unix.Munmap(b))
}

// markMemory finds one page of many, where the kernel can tell it.
func markMemory(*confined) error {
	m, err := linear.New(nil, 16<<20)
	if err != nil {
		return err
	}
	defer m.Free()
	memory := m.Reallocate(16 << 20)
	for at := 0; at < len(memory); at += linear.PageSize {
		memory[at] = 1
	}
	all, err := m.Changed(nil)
	if err != nil {
		return err
	}
	m.Mark()
	memory[5*linear.PageSize] = 2
	changed, err := m.Changed(nil)
	want := []uint32{5}
	if !linear.Marks() {
		want = all
	}
	if !slices.Equal(changed, want) {
		return fmt.Errorf("it tells %d pages, want %d", len(changed), len(want))
	}
	return err
}

func pipe(*confined) error {
	r, w, err := os.Pipe()
	if err != nil {
		return err
	}
	defer r.Close()
	read := make(chan error)
	go func() {
		b, err := io.ReadAll(r)
		read <- errors.Join(err, equal(string(b), "through the pipe"))
	}()
	_, err = w.WriteString("through the pipe")
	return errors.Join(err, w.Close(), <-read)
}
