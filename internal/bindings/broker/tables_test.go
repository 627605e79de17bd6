package broker

import (
	"fmt"
	"slices"
	"sync"
	"testing"

	"paddock/internal/table"
	"paddock/internal/table/tabletest"
)

// TestSessionsServersAreTheSameInEachTable has two brokers with folders of their own at one
// table, as two machines are.
func TestSessionsServersAreTheSameInEachTable(t *testing.T) {
	c := serve(t)
	folder := func(t *testing.T) table.Table {
		return newSessionServers(nil, t.TempDir(), nil).table
	}
	tabletest.Both(t, folder, func(t *testing.T, in table.Table) {
		one := open(t, Config{Dir: t.TempDir(), SessionTable: in, Seal: vault{}, PerSession: 12})
		other := open(t, Config{Dir: t.TempDir(), SessionTable: in, Seal: vault{}, PerSession: 12})
		if o, err := one.Bind(t.Context(), alice, c.definition("mine")); err != nil || o.Fleeting {
			t.Fatalf("bound it is %+v (%v)", o, err)
		}
		if got := ask(t, other, Run{Session: alice}, 1, "mine", "echo", `{"text":"a"}`); got != `{"value":"a"}` {
			t.Errorf("the other broker's call gives %s", got)
		}
		var all sync.WaitGroup
		for i := range 10 {
			b := []*Broker{one, other}[i%2]
			all.Go(func() {
				if _, err := b.Bind(t.Context(), alice, c.definition(fmt.Sprint("s", i))); err != nil {
					t.Error(err)
				}
			})
		}
		all.Wait()
		if got := one.Names(alice); len(got) != 11 {
			t.Errorf("of 11 servers there are %q", got)
		}
		fork := Session{"alice", "fork"}
		if err := other.Copy(alice, fork); err != nil {
			t.Error(err)
		}
		if got := one.Names(fork); len(got) != 11 {
			t.Errorf("the fork has %q", got)
		}
		one.Forget(fork)
		if got := other.Names(fork); len(got) != 0 {
			t.Errorf("after its end the fork has %q", got)
		}
		if err := one.Unbind(alice, "mine"); err != nil {
			t.Error(err)
		}
		if got := other.Names(alice); slices.Contains(got, "mine") || len(got) != 10 {
			t.Errorf("after one was unbound there are %q", got)
		}
		if _, err := in.Put(t.Context(), documentOf(alice), []byte("{"), table.Any); err != nil {
			t.Fatal(err)
		}
		if got := one.Names(alice); len(got) != 0 {
			t.Errorf("a damaged document gives %q", got)
		}
		if _, err := other.Bind(t.Context(), alice, c.definition("mine")); err != nil {
			t.Errorf("binding it again: %v", err)
		}
		if got := one.Names(alice); !slices.Equal(got, []string{"mine"}) {
			t.Errorf("then it has %q", got)
		}
	})
}
