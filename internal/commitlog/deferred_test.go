package commitlog_test

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"slices"
	"strings"
	"syscall"
	"testing"

	"paddock/internal/blob"
	"paddock/internal/blob/blobtest"
	"paddock/internal/commitlog"
)

// deferred is a file of a commit that need not be made.
func (m *machine) deferred(name, content string) blob.Write {
	w := m.write(name, content)
	w.Deferred = true
	return w
}

// reads checks what some files say that a file holds; "": it is not there.
func (m *machine) reads(files blob.Files, name, want string) {
	m.t.Helper()
	f, err := files.Open(m.path(name))
	if errors.Is(err, fs.ErrNotExist) {
		if want != "" {
			m.t.Errorf("%s is not there, want %q", name, cut(want))
		}
		if _, err := files.Stat(m.path(name)); !errors.Is(err, fs.ErrNotExist) {
			m.t.Errorf("the size of %s: got error %v, want %v", name, err, fs.ErrNotExist)
		}
		return
	}
	if err != nil {
		m.t.Fatal(err)
	}
	defer f.Close()
	got, err := io.ReadAll(f)
	if err != nil {
		m.t.Fatal(err)
	}
	if string(got) != want {
		m.t.Errorf("%s holds %q, want %q", name, cut(string(got)), cut(want))
	}
	if info, err := files.Stat(m.path(name)); err != nil {
		m.t.Errorf("the size of %s: %v", name, err)
	} else if info.Size() != int64(len(want)) {
		m.t.Errorf("%s has %d bytes, want %d", name, info.Size(), len(want))
	}
}

// lists checks what some files say that a folder has.
func (m *machine) lists(files blob.Files, dir string, want ...string) {
	m.t.Helper()
	entries, err := files.ReadDir(m.path(dir))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		m.t.Fatal(err)
	}
	var got []string
	for _, e := range entries {
		name := e.Name()
		if e.IsDir() {
			name += "/"
		}
		got = append(got, name)
	}
	if !slices.Equal(got, want) {
		m.t.Errorf("%s has %v, want %v", dir, got, want)
	}
}

func (m *machine) remove(files blob.Files, name string) {
	m.t.Helper()
	if err := files.Remove(m.path(name)); err != nil {
		m.t.Error(err)
	}
}

func TestADeferredFileIsReadFromTheLogUntilItIsSettled(t *testing.T) {
	m := newMachine(t, 1)
	l := m.open()
	files := l.Files()
	m.commit(l, m.deferred("blobs/ab/one", "the content"), m.deferred("line/s/1", "names it"))
	m.commit(l, m.write("line/s/beside", "a file"))
	m.want("blobs/ab/one", "")
	m.reads(files, "blobs/ab/one", "the content")
	m.reads(files, "line/s/1", "names it")
	m.lists(files, "blobs", "ab/")
	m.lists(files, "line", "s/")
	m.lists(files, "line/s", "1", "beside")
	if err := l.Settle(m.path("line")); err != nil {
		t.Fatal(err)
	}
	m.want("line/s/1", "names it")
	m.want("blobs/ab/one", "")
	m.lists(files, "line/s", "1", "beside")
	m.reads(files, "line/s/1", "names it")
	m.close(l)
	m.want("blobs/ab/one", "the content")
}

func TestWhatIsRemovedBeforeItIsSettledIsNeverAFile(t *testing.T) {
	m := newMachine(t, 1)
	l := m.open()
	files := l.Files()
	m.commit(l, m.deferred("line/s/1", "removed"))
	m.commit(l, m.deferred("line/s/2", "dropped by a commit"))
	m.remove(files, "line/s/1")
	m.commit(l, blob.Write{Name: m.path("line/s/2"), Remove: true}, m.deferred("line/s/3", "stays"))
	m.lists(files, "line/s", "3")
	m.reads(files, "line/s/1", "")
	if err := files.Remove(m.path("line/s/1")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("removing it twice gave %v, want %v", err, fs.ErrNotExist)
	}
	made := 0
	m.disk.SetFault(func(op blobtest.Op) error {
		if op.Kind == "rename" {
			made++
		}
		return nil
	})
	m.close(l)
	if made != 1 {
		t.Errorf("%d files were made, want 1", made)
	}
	m.want("line/s/3", "stays")
}

// What a commit removes goes with it, whenever the process is killed.
func TestACommitRemovesWithItsWrites(t *testing.T) {
	m := newMachine(t, 1)
	l := m.open()
	m.commit(l, m.deferred("line/s/1", "old"))
	m.commit(l, m.write("line/s/2", "old, and a file"))
	m.commit(l, blob.Write{Name: m.path("line/s/1"), Remove: true}, blob.Write{Name: m.path("line/s/2"), Remove: true}, m.deferred("line/s/3", "new"))
	m.kill(l)
	next := m.open()
	m.want("line/s/1", "")
	m.want("line/s/2", "")
	m.want("line/s/3", "new")
	m.close(next)
}

func TestDeferredFilesOutlastAPowerCut(t *testing.T) {
	for seed := range uint64(50) {
		m := newMachine(t, seed)
		l := m.open()
		files := l.Files()
		for k := range 5 {
			m.commit(l, m.deferred(fmt.Sprintf("blobs/%d", k), strings.Repeat("x", 1000*k)), m.deferred(fmt.Sprintf("line/s/%d", k), "names it"))
		}
		m.remove(files, "line/s/2")
		if err := files.SyncDir(m.path("line/s")); err != nil {
			t.Fatal(err)
		}
		m.cut()
		next := m.open()
		for k := range 5 {
			m.want(fmt.Sprintf("blobs/%d", k), strings.Repeat("x", 1000*k))
			if want := "names it"; k != 2 {
				m.want(fmt.Sprintf("line/s/%d", k), want)
			}
		}
		m.want("line/s/2", "")
		m.close(next)
	}
}

