package secret

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"paddock/internal/fault"
	"paddock/internal/vault"
)

const token = "ghp_0123456789abcdefABCDEF"

func opened(t testing.TB) *Store {
	t.Helper()
	dir := t.TempDir()
	v, err := vault.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	return Open(dir, v)
}

// set keeps a secret of an owner's.
func set(t testing.TB, s *Store, owner, name, value string, hosts, in []string) Entry {
	t.Helper()
	e, err := s.Set(Entry{Owner: owner, Name: name, Hosts: hosts, Places: in}, NewValue([]byte(value)))
	if err != nil {
		t.Fatal(err)
	}
	return e
}

// give gives a session secrets, and gives its placeholders.
func give(t testing.TB, s *Store, g GrantRequest) map[string]string {
	t.Helper()
	variables, err := s.Grant(g)
	if err != nil {
		t.Fatal(err)
	}
	return variables
}

// is wants a fault of a kind that says a text.
func is(t *testing.T, err error, kind fault.Kind, says string) {
	t.Helper()
	var f *fault.Error
	switch {
	case !errors.As(err, &f):
		t.Errorf("error %v, want a %T", err, f)
	case f.Kind != kind:
		t.Errorf("f.Kind = %v, want %v: %v, %q", f.Kind, kind, err, says)
	case !strings.Contains(f.Message, says):
		t.Errorf("f.Message = %q, want %q in it", f.Message, says)
	}
}

func TestAValueIsShownNowhere(t *testing.T) {
	v := NewValue([]byte(token))
	var log bytes.Buffer
	slog.New(slog.NewJSONHandler(&log, nil)).Info("a", "v", v, "p", &v, "s", struct{ V Value }{v})
	text, err := json.Marshal(map[string]any{"v": v, "p": &v})
	if err != nil {
		t.Fatal(err)
	}
	all := log.String() + string(text) + fmt.Sprintf("%v %+v %#v %s %q %x %d %v %#v", v, v, v, v, v, v, v, &v, struct{ V Value }{v})
	switch {
	case strings.Contains(all, token):
		t.Errorf("all = %q, want no %q in it", all, token)
	case strings.Contains(all, "103 104"):
		t.Errorf(`all = %q, want no "103 104" in it`, all)
	case strings.Contains(all, "6768705f"):
		t.Errorf(`all = %q, want no "6768705f" in it`, all)
	case strings.Count(all, hidden) < 10:
		t.Errorf("strings.Count(all, hidden) = %v, want at least 10: %+v", strings.Count(all, hidden), all)
	}
}

func TestWhatIsKeptIsSealed(t *testing.T) {
	s := opened(t)
	e := set(t, s, "local", "TOKEN", token, []string{"api.example.com"}, nil)
	switch {
	case e.Created.IsZero():
		t.Errorf("e.Created.IsZero() = true, want false: %+v", e)
	case !e.Rotated.IsZero():
		t.Errorf("e.Rotated.IsZero() = false, want true: %+v", e)
	case len(e.Places) != 2:
		t.Errorf("len(e.Places) = %d, want 2: %+v", len(e.Places), e.Places)
	}
	e = set(t, s, "local", "TOKEN", token+"-2", nil, []string{"body"})
	switch {
	case e.Rotated.IsZero():
		t.Errorf("e.Rotated.IsZero() = true, want false: %+v", e)
	case len(e.Hosts) != 1:
		t.Errorf("len(e.Hosts) = %d, want 1: %+v", len(e.Hosts), e.Hosts)
	case e.Places[0] != "body":
		t.Errorf(`e.Places[0] = %q, want "body"`, e.Places[0])
	}
	set(t, s, "other", "TOKEN", token+"-3", []string{"api.example.com"}, nil)
	give(t, s, GrantRequest{Session: "s1", Owner: "local", Names: []string{"TOKEN"}})
	if _, err := os.Stat(filepath.Join(s.dir, File)); err != nil {
		t.Fatal(err)
	}
	_ = filepath.WalkDir(s.dir, func(path string, d fs.DirEntry, _ error) error {
		if text, err := os.ReadFile(path); err == nil && bytes.Contains(text, []byte(token)) {
			t.Errorf("the value is in %s", path)
		}
		return nil
	})
	list, err := Open(s.dir, s.sealer).List()
	switch {
	case err != nil:
		t.Error(err)
	case len(list) != 2:
		t.Errorf("len(list) = %d, want 2: %+v", len(list), list)
	case list[0].Owner != "local":
		t.Errorf(`list[0].Owner = %q, want "local"`, list[0].Owner)
	case list[1].Owner != "other":
		t.Errorf(`list[1].Owner = %q, want "other"`, list[1].Owner)
	}
	if err := s.Remove("local", "TOKEN"); err != nil {
		t.Fatal(err)
	}
	is(t, s.Remove("local", "TOKEN"), fault.NotFound, "no secret")
}

