package model

import (
	"bytes"
	"errors"
	"flag"
	"fmt"
	"maps"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"

	"paddock/internal/blob/blobtest"
	"paddock/internal/fault"
	"paddock/internal/sandbox/sandboxtest"
	"paddock/internal/session"
)

var faultStride = flag.Int("faults.stride", 0, "each how many operations of the disk a fault is tried; 0: so many that it takes seconds")

// faultySession is a session on a disk that fails, and what a simple model says of it.
type faultySession struct {
	t    *testing.T
	dir  string
	disk *blobtest.Disk
	m    *session.Manager
	id   session.ID

	now  moment // what it holds
	twin *twin  // what is kept of it
	// loose tells that now is not kept.
	loose bool
	// was and after are what it held before the last step, and was to hold after it.
	was, after moment
	blind      bool       // after an error it cannot be looked at
	copy       session.ID // made by fork
	// made is how many sessions there are; doubtful is how many of them may have
	// been destroyed although that was an error.
	made, doubtful int
	saved          bytes.Buffer
	log            steps
}

// steps is what has been done so far, for a failure's text. Faults are written
// into it by the goroutines that meet them.
type steps struct {
	mu  sync.Mutex
	all []string
}

func (s *steps) add(format string, args ...any) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.all = append(s.all, fmt.Sprintf(format, args...))
}

func (s *steps) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return strings.Join(s.all, ", ")
}

func newFaultySession(t *testing.T) *faultySession {
	r := &faultySession{t: t, dir: sandboxtest.Memory(t), now: nothing()}
	disk, err := blobtest.New(r.dir)
	if err != nil {
		t.Fatal(err)
	}
	r.disk = disk
	return r
}

func (r *faultySession) open() error {
	config := session.Config{Dir: r.dir, Files: r.disk}
	backend := sandboxtest.NewFake(sandboxtest.FakeConfig{})
	r.t.Cleanup(func() { backend.Close() })
	config.Backends = append(config.Backends, backend)
	m, err := session.New(config)
	if err != nil {
		return err
	}
	r.m = m
	r.t.Cleanup(func() { m.Close() })
	return nil
}

func (r *faultySession) fail(format string, args ...any) {
	r.t.Helper()
	r.t.Fatalf("%s\nafter: %s", fmt.Sprintf(format, args...), r.log.String())
}

// holds gives what the session holds, as far as anybody can look.
func (r *faultySession) holds() (moment, error) {
	d, err := r.m.Details(r.t.Context(), alice, r.id)
	if err != nil {
		return moment{}, err
	}
	if d.Notice != "" {
		return moment{}, errors.New(d.Notice)
	}
	at := nothing()
	for _, v := range d.Variables {
		n := int64(0)
		fmt.Sscan(v.Preview, &n)
		language := map[byte]string{'p': "python", 'j': "javascript"}[v.Name[0]]
		if at.vars[language] == nil {
			at.vars[language] = map[string]int64{}
		}
		at.vars[language][v.Name] = n
	}
	p := round{t: r.t, dir: r.dir}
	at.files = p.onDisk(&twin{id: r.id})
	return at, nil
}

// same tells whether two moments hold the same.
func same(a, b moment) bool {
	return maps.Equal(a.variables(), b.variables()) && maps.Equal(a.files, b.files)
}

// is gives which of some moments the session holds; it has to be one of them.
func (r *faultySession) is(some ...moment) moment {
	r.t.Helper()
	got, err := r.holds()
	if err != nil {
		r.fail("it cannot be looked at: %v (%v)", err, errors.Unwrap(fault.Of(err)))
	}
	k := slices.IndexFunc(some, func(m moment) bool { return same(m, got) })
	if k < 0 {
		r.fail("it holds %v %v, want one of %v", got.variables(), got.files, some)
	}
	return some[k]
}

// begin opens the folder and makes the session, again where that fails.
func (r *faultySession) begin() error {
	err := r.open()
	if err != nil {
		r.log.add("open: %v", err)
		if err := r.open(); err != nil {
			r.fail("opening again: %v", err)
		}
	}
	i, createErr := r.m.Create(r.t.Context(), alice, "", session.Settings{})
	if createErr != nil {
		r.log.add("create: %v", createErr)
		r.clearFault(createErr)
		if i, err = r.m.Create(r.t.Context(), alice, "", session.Settings{}); err != nil {
			r.fail("creating again: %v", err)
		}
	}
	r.id, r.made = i.ID, 1
	r.twin = begun(alice, r.id, 100, "create", nothing())
	return errors.Join(err, createErr)
}

// clearFault sees that an error tells its reader something.
func (r *faultySession) clearFault(err error) {
	r.t.Helper()
	if f := fault.Of(err); f == nil || f.Message == "" || strings.Contains(f.Message, r.dir) {
		r.fail("the error is %#v", err)
	}
}

