package app

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"paddock/internal/audit"
	"paddock/internal/config"
	"paddock/internal/egress/proxy"
	"paddock/internal/fault"
	"paddock/internal/sandbox"
	"paddock/internal/sandbox/sandboxtest"
	"paddock/internal/session"
	"paddock/internal/telemetry"
	"paddock/internal/vault"
)

// reaching gives parts whose programs run in the fake with machines, and reach what rules
// allow.
func reaching(t *testing.T, state string, rules ...string) *App {
	t.Helper()
	return reachingBy(t, state, config.Source{}, rules...)
}

// reachingBy follows a source of the configuration besides.
func reachingBy(t *testing.T, state string, src config.Source, rules ...string) *App {
	t.Helper()
	fake := func(*Env, *session.Life, sandbox.Translator) (Backends, error) {
		return Backends{sandboxtest.NewFakeMachines(sandboxtest.FakeConfig{Name: "linux"}), sandboxtest.NewFake(sandboxtest.FakeConfig{Name: "wasm"})}, nil
	}
	c, err := config.Load(config.Source{Environ: []string{"PADDOCK_VAULT_KEYRING=off"}})
	if err != nil {
		t.Fatal(err)
	}
	c.Network.Allow, c.Packages.Machine = rules, false
	p := &Env{NewBackends: fake, Config: c, Source: src, StateDir: state, CacheDir: t.TempDir(), Log: slog.New(slog.DiscardHandler)}
	o, err := p.Open(Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { o.Close() })
	return o
}

// site is a server on this host, and the rule for it.
func site(t *testing.T) (address, rule string) {
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { fmt.Fprint(w, "hello from ", r.URL.Path) }))
	t.Cleanup(s.Close)
	address = s.Listener.Addr().String()
	return address, address + "!private"
}

func made(t *testing.T, o *App, set session.Settings) session.ID {
	t.Helper()
	i, err := o.Sessions.Create(t.Context(), session.Local, "", set)
	if err != nil {
		t.Fatal(err)
	}
	return i.ID
}

// get has a program in a machine ask for something, and gives the first line of the answer.
func get(t *testing.T, o *App, id session.ID, method, url string) (line string, res session.Result) {
	t.Helper()
	code := fmt.Sprintf(`print(proxied("%s %s HTTP/1.0\r\n\r"))`, method, url)
	res, err := o.Sessions.Execute(t.Context(), session.Local, id, session.Request{Code: code, Language: "python"})
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(res.Stdout), res
}

// egressRecords are the audit log's records of requests.
func egressRecords(t *testing.T, o *App, state string) (all []audit.Record) {
	t.Helper()
	for r, err := range audit.Read(filepath.Join(state, "audit"), audit.Filter{}) {
		if err != nil {
			t.Fatal(err)
		}
		if r.Action == audit.Egress {
			all = append(all, r)
		}
	}
	return all
}

func TestAMachinesProgramsReachWhatIsAllowedAndNothingElse(t *testing.T) {
	state := t.TempDir()
	address, rule := site(t)
	o := reaching(t, state, "GET "+rule[:len(address)]+"/open/*!private")
	id := made(t, o, session.Settings{})
	line, res := get(t, o, id, "GET", "http://"+address+"/open/x")
	if line != "HTTP/1.0 200 OK" || res.Refused != "" || res.Egress < 20 {
		t.Errorf("it is answered %q: %+v", line, res)
	}
	for request, want := range map[string]string{
		"GET http://" + address + "/closed":  "is not among those that",
		"POST http://" + address + "/open/x": "is not among those that",
		"GET http://evil.test/":              "evil.test:80 is not among the hosts that may be reached: the operator can allow it, as evil.test:80, in the configuration's network.allow, by --net-allow or PADDOCK_NET_ALLOW",
	} {
		method, url, _ := strings.Cut(request, " ")
		line, res := get(t, o, id, method, url)
		if line != "HTTP/1.0 403 Forbidden" || !strings.HasPrefix(res.Refused, "Network: ") || !strings.Contains(res.Refused, want) {
			t.Errorf("%s: it is answered %q, and told %q", request, line, res.Refused)
		}
	}
	records := egressRecords(t, o, state)
	if len(records) != 4 {
		t.Fatalf("there are %+v", records)
	}
	// A request is recorded when its connection ends, which may be after the next one.
	slices.SortFunc(records, func(a, b audit.Record) int { return cmp.Compare(a.Verdict, b.Verdict) })
	r := records[0]
	got := []string{r.Principal, r.Session, r.Target, r.Verdict, r.Outcome, r.Sent.Method}
	if want := []string{"local", string(id), "http://" + address, "allowed", audit.Success, "GET"}; !slices.Equal(got, want) {
		t.Errorf("the first record has %q, want %q", got, want)
	}
	if r.Sent.Status != 200 {
		t.Errorf("the first record's status is %d, want 200", r.Sent.Status)
	}
	if r.Sent.BytesReceived == 0 {
		t.Error("the first record has no received bytes")
	}
	if !strings.HasPrefix(r.Sent.Rule, "GET ") {
		t.Errorf("the first record's rule is %q, want one for GET", r.Sent.Rule)
	}
	for _, r := range records[1:] {
		got := []string{r.Verdict, r.Outcome, r.ErrorType}
		if want := []string{"denied", audit.Error, "denied"}; !slices.Equal(got, want) {
			t.Errorf("a refusal has %q, want %q", got, want)
		}
		if r.Reason == "" {
			t.Errorf("the refusal %+v has no reason", r)
		}
		if r.Sent.Status != 403 {
			t.Errorf("a refusal's status is %d, want 403", r.Sent.Status)
		}
	}
}

