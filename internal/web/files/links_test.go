package files

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"paddock/internal/fault"
	"paddock/internal/session"
)

// link asks for one as alice does.
func (s *server) link(body string) Link {
	s.Helper()
	got := s.want(s.do("POST", "/v1/sessions/s/links", strings.NewReader(body), "Content-Type", "application/json"), 201, "")
	var l Link
	if err := json.Unmarshal([]byte(got.body), &l); err != nil {
		s.Fatal(err)
	}
	return l
}

// anyone follows a link, without being a principal.
func (s *server) anyone(method, url, body string) answered {
	s.Helper()
	return s.do(method, url, strings.NewReader(body), "X-Principal", "")
}

func TestALinkWorksOnceAndInOneDirection(t *testing.T) {
	s := serve(t, nil)
	s.put("a.txt", "hello")
	down := s.link(`{"path":"/workspace/a.txt"}`)
	switch left := time.Until(down.Expires); {
	case down.Method != "GET":
		t.Errorf(`the link: down.Method = %q, want "GET"`, down.Method)
	case down.Path != "a.txt":
		t.Errorf(`the link: down.Path = %q, want "a.txt"`, down.Path)
	case left > DefaultTTL:
		t.Errorf("the link: left = %v, want at most %v: %+v", left, DefaultTTL, down)
	case left < DefaultTTL-time.Minute:
		t.Errorf("the link: left = %v, want at least %v: %+v", left, DefaultTTL-time.Minute, down)
	}
	s.want(s.anyone("PUT", down.URL, "evil"), 405, fault.Invalid)
	s.want(s.anyone("HEAD", down.URL, ""), 405, "")
	got := s.want(s.anyone("GET", down.URL, ""), 200, "")
	switch {
	case got.body != "hello":
		t.Errorf(`got.body = %q, want "hello"`, got.body)
	case !strings.HasPrefix(got.head.Get("Content-Disposition"), "attachment"):
		t.Errorf(`header Content-Disposition = %q, want prefix "attachment"`,
			got.head.Get("Content-Disposition"))
	case got.head.Get("Referrer-Policy") != "no-referrer":
		t.Errorf(`header Referrer-Policy = %q, want "no-referrer"`, got.head.Get("Referrer-Policy"))
	}
	s.want(s.anyone("GET", down.URL, ""), 403, fault.Denied)

	up := s.link(`{"path":"sub/new.bin","method":"PUT","ttl_seconds":60}`)
	s.want(s.anyone("GET", up.URL, ""), 405, fault.Invalid)
	s.want(s.anyone("PUT", up.URL, "content"), 201, "")
	s.want(s.anyone("PUT", up.URL, "again"), 403, fault.Denied)
	if got := s.do("GET", "/v1/sessions/s/files/sub/new.bin", nil); got.body != "content" {
		t.Errorf("the file has %q", got.body)
	}
}

func TestALinkToAFileThatIsNotThereYetStaysGood(t *testing.T) {
	s := serve(t, nil)
	l := s.link(`{"path":"later"}`)
	s.want(s.anyone("GET", l.URL, ""), 404, fault.NotFound)
	s.put("later", "x")
	s.want(s.anyone("GET", l.URL, ""), 200, "")
}

func TestOfManyWhoFollowALinkOneSucceeds(t *testing.T) {
	s := serve(t, nil)
	s.put("f", "x")
	l := s.link(`{"path":"f"}`)
	var won atomic.Int32
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			if s.anyone("GET", l.URL, "").status == 200 {
				won.Add(1)
			}
		})
	}
	all.Wait()
	if n := won.Load(); n != 1 {
		t.Errorf("%d succeeded", n)
	}
}

func TestAUsedLinkIsRefusedAfterARestartAndByOthers(t *testing.T) {
	s := serve(t, nil)
	s.put("f", "x")
	used, fresh := s.link(`{"path":"f"}`), s.link(`{"path":"f"}`)
	s.want(s.anyone("GET", used.URL, ""), 200, "")
	again, err := OpenLinks(s.state)
	if err != nil {
		t.Fatal(err)
	}
	for url, want := range map[string]fault.Kind{used.URL: fault.Denied, fresh.URL: ""} {
		p, err := again.check(strings.TrimPrefix(url, linksPath))
		if err == nil {
			err = again.use(p)
		}
		if fault.KindOf(err) != want {
			t.Errorf("got %v, want %q", err, want)
		}
	}
	s.want(s.anyone("GET", fresh.URL, ""), 403, fault.Denied)
	if other, err := OpenLinks(t.TempDir()); err != nil {
		t.Error(err)
	} else if _, err := other.check(strings.TrimPrefix(used.URL, linksPath)); fault.KindOf(err) != fault.Denied {
		t.Errorf("another server's key: %v", err)
	}
}

