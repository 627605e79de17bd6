package serverstore

import (
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"paddock/internal/config"
	"paddock/internal/fault"
	"paddock/internal/privatefile"
	"paddock/internal/vault"
)

func servers(t *testing.T) *Servers {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "state")
	v, err := vault.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	return &Servers{Dir: dir, Sealer: v}
}

func full() config.Server {
	s := config.Server{
		URL: "https://a.test/mcp?key=hush", Transport: "sse", Headers: map[string]string{"Authorization": "Bearer hush"},
		Timeout: 90 * time.Second, ResponseBytes: 1 << 20,
		OAuth: config.OAuth{ClientID: "paddock", ClientSecret: "hush", Scopes: []string{"a"}, Grant: config.ClientCredentials},
	}
	s.Tools.Allow, s.Tools.Ask, s.Tools.Deny = []string{"a*"}, []string{"b"}, []string{"c"}
	return s
}

func TestWhatIsAddedIsThereAgainWithItsSecretsSealed(t *testing.T) {
	s := servers(t)
	program := config.Server{Command: "npx", Args: []string{"-y", "x"}, Dir: "/srv", Env: map[string]string{"KEY": "hush"}}
	for name, one := range map[string]config.Server{"web": full(), "program": program, "plain": {URL: "https://b.test/mcp"}} {
		if err := s.Add(name, one, false); err != nil {
			t.Fatal(err)
		}
	}
	all, err := s.List()
	if err != nil || len(all) != 3 {
		t.Fatalf("there are %d (%v)", len(all), err)
	}
	for i, want := range []config.Server{{URL: "https://b.test/mcp"}, program, full()} {
		if all[i].Err != nil || all[i].Added.IsZero() || !reflect.DeepEqual(all[i].Server, want) {
			t.Errorf("%s is %+v (%v), want %+v", all[i].Name, all[i].Server, all[i].Err, want)
		}
	}
	text, err := os.ReadFile(s.path())
	if err != nil || strings.Contains(string(text), "hush") {
		t.Errorf("the file has (%v)\n%s", err, text)
	}
	if info, err := os.Stat(s.path()); runtime.GOOS != "windows" && (err != nil || info.Mode().Perm() != 0o600) {
		t.Errorf("its mode is %v (%v)", info.Mode(), err)
	}
}

func TestANameIsGivenOnceUnlessItIsReplaced(t *testing.T) {
	s := servers(t)
	for _, c := range []struct {
		name    string
		replace bool
		want    fault.Kind
	}{{"a", false, ""}, {"a", false, fault.Conflict}, {"a", true, ""}, {"new", true, ""}, {"a b", false, fault.Invalid}, {"", false, fault.Invalid}} {
		if err := s.Add(c.name, config.Server{URL: "https://a.test"}, c.replace); fault.KindOf(err) != c.want {
			t.Errorf("%q (%v) gives %v, want %s", c.name, c.replace, err, c.want)
		}
	}
	if err := s.Remove("a"); err != nil {
		t.Error(err)
	}
	if err := s.Remove("a"); fault.KindOf(err) != fault.NotFound {
		t.Errorf("it can be removed twice: %v", err)
	}
	if n, err := s.Count(); n != 1 || err != nil {
		t.Errorf("there are %d (%v)", n, err)
	}
}

func TestALostKeyIsToldServerByServer(t *testing.T) {
	s := servers(t)
	if err := s.Add("secret", full(), false); err != nil {
		t.Fatal(err)
	}
	if err := s.Add("plain", config.Server{URL: "https://b.test"}, false); err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(filepath.Join(s.Dir, vault.KeyFile)); err != nil {
		t.Fatal(err)
	}
	var err error
	if s.Sealer, err = vault.Open(s.Dir); err != nil {
		t.Fatal(err)
	}
	all, err := s.List()
	if err != nil || len(all) != 2 || all[0].Err != nil || fault.KindOf(all[1].Err) != fault.Unavailable || all[1].Server.URL != "https://a.test/mcp" {
		t.Errorf("it is %+v (%v)", all, err)
	}
}

func TestSecretsOfOneServerAreNotAnothers(t *testing.T) {
	// Whoever may write the file would have the headers sent to another host.
	for was, is := range map[string]string{`"a": {`: `"b": {`, "https://a.test/mcp": "https://b.test/mcp"} {
		s := servers(t)
		if err := s.Add("a", full(), false); err != nil {
			t.Fatal(err)
		}
		text, err := os.ReadFile(s.path())
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(s.path(), []byte(strings.Replace(string(text), was, is, 1)), 0o600); err != nil {
			t.Fatal(err)
		}
		if all, err := s.List(); err != nil || len(all) != 1 || all[0].Err == nil {
			t.Errorf("with %s it is %+v (%v)", is, all, err)
		}
	}
}

func TestADamagedFileIsNotWrittenOver(t *testing.T) {
	for _, text := range []string{"{", `{"version": 2}`, `{"version": 1, "servers": {"a": null}}`, `{"version": 1, "servers": {"a/b": {}}}`} {
		s := servers(t)
		if err := os.WriteFile(s.path(), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := s.List(); fault.KindOf(err) != fault.Unavailable || fault.Of(err).Hint == "" {
			t.Errorf("%s gives %v", text, err)
		}
		if err := s.Add("x", config.Server{URL: "https://a.test"}, true); err == nil {
			t.Errorf("%s is written over", text)
		}
		if got, _ := os.ReadFile(s.path()); string(got) != text {
			t.Errorf("%s became %s", text, got)
		}
	}
}

func TestWhatCouldNotBeReadAgainIsNotAdded(t *testing.T) {
	s := servers(t)
	if err := s.Add("small", config.Server{URL: "https://a.test/mcp"}, false); err != nil {
		t.Fatal(err)
	}
	for name, large := range map[string]config.Server{
		"in the open": {Command: strings.Repeat("x", privatefile.MaxBytes)},
		"sealed":      {Command: "x", Env: map[string]string{"A": strings.Repeat("x", privatefile.MaxBytes)}},
	} {
		if err := s.Add("large", large, false); fault.KindOf(err) != fault.Exhausted {
			t.Errorf("%s: %v", name, err)
		}
	}
	if all, err := s.List(); err != nil || len(all) != 1 || all[0].Name != "small" {
		t.Errorf("there are %+v (%v)", all, err)
	}
}

func TestManyAddAtOnce(t *testing.T) {
	s := servers(t)
	var work sync.WaitGroup
	for i := range 20 {
		work.Go(func() {
			if err := s.Add(fmt.Sprintf("s%d", i), full(), false); err != nil {
				t.Error(err)
			}
		})
	}
	work.Wait()
	if n, err := s.Count(); n != 20 || err != nil {
		t.Errorf("there are %d (%v)", n, err)
	}
}
