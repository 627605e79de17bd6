package auth

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"paddock/internal/fault"
	"paddock/internal/privatefile"
)

func create(t *testing.T, s *Tokens, token Token) (string, Token) {
	t.Helper()
	text, made, err := s.Create(token)
	if err != nil {
		t.Fatal(err)
	}
	return text, made
}

// refused checks that err is a refusal with a code and a message that begins
// so, and that nothing in it or below it tells anything of the token.
func refused(t *testing.T, err error, code, message, token string) {
	t.Helper()
	var r *refusal
	switch {
	case !errors.As(err, &r):
		t.Fatalf("error %v, want a %T", err, r)
	case r.code != code:
		t.Fatalf("r.code = %v, want %v: %v", r.code, code, err)
	case fault.KindOf(err) != fault.Denied:
		t.Fatalf("error %v, want kind %v", err, fault.Denied)
	}
	if !strings.HasPrefix(err.Error(), message) {
		t.Errorf("the message is %q, want %q", err, message)
	}
	silent(t, err, token)
}

// silent checks that no part of an error repeats a token.
func silent(t *testing.T, err error, token string) {
	t.Helper()
	for e := err; e != nil; e = errors.Unwrap(e) {
		text := fmt.Sprintf("%v %+v", e, e)
		if f, ok := e.(*fault.Error); ok {
			text += f.Message + f.Hint
		}
		_, header := Challenge(e, "https://here.test/meta")
		for i := 0; i+12 <= len(token); i++ {
			if strings.Contains(text+header, token[i:i+12]) {
				t.Fatalf("the error repeats %q of the token: %s%s", token[i:i+12], text, header)
			}
		}
	}
}

func TestATokenIsItsBearer(t *testing.T) {
	s := OpenTokens(t.TempDir())
	expires := time.Now().Add(time.Hour).Truncate(time.Second).UTC()
	text, made := create(t, s, Token{Name: "ci", Owner: Local, Tools: []string{"core"}, Namespaces: []string{}, Expires: expires})
	got, err := s.Verify(t.Context(), text)
	if err != nil {
		t.Fatal(err)
	}
	want := &Principal{ID: "token:" + made.ID, Name: "ci", Tools: []string{"core"}, Namespaces: []string{}, Expires: expires}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got %+v, want %+v", got, want)
	}
	all, err := s.List()
	switch {
	case err != nil:
		t.Error(err)
	case len(all) != 1:
		t.Errorf("len(all) = %d, want 1: %+v", len(all), all)
	case all[0].Owner != Local:
		t.Errorf("all[0].Owner = %v, want %v: %+v", all[0].Owner, Local, all)
	case all[0].LastUsed.IsZero():
		t.Errorf("all[0].LastUsed.IsZero() = true, want false: %+v", all)
	case !all[0].LastUsed.Equal(all[0].LastUsed.Truncate(useGrain)):
		t.Errorf("all[0].LastUsed.Equal(all[0].LastUsed.Truncate(useGrain)) = false, want true: %+v", all)
	}
}

func TestWhatIsNoTokenOfOursIsRefused(t *testing.T) {
	s := OpenTokens(t.TempDir())
	text, made := create(t, s, Token{Name: "a"})
	other := newText(made.ID) // the right id, the wrong secret
	for _, test := range []struct{ name, text, message string }{
		{"another secret for the same id", other, "the token is none of this server's"},
		{"an id that no token has", newText(newID()), "the token is none of this server's"},
		{"the local user's id", newText(localID), "the token is none of this server's"},
		{"one letter less", text[:len(text)-1], "the token is not whole"},
		{"one letter more", text + "0", "the token is not whole"},
		{"two letters changed places", text[:20] + text[21:22] + text[20:21] + text[22:], ""},
		{"upper case", strings.ToUpper(text[:40]) + text[40:], "the token is none of this server's"},
		{"upper case in the secret", text[:20] + strings.ToUpper(text[20:]), "the token is not whole"},
		{"another id for the same secret", textPrefix + "aaaaaaaaaa" + text[14:], "the token is not whole"},
		{"only the prefix", textPrefix, "the token is not whole"},
		{"nothing", "", "the token is none of this server's"},
		{"a huge text", textPrefix + strings.Repeat("a", 100<<10), "the token is not whole"},
		{"zero bytes", textPrefix + "\x00\x00_" + strings.Repeat("\x00", 72), "the token is not whole"},
	} {
		t.Run(test.name, func(t *testing.T) {
			if test.text == text {
				t.Skip("the two letters are the same")
			}
			_, err := s.Verify(t.Context(), test.text)
			refused(t, err, codeInvalidToken, test.message, test.text)
		})
	}
}

func TestATokenEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := OpenTokens(t.TempDir())
		text, _ := create(t, s, Token{Name: "a", Expires: time.Now().Add(time.Minute)})
		revoked, _ := create(t, s, Token{Name: "b"})
		time.Sleep(59 * time.Second)
		if _, err := s.Verify(t.Context(), text); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Second)
		_, err := s.Verify(t.Context(), text)
		refused(t, err, codeInvalidToken, "the token has expired", text)
		if _, err := s.Revoke("b"); err != nil {
			t.Fatal(err)
		}
		_, err = s.Verify(t.Context(), revoked)
		refused(t, err, codeInvalidToken, "the token was revoked", revoked)

		create(t, s, Token{Name: "a"}) // the name is free again
		time.Sleep(keepEnded + time.Second)
		create(t, s, Token{Name: "c"})
		all, err := s.List()
		switch {
		case err != nil:
			t.Errorf("after a month there: %v", err)
		case len(all) != 2:
			t.Errorf("after a month there: len(all) = %d, want 2: %+v", len(all), all)
		case all[0].Name != "a":
			t.Errorf(`after a month there: all[0].Name = %q, want "a"`, all[0].Name)
		case all[1].Name != "c":
			t.Errorf(`after a month there: all[1].Name = %q, want "c"`, all[1].Name)
		}
	})
}

func TestWhatCannotBeMadeOrRevoked(t *testing.T) {
	s := OpenTokens(t.TempDir())
	_, made := create(t, s, Token{Name: "a"})
	for _, test := range []struct {
		name string
		do   func() error
		kind fault.Kind
	}{
		{"a name that is taken", func() error { _, _, err := s.Create(Token{Name: "a"}); return err }, fault.Conflict},
		{"an id as a name", func() error { _, _, err := s.Create(Token{Name: made.ID}); return err }, fault.Conflict},
		{"no name", func() error { _, _, err := s.Create(Token{}); return err }, fault.Invalid},
		{"a name for a terminal", func() error { _, _, err := s.Create(Token{Name: "\x1b[2J"}); return err }, fault.Invalid},
		{"one that has expired", func() error { _, _, err := s.Create(Token{Name: "b", Expires: time.Unix(1, 0)}); return err }, fault.Invalid},
		{"a token that is not there", func() error { _, err := s.Revoke("b"); return err }, fault.NotFound},
		{"one that was revoked", func() error { _, _ = s.Revoke(made.ID); _, err := s.Revoke("a"); return err }, fault.Conflict},
	} {
		t.Run(test.name, func(t *testing.T) {
			if err := test.do(); fault.KindOf(err) != test.kind {
				t.Errorf("got %v, want %s", err, test.kind)
			}
		})
	}
}

func TestOtherProcessesAreHeardAtOnce(t *testing.T) {
	dir := t.TempDir()
	server, command := OpenTokens(dir), OpenTokens(dir)
	for i := range 50 { // within one tick of the clock of most file systems
		name := fmt.Sprint("t", i)
		text, _ := create(t, command, Token{Name: name})
		if _, err := server.Verify(t.Context(), text); err != nil {
			t.Fatalf("a token that was made just now: %v", err)
		}
		if _, err := command.Revoke(name); err != nil {
			t.Fatal(err)
		}
		_, err := server.Verify(t.Context(), text)
		refused(t, err, codeInvalidToken, "the token was revoked", text)
	}
}

func TestTwoChangesWithinATickOfTheClock(t *testing.T) {
	s := OpenTokens(t.TempDir())
	create(t, s, Token{Name: "a"})
	path, mtime := filepath.Join(s.dir, tokensFile), time.Now().Add(time.Hour)
	for _, name := range []string{"b", "c"} { // the same file, size and time
		data, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		data = regexp.MustCompile(`"name": "."`).ReplaceAll(data, []byte(`"name": "`+name+`"`))
		if err := errors.Join(os.WriteFile(path, data, 0o600), os.Chtimes(path, mtime, mtime)); err != nil {
			t.Fatal(err)
		}
		if all, err := s.List(); err != nil {
			t.Errorf("listed: got error %v, want none", err)
		} else if all[0].Name != name {
			t.Errorf("listed: all[0].Name = %q, want %q", all[0].Name, name)
		}
	}
}

