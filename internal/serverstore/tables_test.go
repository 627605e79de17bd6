package serverstore

import (
	"fmt"
	"reflect"
	"sync"
	"testing"

	"paddock/internal/config"
	"paddock/internal/fault"
	"paddock/internal/table"
	"paddock/internal/table/tabletest"
)

// TestServersAreTheSameInEachTable has two hands at the servers of one table, as two
// processes or two machines are.
func TestServersAreTheSameInEachTable(t *testing.T) {
	folder := func(t *testing.T) table.Table { return servers(t).table() }
	tabletest.Both(t, folder, func(t *testing.T, in table.Table) {
		sealer := servers(t).Sealer
		one, other := &Servers{Table: in, Sealer: sealer}, &Servers{Table: in, Sealer: sealer}
		if err := one.Add("web", full(), false); err != nil {
			t.Fatal(err)
		}
		all, err := other.List()
		if err != nil || len(all) != 1 || all[0].Err != nil || !reflect.DeepEqual(all[0].Server, full()) {
			t.Errorf("the other hand has %+v (%v)", all, err)
		}
		if err := other.Add("web", full(), false); fault.KindOf(err) != fault.Conflict {
			t.Errorf("a name is given twice: %v", err)
		}
		var adding sync.WaitGroup
		for i := range 20 {
			s := []*Servers{one, other}[i%2]
			adding.Go(func() {
				if err := s.Add(fmt.Sprint("s", i), config.Server{URL: "https://a.test"}, false); err != nil {
					t.Error(err)
				}
			})
		}
		adding.Wait()
		if err := other.Remove("web"); err != nil {
			t.Error(err)
		}
		if err := one.Remove("web"); fault.KindOf(err) != fault.NotFound {
			t.Errorf("it can be removed twice: %v", err)
		}
		if n, err := one.Count(); n != 20 || err != nil {
			t.Errorf("of 20 there are %d (%v)", n, err)
		}
	})
}
