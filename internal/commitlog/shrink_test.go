package commitlog_test

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"paddock/internal/blob/blobtest"
	"paddock/internal/commitlog"
)

// logBytes is how much the log's segments take in a state folder.
func (m *machine) logBytes() (size int64) {
	m.t.Helper()
	err := filepath.WalkDir(m.path("log"), func(_ string, d fs.DirEntry, err error) error {
		if err != nil || !strings.HasSuffix(d.Name(), ".log") {
			return err
		}
		info, err := d.Info()
		size += info.Size()
		return err
	})
	if err != nil {
		m.t.Fatal(err)
	}
	return size
}

// rests is so long that a log gives back what it does not need.
func rests() {
	time.Sleep(5 * time.Minute)
	synctest.Wait()
}

// busy commits so much that the log makes a large segment ready.
func (m *machine) busy(l *commitlog.Log, prefix string) {
	m.t.Helper()
	for k := range 10 {
		m.commit(l, m.deferred(fmt.Sprintf("line/s/%s%d", prefix, k), strings.Repeat("x", 20<<10)))
	}
	synctest.Wait()
	if got := m.logBytes(); got < 4<<20 {
		m.t.Fatalf("a busy log has %d bytes, want 4 MiB at least", got)
	}
}

const (
	firstSegment = 512 << 10
	small        = 2 * firstSegment
)

func TestALogThatRestsGivesItsRoomBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMachine(t, 1)
		l := m.open()
		m.busy(l, "a")
		rests()
		if got := m.logBytes(); got > small {
			t.Errorf("a log that rests has %d bytes, want %d at most", got, small)
		}
		m.want("line/s/a9", strings.Repeat("x", 20<<10))
		before := m.disk.Ops()
		m.commit(l, m.deferred("line/s/next", "next"))
		if got := m.disk.Ops() - before; got != 2 {
			t.Errorf("the commit after it has %d operations, want a write and a sync", got)
		}
		rests()
		m.busy(l, "b")
		m.cut()
		after := m.open()
		m.want("line/s/next", "next")
		m.want("line/s/b9", strings.Repeat("x", 20<<10))
		m.close(after)
	})
}

func TestALogThatIsUsedKeepsItsRoom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMachine(t, 1)
		l := m.open()
		m.busy(l, "a")
		for k := range 9 {
			time.Sleep(10 * time.Second)
			m.commit(l, m.deferred(fmt.Sprint("line/s/", k), "content"))
		}
		synctest.Wait()
		if got := m.logBytes(); got < 4<<20 {
			t.Errorf("a log that is used has %d bytes, want 4 MiB at least", got)
		}
		m.close(l)
		if _, err := os.Stat(m.path("log")); err == nil && m.logBytes() > 0 {
			t.Errorf("a closed log has %d bytes, want none", m.logBytes())
		}
	})
}

// Whatever fails while a log gives its room back, what was committed stays, and it goes on.
func TestAFailingDiskDoesNotStopALogThatGivesItsRoomBack(t *testing.T) {
	faults := map[string]func(int) func(blobtest.Op) error{
		"an error":    func(n int) func(blobtest.Op) error { return blobtest.At(n, syscall.EIO) },
		"errors":      func(n int) func(blobtest.Op) error { return blobtest.From(n, syscall.EIO) },
		"a full disk": func(n int) func(blobtest.Op) error { return blobtest.FullFrom(n) },
		"a power cut": func(n int) func(blobtest.Op) error { return blobtest.From(n, blobtest.ErrCut) },
	}
	for name, fails := range faults {
		for n := 1; n <= 4; n++ {
			t.Run(fmt.Sprintf("%s from operation %d", name, n), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					m := newMachine(t, uint64(n))
					l := m.open()
					m.busy(l, "a")
					time.Sleep(45 * time.Second) // what is in the log has its files
					synctest.Wait()
					m.disk.SetFault(fails(m.disk.Ops() + n))
					rests()
					m.disk.SetFault(nil)
					if name != "a power cut" {
						m.commit(l, m.deferred("line/s/next", "next"))
					}
					if err := commitlog.Kill(l); err != nil {
						t.Fatal(err)
					}
					m.cut()
					after := m.open()
					m.want("line/s/a9", strings.Repeat("x", 20<<10))
					if name != "a power cut" {
						m.want("line/s/next", "next")
					}
					m.close(after)
				})
			})
		}
	}
}