func TestASettledFileIsNotReadAgain(t *testing.T) {
	s := OpenTokens(t.TempDir())
	text, _ := create(t, s, Token{Name: "a"})
	if _, err := s.Verify(t.Context(), text); err != nil { // and its use is written down
		t.Fatal(err)
	}
	path := filepath.Join(s.dir, tokensFile)
	old := time.Now().Add(-time.Hour)
	if err := os.Chtimes(path, old, old); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if _, err := s.Verify(t.Context(), text); err != nil {
			t.Fatal(err)
		}
	}
	before := &s.state.records[0]
	if _, err := s.Verify(t.Context(), text); err != nil {
		t.Errorf("it was read again: got error %v, want none", err)
	} else if before != &s.state.records[0] {
		t.Error("it was read again: got another record, want the same")
	}
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	_, err := s.Verify(t.Context(), text)
	refused(t, err, codeInvalidToken, "the token is none of this server's", text)
}

// TestRevocationAmongManyRequests has each request see what was done before it
// began.
func TestRevocationAmongManyRequests(t *testing.T) {
	dir := t.TempDir()
	server := OpenTokens(dir)
	var texts []string
	var revoked [20]atomic.Bool
	for i := range revoked {
		text, _ := create(t, server, Token{Name: fmt.Sprint("t", i)})
		texts = append(texts, text)
	}
	var all sync.WaitGroup
	for g := range 4 {
		all.Go(func() {
			for n := range 100 {
				i := (n + g) % len(texts)
				was := revoked[i].Load()
				if _, err := server.Verify(t.Context(), texts[i]); was && err == nil {
					t.Errorf("t%d got in after it was revoked", i)
				} else if err != nil && fault.KindOf(err) != fault.Denied {
					t.Errorf("t%d: %v", i, err)
				}
			}
		})
	}
	for g := range 2 {
		all.Go(func() {
			command := OpenTokens(dir) // another process
			for i := g; i < len(texts); i += 2 {
				if _, err := command.Revoke(fmt.Sprint("t", i)); err != nil {
					t.Error(err)
				}
				revoked[i].Store(true)
			}
		})
	}
	all.Wait()
	for _, text := range texts {
		_, err := OpenTokens(dir).Verify(t.Context(), text)
		refused(t, err, codeInvalidToken, "the token was revoked", text)
	}
}

func TestABearerIsAliveWhileTheTokenIsValid(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := OpenTokens(t.TempDir())
		_, made := create(t, s, Token{Name: "a"})
		_, brief := create(t, s, Token{Name: "b", Expires: time.Now().Add(time.Hour)})
		for _, id := range []string{made.ID, brief.ID} {
			if err := s.Alive(OfToken + id); err != nil {
				t.Error(err)
			}
		}
		if _, err := OpenTokens(s.dir).Revoke("a"); err != nil { // another process
			t.Fatal(err)
		}
		time.Sleep(time.Hour)
		for name, id := range map[string]string{"a revoked one": made.ID, "an expired one": brief.ID, "one that never was": "abc", "nothing": ""} {
			if err := s.Alive(OfToken + id); fault.KindOf(err) != fault.Denied {
				t.Errorf("%s: %v", name, err)
			}
		}
		if err := os.WriteFile(filepath.Join(s.dir, tokensFile), []byte("{"), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := s.Alive(OfToken + made.ID); fault.KindOf(err) != fault.Unavailable {
			t.Errorf("a damaged file: %v", err)
		}
	})
}

