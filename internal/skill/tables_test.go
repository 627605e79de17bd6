package skill

import (
	"fmt"
	"sync"
	"testing"

	"paddock/internal/fault"
	"paddock/internal/table"
	"paddock/internal/table/tabletest"
)

// TestSkillsAreTheSameInEachTable has two hands at the records of one table, and the trees of
// one folder.
func TestSkillsAreTheSameInEachTable(t *testing.T) {
	folder := func(t *testing.T) table.Table { return NewStore(Config{Dir: t.TempDir()}).config.Table }
	tabletest.Both(t, folder, func(t *testing.T, in table.Table) {
		dir := t.TempDir()
		if local, ok := in.(*table.Folder); ok {
			dir = local.Dir() // whose lock they take
		}
		one, other := NewStore(Config{Dir: dir, Table: in}), NewStore(Config{Dir: dir, Table: in})
		save := func(s *Store, name, code string) {
			t.Helper()
			if _, err := s.Save("alice", name, "python", code, "Adds numbers.", nil); err != nil {
				t.Error(err)
			}
		}
		generation := func(s *Store) string {
			t.Helper()
			g, err := s.generation("alice")
			if err != nil {
				t.Error(err)
			}
			return g
		}
		before := generation(other)
		save(one, "adder", "def add(a, b): return a + b")
		if after := generation(other); after == before {
			t.Errorf("the generation is %s still", after)
		}
		first, err := other.Open("alice", "adder")
		if err != nil {
			t.Fatal(err)
		}
		save(other, "adder", "def add(*all): return sum(all)")
		if now, err := one.Open("alice", "adder"); err != nil || now.Digest == first.Digest {
			t.Errorf("after a change it is %s (%v)", now.Digest, err)
		}
		var all sync.WaitGroup
		for i := range 8 {
			s := []*Store{one, other}[i%2]
			all.Go(func() { save(s, fmt.Sprint("s", i), "x = 1") })
			all.Go(func() {
				if err := s.Used("alice", "adder", i%4 > 1); err != nil {
					t.Error(err)
				}
			})
		}
		all.Wait()
		list, err := other.List("alice")
		if err != nil || len(list) != 9 || list[0].Counts.Used != 8 || list[0].Counts.Succeeded != 4 {
			t.Errorf("there are %+v (%v)", list, err)
		}
		if list, err := one.List("bob"); err != nil || len(list) != 0 {
			t.Errorf("another owner has %+v (%v)", list, err)
		}
		if err := other.Remove("alice", "adder"); err != nil {
			t.Error(err)
		}
		if err := one.Remove("alice", "adder"); fault.KindOf(err) != fault.NotFound {
			t.Errorf("it is removed twice: %v", err)
		}
		if c := one.counts("alice", "adder"); c.Used != 0 {
			t.Errorf("what was counted of it is %+v", c)
		}
		if _, err := in.Put(t.Context(), one.documentOf("alice", recordsFolder, "s1"), []byte("{"), table.Any); err != nil {
			t.Fatal(err)
		}
		save(one, "s1", "x = 2") // in the place of what is damaged
		if list, err := other.List("alice"); err != nil || len(list) != 8 {
			t.Errorf("at last there are %+v (%v)", list, err)
		}
	})
}