func TestASessionNarrowsAndNeverWidens(t *testing.T) {
	state := t.TempDir()
	address, rule := site(t)
	other, otherRule := site(t)
	o := reaching(t, state, rule, otherRule, "*.example.com")
	host, _, _ := strings.Cut(address, ":")
	for wish, want := range map[string]fault.Kind{"evil.test": fault.Denied, "*": fault.Denied, rule: fault.Denied, "https://x": fault.Invalid} {
		_, err := o.Sessions.Create(t.Context(), session.Local, "", session.Settings{Network: &[]string{address, wish}})
		if fault.KindOf(err) != want || fault.Of(err).Hint == "" {
			t.Errorf("%s: %v", wish, err)
		}
	}
	id := made(t, o, session.Settings{Network: &[]string{address, ".example.com", "*.evil.test"}})
	fork, err := o.Sessions.Fork(t.Context(), session.Local, id, "", 1)
	if err != nil {
		t.Fatal(err)
	}
	for _, one := range []session.ID{id, fork[0].ID} {
		if line, _ := get(t, o, one, "GET", "http://"+address+"/"); line != "HTTP/1.0 200 OK" {
			t.Errorf("what it may reach is answered %q", line)
		}
		line, res := get(t, o, one, "GET", "http://"+other+"/")
		if line != "HTTP/1.0 403 Forbidden" || !strings.Contains(res.Refused, "this session was created with fewer hosts; create_session makes one that reaches it") {
			t.Errorf("what it may not is answered %q, and told %q", line, res.Refused)
		}
		if line, res := get(t, o, one, "GET", "http://a.evil.test/"); line != "HTTP/1.0 403 Forbidden" || !strings.Contains(res.Refused, "the operator can allow it") {
			t.Errorf("what nobody may is answered %q, and told %q", line, res.Refused)
		}
	}
	closed := made(t, o, session.Settings{Network: &[]string{}})
	if line, _ := get(t, o, closed, "GET", "http://"+address+"/"); line != "refused" {
		t.Errorf("without a network it is answered %q", line)
	}
	for wish, want := range map[*[]string][]string{
		nil: {rule, otherRule, "*.example.com"}, {}: nil, {host, "gone.test", "*.example.com"}: {host, "*.example.com"},
	} {
		if got := o.network.Reaches(wish); !slices.Equal(got, want) {
			t.Errorf("%v reaches %v, want %v", wish, got, want)
		}
	}
}

// Rules are of now, and what was used counts, whichever process has the session.
func TestASessionGoesOnUnderTheRulesOfNow(t *testing.T) {
	state := t.TempDir()
	address, rule := site(t)
	o := reaching(t, state, rule)
	all, narrowed := made(t, o, session.Settings{}), made(t, o, session.Settings{Network: &[]string{address}})
	for _, id := range []session.ID{all, narrowed} {
		get(t, o, id, "GET", "http://"+address+"/")
	}
	o.Close()
	later := reaching(t, state, "other.test")
	for _, id := range []session.ID{all, narrowed} {
		if i, err := later.Sessions.Info(session.Local, id); err != nil || i.Traffic.Requests != 1 || i.Traffic.Received == 0 {
			t.Errorf("it is %+v, %v", i, err)
		}
		if line, _ := get(t, later, id, "GET", "http://"+address+"/"); line != "HTTP/1.0 403 Forbidden" {
			t.Errorf("it is answered %q", line)
		}
	}
	later.Close()
	none := reaching(t, state)
	if line, _ := get(t, none, all, "GET", "http://"+address+"/"); line != "refused" {
		t.Errorf("it is answered %q", line)
	}
	_, err := none.Sessions.Create(t.Context(), session.Local, "", session.Settings{Network: &[]string{"a.test"}})
	if fault.KindOf(err) != fault.Denied || !strings.Contains(fault.Of(err).Hint, "network.allow") {
		t.Errorf("it is told %v", err)
	}
}

