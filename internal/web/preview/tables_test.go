package preview_test

import (
	"bytes"
	"path/filepath"
	"testing"
	"time"

	"paddock/internal/fault"
	"paddock/internal/session"
	"paddock/internal/table"
	"paddock/internal/table/tabletest"
	"paddock/internal/web/preview"
)

// TestPreviewsAreTheSameInEachTable has two hands at the previews of one table, as two
// processes or two machines are.
func TestPreviewsAreTheSameInEachTable(t *testing.T) {
	folder := func(t *testing.T) table.Table {
		return table.NewFolder(table.FolderConfig{Dir: t.TempDir()})
	}
	tabletest.Both(t, folder, func(t *testing.T, in table.Table) {
		key := func() ([]byte, error) { return bytes.Repeat([]byte("k"), 32), nil }
		one, other := preview.In(in, key), preview.In(in, key)
		of := session.Info{ID: "s1", Owner: "ann", CreatedAt: time.Now()}
		made, err := one.New(of, 8000, "/x?y=1", time.Hour)
		if err != nil {
			t.Fatal(err)
		}
		if got, err := other.Get(made.ID); err != nil || got != made {
			t.Errorf("the other hand has %+v (%v), want %+v", got, err, made)
		}
		link, err := one.Link(made)
		if again, errAgain := other.Link(made); err != nil || errAgain != nil || again != link {
			t.Errorf("its links are %q and %q (%v, %v)", link, again, err, errAgain)
		}
		if _, err := one.New(session.Info{ID: "s2", Owner: "bob", CreatedAt: time.Now()}, 80, "", 0); err != nil {
			t.Fatal(err)
		}
		if all, err := other.List("ann", ""); err != nil || len(all) != 1 || all[0] != made {
			t.Errorf("ann has %+v (%v)", all, err)
		}
		if gone, err := other.Revoke("ann", "s1", nil); err != nil || len(gone) != 1 {
			t.Errorf("revoked are %+v (%v)", gone, err)
		}
		if _, err := one.Get(made.ID); fault.KindOf(err) != fault.NotFound {
			t.Errorf("a revoked one gives %v", err)
		}
		if all, err := one.List("bob", "s2"); err != nil || len(all) != 1 {
			t.Errorf("bob has %+v (%v)", all, err)
		}
	})
	dir := filepath.Join(t.TempDir(), "previews")
	if all, err := preview.Open(dir, nil).List("ann", ""); err != nil || len(all) != 0 {
		t.Errorf("without a folder there are %+v (%v)", all, err)
	}
}
