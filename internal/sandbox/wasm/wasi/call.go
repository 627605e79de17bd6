package wasi

import (
	"bytes"
	"encoding/binary"
	"math"
)

// Function is one function of the interface.
type Function struct {
	Name string
	// Params and Results give the types, a letter each: i is i32, I is i64.
	Params, Results string
	// Call takes the parameters from stack and leaves the result, an errno, in
	// stack[0]; stack has room for both. memory is the guest's as it is now.
	// proc_exit does not return: it panics with an [*ExitError].
	Call func(s *System, memory []byte, stack []uint64)
}

// call is a function of the interface while it runs. Nothing of it outlives
// the call: a System has one, used again and again.
type call struct {
	*System
	memory []byte
	stack  []uint64
}

// function makes a Function of one that gives an errno.
func function(name, params string, f func(c *call) errno) Function {
	return Function{name, params, "i", func(s *System, memory []byte, stack []uint64) {
		c := &s.call
		c.memory, c.stack = memory, stack
		e := f(c)
		if e == enospc {
			s.full = true
		}
		c.memory, c.stack = nil, nil
		stack[0] = uint64(e)
	}}
}

// Functions lists the whole interface.
func Functions() []Function {
	return []Function{
		function("args_get", "ii", func(c *call) errno { return c.putStrings(c.config.Args) }),
		function("args_sizes_get", "ii", func(c *call) errno { return c.putSizes(c.config.Args) }),
		function("environ_get", "ii", func(c *call) errno { return c.putStrings(c.config.Env) }),
		function("environ_sizes_get", "ii", func(c *call) errno { return c.putSizes(c.config.Env) }),
		function("clock_res_get", "ii", clockResGet),
		function("clock_time_get", "iIi", clockTimeGet),
		function("fd_advise", "iIIi", fdAdvise),
		function("fd_allocate", "iII", fdAllocate),
		function("fd_close", "i", fdClose),
		function("fd_datasync", "i", fdSync),
		function("fd_fdstat_get", "ii", fdFdstatGet),
		function("fd_fdstat_set_flags", "ii", fdFdstatSetFlags),
		function("fd_fdstat_set_rights", "iII", fdFdstatSetRights),
		function("fd_filestat_get", "ii", fdFilestatGet),
		function("fd_filestat_set_size", "iI", fdFilestatSetSize),
		function("fd_filestat_set_times", "iIIi", fdFilestatSetTimes),
		function("fd_pread", "iiiIi", fdPread),
		function("fd_prestat_dir_name", "iii", fdPrestatDirName),
		function("fd_prestat_get", "ii", fdPrestatGet),
		function("fd_pwrite", "iiiIi", fdPwrite),
		function("fd_read", "iiii", fdRead),
		function("fd_readdir", "iiiIi", fdReaddir),
		function("fd_renumber", "ii", fdRenumber),
		function("fd_seek", "iIii", fdSeek),
		function("fd_sync", "i", fdSync),
		function("fd_tell", "ii", fdTell),
		function("fd_write", "iiii", fdWrite),
		function("path_create_directory", "iii", pathCreateDirectory),
		function("path_filestat_get", "iiiii", pathFilestatGet),
		function("path_filestat_set_times", "iiiiIIi", pathFilestatSetTimes),
		function("path_link", "iiiiiii", pathLink),
		function("path_open", "iiiiiIIii", pathOpen),
		function("path_readlink", "iiiiii", pathReadlink),
		function("path_remove_directory", "iii", pathRemoveDirectory),
		function("path_rename", "iiiiii", pathRename),
		function("path_symlink", "iiiii", pathSymlink),
		function("path_unlink_file", "iii", pathUnlinkFile),
		function("poll_oneoff", "iiii", pollOneoff),
		{"proc_exit", "i", "", func(_ *System, _ []byte, stack []uint64) { panic(&ExitError{uint32(stack[0])}) }},
		function("proc_raise", "i", unsupported),
		function("random_get", "ii", randomGet),
		function("sched_yield", "", func(*call) errno { return success }),
		function("sock_accept", "iii", unsupported),
		function("sock_recv", "iiiiii", unsupported),
		function("sock_send", "iiiii", unsupported),
		function("sock_shutdown", "ii", unsupported),
	}
}

func unsupported(*call) errno { return enotsup }