func TestWhatCannotBeKept(t *testing.T) {
	s := opened(t)
	for about, c := range map[string]struct {
		e     Entry
		value string
		says  string
	}{
		"short":           {Entry{Name: "A", Hosts: []string{"a.test"}}, "1234567", "fewer than 8"},
		"long":            {Entry{Name: "A", Hosts: []string{"a.test"}}, strings.Repeat("x", maxValue+1), "more than 8 KiB"},
		"a placeholder":   {Entry{Name: "A", Hosts: []string{"a.test"}}, "Paddock-Secret-A", "placeholder"},
		"lines":           {Entry{Name: "A", Hosts: []string{"a.test"}}, "one line\ntwo", "more than one line"},
		"no host":         {Entry{Name: "A"}, token, "no hosts"},
		"every host":      {Entry{Name: "A", Hosts: []string{"*"}}, token, "were not named"},
		"a public suffix": {Entry{Name: "A", Hosts: []string{"*.com"}}, token, "were not named"},
		"no host at all":  {Entry{Name: "A", Hosts: []string{"https://a.test"}}, token, "is not a rule"},
		"no place":        {Entry{Name: "A", Hosts: []string{"a.test"}, Places: []string{"path"}}, token, "not a place"},
		"framing":         {Entry{Name: "A", Hosts: []string{"a.test"}, Places: []string{"header:host"}}, token, "not a place"},
		"a name":          {Entry{Name: "a", Hosts: []string{"a.test"}}, token, "cannot be a secret's name"},
		"a variable":      {Entry{Name: "LD_PRELOAD", Hosts: []string{"a.test"}}, token, "something else"},
	} {
		_, err := s.Set(c.e, NewValue([]byte(c.value)))
		switch f := fault.Of(err); {
		case err == nil:
			t.Errorf("%s: no error, want one", about)
		case f.Kind != fault.Invalid && f.Kind != fault.Denied:
			t.Errorf("%s: f.Kind = %v, want %v or %v", about, f.Kind, fault.Invalid, fault.Denied)
		case !strings.Contains(err.Error(), c.says):
			t.Errorf("%s: err = %q, want %q in it", about, err.Error(), c.says)
		case strings.Contains(err.Error()+f.Hint, token):
			t.Errorf("%s: err.Error() + f.Hint = %q, want no %q in it", about, err.Error()+f.Hint, token)
		}
	}
	if list, err := s.List(); err != nil {
		t.Errorf("got error %v, want none", err)
	} else if len(list) > 0 {
		t.Errorf("got %+v, want none", list)
	}
}

func TestHostsThatSomebodyWroteIntoTheFileDoNotCount(t *testing.T) {
	s := opened(t)
	set(t, s, "local", "TOKEN", token, []string{"api.example.com"}, nil)
	vars := give(t, s, GrantRequest{Session: "s1", Owner: "local", Names: []string{"TOKEN"}})
	text, err := os.ReadFile(s.path())
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(s.path(), bytes.ReplaceAll(text, []byte("api.example.com"), []byte("evil.example.com")), 0o600); err != nil {
		t.Fatal(err)
	}
	r := request("GET", "https://evil.example.com/", "", "Authorization", "Bearer "+vars["TOKEN"])
	is(t, Open(s.dir, s.sealer).Engine("s1").Request(r), fault.Unavailable, "was changed")
}