func TestAProxyGoesWithItsSession(t *testing.T) {
	address, rule := site(t)
	o := reaching(t, t.TempDir(), rule)
	a, b := made(t, o, session.Settings{}), made(t, o, session.Settings{})
	for _, id := range []session.ID{a, b} {
		get(t, o, id, "GET", "http://"+address+"/")
	}
	one, other := o.network.find(sessionKey{session.Local, a}), o.network.find(sessionKey{session.Local, b})
	if one == nil || other == nil || one == other {
		t.Fatal("they have no proxies of their own")
	}
	if err := o.Sessions.Sleep(session.Local, a); err != nil {
		t.Fatal(err)
	}
	if err := o.Sessions.Destroy(t.Context(), session.Local, b); err != nil {
		t.Fatal(err)
	}
	for _, id := range []session.ID{a, b} {
		if o.network.find(sessionKey{session.Local, id}) != nil {
			t.Error("there is a proxy still")
		}
	}
	for _, d := range []*sessionProxy{one, other} {
		near, far := net.Pipe()
		go d.ServeProxy(t.Context(), far)
		fmt.Fprintf(near, "GET http://%s/ HTTP/1.0\r\n\r\n", address) // its end is told by what is read
		if answer, _ := io.ReadAll(near); strings.Contains(string(answer), "200 OK") {
			t.Errorf("a closed proxy answers %s", answer)
		}
		near.Close()
	}
}

// Programs of a machine that was saved trust the proxy of the process that they go on in;
// the secret for that is on disk sealed alone.
func TestAnOwnersAuthoritiesHaveOneKey(t *testing.T) {
	state := t.TempDir()
	seal := func() vault.Sealer {
		c := new(config.Config)
		c.Vault.Keyring = "off"
		return (&Env{StateDir: state, Config: c}).Vault()
	}
	one := caSeeds{state, seal()}
	first, err := one.of("alice")
	if err != nil || len(first) != 32 {
		t.Fatal(first, err)
	}
	later := caSeeds{state, seal()}
	again, err := later.of("alice")
	other, err2 := later.of("bob")
	if err := errors.Join(err, err2); err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(first, again) {
		t.Errorf("later the key is %x, want %x as before", again, first)
	}
	if bytes.Equal(first, other) {
		t.Errorf("another owner has the same key %x", other)
	}
	secret, err := one.secret()
	if err != nil {
		t.Fatal(err)
	}
	if on, err := os.ReadFile(filepath.Join(state, authorityFile)); err != nil || bytes.Contains(on, secret) {
		t.Errorf("it is open on disk, %v", err)
	}
	if err := os.WriteFile(filepath.Join(state, authorityFile), []byte("{}"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := one.of("alice"); err == nil {
		t.Error("a damaged one is used")
	}
}

func TestARequestIsRecordedWithoutWhatWasSaid(t *testing.T) {
	r := proxy.Record{Session: "s-1", Scheme: "https", Host: "a.test", Port: 443, Method: "GET", Path: "0a1b", Decision: proxy.Allowed, Rule: "a.test", Status: 200, Sent: 10, Received: 20}
	for _, test := range []struct {
		change                     func(*proxy.Record)
		target, outcome, errorType string
	}{
		{func(*proxy.Record) {}, "https://a.test:443", audit.Success, ""},
		{func(r *proxy.Record) { r.Decision = proxy.Local }, "https://a.test:443", audit.Success, ""},
		{func(r *proxy.Record) { r.Decision, r.Cause = proxy.Denied, "host" }, "https://a.test:443", audit.Error, "denied"},
		{func(r *proxy.Record) { r.Decision, r.Cause = proxy.Exhausted, "budget" }, "https://a.test:443", audit.Error, "exhausted"},
		{func(r *proxy.Record) { r.Cause = "dns" }, "https://a.test:443", audit.Error, "dns"},
		{func(r *proxy.Record) { r.Scheme, r.Host, r.Port = "", "::1", 22 }, "[::1]:22", audit.Success, ""},
		{func(r *proxy.Record) { r.Scheme, r.Host, r.Port = "", "", 0 }, "", audit.Success, ""},
	} {
		changed := r
		test.change(&changed)
		got := recordedRequest("alice", changed)
		told := []string{got.Principal, got.Target, got.Outcome, got.ErrorType}
		if want := []string{"alice", test.target, test.outcome, test.errorType}; !slices.Equal(told, want) {
			t.Errorf("%+v gives %q, want %q", changed, told, want)
		}
		want := audit.Sent{Method: "GET", PathDigest: "0a1b", Rule: "a.test", Status: 200, BytesSent: 10, BytesReceived: 20}
		if *got.Sent != want {
			t.Errorf("%+v gives %+v, want %+v", changed, *got.Sent, want)
		}
	}
	var none *telemetry.Telemetry
	none.Egress(t.Context(), "allowed", 0, 1, 1)
}

func TestTheHostOfARule(t *testing.T) {
	for rule, want := range map[string]string{
		"a.test": "a.test", "a.test:8443": "a.test", "a.test:*": "a.test", "GET a.test/v1/*": "a.test", "[::1]:80": "::1", "[::1]": "::1", "*.a.test": "", ".a.test": "", "POST *.a.test:80/x": "",
	} {
		if got := ruleHost(rule); got != want {
			t.Errorf("%s is about %q", rule, got)
		}
	}
}