// u32 and u64 are parameters.
func (c *call) u32(i int) uint32 { return uint32(c.stack[i]) }
func (c *call) u64(i int) uint64 { return c.stack[i] }

// slice is a piece of the guest's memory, nil where the guest has none.
func (c *call) slice(address, length uint32) []byte {
	end := uint64(address) + uint64(length)
	if end > uint64(len(c.memory)) {
		return nil
	}
	return c.memory[address:end:end]
}

// u32At is where parameter i points to, for a result; nil where the guest has
// no memory. It is looked up before a call does anything, so that a call with
// a bad address does nothing.
func (c *call) u32At(i int) *result {
	if b := c.slice(c.u32(i), 4); b != nil {
		return (*result)(b)
	}
	return nil
}

// u64At is u32At for a result of eight bytes.
func (c *call) u64At(i int) *longResult {
	if b := c.slice(c.u32(i), 8); b != nil {
		return (*longResult)(b)
	}
	return nil
}

type (
	result     [4]byte
	longResult [8]byte
)

func (r *result) put(v int)       { binary.LittleEndian.PutUint32(r[:], uint32(v)) }
func (r *longResult) put(v int64) { binary.LittleEndian.PutUint64(r[:], uint64(v)) }

// vectors are the pieces of memory that the guest reads into or writes from.
// The list of them lies in memory too, and may be overwritten while they are
// filled: each piece is looked up, and checked, when it is used.
type vectors struct{ list, memory []byte }

// vectors looks up those that parameter i points to and i+1 counts.
func (c *call) vectors(i int) (vectors, errno) {
	count := c.u32(i + 1)
	if count > maxVectors {
		return vectors{}, einval
	}
	v := vectors{c.slice(c.u32(i), 8*count), c.memory}
	if v.list == nil {
		return v, efault
	}
	for k := range v.count() {
		if v.at(k) == nil {
			return v, efault
		}
	}
	return v, success
}

func (v vectors) count() int { return len(v.list) / 8 }

func (v vectors) at(k int) []byte {
	address := uint64(binary.LittleEndian.Uint32(v.list[8*k:]))
	end := address + uint64(binary.LittleEndian.Uint32(v.list[8*k+4:]))
	if end > uint64(len(v.memory)) {
		return nil
	}
	return v.memory[address:end:end]
}

// each calls f with one piece after the other, until one was not used whole.
// total is less than [maxTransfer]. An error counts only when nothing was done
// before it, as in POSIX.
func (v vectors) each(f func(p []byte) (int, errno)) (total int, e errno) {
	for k := range v.count() {
		p := v.at(k)
		if p == nil {
			e = efault
			break
		}
		p = p[:min(len(p), maxTransfer-total)]
		if len(p) == 0 {
			continue
		}
		var n int
		n, e = f(p)
		total += n
		if e != success || n < len(p) {
			break
		}
	}
	if total > 0 {
		e = success
	}
	return total, e
}

// text is a piece of memory that is to be a path or a link's target.
func (c *call) text(address, length uint32) ([]byte, errno) {
	if length > maxPath {
		return nil, enametoolong
	}
	b := c.slice(address, length)
	switch {
	case b == nil:
		return nil, efault
	case length == 0:
		return nil, enoent
	case bytes.IndexByte(b, 0) >= 0:
		return nil, einval
	}
	return b, success
}

// putSizes tells how much room putStrings needs.
func (c *call) putSizes(list []string) errno {
	count, size := c.u32At(0), c.u32At(1)
	if count == nil || size == nil {
		return efault
	}
	total := 0
	for _, s := range list {
		total += len(s) + 1
	}
	count.put(len(list))
	size.put(total)
	return success
}

// putStrings writes strings, ended by zeros, and an array of their addresses.
func (c *call) putStrings(list []string) errno {
	addresses, at := c.slice(c.u32(0), uint32(4*len(list))), c.u32(1)
	if addresses == nil {
		return efault
	}
	for i, s := range list {
		b := c.slice(at, uint32(len(s)+1))
		if b == nil || len(s) >= math.MaxInt32 {
			return efault
		}
		b[copy(b, s)] = 0
		binary.LittleEndian.PutUint32(addresses[4*i:], at)
		at += uint32(len(b))
	}
	return success
}