func TestADamagedFileRefusesEverybody(t *testing.T) {
	s := OpenTokens(t.TempDir())
	text, _ := create(t, s, Token{Name: "a"})
	path := filepath.Join(s.dir, tokensFile)
	whole, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	twice := strings.Replace(string(whole), "[", "["+strings.TrimSpace(cut(string(whole), "[", "]"))+",", 1)
	for _, test := range []struct{ name, content string }{
		{"empty", ""},
		{"half", string(whole[:len(whole)/2])},
		{"two objects", string(whole) + string(whole)},
		{"not an object", "[]"},
		{"no version", `{"tokens": []}`},
		{"a newer version", strings.Replace(string(whole), `"version": 1`, `"version": 2`, 1)},
		{"a field that is not known", strings.Replace(string(whole), `"owner"`, `"only_from"`, 1)},
		{"a short hash", strings.Replace(string(whole), `"sha256": "`, `"sha256": "","x": "`, 1)},
		{"a hash that is none", strings.Replace(string(whole), `"sha256": "`, `"sha256": "zz`, 1)},
		{"one id twice", twice},
		{"huge", string(whole) + strings.Repeat(" ", privatefile.MaxBytes)},
	} {
		t.Run(test.name, func(t *testing.T) {
			if err := os.WriteFile(path, []byte(test.content), 0o600); err != nil {
				t.Fatal(err)
			}
			_, verified := s.Verify(t.Context(), text)
			_, _, created := s.Create(Token{Name: "b"})
			_, listed := s.List()
			for what, err := range map[string]error{"verify": verified, "create": created, "list": listed} {
				if fault.KindOf(err) != fault.Unavailable {
					t.Errorf("%s: got an error of the kind %q, want %q: %v",
						what, fault.KindOf(err), fault.Unavailable, err)
				} else if fault.Of(err).Hint == "" {
					t.Errorf("%s: fault.Of(err).Hint is empty, want some", what)
				}
			}
			silent(t, verified, text)
			if strings.Contains(fault.Of(verified).Message+fault.Of(verified).Hint, s.dir) {
				t.Error("a client would read where the state folder is")
			}
			if status, header := Challenge(verified, ""); status != 503 {
				t.Errorf("a client: status = %d, want 503", status)
			} else if header != "" {
				t.Errorf(`a client: header = %q, want ""`, header)
			}
			if now, _ := os.ReadFile(path); string(now) != test.content {
				t.Error("the file was changed")
			}
		})
	}
	if err := os.WriteFile(path, whole, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Verify(t.Context(), text); err != nil {
		t.Errorf("after a copy was put back: %v", err)
	}
}

func cut(s, from, to string) string {
	_, s, _ = strings.Cut(s, from)
	return s[:strings.LastIndex(s, to)]
}

func TestWhatACrashLeftIsNotRead(t *testing.T) {
	s := OpenTokens(t.TempDir())
	text, _ := create(t, s, Token{Name: "a"})
	left := filepath.Join(s.dir, tokensFile+".HALF")
	if err := os.WriteFile(left, []byte(`{"version": 1, "tok`), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Verify(t.Context(), text); err != nil {
		t.Error(err)
	}
	create(t, s, Token{Name: "b"})
	if _, err := os.Stat(left); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("it is still there: %v", err)
	}
}

func TestFilesAreTheirUsersAlone(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("modes say nothing on Windows")
	}
	dir := filepath.Join(t.TempDir(), "state")
	s := OpenTokens(dir)
	text, _ := create(t, s, Token{Name: "a"})
	local, created, err := LocalToken(dir)
	if err != nil {
		t.Fatalf("got error %v, want none", err)
	}
	if !created {
		t.Fatal("created = false, want true")
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatalf("in the folder: got error %v, want none", err)
	}
	if len(entries) != 3 {
		t.Fatalf("in the folder: len(entries) = %d, want 3: %+v", len(entries), entries)
	}
	for _, e := range entries {
		if info, err := e.Info(); err != nil {
			t.Errorf("the mode of %s: got error %v, want none", e.Name(), err)
		} else if info.Mode() != 0o600 {
			t.Errorf("the mode of %s is %v, want -rw-------", e.Name(), info.Mode())
		}
		data, err := os.ReadFile(filepath.Join(dir, e.Name()))
		if err != nil {
			t.Errorf("reading %s: got error %v, want none", e.Name(), err)
		}
		if e.Name() != LocalTokenFile && strings.Contains(string(data), text[15:79]) {
			t.Errorf("%s holds a token, want it only in %s", e.Name(), LocalTokenFile)
		}
	}
	for _, mode := range []fs.FileMode{0o644, 0o620, 0o604, 0o660} {
		for _, name := range []string{tokensFile, LocalTokenFile} {
			if err := os.Chmod(filepath.Join(dir, name), mode); err != nil {
				t.Fatal(err)
			}
		}
		_, err := s.Verify(t.Context(), text)
		_, _, localErr := LocalToken(dir)
		for _, err := range []error{err, localErr} {
			if fault.KindOf(err) != fault.Unavailable {
				t.Errorf("with %v: got an error of the kind %q, want %q: %v",
					mode, fault.KindOf(err), fault.Unavailable, err)
			} else if !strings.Contains(err.Error(), "other users") {
				t.Errorf(`with %v: got error %q, want "other users" in it`, mode, err.Error())
			}
			silent(t, err, local)
		}
	}
}