func TestWhatIsWrongWithALinkIsNotTold(t *testing.T) {
	s := serve(t, nil)
	s.put("f", "mine")
	s.put("g", "other")
	token := strings.TrimPrefix(s.link(`{"path":"f"}`).URL, linksPath)
	sealed, err := base64.RawURLEncoding.DecodeString(token)
	if err != nil {
		t.Fatal(err)
	}
	bad := map[string]string{
		"half of it": token[:len(token)/2], "more after it": token + "A", "a path after it": token + "/x",
		"nothing": "", "rubbish": "%00", "only a dot": ".", "a huge one": strings.Repeat("A", 2*maxToken),
	}
	for k := range sealed {
		changed := bytes.Clone(sealed)
		changed[k] ^= 1
		bad[fmt.Sprintf("byte %d is another", k)] = base64.RawURLEncoding.EncodeToString(changed)
	}
	refused := ""
	for name, bad := range bad {
		got := s.anyone("GET", linksPath+bad, "")
		if refused == "" {
			refused = got.body
		}
		if got.status != 403 {
			t.Errorf("%s: got.status = %d, want 403: %s", name, got.status, got.body)
		} else if got.body != refused {
			t.Errorf("%s: got.body = %q, want %q", name, got.body, refused)
		}
	}
	s.want(s.anyone("GET", linksPath+token, ""), 200, "")
}

// Whose file it is, and in which session, is nothing for who gets a link.
func TestALinkDoesNotShowWhoseItIs(t *testing.T) {
	l, err := OpenLinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	link, err := l.New("token:alice", "s-secret-session", "folder/f", http.MethodGet, 0)
	if err != nil {
		t.Fatal(err)
	}
	shown := link.URL
	for _, part := range strings.FieldsFunc(link.URL, func(r rune) bool { return r == '/' || r == '.' }) {
		if text, err := base64.RawURLEncoding.DecodeString(part); err == nil {
			shown += string(text)
		}
	}
	for _, hidden := range []string{"alice", "s-secret-session", "folder"} {
		if strings.Contains(shown, hidden) {
			t.Errorf("the link shows %q", hidden)
		}
	}
}

func TestALinkExpiresAndItsUseIsForgottenThen(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		state := t.TempDir()
		l, err := OpenLinks(state)
		if err != nil {
			t.Fatal(err)
		}
		var permits []permit
		for _, ttl := range []time.Duration{time.Minute, 0, time.Hour} {
			made, err := l.New("alice", "s", "f", http.MethodGet, ttl)
			if err != nil {
				t.Fatal(err)
			}
			p, err := l.check(strings.TrimPrefix(made.URL, linksPath))
			if err != nil {
				t.Fatal(err)
			}
			if err := l.use(p); err != nil {
				t.Fatal(err)
			}
			permits = append(permits, p)
		}
		late, err := l.New("alice", "s", "f", http.MethodGet, time.Minute)
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Minute)
		if _, err := l.check(strings.TrimPrefix(late.URL, linksPath)); fault.KindOf(err) != fault.Denied {
			t.Errorf("an expired link: %v", err)
		}
		time.Sleep(DefaultTTL)
		if err := l.use(permits[2]); fault.KindOf(err) != fault.Denied {
			t.Errorf("a used link: %v", err)
		}
		left, err := os.ReadDir(filepath.Join(state, usedFolder))
		switch {
		case err != nil:
			t.Errorf("remembered: %v", err)
		case len(left) != 1:
			t.Errorf("remembered: len(left) = %d, want 1: %+v", len(left), left)
		case left[0].Name() != fmt.Sprintf("%d-%s", permits[2].Expires, permits[2].ID):
			t.Errorf("remembered: left[0].Name() = %q, want %q",
				left[0].Name(), fmt.Sprintf("%d-%s", permits[2].Expires, permits[2].ID))
		}
	})
}

