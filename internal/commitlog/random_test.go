package commitlog_test

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"paddock/internal/blob"
	"paddock/internal/blob/blobtest"
	"paddock/internal/commitlog"
)

var (
	cutRounds = flag.Int("cut.rounds", 20, "how many rounds TestPowerCutsAtRandom has")
	cutSeed   = flag.Uint64("cut.seed", 0, "the seed of its first round; 0: another one each time")
)

// Whatever is committed, removed and settled, and whenever the power goes, also while the
// log is recovered: what was acknowledged is there, and what was not is there whole or not at
// all.
func TestPowerCutsAtRandom(t *testing.T) {
	seed := *cutSeed
	if seed == 0 {
		seed = rand.Uint64N(1e9)
	}
	for k := range uint64(*cutRounds) {
		t.Run(fmt.Sprint("seed ", seed+k), func(t *testing.T) {
			c := &committer{machine: newMachine(t, seed+k), acked: map[string]string{}}
			for range 6 {
				c.live()
			}
		})
	}
}

// committer commits at random, and knows what has to be there.
type committer struct {
	*machine
	acked   map[string]string // the contents of all files that were committed
	doubt   map[string]string // what the last operation was about: "" may be gone
	next    int
	history []string
}

// live is the life of a process until the power goes.
func (c *committer) live() {
	c.t.Helper()
	l := c.open()
	c.verify(l)
	c.disk.SetFault(blobtest.From(c.disk.Ops()+1+c.rand.IntN(400), blobtest.ErrCut))
	c.doubt = map[string]string{}
	for c.step(l) == nil {
	}
	c.disk.SetFault(blobtest.From(0, blobtest.ErrCut))
	c.kill(l)
	c.cut()
	c.disk.SetFault(nil)
	if c.rand.IntN(3) == 0 { // the power goes again while the log is recovered
		c.disk.SetFault(blobtest.From(c.disk.Ops()+1+c.rand.IntN(60), blobtest.ErrCut))
		if l, err := commitlog.Open(commitlog.Options{Dir: c.dir, Files: c.disk, Boot: c.disk.Boot()}); err == nil {
			_ = l.Close()
		}
		c.cut()
		c.disk.SetFault(nil)
	}
}

func (c *committer) note(format string, args ...any) {
	c.history = append(c.history, fmt.Sprintf(format, args...))
}

// step does one thing. What it is about is in doubt until it is acknowledged.
func (c *committer) step(l *commitlog.Log) error {
	names := slices.Sorted(maps.Keys(c.acked))
	one := func() string { return names[c.rand.IntN(len(names))] }
	switch k := c.rand.IntN(10); {
	case k < 6 || len(names) == 0:
		return c.commitSome(l, names)
	case k < 7:
		folder := []string{"a", "b", "blobs"}[c.rand.IntN(3)]
		c.note("settle %s", folder)
		return l.Settle(c.path(folder))
	case k < 8:
		name := one()
		c.note("remove %s", name)
		c.doubt = map[string]string{name: ""}
		files := l.Files()
		err := errors.Join(files.Remove(c.path(name)), files.SyncDir(c.path(name[:strings.LastIndex(name, "/")])))
		if err == nil {
			delete(c.acked, name)
		}
		return err
	}
	return c.look(l.Files(), one())
}

// commitSome commits contents and a file that refers to them, and removes one at times.
func (c *committer) commitSome(l *commitlog.Log, names []string) error {
	var writes []blob.Write
	c.doubt = map[string]string{}
	if len(names) > 0 && c.rand.IntN(3) == 0 {
		name := names[c.rand.IntN(len(names))]
		writes = append(writes, blob.Write{Name: c.path(name), Remove: true})
		c.doubt[name] = ""
	}
	for k := range 1 + c.rand.IntN(3) {
		c.next++
		name := fmt.Sprintf("%s/%d", []string{"a/s", "b/s", "blobs/x", "blobs/y"}[c.rand.IntN(4)], c.next)
		content := strings.Repeat(fmt.Sprintf("%d ", c.next), 1+c.rand.IntN(20_000))
		c.doubt[name] = content
		writes = append(writes, blob.Write{Name: c.path(name), Data: []byte(content), Deferred: k > 0 || c.rand.IntN(4) > 0})
	}
	c.note("commit %v", slices.Sorted(maps.Keys(c.doubt)))
	err := l.Commit(writes)
	if err != nil {
		return err
	}
	for name, content := range c.doubt {
		if content == "" {
			delete(c.acked, name)
		} else {
			c.acked[name] = content
		}
	}
	return nil
}

// look reads a file that was committed.
func (c *committer) look(files blob.Files, name string) error {
	f, err := files.Open(c.path(name))
	if err == nil {
		var got []byte
		if got, err = io.ReadAll(f); err == nil && string(got) != c.acked[name] {
			c.t.Fatalf("%s holds %q, want %q\nafter %s", name, cut(string(got)), cut(c.acked[name]), strings.Join(c.history, "\n"))
		}
		_ = f.Close()
	}
	if errors.Is(err, fs.ErrNotExist) {
		c.t.Fatalf("%s is not there\nafter %s", name, strings.Join(c.history, "\n"))
	}
	return err
}

// verify checks the state after the power went, and settles what was in doubt.
func (c *committer) verify(l *commitlog.Log) {
	c.t.Helper()
	for name, content := range c.doubt {
		f, err := l.Files().Open(c.path(name))
		if errors.Is(err, fs.ErrNotExist) {
			delete(c.acked, name)
			continue
		}
		if err != nil {
			c.t.Fatal(err)
		}
		_ = f.Close()
		if content != "" {
			c.acked[name] = content
		}
	}
	for name := range c.acked {
		if err := c.look(l.Files(), name); err != nil {
			c.t.Fatalf("%s: %v\nafter %s", name, err, strings.Join(c.history, "\n"))
		}
	}
	c.note("the power went; %d files are there", len(c.acked))
}
