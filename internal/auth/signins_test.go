package auth

import (
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"paddock/internal/fault"
	"paddock/internal/table"
	"paddock/internal/table/tabletest"
)

const here, elsewhere = "http://localhost:5555", "http://localhost:3000"

// TestSignInsAreTheSameInEachTable has two hands at the sign-ins of one table.
func TestSignInsAreTheSameInEachTable(t *testing.T) {
	folder := func(t *testing.T) table.Table { return OpenSignIns(t.TempDir()).table }
	tabletest.Both(t, folder, func(t *testing.T, in table.Table) {
		ctx, one, other := t.Context(), SignInsIn(in), SignInsIn(in)
		ticket, expires, err := one.NewTicket(ctx)
		if err != nil || !expires.After(time.Now()) {
			t.Fatalf("a ticket until %v (%v)", expires, err)
		}
		var all sync.WaitGroup
		var let atomic.Int32
		var operator Pass
		for i := range 8 {
			s := []*SignIns{one, other}[i%2]
			all.Go(func() {
				if pass, made, err := s.BeginByTicket(ctx, ticket, here); err == nil && made.Token == "" {
					operator = pass
					let.Add(1)
				} else if fault.KindOf(err) != fault.Denied {
					t.Errorf("a used ticket gives %v", err)
				}
			})
		}
		all.Wait()
		if let.Load() != 1 {
			t.Fatalf("one ticket signed in %d times", let.Load())
		}
		if found, err := other.Find(ctx, operator, here); err != nil || found.Token != "" {
			t.Errorf("the other hand finds %+v (%v)", found, err)
		}
		pass, _, err := one.Begin(ctx, &Principal{ID: "token:a"}, "pdk_secret", here)
		if err != nil {
			t.Fatal(err)
		}
		if found, err := other.Find(ctx, pass, here); err != nil || found.Token != "pdk_secret" {
			t.Errorf("the other hand finds %+v (%v)", found, err)
		}
		for name, text := range map[string]string{
			"nothing": "", "a ticket": ticket, "another secret": pass.Cookie[:len(pass.Cookie)-26] + strings.Repeat("A", 26), "a later end": "9" + pass.Cookie[1:],
			"a path": "1.0011223344556677./../../../../../../../etc/x", "a long one": strings.Repeat("1", 1000),
		} {
			if _, err := one.Find(ctx, Pass{text, pass.Key}, here); fault.KindOf(err) != fault.Denied {
				t.Errorf("%s signs in: %v", name, err)
			}
		}
		for name, key := range map[string]string{"no": "", "another": operator.Key, "a longer": pass.Key + "A"} {
			if _, err := one.Find(ctx, Pass{pass.Cookie, key}, here); fault.KindOf(err) != fault.Denied {
				t.Errorf("with %s key it signs in: %v", name, err)
			}
		}
		if _, err := one.Find(ctx, pass, elsewhere); fault.KindOf(err) != fault.Denied {
			t.Errorf("at another origin it gives %v", err)
		}
		if err := other.End(ctx, pass); err != nil {
			t.Error(err)
		}
		if _, err := one.Find(ctx, pass, here); fault.KindOf(err) != fault.Denied {
			t.Errorf("after its end it gives %v", err)
		}
		if err := other.End(ctx, pass); err != nil {
			t.Errorf("a second end gives %v", err)
		}
		unused, _, err := other.NewTicket(ctx)
		if err != nil {
			t.Fatal(err)
		}
		if n, err := one.EndAll(ctx); err != nil || n != 1 {
			t.Errorf("of one sign-in %d ended (%v)", n, err)
		}
		if _, err := other.Find(ctx, operator, here); fault.KindOf(err) != fault.Denied {
			t.Errorf("after the end of all it gives %v", err)
		}
		if _, _, err := other.BeginByTicket(ctx, unused, here); fault.KindOf(err) != fault.Denied {
			t.Errorf("after the end of all a ticket gives %v", err)
		}
	})
}

func TestSignInsKeepNeitherTokensNorCookies(t *testing.T) {
	dir := t.TempDir()
	s := OpenSignIns(dir)
	token := newText("abcdefghij")
	pass, _, err := s.Begin(t.Context(), &Principal{ID: "token:abcdefghij"}, token, here)
	if err != nil {
		t.Fatal(err)
	}
	ticket, _, err := s.NewTicket(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	files := 0
	err = filepath.WalkDir(dir, func(path string, d os.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		files++
		text, err := os.ReadFile(path)
		for name, secret := range map[string]string{"the token": token, "the cookie": pass.Cookie[len(pass.Cookie)-26:], "the key": pass.Key, "the ticket": ticket[len(ticket)-26:]} {
			if strings.Contains(string(text)+path, secret) {
				t.Errorf("%s is in %s", name, path)
			}
		}
		return err
	})
	if err != nil || files != 2 {
		t.Errorf("there are %d files, want 2 (%v)", files, err)
	}
}

func TestSignInsEnd(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		s, ctx := OpenSignIns(dir), t.Context()
		pass, made, err := s.Begin(ctx, &Principal{ID: "token:a", Expires: time.Now().Add(time.Hour)}, "x", here)
		if err != nil || time.Until(made.Expires) > time.Hour {
			t.Fatalf("it outlives its token: %v (%v)", made.Expires, err)
		}
		ticket, _, err := s.NewTicket(ctx)
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(TicketTTL)
		if _, _, err := s.BeginByTicket(ctx, ticket, here); fault.KindOf(err) != fault.Denied {
			t.Errorf("a ticket that has expired gives %v", err)
		}
		if _, err := s.Find(ctx, pass, here); err != nil {
			t.Error(err)
		}
		time.Sleep(time.Hour)
		if _, err := s.Find(ctx, pass, here); fault.KindOf(err) != fault.Denied {
			t.Errorf("after its token's end it gives %v", err)
		}
		// What has expired makes room, and then the oldest of the same principal.
		first := Pass{}
		for range maxOfOne + 1 {
			time.Sleep(time.Second)
			pass, _, err = s.Begin(ctx, &Principal{ID: "token:a"}, "x", here)
			if err != nil {
				t.Fatal(err)
			}
			if first == (Pass{}) {
				first = pass
			}
		}
		if names, err := s.table.Names(ctx, ""); err != nil || len(names) != maxOfOne {
			t.Errorf("there are %d, want %d (%v)", len(names), maxOfOne, err)
		}
		if _, err := s.Find(ctx, first, here); fault.KindOf(err) != fault.Denied {
			t.Errorf("the oldest gives %v", err)
		}
		if _, err := s.Find(ctx, pass, here); err != nil {
			t.Errorf("the newest gives %v", err)
		}
	})
}