func TestLinksThatAreNotMade(t *testing.T) {
	s := serve(t, nil)
	for name, body := range map[string]string{
		"a path out": `{"path":"../x"}`, "no path": `{}`, "another method": `{"path":"f","method":"DELETE"}`, "for too long": `{"path":"f","ttl_seconds":86401}`,
		"for less than nothing": `{"path":"f","ttl_seconds":-1}`, "for ever": `{"path":"f","ttl_seconds":9223372036854775807}`, "an unknown field": `{"path":"f","x":1}`, "no JSON": `path=f`,
		"too much": `{"path":"` + strings.Repeat("x", maxLinkRequest) + `"}`,
	} {
		if got := s.do("POST", "/v1/sessions/s/links", strings.NewReader(body), "Content-Type", "application/json"); got.status < 400 || got.status > 403 {
			t.Errorf("%s: %d %s, want from 400 to 403", name, got.status, got.body)
		}
	}
	s.want(s.do("POST", "/v1/sessions/s/links", strings.NewReader(`{"path":"f"}`), "Content-Type", "text/plain"), 415, fault.Invalid)
}

func TestALinkOutlivesNeitherItsMakerNorItsSession(t *testing.T) {
	s := serve(t, nil)
	got := s.want(s.do("POST", "/v1/sessions/s/links", strings.NewReader(`{"path":"f","ttl_seconds":3600}`), "Content-Type", "application/json", "X-Principal", "brief"), 201, "")
	var l Link
	if err := json.Unmarshal([]byte(got.body), &l); err != nil {
		t.Errorf("the link %s: got error %v, want none", got.body, err)
	} else if time.Until(l.Expires) > time.Minute {
		t.Errorf("the link: time.Until(l.Expires) = %v, want at most %v", time.Until(l.Expires), time.Minute)
	}
	s.put("f", "x")
	mine := s.link(`{"path":"f"}`)
	if err := s.sessions.Destroy(t.Context(), "alice", "s"); err != nil {
		t.Fatal(err)
	}
	s.want(s.anyone("GET", mine.URL, ""), 404, fault.NotFound)
}

// access is an Access that may have a say of its own in each question; nil: all may.
type access struct {
	alive  func(session.Owner) error
	admit  func(session.Owner) (release func(), err error)
	beyond func(w http.ResponseWriter, set string) bool
}

func (a access) Alive(o session.Owner) error {
	if a.alive == nil {
		return openAccess{}.Alive(o)
	}
	return a.alive(o)
}

func (a access) Admit(o session.Owner) (func(), error) {
	if a.admit == nil {
		return openAccess{}.Admit(o)
	}
	return a.admit(o)
}

func (a access) Beyond(w http.ResponseWriter, r *http.Request, set string) bool {
	if a.beyond == nil {
		return openAccess{}.Beyond(w, r, set)
	}
	return a.beyond(w, set)
}

func TestALinkOfARevokedTokenIsRefused(t *testing.T) {
	var alive error
	var asked session.Owner
	s := serve(t, func(c *Config) {
		c.Access = access{alive: func(o session.Owner) error { asked = o; return alive }}
	})
	s.put("f", "x")
	l := s.link(`{"path":"f"}`)
	alive = fault.New(fault.Denied, "the token was revoked")
	if got := s.want(s.anyone("GET", l.URL, ""), 403, fault.Denied); asked != "alice" {
		t.Errorf(`asked = %q, want "alice"`, asked)
	} else if strings.Contains(got.body, "revoked") {
		t.Errorf(`got.body = %q, want no "revoked" in it`, got.body)
	}
	alive = fault.New(fault.Unavailable, "the tokens cannot be read")
	s.want(s.anyone("GET", l.URL, ""), 503, fault.Unavailable)
	alive = nil // neither has used it
	s.want(s.anyone("GET", l.URL, ""), 200, "")
}

func TestTheMakingOfALinkIsTold(t *testing.T) {
	var told []Moved
	s := serve(t, func(c *Config) { c.Moved = func(_ context.Context, m Moved) { told = append(told, m) } })
	s.link(`{"path":"f","method":"PUT"}`)
	s.do("POST", "/v1/sessions/s/links", strings.NewReader(`{"path":"../f"}`), "Content-Type", "application/json")
	switch {
	case len(told) != 2:
		t.Errorf("told: len(told) = %d, want 2: %+v", len(told), told)
	case told[0] != (Moved{Owner: "alice", Session: "s", Path: "f", Write: true, Link: true}):
		t.Errorf("told: told[0] = %v, want %v: %+v",
			told[0], Moved{Owner: "alice", Session: "s", Path: "f", Write: true, Link: true}, told)
	case told[1].Path != "../f":
		t.Errorf(`told: told[1].Path = %q, want "../f"`, told[1].Path)
	case told[1].Err == nil:
		t.Errorf("told: no error, want one: %+v", told)
	}
}

