package commitlog_test

import (
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"

	"paddock/internal/blob"
	"paddock/internal/blob/blobtest"
	"paddock/internal/commitlog"
	"paddock/internal/fault"
)

// machine is a state folder on a disk that can lose power.
type machine struct {
	t    *testing.T
	dir  string
	disk *blobtest.Disk
	rand *rand.Rand
}

func newMachine(t *testing.T, seed uint64) *machine {
	t.Helper()
	dir := t.TempDir()
	disk, err := blobtest.New(dir)
	if err != nil {
		t.Fatal(err)
	}
	return &machine{t, dir, disk, rand.New(rand.NewPCG(seed, 7))}
}

func (m *machine) path(name string) string { return filepath.Join(m.dir, filepath.FromSlash(name)) }

// open starts a process. It is not closed: that is what a kill is.
func (m *machine) open() *commitlog.Log {
	m.t.Helper()
	l, err := commitlog.Open(commitlog.Options{Dir: m.dir, Files: m.disk, Boot: m.disk.Boot()})
	if err != nil {
		m.t.Fatal(err)
	}
	return l
}

func (m *machine) cut() {
	m.t.Helper()
	if err := m.disk.Cut(m.rand); err != nil {
		m.t.Fatal(err)
	}
}

// write is a file of a commit.
func (m *machine) write(name, content string) blob.Write {
	return blob.Write{Name: m.path(name), Data: []byte(content)}
}

func (m *machine) commit(l *commitlog.Log, writes ...blob.Write) {
	m.t.Helper()
	if err := l.Commit(writes); err != nil {
		m.t.Fatal(err)
	}
}

// content is what a file holds; "": it is not there.
func (m *machine) content(name string) string {
	m.t.Helper()
	data, err := os.ReadFile(m.path(name))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		m.t.Fatal(err)
	}
	return string(data)
}

func (m *machine) want(name, want string) {
	m.t.Helper()
	if got := m.content(name); got != want {
		m.t.Errorf("%s holds %q, want %q", name, cut(got), cut(want))
	}
}

func cut(s string) string { return s[:min(len(s), 60)] }

func (m *machine) close(l *commitlog.Log) {
	m.t.Helper()
	if err := l.Close(); err != nil {
		m.t.Error(err)
	}
}

func TestACommitOutlastsAPowerCut(t *testing.T) {
	for seed := range uint64(50) {
		m := newMachine(t, seed)
		l := m.open()
		m.commit(l, m.write("blobs/a", "the content"), m.write("line/s/1", "names a"))
		m.commit(l, m.write("blobs/b", strings.Repeat("long ", 5000)), m.write("line/s/2", "names b"))
		m.want("line/s/2", "names b")
		m.cut()
		next := m.open()
		m.want("blobs/a", "the content")
		m.want("line/s/1", "names a")
		m.want("blobs/b", strings.Repeat("long ", 5000))
		m.want("line/s/2", "names b")
		m.cut() // also what was recovered outlasts one
		m.want("blobs/a", "the content")
		m.want("line/s/2", "names b")
		m.close(next)
	}
}

// A commit makes one sync, and many at once share theirs.
func TestCommitsThatComeTogetherShareASync(t *testing.T) {
	m := newMachine(t, 1)
	l := m.open()
	var mu sync.Mutex
	syncs := 0
	m.commit(l, m.write("line/first", "makes the segment"))
	release := make(chan struct{})
	var once sync.Once
	held := make(chan struct{})
	m.disk.SetFault(nil)
	blocking := &gate{Files: m.disk, enter: func() {
		mu.Lock()
		syncs++
		mu.Unlock()
		once.Do(func() { close(held); <-release })
	}}
	other, err := commitlog.Open(commitlog.Options{Dir: m.dir, Files: blocking, Boot: m.disk.Boot()})
	if err != nil {
		t.Fatal(err)
	}
	var all sync.WaitGroup
	all.Go(func() { m.commit(other, m.write("line/0", "first")) })
	<-held
	for k := range 20 {
		all.Go(func() { m.commit(other, m.write(fmt.Sprintf("line/s%d", k), "together")) })
	}
	blocking.waitFor(20)
	close(release)
	all.Wait()
	if syncs != 2 {
		t.Errorf("21 commits made %d syncs of the log, want 2", syncs)
	}
	m.close(other)
	m.close(l)
}

// gate is a disk whose log's syncs call enter.
type gate struct {
	blob.Files
	enter func()

	mu      sync.Mutex
	created int
	changed *sync.Cond
}

func (g *gate) Create(name string) (blob.File, error) {
	f, err := g.Files.Create(name)
	if err != nil {
		return nil, err
	}
	if strings.HasSuffix(name, ".log") {
		return gated{f, g.enter}, nil
	}
	return counting{f, g}, nil
}

// waitFor waits until so many files were written, after the first one.
func (g *gate) waitFor(n int) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.changed == nil {
		g.changed = sync.NewCond(&g.mu)
	}
	for g.created < n+1 {
		g.changed.Wait()
	}
}

type gated struct {
	blob.File
	enter func()
}

