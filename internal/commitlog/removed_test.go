package commitlog_test

import (
	"errors"
	"io/fs"
	"strings"
	"testing"

	"paddock/internal/blob"
	"paddock/internal/blob/blobtest"
	"paddock/internal/commitlog"
)

// A file that is removed or replaced as the power goes is there whole, or is not there.
func TestAFileThatIsRemovedIsNeverTorn(t *testing.T) {
	old, next := strings.Repeat("old ", 5000), strings.Repeat("new ", 5000)
	for what, end := range map[string]func(m *machine, l *commitlog.Log) error{
		"by a commit": func(m *machine, l *commitlog.Log) error {
			return l.Commit([]blob.Write{{Name: m.path("line/s/1"), Remove: true}, m.write("line/s/2", "another")})
		},
		"alone": func(m *machine, l *commitlog.Log) error {
			files := l.Files()
			return errors.Join(files.Remove(m.path("line/s/1")), l.Commit([]blob.Write{m.write("line/s/2", "another")}))
		},
		"by another file": func(m *machine, l *commitlog.Log) error {
			files := l.Files()
			f, err := files.Create(m.path("line/s/other"))
			if err != nil {
				return err
			}
			_, err = f.Write([]byte(next))
			return errors.Join(err, f.Sync(), f.Close(), files.Rename(m.path("line/s/other"), m.path("line/s/1")),
				l.Commit([]blob.Write{m.write("line/s/2", "another")}))
		},
	} {
		t.Run(what, func(t *testing.T) {
			for seed := range uint64(60) {
				m := newMachine(t, seed)
				l := m.open()
				m.commit(l, m.write("line/s/1", old))
				m.disk.SetFault(blobtest.From(m.disk.Ops()+1+int(seed%12), blobtest.ErrCut))
				_ = end(m, l) // as far as it comes
				m.disk.SetFault(blobtest.From(0, blobtest.ErrCut))
				m.kill(l)
				m.cut()
				m.disk.SetFault(nil)
				after := m.open()
				if got := m.content("line/s/1"); got != "" && got != old && got != next {
					t.Fatalf("seed %d: the file holds %q", seed, cut(got))
				} else if _, err := m.disk.Stat(m.path("line/s/1")); got == "" && !errors.Is(err, fs.ErrNotExist) {
					t.Fatalf("seed %d: the file is empty", seed)
				}
				m.close(after)
			}
		})
	}
}
