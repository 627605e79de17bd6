package secret

import (
	"fmt"
	"maps"
	"slices"
	"sync"
	"testing"

	"paddock/internal/fault"
	"paddock/internal/table"
	"paddock/internal/table/tabletest"
)

// TestSecretsAreTheSameInEachTable has two hands at the secrets of one table, as two
// processes or two machines are.
func TestSecretsAreTheSameInEachTable(t *testing.T) {
	folder := func(t *testing.T) table.Table { return opened(t).table }
	tabletest.Both(t, folder, func(t *testing.T, in table.Table) {
		sealer := opened(t).sealer
		one, other := In(in, sealer), In(in, sealer)
		set(t, one, "local", "TOKEN", token, []string{"api.example.com"}, nil)
		vars := give(t, other, GrantRequest{Session: "s1", Owner: "local", Names: []string{"TOKEN"}})
		if again, err := one.Variables("s1"); err != nil || !maps.Equal(again, vars) || again["TOKEN"] == "" {
			t.Errorf("the session has %v (%v), want %v", again, err, vars)
		}
		engine := one.Engine("s1")
		r := request("GET", "https://api.example.com/", "", "Authorization", "Bearer "+vars["TOKEN"])
		if err := engine.Request(r); err != nil || r.Header.Get("Authorization") != "Bearer "+token {
			t.Errorf("it sends %q (%v)", r.Header.Get("Authorization"), err)
		}
		if list, err := other.List(); err != nil || len(list) != 1 || list[0].Used.IsZero() {
			t.Errorf("there is %+v (%v)", list, err)
		}
		set(t, other, "local", "TOKEN", "another-value-that-is-long", nil, nil)
		r = request("GET", "https://api.example.com/", "", "Authorization", "Bearer "+vars["TOKEN"])
		if err := engine.Request(r); err != nil || r.Header.Get("Authorization") != "Bearer another-value-that-is-long" {
			t.Errorf("after another hand replaced it, it sends %q (%v)", r.Header.Get("Authorization"), err)
		}
		if err := one.Sweep(t.Context(), func(string) bool { return false }); err != nil {
			t.Error(err)
		}
		if err := other.Remove("local", "TOKEN"); err != nil {
			t.Error(err)
		}
		r = request("GET", "https://api.example.com/", "", "Authorization", "Bearer "+vars["TOKEN"])
		is(t, engine.Request(r), fault.Denied, "was removed") // what was given just now is not swept
		if err := other.Forget("s1"); err != nil {
			t.Error(err)
		}
		if err := other.Forget("s1"); err != nil {
			t.Error(err)
		}
		is(t, engine.Request(r), fault.Denied, "was not given")
		var names []string
		var all sync.WaitGroup
		for i := range 20 {
			s, name := []*Store{one, other}[i%2], fmt.Sprint("T", i)
			names = append(names, name)
			all.Go(func() { set(t, s, "local", name, token, []string{"api.example.com"}, nil) })
		}
		all.Wait()
		vars = give(t, one, GrantRequest{Session: "s2", Owner: "local", Names: names})
		slices.Sort(names)
		if got := slices.Sorted(maps.Keys(vars)); !slices.Equal(got, names) {
			t.Errorf("of 20 secrets there are %q", got)
		}
	})
}
