// Package wasi serves WASI preview 1 to one guest: its clocks, its random
// numbers, and files from the folders that it was given. It knows no engine:
// a call gets the guest's memory and its parameters, and everything that it
// finds there is hostile.
//
// The descriptor table can be saved and restored, so that a guest's open files
// move with its memory.
package wasi

import (
	"encoding/binary"
	"fmt"
	"io"
	"math"
	"time"
)

// Module is the name under which guests import the functions.
const Module = "wasi_snapshot_preview1"

// MaxDescriptors is how many descriptors a guest may have.
const MaxDescriptors = 256

const (
	maxPath    = 4096
	maxVectors = 1024
	maxEvents  = 4096
)

// Config is what a System serves. Every hook is called on the guest's
// goroutine.
type Config struct {
	// Mounts are the folders, by guest path.
	Mounts []Mount
	// Stdout and Stderr take what is written to descriptors 1 and 2; they
	// accept everything. nil discards.
	Stdout, Stderr func(p []byte)
	// Stdin fills p from descriptor 0: 0 bytes is its end; ok is false when
	// the guest was interrupted before anything came. nil: the end at once.
	Stdin func(p []byte) (n int, ok bool)
	// Random gives random bytes.
	Random io.Reader
	// Interrupted gives a channel that is closed when a guest that waits shall
	// stop waiting; nil: never.
	Interrupted func() <-chan struct{}
	// Monotonic is what the guest's monotonic clock shows at first, in ns: not
	// less than what it showed before, wherever that was.
	Monotonic int64
}

// System is one guest's world. It is used by one goroutine at a time.
type System struct {
	config Config
	space  *space
	table  [MaxDescriptors]*descriptor
	began  time.Time
	full   bool // a write found no space since the last call of Full
}

// New makes a System with stdio on 0 to 2 and the root folder on 3.
func New(config Config) (*System, error) {
	space, err := newSpace(config.Mounts)
	if err != nil {
		return nil, err
	}
	s := &System{config: config, space: space, began: time.Now()}
	for fd := range 3 {
		s.table[fd] = &descriptor{kind: stdio, stream: fd}
	}
	s.table[3] = &descriptor{kind: preopen, path: "/", flags: oDirectory}
	return s, nil
}

// Close closes every descriptor.
func (s *System) Close() error {
	for fd, d := range s.table {
		if d != nil {
			d.close()
			s.table[fd] = nil
		}
	}
	return nil
}

// Monotonic is what the guest's monotonic clock shows, in ns.
func (s *System) Monotonic() int64 { return s.config.Monotonic + int64(time.Since(s.began)) }

// Full tells whether a write found no space since the last call.
func (s *System) Full() bool {
	f := s.full
	s.full = false
	return f
}

// ExitError is what proc_exit panics with: the engine unwinds the guest.
type ExitError struct{ Code uint32 }

func (e *ExitError) Error() string { return fmt.Sprintf("the guest exited with code %d", e.Code) }

// Function is one function of the interface.
type Function struct {
	Name string
	// Params and Results give the types: i for i32, I for i64.
	Params, Results string
	// Call takes the parameters from stack and leaves the result in stack[0].
	// memory is the guest's as it is now.
	Call func(s *System, memory []byte, stack []uint64)
}

// call is a function of the interface while it runs: the guest's memory and
// what it named there, checked at each access. After the first bad address
// fault is set, and the call's result is EFAULT whatever else it says.
type call struct {
	*System
	memory []byte
	stack  []uint64
	fault  bool
}

func (c *call) u32(i int) uint32 { return uint32(c.stack[i]) }
func (c *call) u64(i int) uint64 { return c.stack[i] }
func (c *call) fd(i int) uint32  { return uint32(c.stack[i]) }

// bytes is the piece of memory at an address; nil with fault when the guest
// has no such piece.
func (c *call) bytes(address, length uint32) []byte {
	end := uint64(address) + uint64(length)
	if end > uint64(len(c.memory)) {
		c.fault = true
		return nil
	}
	return c.memory[address:end:end]
}

func (c *call) put32(address, v uint32) {
	if b := c.bytes(address, 4); b != nil {
		binary.LittleEndian.PutUint32(b, v)
	}
}

func (c *call) put64(address uint32, v uint64) {
	if b := c.bytes(address, 8); b != nil {
		binary.LittleEndian.PutUint64(b, v)
	}
}

func (c *call) get32(address uint32) uint32 {
	if b := c.bytes(address, 4); b != nil {
		return binary.LittleEndian.Uint32(b)
	}
	return 0
}

// vectors gives the pieces that an array of (address, length) names.
func (c *call) vectors(address, count uint32) ([][]byte, errno) {
	if count > maxVectors {
		return nil, einval
	}
	pieces := make([][]byte, 0, min(count, 8))
	for i := range count {
		b := c.bytes(c.get32(address+8*i), c.get32(address+8*i+4))
		if c.fault || address > math.MaxUint32-8*maxVectors {
			return nil, efault
		}
		pieces = append(pieces, b)
	}
	return pieces, success
}