func (g gated) Datasync() error {
	g.enter()
	return g.File.Datasync()
}

// counting counts files when they are closed.
type counting struct {
	blob.File
	gate *gate
}

func (c counting) Close() error {
	c.gate.mu.Lock()
	defer c.gate.mu.Unlock()
	c.gate.created++
	if c.gate.changed != nil {
		c.gate.changed.Broadcast()
	}
	return c.File.Close()
}

func TestWhatIsRemovedStaysRemoved(t *testing.T) {
	for seed := range uint64(50) {
		m := newMachine(t, seed)
		l := m.open()
		files := l.Files()
		m.commit(l, m.write("line/s/1", "removed"))
		m.commit(l, m.write("line/s/2", "stays"))
		if err := errors.Join(files.Remove(m.path("line/s/1")), files.SyncDir(m.path("line/s"))); err != nil {
			t.Fatal(err)
		}
		m.cut()
		m.close(m.open())
		m.want("line/s/1", "")
		m.want("line/s/2", "stays")
	}
}

func TestWhatIsRenamedOrReplacedStaysSo(t *testing.T) {
	for seed := range uint64(50) {
		m := newMachine(t, seed)
		l := m.open()
		files := l.Files()
		m.commit(l, m.write("line/s/1.kept", "renamed"))
		m.commit(l, m.write("record", "old"))
		if err := errors.Join(files.Rename(m.path("line/s/1.kept"), m.path("line/s/1")), files.SyncDir(m.path("line/s"))); err != nil {
			t.Fatal(err)
		}
		if err := blob.WriteFile(files, m.path("record"), []byte("new")); err != nil {
			t.Fatal(err)
		}
		m.cut()
		m.close(m.open())
		m.want("line/s/1.kept", "")
		m.want("line/s/1", "renamed")
		m.want("record", "new")
	}
}

// What a process has settled another one may change.
func TestALogDoesNotBringBackWhatAnotherProcessChanged(t *testing.T) {
	for seed := range uint64(50) {
		m := newMachine(t, seed)
		one, two := m.open(), m.open()
		m.commit(one, m.write("line/s/1", "one's"), m.write("owners/s/record", "one's"))
		m.commit(one, m.write("line/other/1", "still one's"))
		if err := one.Settle(m.path("line/s"), m.path("owners/s")); err != nil {
			t.Fatal(err)
		}
		m.commit(two, m.write("owners/s/record", "two's"))
		files := two.Files()
		if err := errors.Join(files.Remove(m.path("line/s/1")), files.SyncDir(m.path("line/s"))); err != nil {
			t.Fatal(err)
		}
		m.cut()
		m.close(m.open())
		m.want("owners/s/record", "two's")
		m.want("line/s/1", "")
		m.want("line/other/1", "still one's")
	}
}

// A process that was killed leaves a log whose files may be newer than it, by what need
// not be synced.
func TestRecoveringAfterAKillLosesNothingNewer(t *testing.T) {
	m := newMachine(t, 1)
	dead := m.open()
	m.commit(dead, m.write("owners/s/record", "committed"))
	m.commit(dead, m.write("line/s/1", "removed by another means"))
	if err := errors.Join(os.WriteFile(m.path("owners/s/record"), []byte("newer"), 0o600), os.Remove(m.path("line/s/1"))); err != nil {
		t.Fatal(err)
	}
	m.kill(dead)
	l := m.open()
	m.want("owners/s/record", "newer")
	m.want("line/s/1", "")
	if left := m.logs(); len(left) != 0 {
		t.Errorf("there are the logs %v, want none", left)
	}
	m.close(l)
}

// kill gives up a process's locks.
func (m *machine) kill(l *commitlog.Log) {
	m.t.Helper()
	if err := commitlog.Kill(l); err != nil {
		m.t.Fatal(err)
	}
}

// logs are the folders of processes' logs.
func (m *machine) logs() []string {
	m.t.Helper()
	segments, err := filepath.Glob(m.path("log/*/*"))
	if err != nil {
		m.t.Fatal(err)
	}
	return segments
}

func TestALivingProcessesLogIsLeftAlone(t *testing.T) {
	m := newMachine(t, 1)
	l := m.open()
	m.commit(l, m.write("line/s/1", "one"))
	other := m.open()
	if err := other.Recover(); err != nil {
		t.Fatal(err)
	}
	m.commit(l, m.write("line/s/2", "two"))
	m.cut()
	m.close(m.open())
	m.want("line/s/1", "one")
	m.want("line/s/2", "two")
}

func TestAClosedLogLeavesNothing(t *testing.T) {
	m := newMachine(t, 3)
	l := m.open()
	for k := range 40 {
		m.commit(l, m.write(fmt.Sprintf("line/s/%d", k), "x"))
	}
	m.close(l)
	m.close(l)
	if left := m.logs(); len(left) != 0 {
		t.Errorf("there are the logs %v, want none", left)
	}
	if err := l.Commit([]blob.Write{m.write("line/s/late", "x")}); !errors.Is(err, commitlog.ErrClosed) {
		t.Errorf("a commit after Close gave %v, want %v", err, commitlog.ErrClosed)
	}
	m.cut()
	for k := range 40 {
		m.want(fmt.Sprintf("line/s/%d", k), "x")
	}
}