// Who looks at what another process has sees its deferred files, as they are at that moment.
func TestSharedFilesAreThoseOfAllProcesses(t *testing.T) {
	m := newMachine(t, 1)
	one, two := m.open(), m.open()
	seen := two.Shared()
	m.commit(two, m.deferred("line/two/1", "two's own"))
	m.lists(seen, "line", "two/")
	for round := range 3 { // whether or not the logs were read before
		name := fmt.Sprintf("line/one/%d", round)
		m.commit(one, m.deferred(name, "one's"))
		m.reads(seen, name, "one's")
		m.reads(two.Files(), name, "")
	}
	m.lists(seen, "line", "one/", "two/")
	m.lists(seen, "line/one", "0", "1", "2")
	m.remove(one.Files(), "line/one/1")
	m.commit(one, m.deferred("line/one/3", "later")) // with which the removal is written
	m.lists(seen, "line/one", "0", "2", "3")
	m.reads(seen, "line/one/1", "")
	if err := one.Settle(m.path("line/one")); err != nil {
		t.Fatal(err)
	}
	m.lists(seen, "line/one", "0", "2", "3")
	m.reads(seen, "line/one/2", "one's")
	m.close(one)
	m.reads(seen, "line/one/2", "one's")
	m.reads(seen, "line/two/1", "two's own")
	m.close(two)
}

// What another process removed does not come back once it was synced by who looked.
func TestSharedFilesSyncWhatOthersRemoved(t *testing.T) {
	for seed := range uint64(50) {
		m := newMachine(t, seed)
		one, two := m.open(), m.open()
		m.commit(one, m.deferred("line/s/1", "removed"))
		m.commit(one, blob.Write{Name: m.path("line/s/1"), Remove: true}, m.deferred("line/s/2", "stays"))
		if err := two.Shared().SyncDir(m.path("line/s")); err != nil {
			t.Fatal(err)
		}
		m.cut()
		next := m.open()
		m.want("line/s/1", "")
		m.want("line/s/2", "stays")
		m.close(next)
	}
}

// While files cannot be made, what was committed is read from the log, and made later.
func TestWhatCannotBeSettledStaysInTheLog(t *testing.T) {
	m := newMachine(t, 1)
	l := m.open()
	files := l.Files()
	m.commit(l, m.deferred("line/s/1", "committed"))
	m.disk.SetFault(blobtest.FullFrom(0))
	if err := l.Settle(m.path("line/s")); !errors.Is(err, syscall.ENOSPC) {
		t.Errorf("settling on a full disk gave %v, want %v", err, syscall.ENOSPC)
	}
	if err := l.Commit([]blob.Write{m.deferred("line/s/2", "refused")}); !errors.Is(err, syscall.ENOSPC) {
		t.Errorf("a commit on a full disk gave %v, want %v", err, syscall.ENOSPC)
	}
	m.reads(files, "line/s/1", "committed")
	m.reads(files, "line/s/2", "")
	m.disk.SetFault(nil)
	m.commit(l, m.deferred("line/s/3", "later"))
	m.reads(files, "line/s/1", "committed")
	m.close(l)
	m.lists(m.disk, "line/s", "1", "3")
	m.want("line/s/1", "committed")
	m.want("line/s/2", "")
	m.want("line/s/3", "later")
}

// The newest use of a segment counts last, whatever the segment's name is.
func TestSegmentsAreRecoveredInTheOrderOfTheirUse(t *testing.T) {
	m := newMachine(t, 1)
	l := m.open()
	content := func(k int) string { return fmt.Sprint(k, strings.Repeat(" long", 20_000)) }
	last := 0
	for k := range 200 { // 20 MB: segments are used again
		m.commit(l, m.write("owners/s/record", content(k)))
		last = k
	}
	m.cut()
	next, err := commitlog.Open(commitlog.Options{Dir: m.dir, Files: m.disk, Boot: m.disk.Boot()})
	if err != nil {
		t.Fatal(err)
	}
	m.want("owners/s/record", content(last))
	m.close(next)
}

// A process that is killed while it makes files, or while it recovers what another one left,
// leaves files without names: who recovers the log removes them.
func TestARecoveryRemovesWhatGotNoName(t *testing.T) {
	for n := range 12 {
		m := newMachine(t, uint64(n))
		l := m.open()
		m.commit(l, m.deferred("blobs/1", "one"), m.deferred("blobs/2", "two"), m.deferred("line/s/1", "names them"))
		m.commit(l, m.deferred("other/1", "forgotten"), m.write("other/2", "stays"))
		dead := func() { m.disk.SetFault(blobtest.From(m.disk.Ops()+n, syscall.EIO)) }
		dead()
		_ = l.Settle(m.path("blobs"), m.path("line/s"), m.path("other"))
		m.disk.SetFault(nil)
		m.remove(l.Files(), "other/1")
		if err := l.Files().SyncDir(m.path("other")); err != nil {
			t.Fatal(err)
		}
		m.kill(l)
		dead()
		if next, err := commitlog.Open(commitlog.Options{Dir: m.dir, Files: m.disk, Boot: "another"}); err == nil {
			m.disk.SetFault(nil)
			m.close(next)
		}
		m.disk.SetFault(nil)
		m.close(m.open())
		m.lists(m.disk, "blobs", "1", "2")
		m.lists(m.disk, "line/s", "1")
		m.lists(m.disk, "other", "2")
	}
}