func TestTheLocalToken(t *testing.T) {
	dir := t.TempDir()
	var made atomic.Int32
	var tokens sync.Map
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			token, created, err := LocalToken(dir)
			if err != nil {
				t.Error(err)
			}
			if created {
				made.Add(1)
			}
			tokens.Store(token, true)
		})
	}
	all.Wait()
	count := 0
	tokens.Range(func(any, any) bool { count++; return true })
	if made.Load() != 1 {
		t.Errorf("made = %d, want 1", made.Load())
	} else if count != 1 {
		t.Errorf("count = %d, want 1", count)
	}
	token, created, err := LocalToken(dir)
	if err != nil {
		t.Fatalf("got error %v, want none", err)
	}
	if created {
		t.Fatal("created = true, want false")
	}
	v := Any(Static(token, &Principal{ID: Local}), OpenTokens(dir))
	if p, err := v.Verify(t.Context(), token); err != nil {
		t.Errorf("its bearer: got error %v, want none", err)
	} else if p.ID != Local {
		t.Errorf("its bearer: p.ID = %q, want %q: %v", p.ID, Local, p)
	}
	if err := os.WriteFile(filepath.Join(dir, LocalTokenFile), []byte(newText("other")), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, _, err := LocalToken(dir); fault.KindOf(err) != fault.Unavailable {
		t.Errorf("a file that holds something else: got an error of the kind %q, want %q: %v",
			fault.KindOf(err), fault.Unavailable, err)
	} else if !strings.Contains(fault.Of(err).Hint, "remove it") {
		t.Errorf(`a file that holds something else: fault.Of(err).Hint = %q, want "remove it" in it`,
			fault.Of(err).Hint)
	}
}

func TestAnyAndStatic(t *testing.T) {
	down := verifierFunc(func() error { return unavailable(time.Second) })
	one, two := Static("one", &Principal{ID: "1"}), Static("two", &Principal{ID: "2"})
	for _, test := range []struct {
		name  string
		v     Verifier
		token string
		id    string
		kind  fault.Kind
	}{
		{"the first", Any(one, two), "one", "1", ""},
		{"the second", Any(one, two), "two", "2", ""},
		{"behind one that is down", Any(down, two), "two", "2", ""},
		{"neither", Any(one, two), "three", "", fault.Denied},
		{"neither, and one is down", Any(one, down, two), "three", "", fault.Unavailable},
		{"nobody", Any(), "", "", fault.Denied},
		{"an empty token that was configured", Static("", &Principal{ID: "0"}), "", "", fault.Denied},
		{"a longer one", one, "one1", "", fault.Denied},
	} {
		t.Run(test.name, func(t *testing.T) {
			p, err := test.v.Verify(t.Context(), test.token)
			switch {
			case fault.KindOf(err) != test.kind:
				t.Errorf("error %v, want kind %v", err, test.kind)
			case test.id != "" && p.ID != test.id:
				t.Errorf("p.ID = %q, want %q", p.ID, test.id)
			case test.id == "" && p != nil:
				t.Errorf("p = %+v, want nil: %v", p, err)
			}
		})
	}
}

type verifierFunc func() error

func (f verifierFunc) Verify(context.Context, string) (*Principal, error) { return nil, f() }

func FuzzTokenText(f *testing.F) {
	f.Add(newText(newID()))
	f.Add(textPrefix + "a_" + strings.Repeat("0", secretLen+checkLen))
	f.Add("pdk__")
	f.Fuzz(func(t *testing.T, text string) {
		id, _, ok := parseText(text)
		if ok && (!isID(id) || !strings.HasPrefix(text, textPrefix+id+"_") || check(text[:len(text)-checkLen]) != text[len(text)-checkLen:]) {
			t.Errorf("%q was taken for a token of %q", text, id)
		}
	})
}

func FuzzTokensFile(f *testing.F) {
	f.Add([]byte(`{"version":1,"tokens":[{"id":"abc","name":"n","owner":"local","tools":null,"namespaces":[],"created":"2026-01-01T00:00:00Z","sha256":"` + strings.Repeat("ab", 32) + `"}]}`))
	f.Add([]byte(`{"version":1}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		all, err := decodeTokens(data)
		if err != nil && fault.KindOf(err) != fault.Unavailable {
			t.Errorf("got %v", err)
		}
		if err == nil && !json.Valid(data) {
			t.Error("what is not JSON was read")
		}
		for _, r := range all {
			if !isID(r.ID) {
				t.Errorf("a record that was read has the id %q, want a valid one", r.ID)
			}
			if r.hash == [32]byte{} && r.Hash != strings.Repeat("0", 64) {
				t.Errorf("a record that was read has no hash, want that of %q", r.Hash)
			}
		}
	})
}
