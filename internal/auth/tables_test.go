package auth

import (
	"errors"
	"fmt"
	"sync"
	"testing"

	"paddock/internal/fault"
	"paddock/internal/table"
	"paddock/internal/table/tabletest"
)

// TestTokensAreTheSameInEachTable has two hands at the tokens of one table, as two
// processes or two machines are.
func TestTokensAreTheSameInEachTable(t *testing.T) {
	folder := func(t *testing.T) table.Table { return OpenTokens(t.TempDir()).table }
	tabletest.Both(t, folder, func(t *testing.T, in table.Table) {
		one, other := TokensIn(in), TokensIn(in)
		if all, err := one.List(); err != nil || len(all) != 0 {
			t.Errorf("at first there is %+v (%v)", all, err)
		}
		text, made := create(t, one, Token{Name: "ci", Owner: Local})
		if got, err := other.Verify(t.Context(), text); err != nil || got.ID != OfToken+made.ID {
			t.Errorf("the other hand lets in %+v (%v)", got, err)
		}
		if _, _, err := other.Create(Token{Name: "ci"}); fault.KindOf(err) != fault.Conflict {
			t.Errorf("a name is given twice: %v", err)
		}
		if _, err := other.Revoke("ci"); err != nil {
			t.Error(err)
		}
		if _, err := one.Verify(t.Context(), text); fault.KindOf(err) != fault.Denied {
			t.Errorf("a revoked token gives %v", err)
		}
		if err := one.Alive(OfToken + made.ID); fault.KindOf(err) != fault.Denied {
			t.Errorf("its bearer may go on: %v", err)
		}
		if _, err := one.Revoke("ci"); fault.KindOf(err) != fault.Conflict {
			t.Errorf("it is revoked twice: %v", err)
		}
		var all sync.WaitGroup
		for i := range 20 {
			s := []*Tokens{one, other}[i%2]
			all.Go(func() {
				if _, _, err := s.Create(Token{Name: fmt.Sprint("t", i)}); err != nil {
					t.Error(err)
				}
			})
		}
		all.Wait()
		if list, err := other.List(); err != nil || len(list) != 21 {
			t.Errorf("of 21 tokens there are %d (%v)", len(list), err)
		}
		for name, damage := range map[string]string{"half": "{", "newer": `{"version": 2}`} {
			if _, err := in.Put(t.Context(), tokensFile, []byte(damage), table.Any); err != nil {
				t.Fatal(err)
			}
			if _, err := one.Verify(t.Context(), text); fault.KindOf(err) != fault.Unavailable || errors.Is(err, table.ErrChanged) {
				t.Errorf("%s, it gives %v", name, err)
			}
		}
	})
}
