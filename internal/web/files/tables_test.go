package files

import (
	"bytes"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"paddock/internal/fault"
	"paddock/internal/table"
	"paddock/internal/table/tabletest"
)

// TestALinkIsUsedOnceInEachTable has many hands use one link at two holders of a table, as
// two processes or two machines are.
func TestALinkIsUsedOnceInEachTable(t *testing.T) {
	folder := func(t *testing.T) table.Table {
		l, err := OpenLinks(t.TempDir())
		if err != nil {
			t.Fatal(err)
		}
		return l.used
	}
	tabletest.Both(t, folder, func(t *testing.T, in table.Table) {
		key := bytes.Repeat([]byte("k"), keyBytes)
		one, other := LinksIn(in, key), LinksIn(in, key)
		link, err := one.New("ann", "s1", "a.txt", http.MethodGet, 0)
		if err != nil {
			t.Fatal(err)
		}
		p, err := other.check(strings.TrimPrefix(link.URL, linksPath))
		if err != nil || p.Path != "a.txt" || p.Owner != "ann" {
			t.Fatalf("it allows %+v (%v)", p, err)
		}
		var used atomic.Int32
		var all sync.WaitGroup
		for i := range 16 {
			l := []*Links{one, other}[i%2]
			all.Go(func() {
				if err := l.use(p); err == nil {
					used.Add(1)
				} else if fault.KindOf(err) != fault.Denied {
					t.Error(err)
				}
			})
		}
		all.Wait()
		if used.Load() != 1 {
			t.Errorf("it was used %d times", used.Load())
		}
		old := fmt.Sprintf("%d-%s", time.Now().Add(-time.Minute).Unix(), "OLD")
		if _, err := in.Put(t.Context(), old, nil, table.None); err != nil {
			t.Fatal(err)
		}
		if err := one.prune(time.Now().Add(2 * pruneEvery)); err != nil {
			t.Error(err)
		}
		if names, err := in.Names(t.Context(), ""); err != nil || len(names) != 1 || names[0] == old {
			t.Errorf("after what has expired was forgotten there are %q (%v)", names, err)
		}
	})
}