// name is a path that the guest names.
func (c *call) name(address, length uint32) (string, errno) {
	if length > maxPath {
		return "", enametoolong
	}
	b := c.bytes(address, length)
	if c.fault {
		return "", efault
	}
	for _, x := range b {
		if x == 0 {
			return "", einval
		}
	}
	return string(b), success
}

// errnoFunction makes a Function of one that gives an errno.
func errnoFunction(name, params string, f func(c *call) errno) Function {
	return Function{name, params, "i", func(s *System, memory []byte, stack []uint64) {
		c := call{System: s, memory: memory, stack: stack}
		e := f(&c)
		if c.fault {
			e = efault
		}
		if e == enospc {
			s.full = true
		}
		stack[0] = uint64(e)
	}}
}

// Functions lists the whole interface.
func Functions() []Function {
	return []Function{
		errnoFunction("args_get", "ii", func(*call) errno { return success }),
		errnoFunction("args_sizes_get", "ii", noStrings),
		errnoFunction("environ_get", "ii", func(*call) errno { return success }),
		errnoFunction("environ_sizes_get", "ii", noStrings),
		errnoFunction("clock_res_get", "ii", clockRes),
		errnoFunction("clock_time_get", "iIi", clockTime),
		errnoFunction("fd_advise", "iIIi", fdAdvise),
		errnoFunction("fd_allocate", "iII", fdAllocate),
		errnoFunction("fd_close", "i", fdClose),
		errnoFunction("fd_datasync", "i", fdSync),
		errnoFunction("fd_fdstat_get", "ii", fdStatGet),
		errnoFunction("fd_fdstat_set_flags", "ii", fdStatSetFlags),
		errnoFunction("fd_fdstat_set_rights", "iII", func(c *call) errno { _, e := c.get(c.fd(0)); return e }),
		errnoFunction("fd_filestat_get", "ii", fdFilestat),
		errnoFunction("fd_filestat_set_size", "iI", fdSetSize),
		errnoFunction("fd_filestat_set_times", "iIIi", fdSetTimes),
		errnoFunction("fd_pread", "iiiIi", fdPread),
		errnoFunction("fd_prestat_get", "ii", prestat),
		errnoFunction("fd_prestat_dir_name", "iii", prestatName),
		errnoFunction("fd_pwrite", "iiiIi", fdPwrite),
		errnoFunction("fd_read", "iiii", fdRead),
		errnoFunction("fd_readdir", "iiiIi", fdReaddir),
		errnoFunction("fd_renumber", "ii", fdRenumber),
		errnoFunction("fd_seek", "iIii", fdSeek),
		errnoFunction("fd_sync", "i", fdSync),
		errnoFunction("fd_tell", "ii", fdTell),
		errnoFunction("fd_write", "iiii", fdWrite),
		errnoFunction("path_create_directory", "iii", pathMkdir),
		errnoFunction("path_filestat_get", "iiiii", pathFilestat),
		errnoFunction("path_filestat_set_times", "iiiiIIi", pathSetTimes),
		errnoFunction("path_link", "iiiiiii", pathLink),
		errnoFunction("path_open", "iiiiiIIii", pathOpen),
		errnoFunction("path_readlink", "iiiiii", pathReadlink),
		errnoFunction("path_remove_directory", "iii", pathRmdir),
		errnoFunction("path_rename", "iiiiii", pathRename),
		errnoFunction("path_symlink", "iiiii", pathSymlink),
		errnoFunction("path_unlink_file", "iii", pathUnlink),
		errnoFunction("poll_oneoff", "iiii", poll),
		{"proc_exit", "i", "", func(_ *System, _ []byte, stack []uint64) { panic(&ExitError{uint32(stack[0])}) }},
		errnoFunction("proc_raise", "i", func(*call) errno { return enosys }),
		errnoFunction("random_get", "ii", random),
		errnoFunction("sched_yield", "", func(*call) errno { return success }),
		errnoFunction("sock_accept", "iii", func(*call) errno { return enotsup }),
		errnoFunction("sock_recv", "iiiiii", func(*call) errno { return enotsup }),
		errnoFunction("sock_send", "iiiii", func(*call) errno { return enotsup }),
		errnoFunction("sock_shutdown", "ii", func(*call) errno { return enotsup }),
	}
}

func noStrings(c *call) errno {
	c.put32(c.u32(0), 0)
	c.put32(c.u32(1), 0)
	return success
}

func random(c *call) errno {
	if b := c.bytes(c.u32(0), c.u32(1)); b != nil {
		if _, err := io.ReadFull(c.config.Random, b); err != nil {
			return eio
		}
	}
	return success
}
