package vault

import (
	"path/filepath"
	"strings"
	"testing"

	"paddock/internal/table"
	"paddock/internal/table/tabletest"
)

// TestSealedTextsAreTheSameInEachTable has two hands at one table, as two processes or two
// machines with one key are.
func TestSealedTextsAreTheSameInEachTable(t *testing.T) {
	dir := t.TempDir()
	v := open(t, dir)
	folder := func(t *testing.T) table.Table {
		return (&Files{Dir: filepath.Join(t.TempDir(), "tokens"), Sealer: v}).documents().Table
	}
	tabletest.Both(t, folder, func(t *testing.T, in table.Table) {
		one, other := Documents{in, v}, Documents{in, v}
		if got, err := one.Load(t.Context(), "tokens/a"); got != nil || err != nil {
			t.Errorf("at first it is %q (%v)", got, err)
		}
		for _, text := range []string{"hush", "hush again"} {
			if err := one.Save(t.Context(), "tokens/a", []byte(text)); err != nil {
				t.Fatal(err)
			}
			if got, err := other.Load(t.Context(), "tokens/a"); string(got) != text || err != nil {
				t.Errorf("the other hand has %q (%v), want %q", got, err, text)
			}
		}
		names, err := in.Names(t.Context(), "")
		if err != nil || len(names) != 1 {
			t.Fatalf("there is %q (%v)", names, err)
		}
		d, err := in.Get(t.Context(), names[0], table.None)
		if err != nil || strings.Contains(string(d.Data), "hush") {
			t.Errorf("it lies there as %q (%v)", d.Data, err)
		}
		for range 2 {
			if err := other.Save(t.Context(), "tokens/a", nil); err != nil {
				t.Error(err)
			}
		}
		if got, err := one.Load(t.Context(), "tokens/a"); got != nil || err != nil {
			t.Errorf("removed, it is %q (%v)", got, err)
		}
	})
}