// take does a step, and lets the model follow what it says. It tells whether
// that was all well.
func (r *faultySession) take(s step) bool {
	r.t.Helper()
	r.was, r.after = r.now, r.now
	if s.after != nil {
		r.after = s.after(r)
	}
	unkept, err := s.do(r)
	r.log.add("%s: %v %v", s.name, err, unkept)
	switch {
	case err != nil:
		if f := fault.Of(err); f.Kind == fault.NotFound && s.name == "restore" {
			return true // its label was not made
		}
		r.clearFault(err)
		if !r.blind {
			// What was not acknowledged may be gone after a later error.
			r.now = r.is(r.now, r.after, r.twin.now())
		}
		return false
	case unkept:
		r.now, r.loose = r.after, true
		return false
	}
	r.now = r.after
	if s.then != nil {
		s.then(r)
	}
	if s.after != nil && !strings.HasPrefix(s.name, "write") {
		r.loose = false
	}
	return true
}

func TestAFaultOfTheDiskCostsOneCallAtMost(t *testing.T) {
	ops := 0
	t.Run("none", func(t *testing.T) {
		r := newFaultySession(t)
		if err := r.begin(); err != nil {
			t.Fatal(err)
		}
		for _, s := range use {
			if !r.take(s) {
				r.fail("it did not work")
			}
			r.is(r.now)
		}
		r.reopened()
		ops = r.disk.Ops()
	})
	t.Logf("%d operations", ops)
	faults := map[string]error{"an I/O error": syscall.EIO, "a torn write": blobtest.Torn{Err: syscall.EIO}, "a full disk": blobtest.Torn{Err: syscall.ENOSPC}}
	for _, name := range slices.Sorted(maps.Keys(faults)) {
		t.Run(name, func(t *testing.T) {
			stride := *faultStride
			if stride == 0 {
				stride = 1 + ops/12
				if few() {
					stride = 1 + ops/6
				}
			}
			for n := 1 + rand.IntN(stride); n <= ops; n += stride {
				t.Run(fmt.Sprint("at ", n), func(t *testing.T) { oneFault(t, blobtest.At(n, faults[name])) })
			}
		})
	}
}

func oneFault(t *testing.T, f func(blobtest.Op) error) {
	r := newFaultySession(t)
	r.disk.SetFault(func(op blobtest.Op) error {
		err := f(op)
		if err != nil {
			r.log.add("FAULT at %s of %s", op.Kind, filepath.Base(op.Name))
		}
		return err
	})
	_ = r.begin()
	for _, s := range use {
		r.take(s)
	}
	r.disk.SetFault(nil)
	if !r.take(counts(7)) {
		r.fail("it does not go on")
	}
	r.reopened()
	all, err := r.m.List(alice)
	if err != nil || len(all) > r.made || len(all) < r.made-r.doubtful {
		r.fail("there are %+v, want %d, %v", all, r.made, err)
	}
	r.others()
}

// reopened sees that all is there in a new process, and that every checkpoint
// can be gone back to.
func (r *faultySession) reopened() {
	r.t.Helper()
	if err := r.m.Close(); err != nil {
		r.fail("%v", err)
	}
	if err := r.open(); err != nil {
		r.fail("%v", err)
	}
	r.is(r.now)
	all, err := r.m.Checkpoints(alice, r.id)
	if err != nil {
		r.fail("%v", err)
	}
	var known []moment
	for _, p := range r.twin.line {
		known = append(known, p.at)
	}
	for _, c := range all {
		if _, err := r.m.Restore(r.t.Context(), alice, r.id, c.ID); err != nil {
			r.fail("restoring %s: %v", c.ID, err)
		}
		r.is(known...)
	}
}

// An interpreter of one language is not forgotten when the next call that can be
// kept is another's.
func TestWhatCouldNotBeKeptIsKeptWithTheNextCallWhateverItsLanguage(t *testing.T) {
	r := newFaultySession(t)
	if err := r.begin(); err != nil {
		t.Fatal(err)
	}
	armed := true
	r.disk.SetFault(func(op blobtest.Op) error {
		if armed && op.Kind == "sync" && strings.HasSuffix(op.Name, ".log") {
			armed = false
			return syscall.EIO
		}
		return nil
	})
	if r.take(counts(1)) || armed {
		t.Fatal("it was kept")
	}
	if !r.take(runs("j = 1", "javascript", func(m moment) { m.vars["javascript"]["j"] = 1 })) {
		t.Fatal("it was not kept")
	}
	if err := r.m.Sleep(alice, r.id); err != nil {
		t.Fatal(err)
	}
	r.reopened()
}