func TestPlaceholders(t *testing.T) {
	s := opened(t)
	set(t, s, "local", "A_1", token, []string{"a.test"}, nil)
	set(t, s, "other", "B", token, []string{"a.test"}, nil)
	one := give(t, s, GrantRequest{Session: "s1", Owner: "local", Names: []string{"A_1", "A_1"}})
	if form := regexp.MustCompile(`^paddock-secret-A_1-[A-Z2-7]{26}$`); !form.MatchString(one["A_1"]) {
		t.Errorf("A_1 is %q, want a match of %s", one["A_1"], form)
	}
	if len(one) != 1 {
		t.Errorf("there are %d variables, want 1: %v", len(one), one)
	}
	two := give(t, s, GrantRequest{Session: "s2", Owner: "local", Names: []string{"A_1"}})
	if one["A_1"] == two["A_1"] {
		t.Error("two sessions have one placeholder")
	}
	// It lasts: over restarts, rotations and being given again.
	set(t, s, "local", "A_1", token+"2", nil, nil)
	again := Open(s.dir, s.sealer)
	if v, err := again.Variables("s1"); err != nil {
		t.Errorf("got error %v, want none", err)
	} else if v["A_1"] != one["A_1"] {
		t.Errorf(`v["A_1"] = %q, want %q`, v["A_1"], one["A_1"])
	}
	if v := give(t, again, GrantRequest{Session: "s1", Owner: "local", Names: []string{"A_1"}}); v["A_1"] != one["A_1"] {
		t.Errorf("it is %v", v)
	}
	_, err := s.Grant(GrantRequest{Session: "s1", Owner: "local", Names: []string{"A_1", "B", "C"}})
	is(t, err, fault.NotFound, `no secret "B"`)
	_, err = s.Grant(GrantRequest{Session: "s1", Owner: "other", Names: []string{"B"}})
	is(t, err, fault.Denied, "another owner")
	longAgo(t, s)
	if err := s.Sweep(t.Context(), func(session string) bool { return session == "s1" }); err != nil {
		t.Fatal(err)
	}
	if v, err := s.Variables("s2"); err != nil {
		t.Errorf("a session that has ended: got error %v, want none", err)
	} else if len(v) > 0 {
		t.Errorf("a session that has ended: got %+v, want none", v)
	}
	for range 2 {
		if err := s.Forget("s1"); err != nil {
			t.Error(err)
		}
	}
	if v, _ := s.Variables("s1"); len(v) > 0 {
		t.Errorf("a session that has ended has %v", v)
	}
}

func TestManyAtOnce(t *testing.T) {
	s := opened(t)
	set(t, s, "local", "TOKEN", token, []string{"api.example.com"}, nil)
	v := give(t, s, GrantRequest{Session: "s1", Owner: "local", Names: []string{"TOKEN"}})
	engine := s.Engine("s1")
	var work sync.WaitGroup
	for i := range 4 {
		work.Go(func() { // another process
			other := Open(s.dir, s.sealer)
			for range 5 {
				if _, err := other.Set(Entry{Owner: "local", Name: "TOKEN"}, NewValue(fmt.Appendf(nil, "%s-%d", token, i))); err != nil {
					t.Error(err)
				}
			}
		})
		work.Go(func() {
			for range 10 {
				r := request("GET", "https://api.example.com/", "", "Authorization", "Bearer "+v["TOKEN"])
				if err := engine.Request(r); err != nil {
					t.Errorf("got error %v, want none", err)
				} else if !strings.Contains(r.Header.Get("Authorization"), token) {
					t.Errorf("header Authorization = %q, want %q in it", r.Header.Get("Authorization"), token)
				}
			}
		})
	}
	work.Wait()
	switch list, err := s.List(); {
	case err != nil:
		t.Error(err)
	case len(list) != 1:
		t.Errorf("len(list) = %d, want 1: %+v", len(list), list)
	case list[0].Used.IsZero():
		t.Errorf("list[0].Used.IsZero() = true, want false: %v", list)
	}
}