func TestATokenThatDoesNotReachFilesIsAnsweredByWhoKnowsIt(t *testing.T) {
	known := true
	s := serve(t, func(c *Config) {
		c.Access = access{beyond: func(w http.ResponseWriter, set string) bool {
			if known {
				http.Error(w, set, http.StatusTeapot)
			}
			return known
		}}
	})
	ask := func() answered { return s.do("GET", "/v1/sessions/s/files/f", nil, "X-Principal", "no files") }
	if got := ask(); got.status != http.StatusTeapot {
		t.Errorf("got.status = %d, want %d: %+v", got.status, http.StatusTeapot, got)
	} else if strings.TrimSpace(got.body) != toolSet {
		t.Errorf("strings.TrimSpace(got.body) = %q, want %q", strings.TrimSpace(got.body), toolSet)
	}
	known = false
	s.want(ask(), 403, fault.Denied)
}

func TestAKeyThatOthersCanReadIsRefused(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("modes say nothing there")
	}
	state := t.TempDir()
	if _, err := OpenLinks(state); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(filepath.Join(state, keyFile), 0o640); err != nil {
		t.Fatal(err)
	}
	_, err := OpenLinks(state)
	switch f := fault.Of(err); {
	case f == nil:
		t.Errorf("it says %v: no fault, want one", err)
	case f.Kind != fault.Unavailable:
		t.Errorf("it says %v: f.Kind = %v, want %v", err, f.Kind, fault.Unavailable)
	case f.Message != "the file link-key in the state folder can be read or changed by other users":
		t.Errorf("it says %v: f.Message = %q, want %q",
			err, f.Message, "the file link-key in the state folder can be read or changed by other users")
	case f.Hint == "":
		t.Errorf("it says %v: f.Hint is empty, want a text", err)
	}
}

func TestALinkCountsForItsOwner(t *testing.T) {
	full := *fault.New(fault.Exhausted, "too many")
	full.RetryAfter = 1500 * time.Millisecond
	var asked session.Owner
	s := serve(t, func(c *Config) {
		c.Access = access{admit: func(o session.Owner) (func(), error) { asked = o; return nil, &full }}
	})
	s.put("f", "x")
	l := s.link(`{"path":"f"}`)
	got := s.want(s.anyone("GET", l.URL, ""), 429, fault.Exhausted)
	if asked != "alice" {
		t.Errorf(`asked = %q, want "alice"`, asked)
	} else if got.head.Get("Retry-After") != "2" {
		t.Errorf(`header Retry-After = %q, want "2"`, got.head.Get("Retry-After"))
	}
}

func TestTheKeyIsItsUsersAloneAndMadeOnce(t *testing.T) {
	state := t.TempDir()
	var all sync.WaitGroup
	keys := make([]string, 8)
	for k := range keys {
		all.Go(func() {
			l, err := OpenLinks(state)
			if err != nil {
				t.Error(err)
				return
			}
			keys[k] = string(l.key)
		})
	}
	all.Wait()
	for _, key := range keys {
		if len(key) != keyBytes {
			t.Errorf("there are several keys: len(key) = %d, want %d", len(key), keyBytes)
		} else if key != keys[0] {
			t.Error("there are several keys: got another than the first")
		}
	}
	info, err := os.Stat(filepath.Join(state, keyFile))
	if err != nil {
		t.Errorf("the key's mode: got error %v, want none", err)
	} else if runtime.GOOS != "windows" && info.Mode().Perm() != 0o600 {
		t.Errorf("the key's mode is %v, want -rw-------", info.Mode())
	}
	entries, err := os.ReadDir(state)
	if err != nil {
		t.Errorf("the folder: got error %v, want none", err)
	} else if len(entries) != 2 {
		t.Errorf("the folder: len(entries) = %d, want 2: %+v", len(entries), entries)
	}
	if err := os.WriteFile(filepath.Join(state, keyFile), []byte("short"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := OpenLinks(state); fault.KindOf(err) != fault.Unavailable {
		t.Errorf("a broken key: got an error of the kind %q, want %q: %v", fault.KindOf(err), fault.Unavailable, err)
	} else if !strings.Contains(fault.Of(err).Hint, "remove") {
		t.Errorf(`a broken key: fault.Of(err).Hint = %q, want "remove" in it`, fault.Of(err).Hint)
	}
}
