package app

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"paddock/internal/config"
	"paddock/internal/session"
)

// What the operator writes into the configuration counts at once, for what is under way too.
func TestRulesThatAreChangedInTheFileCountAtOnce(t *testing.T) {
	address, rule := site(t)
	began := make(chan bool)
	slow := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		began <- true
		<-r.Context().Done()
	}))
	t.Cleanup(slow.Close)
	slowAt := slow.Listener.Addr().String()
	file := filepath.Join(t.TempDir(), "paddock.toml")
	write := func(text string) {
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	allow := func(rules ...string) string {
		return "[network]\nallow = [\"" + strings.Join(rules, "\", \"") + "\"]\n"
	}
	write(allow(rule, slowAt+"!private"))
	src := config.Source{File: file}
	o := reachingBy(t, t.TempDir(), src, rule, slowAt+"!private")
	all, narrowed := made(t, o, session.Settings{}), made(t, o, session.Settings{Network: &[]string{slowAt}})

	ended := make(chan string)
	go func() {
		res, err := o.Sessions.Execute(t.Context(), session.Local, all, session.Request{Code: fmt.Sprintf(`print(proxied("GET http://%s/ HTTP/1.0\r\n\r"))`, slowAt), Language: "python"})
		ended <- fmt.Sprint(res.Stdout, err)
	}()
	<-began
	write(allow(rule)) // is found by looking
	if line := <-ended; strings.Contains(line, "200") {
		t.Errorf("what is not allowed any more is answered %q", line)
	}
	ask := func(id session.ID, at, want string) {
		t.Helper()
		if line, _ := get(t, o, id, "GET", "http://"+at+"/"); line != want {
			t.Errorf("%s is answered %q, want %q", at, line, want)
		}
	}
	const fine, refused = "HTTP/1.0 200 OK", "HTTP/1.0 403 Forbidden"
	ask(all, address, fine)
	ask(all, slowAt, refused)
	ask(narrowed, slowAt, refused)

	for name, text := range map[string]string{"no TOML": "[network", "a mistake": "[network]\nallow = [\"https://x\"]\n", "a mistake elsewhere": "[sessions]\nmax_memory_mb = 0\n[network]\nallow = []\n"} {
		write(text)
		o.network.reread(src)
		if got := o.network.Reaches(nil); len(got) != 1 || got[0] != rule {
			t.Errorf("%s: sessions reach %v", name, got)
		}
	}
	write("[network]\nallow = []\n")
	o.network.reread(src)
	ask(all, address, refused)
	if err := o.network.Check([]string{address}); err == nil {
		t.Error("a session may be made for what nobody reaches")
	}
	write(allow(rule))
	o.network.reread(src)
	ask(all, address, fine)
	ask(narrowed, address, refused) // it was never among its hosts
	o.network.reread(config.Source{File: file, Flags: map[string]string{"net-allow": "flag.test"}})
	ask(all, address, refused) // a flag goes before the file
}

// Where nothing was allowed at first, a machine has no way out until the next process.
func TestAMachineKeepsWhatItWasBootedWith(t *testing.T) {
	address, rule := site(t)
	o := reaching(t, t.TempDir())
	id := made(t, o, session.Settings{})
	if line, _ := get(t, o, id, "GET", "http://"+address+"/"); line != "refused" {
		t.Errorf("it is answered %q", line)
	}
	if err := o.network.change([]string{rule}); err != nil {
		t.Fatal(err)
	}
	for _, language := range []string{"python", "javascript"} { // the second is another interpreter in it
		if _, err := o.Sessions.Execute(t.Context(), session.Local, id, session.Request{Code: "print(1)", Language: language}); err != nil {
			t.Errorf("%s: %v", language, err)
		}
	}
}

// A project's file that changes while paddock runs is not obeyed until it is trusted again.
func TestRulesOfAProjectThatChangesStayUntilItIsTrusted(t *testing.T) {
	address, rule := site(t)
	file := filepath.Join(t.TempDir(), "paddock.toml")
	trusted := ""
	src := config.Source{Project: file, Trusted: func(_ string, text []byte) bool { return string(text) == trusted }}
	write := func(rules string) string {
		text := "[network]\nallow = [" + rules + "]\n"
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return text
	}
	trusted = write(fmt.Sprintf("%q", rule))
	o := reachingBy(t, t.TempDir(), config.Source{}, rule)
	o.network.ofProject = true
	id := made(t, o, session.Settings{})
	reread := func(text, want string) {
		t.Helper()
		o.network.reread(src)
		if got := fmt.Sprint(o.network.Reaches(nil)); got != want {
			t.Errorf("with %q sessions reach %s, want %s", text, got, want)
		}
	}
	planted := write(`"*:*!private"`)
	reread(planted, "["+rule+"]")
	if line, _ := get(t, o, id, "GET", "http://"+address+"/"); line != "HTTP/1.0 200 OK" {
		t.Errorf("what was trusted is answered %q", line)
	}
	trusted = write("")
	reread(trusted, "[]")
}