// longAgo makes what was given to sessions old.
func longAgo(t *testing.T, s *Store) {
	t.Helper()
	lives := func(string) bool { return false }
	if err := s.Sweep(t.Context(), lives); err != nil {
		t.Fatal(err)
	}
	files, err := filepath.Glob(filepath.Join(s.dir, folder, "given-*"))
	if err != nil {
		t.Fatalf("what was given just now was swept: got error %v, want none", err)
	}
	if len(files) == 0 {
		t.Fatal("what was given just now was swept: files is empty, want some")
	}
	for _, file := range files {
		if err := os.Chtimes(file, time.Time{}, time.Now().Add(-young-time.Second)); err != nil {
			t.Fatal(err)
		}
	}
}

func TestWhatCannotBeReadStopsThoseThatHaveSecretsAlone(t *testing.T) {
	s := opened(t)
	set(t, s, "local", "TOKEN", token, []string{"api.example.com"}, nil)
	give(t, s, GrantRequest{Session: "s1", Owner: "local", Names: []string{"TOKEN"}})
	if err := os.WriteFile(s.path(), []byte("damaged"), 0o600); err != nil {
		t.Fatal(err)
	}
	is(t, s.Engine("s1").Request(request("GET", "https://api.example.com/", "")), fault.Unavailable, "damaged")
	if err := s.Engine("s2").Request(request("GET", "https://api.example.com/", "")); err != nil {
		t.Errorf("one that has none: %v", err)
	}
	is(t, s.Engine("s2").Request(request("GET", "https://api.example.com/", "", "X-Key", Marker+"TOKEN-"+strings.Repeat("A", random))), fault.Denied, "was not given")
}

// locked is a vault whose keyring may be locked.
type locked struct {
	vault.Sealer
	is bool
}

func (l *locked) Unseal(purpose string, sealed []byte) ([]byte, error) {
	if l.is {
		return nil, fault.New(fault.Unavailable, "the keyring is locked")
	}
	return l.Sealer.Unseal(purpose, sealed)
}

func TestAValueThatCannotBeReadIsAskedForAgain(t *testing.T) {
	s := opened(t)
	set(t, s, "local", "TOKEN", token, []string{"api.example.com"}, nil)
	vars := give(t, s, GrantRequest{Session: "s1", Owner: "local", Names: []string{"TOKEN"}})
	ring := &locked{s.sealer, true}
	s.sealer = ring
	e := s.Engine("s1")
	ask := func() error {
		return e.Request(request("GET", "https://api.example.com/", "", "Authorization", "Bearer "+vars["TOKEN"]))
	}
	is(t, ask(), fault.Unavailable, "locked")
	_, err := e.Redactor()
	is(t, err, fault.Unavailable, "locked") // else what holds the value would be passed on
	for host, want := range map[string]error{"api.example.com": err, "other.example.com": nil} {
		resp := &http.Response{Header: http.Header{}, Body: http.NoBody, Request: request("GET", "https://"+host+"/", "")}
		if got := e.Response(resp); (got == nil) != (want == nil) {
			t.Errorf("an answer of %s: %v", host, got)
		}
	}
	ring.is = false
	e.tried = time.Time{}
	if err := ask(); err != nil {
		t.Errorf("once it is unlocked: %v", err)
	}
	if r, err := e.Redactor(); err != nil {
		t.Errorf("once it is unlocked nothing is taken out: got error %v, want none", err)
	} else if r.String(token) == token {
		t.Errorf("once it is unlocked nothing is taken out: r.String(token) = %q, want another", r.String(token))
	}
}