func TestALargeCommitNeedsNoRoomInTheLog(t *testing.T) {
	large := strings.Repeat("0123456789abcdef", 1<<17)
	for seed := range uint64(10) {
		m := newMachine(t, seed)
		l := m.open()
		m.commit(l, m.write("line/s/1", "small"))
		m.commit(l, m.write("blobs/large", large), m.write("line/s/1", "names the large one"))
		m.cut()
		m.close(m.open())
		m.want("blobs/large", large)
		m.want("line/s/1", "names the large one")
	}
}

// Whatever operation fails, what was committed stays, and a refused commit's last file
// has its old content unless the error says that it may have the new one.
func TestAFailingDiskLosesNothingThatWasCommitted(t *testing.T) {
	faults := map[string]func(int) func(blobtest.Op) error{
		"one error":   func(n int) func(blobtest.Op) error { return blobtest.At(n, syscall.EIO) },
		"a torn one":  func(n int) func(blobtest.Op) error { return blobtest.At(n, blobtest.Torn{Err: syscall.EIO}) },
		"errors":      func(n int) func(blobtest.Op) error { return blobtest.From(n, syscall.EIO) },
		"a full disk": func(n int) func(blobtest.Op) error { return blobtest.FullFrom(n) },
	}
	for name, fails := range faults {
		for n := 1; n < 40; n++ {
			t.Run(fmt.Sprintf("%s from operation %d", name, n), func(t *testing.T) {
				m := newMachine(t, uint64(n))
				l := m.open()
				m.commit(l, m.write("line/s/1", "committed"), m.write("owners/s/record", "old"))
				m.disk.SetFault(fails(m.disk.Ops() + n))
				refused := l.Commit([]blob.Write{m.write("line/s/2", "refused"), m.write("owners/s/record", "new")})
				m.disk.SetFault(nil)
				m.cut()
				m.close(m.open())
				m.want("line/s/1", "committed")
				got := m.content("owners/s/record")
				if got != "old" && got != "new" {
					t.Errorf("the record is %q, want the old one or the new one", got)
				}
				if refused == nil && got != "new" {
					t.Errorf("the record is %q, want %q", got, "new")
				}
				if got == "new" {
					m.want("line/s/2", "refused")
				}
				if refused != nil && got == "new" && !errors.Is(refused, blob.ErrNamed) {
					t.Errorf("the record is the new one after %v", refused)
				}
				if name == "a full disk" && refused != nil && fault.KindOf(refused) != fault.Exhausted {
					t.Errorf("a full disk gave %v, want the kind %v", refused, fault.Exhausted)
				}
			})
		}
	}
}

// After a failed sync the process goes on in another segment.
func TestAProcessGoesOnAfterAFailedSync(t *testing.T) {
	for seed := range uint64(20) {
		m := newMachine(t, seed)
		l := m.open()
		m.commit(l, m.write("line/s/1", "before"))
		failed := false
		m.disk.SetFault(func(op blobtest.Op) error {
			if op.Kind == "sync" && strings.HasSuffix(op.Name, ".log") && !failed {
				failed = true
				return syscall.EIO
			}
			return nil
		})
		if err := l.Commit([]blob.Write{m.write("line/s/2", "refused")}); !errors.Is(err, syscall.EIO) {
			t.Fatalf("the commit gave %v, want %v", err, syscall.EIO)
		}
		m.want("line/s/2", "")
		m.commit(l, m.write("line/s/3", "after"))
		m.cut()
		m.close(m.open())
		m.want("line/s/1", "before")
		m.want("line/s/2", "")
		m.want("line/s/3", "after")
	}
}

// A torn or damaged part of the log costs what is in it, and nothing else.
func TestADamagedRecordCostsItsOwnCommitAlone(t *testing.T) {
	m := newMachine(t, 1)
	l := m.open()
	for k := range 3 {
		m.commit(l, m.write(fmt.Sprintf("line/%d", k), strings.Repeat(fmt.Sprint(k), 600)))
	}
	m.kill(l)
	segments, err := filepath.Glob(m.path("log/*/*.log"))
	if err != nil || len(segments) != 1 {
		t.Fatalf("the segments are %v, %v", segments, err)
	}
	data, err := os.ReadFile(segments[0])
	if err != nil {
		t.Fatal(err)
	}
	data[strings.Index(string(data), "1111111")+50] ^= 1
	if err := errors.Join(os.RemoveAll(m.path("line")), os.WriteFile(segments[0], data, 0o600)); err != nil {
		t.Fatal(err)
	}
	l, err = commitlog.Open(commitlog.Options{Dir: m.dir, Boot: "another"})
	if err != nil {
		t.Fatal(err)
	}
	m.want("line/0", strings.Repeat("0", 600))
	m.want("line/1", "")
	m.want("line/2", strings.Repeat("2", 600))
	m.close(l)
}
