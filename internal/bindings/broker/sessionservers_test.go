package broker

import (
	"bytes"
	"encoding/json"
	"errors"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"paddock/internal/bindings/upstream"
	"paddock/internal/fault"
)

// vault is a Seal of the tests: it hides nothing from who knows it.
type vault struct{}

func (vault) Seal(purpose string, plain []byte) ([]byte, error) {
	sealed := append([]byte(purpose+"\x00"), plain...)
	for i := range sealed {
		sealed[i] ^= 0x5a
	}
	return sealed, nil
}

func (vault) Unseal(purpose string, sealed []byte) ([]byte, error) {
	plain := slices.Clone(sealed)
	for i := range plain {
		plain[i] ^= 0x5a
	}
	text, ok := bytes.CutPrefix(plain, []byte(purpose+"\x00"))
	if !ok {
		return nil, errors.New("it was sealed for something else")
	}
	return text, nil
}

// wanting is a server that answers only those who send it a header.
func wanting(t *testing.T, secret string) *counterparty {
	c := serve(t)
	inner := c.Config.Handler
	c.Config.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("X-Secret") != secret {
			http.Error(w, "no", http.StatusForbidden)
			return
		}
		inner.ServeHTTP(w, r)
	})
	return c
}

func TestASessionsServersOutliveTheProcess(t *testing.T) {
	c, dir := wanting(t, "s3cr3t"), t.TempDir()
	d := c.definition("mine")
	d.Headers = map[string]string{"X-Secret": "s3cr3t"}
	d.Policy = Policy{Deny: []string{"delete-all"}}
	config := Config{Dir: dir, Seal: vault{}}
	b := open(t, config)
	if o, err := b.Bind(t.Context(), alice, d); err != nil {
		t.Fatalf("got error %v, want none", err)
	} else if o.Fleeting {
		t.Fatalf("o.Fleeting = true, want false: %+v", o)
	}
	if err := filepath.WalkDir(dir, func(path string, e os.DirEntry, err error) error {
		if err != nil || e.IsDir() {
			return err
		}
		if text, err := os.ReadFile(path); err != nil {
			t.Errorf("%s tells the secret: got error %v, want none", path, err)
		} else if bytes.Contains(text, []byte("s3cr3t")) {
			t.Errorf("%s tells the secret: text = %q, want no %q in it", path, text, []byte("s3cr3t"))
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	other := open(t, config) // while the first one still runs
	if got := ask(t, other, run(), 1, "mine", "echo", `{"text":"a"}`); got != `{"value":"a"}` {
		t.Errorf("in another process: %s", got)
	}
	if got := ask(t, other, run(), 2, "mine", "delete-all", `{}`); !strings.Contains(got, `"denied"`) {
		t.Errorf("its policy is another one: %s", got)
	}
	fork := Session{"alice", "fork"}
	if err := other.Copy(alice, fork); err != nil {
		t.Fatal(err)
	}
	if err := other.Copy(alice, Session{"bob", "fork"}); fault.KindOf(err) != fault.Denied {
		t.Errorf("another owner gets it: %v", err)
	}
	if err := other.Unbind(alice, "mine"); err != nil {
		t.Fatal(err)
	}
	if got := b.Names(alice); len(got) != 0 {
		t.Errorf("the first process has %q", got)
	}
	if got := ask(t, b, Run{Session: fork}, 1, "mine", "echo", `{"text":"a"}`); got != `{"value":"a"}` {
		t.Errorf("the fork: %s", got)
	}
	b.Forget(fork)
	if got := other.Names(fork); len(got) != 0 {
		t.Errorf("after its end the fork has %q", got)
	}
	if left, err := os.ReadDir(filepath.Join(dir, "sessions")); err != nil {
		t.Errorf("there is left: got error %v, want none", err)
	} else if len(left) != 0 {
		t.Errorf("there is left: len(left) = %d, want none: %+v", len(left), left)
	}
}

func TestWithoutAKeySecretsAreNotKept(t *testing.T) {
	c, dir := wanting(t, "s3cr3t"), t.TempDir()
	secret := c.definition("secret")
	secret.Headers = map[string]string{"X-Secret": "s3cr3t"}
	plain := serve(t)
	query := plain.definition("query")
	query.URL += "/?key=s3cr3t"
	b := open(t, Config{Dir: dir})
	for name, fleeting := range map[string]bool{"secret": true, "query": true, "plain": false} {
		d := map[string]Definition{"secret": secret, "query": query, "plain": plain.definition("plain")}[name]
		if o, err := b.Bind(t.Context(), alice, d); err != nil {
			t.Errorf("%s: got error %v, want none", name, err)
		} else if o.Fleeting != fleeting {
			t.Errorf("%s: o.Fleeting = %v, want %v: %+v", name, o.Fleeting, fleeting, o)
		}
	}
	if err := b.Copy(alice, Session{"alice", "fork"}); err != nil {
		t.Fatal(err)
	}
	for _, s := range []Session{alice, {"alice", "fork"}} {
		if got := b.Names(s); !slices.Equal(got, []string{"plain", "query", "secret"}) {
			t.Errorf("the process has %q", got)
		}
	}
	if got := open(t, Config{Dir: dir}).Names(alice); !slices.Equal(got, []string{"plain"}) {
		t.Errorf("another one has %q", got)
	}
}

func TestWhatAnOperatorDoesNotAdmitIsNotBoundAgain(t *testing.T) {
	c, dir := serve(t), t.TempDir()
	no := func(Session, Definition) error { return fault.New(fault.Denied, "not on the list") }
	b := open(t, Config{Dir: dir})
	if _, err := b.Bind(t.Context(), alice, c.definition("mine")); err != nil {
		t.Fatal(err)
	}
	strict := open(t, Config{Dir: dir, Admit: no})
	if got := strict.Names(alice); len(got) != 0 {
		t.Errorf("it has %q", got)
	}
	if _, err := strict.Bind(t.Context(), alice, c.definition("other")); fault.KindOf(err) != fault.Denied {
		t.Errorf("it is bound: %v", err)
	}
	common := open(t, Config{Dir: dir, Servers: []Definition{{Server: upstream.Server{Name: "mine", URL: "http://127.0.0.1:1/"}}}})
	if one, err := common.find(alice, "mine"); err != nil {
		t.Errorf("the session's server stands for the operator's: got error %v, want none", err)
	} else if one.URL == c.URL {
		t.Errorf("the session's server stands for the operator's: one.URL = %q, want another", one.URL)
	}
}

func TestAFileOfServersThatIsNotTheSessionsIsRefused(t *testing.T) {
	c, dir := serve(t), t.TempDir()
	b := open(t, Config{Dir: dir})
	if _, err := b.Bind(t.Context(), alice, c.definition("mine")); err != nil {
		t.Fatal(err)
	}
	bob := Session{"bob", "s-1"}
	text, err := os.ReadFile(b.sessionServers.path(alice))
	if err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string][]byte{"another session's": text, "nonsense": []byte("{"), "nothing": nil} {
		if err := os.WriteFile(b.sessionServers.path(bob), text, 0o600); err != nil {
			t.Fatal(err)
		}
		if got := b.Names(bob); len(got) != 0 {
			t.Errorf("%s gives it %q", name, got)
		}
	}
	if _, err := b.Bind(t.Context(), bob, c.definition("mine")); err != nil {
		t.Errorf("binding them again: %v", err)
	}
	if got := b.Names(bob); !slices.Equal(got, []string{"mine"}) {
		t.Errorf("then it has %q", got)
	}
}

func TestSessionsBindAtOnceFromSeveralProcesses(t *testing.T) {
	c, dir := serve(t), t.TempDir()
	brokers := []*Broker{open(t, Config{Dir: dir, PerSession: 6}), open(t, Config{Dir: dir, PerSession: 6})}
	var all sync.WaitGroup
	var mu sync.Mutex
	bound := 0
	for i := range 10 {
		all.Go(func() {
			_, err := brokers[i%2].Bind(t.Context(), alice, c.definition("s"+string(rune('a'+i))))
			if err != nil && fault.KindOf(err) != fault.Exhausted {
				t.Error(err)
			}
			if err == nil {
				mu.Lock()
				bound++
				mu.Unlock()
			}
		})
	}
	all.Wait()
	switch a, b := brokers[0].Names(alice), brokers[1].Names(alice); {
	case len(a) != 6:
		t.Errorf("len(a) = %d, want 6: %q", len(a), a)
	case bound != 6:
		t.Errorf("bound = %d, want 6", bound)
	case !slices.Equal(a, b):
		t.Errorf("a = %q, want %q", a, b)
	}
}

func TestSessionsOfTheSameNameAreTwo(t *testing.T) {
	c := serve(t)
	b := open(t, Config{Servers: []Definition{c.definition("party")}})
	bob := Session{"bob", alice.ID}
	for _, s := range []Session{alice, bob} {
		if got := ask(t, b, Run{Session: s, Execution: "x"}, 1, "party", "echo", `{"text":"a"}`); got != `{"value":"a"}` {
			t.Fatal(got)
		}
	}
	before, err := b.pool.List(b.common["party"].with(t.Context()), b.common["party"].keyFor(bob))
	if err != nil {
		t.Fatal(err)
	}
	b.Forget(alice)
	after, err := b.pool.List(b.common["party"].with(t.Context()), b.common["party"].keyFor(bob))
	if err != nil {
		t.Errorf("the other one's connection has ended: got error %v, want none", err)
	} else if &before.Tools[0] != &after.Tools[0] {
		t.Error("the other one's connection has ended: got another list, want the same")
	}
}

func FuzzOwnFile(f *testing.F) {
	b, err := New(Config{})
	if err != nil {
		f.Fatal(err)
	}
	f.Cleanup(func() { _ = b.Close() })
	text, _ := json.Marshal(storedFile{Version: storedVersion, Owner: "alice", Session: "s-1", Servers: []storedServer{{Plain: &storedDefinition{Server: upstream.Server{Name: "a", URL: "http://127.0.0.1/"}}}, {Sealed: []byte("x")}}})
	f.Add(text)
	f.Fuzz(func(t *testing.T, text []byte) {
		all, err := b.sessionServers.decode(alice, text)
		if err != nil && len(all) > 0 {
			t.Error("there are servers beside an error")
		}
		for name, one := range all {
			if name != one.Name {
				t.Errorf("name = %q, want %q", name, one.Name)
			} else if one.Check() != nil {
				t.Errorf("got error %v, want none", one.Check())
			}
		}
	})
}
