// Package wasi serves WASI preview 1 to one guest: arguments, clocks, random
// numbers, standard streams, and files from the trees that it was given. It
// knows no WebAssembly engine: a call gets the guest's memory and the call's
// parameters, and everything that lies there is hostile.
//
// The guest sees one preopened folder, "/". Folders are mounted below it; what
// lies between them exists only to hold them and cannot be changed. A path is
// made absolute and freed of "." and ".." by its text alone; what follows the
// mount's own path is then resolved by [os.Root], which no link leaves, or on
// Linux, as long as there is no link, by the kernel at once (spot).
//
// An open folder is a name: it holds nothing of the host, and follows only the
// renames of its own System. An open file is a file of the host. Both are
// written down by [System.Save] and opened again by [System.Restore], so that
// they move with the guest's memory.
//
// There is one lock, the one in [Dir]; it is held while a file grows. On Linux
// a second one, taken after it and once only, keeps the folder's descriptor
// from being closed while it is used.
package wasi

import (
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"
)

// Module is the name that guests import the functions from.
const Module = "wasi_snapshot_preview1"

// What a guest may ask for.
const (
	MaxDescriptors = 256 // open at once

	maxPath      = 4096     // bytes of a path, as given and made absolute
	maxName      = 255      // bytes of one part of it
	maxDepth     = 200      // parts of it; [Dir] holds a folder open for each while it counts
	maxVectors   = 1024     // pieces of one read or write
	maxTransfer  = 1 << 30  // bytes of one read or write; the rest is left to the next
	maxEvents    = 4096     // subscriptions of one poll
	maxListBytes = 64 << 20 // what the lists of all open folders take
)

// Config is what a System serves. The hooks are called on the goroutine that
// runs the guest, and must not keep the slices that they get.
type Config struct {
	// Args and Env ("NAME=value") are the guest's; empty: none.
	Args, Env []string
	// Mounts are the trees; empty: an empty root.
	Mounts []Mount
	// Stdin fills p from descriptor 0. n = 0 is the end; ok is false when the
	// guest was interrupted before anything came. nil: the end at once.
	Stdin func(p []byte) (n int, ok bool)
	// Stdout and Stderr take all that is written to descriptors 1 and 2; nil
	// discards.
	Stdout, Stderr func(p []byte)
	// Random gives the random bytes; nil: the system's.
	Random io.Reader
	// Interrupted gives a channel that is closed when a waiting guest shall
	// stop waiting; it is asked for at each wait. nil: never.
	Interrupted func() <-chan struct{}
	// Now is the time that all clocks but CPU go by; nil: the system's.
	Now func() time.Time
	// Monotonic is where the guest's monotonic clock begins, in ns.
	Monotonic int64
	// CPU is the processor time that the guest has used; nil: the time that
	// has passed since New.
	CPU func() time.Duration
}

// System is one guest's world. It is used by one goroutine at a time; several
// Systems may share a [Dir] or an [Archive] and run at once.
type System struct {
	config Config
	space  *space
	table  [MaxDescriptors]*descriptor
	begun  time.Time
	full   bool
	listed int    // bytes of the lists in the table
	call   call   // the one that is going on
	path   []byte // scratch
}

// New makes a System with the streams on 0 to 2 and the root folder on 3. It
// does not own the mounts: their Dirs are closed by who opened them, after
// every System that uses them.
func New(config Config) (*System, error) {
	if config.Random == nil {
		config.Random = rand.Reader
	}
	space, err := newSpace(config.Mounts, &devices{config.Random})
	for _, s := range append(append([]string(nil), config.Args...), config.Env...) {
		if strings.ContainsRune(s, 0) {
			err = errors.Join(err, fmt.Errorf("a zero byte in %q", s))
		}
	}
	if err != nil {
		return nil, fmt.Errorf("making a guest's world: %w", err)
	}
	if config.Now == nil {
		config.Now = time.Now
	}
	s := &System{config: config, space: space, begun: config.Now()}
	s.call.System = s
	for fd := range streams {
		s.table[fd] = &descriptor{kind: stream, stream: fd}
	}
	s.table[rootFD] = &descriptor{kind: root, path: "/"}
	return s, nil
}

// Close closes every descriptor. It works twice.
func (s *System) Close() error {
	var errs []error
	for fd := range s.table {
		errs = append(errs, s.drop(fd))
	}
	return errors.Join(errs...)
}

// Monotonic is what the guest's monotonic clock shows, in ns.
func (s *System) Monotonic() int64 { return s.config.Monotonic + int64(s.since()) }

// since is the time that has passed since New.
func (s *System) since() time.Duration { return s.config.Now().Sub(s.begun) }

// Full tells whether a call has ended with "no space left" since Full was
// asked last.
func (s *System) Full() bool {
	full := s.full
	s.full = false
	return full
}

// interrupted is the channel that ends the guest's waiting, or nil.
func (s *System) interrupted() <-chan struct{} {
	if s.config.Interrupted == nil {
		return nil
	}
	return s.config.Interrupted()
}

// ExitError is what proc_exit panics with, as a pointer: the engine unwinds
// the guest's stack and passes it on. The System stays usable.
type ExitError struct{ Code uint32 }

// Error tells the exit code.
func (e *ExitError) Error() string { return fmt.Sprintf("the guest exited with code %d", e.Code) }
