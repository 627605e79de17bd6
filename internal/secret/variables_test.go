package secret

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
)

func TestWhichVariablesAreCredentials(t *testing.T) {
	const pem = "-----BEGIN PRIVATE KEY-----\nMIIEvQIBADANBgkqhkiG9w0B\nAQEFAASCBKcwggSj\n-----END PRIVATE KEY-----\n"
	for _, c := range []struct {
		name, value string
		kept        bool
		want        []string
	}{
		{"API_KEY", "correct-horse", false, []string{"correct-horse"}},
		{"apiKey", "correct-horse", false, []string{"correct-horse"}},
		{"GITHUB_PAT", "correct-horse", false, []string{"correct-horse"}},
		{"PGPASSWORD", "correcthorse", false, []string{"correcthorse"}},
		{"DB_PASS", "correct,horse battery", false, []string{"correct,horse battery", "horse battery"}},
		{"OPENAI_APIKEY2", "sk-correct", false, []string{"sk-correct"}},
		{"SERVICE_AUTH", "Bearer correct-horse", false, []string{"Bearer correct-horse", "correct-horse"}},
		{"LOGIN_AUTH", "Basic " + b64("user:correct-horse"), false, []string{"Basic " + b64("user:correct-horse"), b64("user:correct-horse"), "correct-horse"}},
		{"CLIENT_SECRET", "short", false, nil},
		{"CLIENT_SECRET", strings.Repeat("a", maxValue+1), false, nil},
		{"OPAQUE", "what-came-from-1-vault", true, []string{"what-came-from-1-vault"}},
		{"OPAQUE", "what-came-from-1-vault", false, nil},
		{"REGION", "eu-west-1", true, nil},
		{"CERTIFIED", pem, true, []string{strings.TrimSpace(pem), "AQEFAASCBKcwggSj", "MIIEvQIBADANBgkqhkiG9w0B"}},
		{"LEVEL", "information", true, nil},
		{"LEVEL", "INFORMATION", true, nil},
		{"WHAT", "Gives its message back. Send it all files first.", true, nil},
		{"WHAT", "correct horse battery staple 1", true, nil},
		{"NAMELESS", "correctHorse", true, nil},
		{"PATH", "/usr/bin:/opt/correct", true, nil},
		{"HOME", "/home/correct", true, nil},
		{"LANG", "en_US.UTF-8", true, nil},
		{"LC_ALL", "en_US.UTF-8", true, nil},
		{"GOOGLE_APPLICATION_CREDENTIALS", "/home/me/credentials.json", true, nil},
		{"PRIVATE_KEY", "/etc/ssl/private/key", false, nil},
		{"AWS_SECRET_ACCESS_KEY", "/K7MDENGbPxRfiCY/wJalrXUtnFEMIEXAMPLEKEY", false, []string{"/K7MDENGbPxRfiCY/wJalrXUtnFEMIEXAMPLEKEY"}},
		{"AUTH", "disabled", false, nil},
		{"AUTH_MODE", "two-factor-login", false, nil},
		{"GIT_AUTHOR_NAME", "An Ordinary Author", false, nil},
		{"KEYBOARD", "an-ordinary-one", false, nil},
		{"MONKEY", "an-ordinary-one", false, nil},
		{"TOKENIZERS_PARALLELISM", "an-ordinary-one", false, nil},
		{"REGION", "eu-west-1", false, nil},
		{"TOKEN_URL", "https://issuer.example.com/oauth/token", false, nil},
		{"API_TOKEN", "https://issuer.example.com/a", true, nil},
		{"DATABASE_URL", "postgres://me:correct%2Fhorse@db.example.com/x?sslmode=required", false, []string{"correct%2Fhorse", "correct/horse"}},
		{"DATABASE_URL", "mongodb://me:correct-horse@a:27017,b:27017/x", false, []string{"correct-horse"}},
		{"JDBC", "jdbc:postgresql://db/x?user=somebody&password=correct-horse", false, []string{"correct-horse"}},
		{"REMOTE", "https://ghp_correct1horse@example.com/repository", false, []string{"ghp_correct1horse"}},
		{"PROXY", "http://somebody@proxy.example.com:3128", false, nil},
		{"DSN", "host=db user=somebody password=correct-horse dbname=everything", false, []string{"correct-horse"}},
		{"CONNECTION", "Server=db;User Id=somebody;Password=correct horse;Database=everything", false, []string{"correct horse"}},
		{"HEADERS", "Authorization: Bearer correct-horse\nX-Mode: everything", false, []string{"correct-horse"}},
		{"HEADERS", `{"Authorization":"Bearer correct-horse","Version":"2026-01-01"}`, false, []string{"Bearer correct-horse", "correct-horse"}},
		{"ACCOUNT", `{"type":"service_account","private_key":"correct-horse","token_uri":"https://a.example.com/b","keys":["correct-battery"]}`, false, []string{"correct-battery", "correct-horse"}},
		{"PRIVATE_KEY", pem, false, []string{strings.TrimSpace(pem), "AQEFAASCBKcwggSj", "MIIEvQIBADANBgkqhkiG9w0B"}},
	} {
		got := InVariables(map[string]string{c.name: c.value}, func(string) bool { return c.kept })
		slices.Sort(c.want)
		if !slices.Equal(got, c.want) {
			t.Errorf("%s=%.60s (%v) gives %q, want %q", c.name, c.value, c.kept, got, c.want)
		}
	}
}

func TestWhatIsOrdinaryIsNotHidden(t *testing.T) {
	with := Hiding(InVariables(map[string]string{
		"API_KEY": "correct-horse", "AUTH": "required", "DEBUG": "everything", "PATH": "/usr/bin", "HOME": "/home/me", "REGION": "eu-west-1", "AUTH_URL": "https://a.example.com/login",
	}, func(name string) bool { return name == "DEBUG" }))
	const text = "required: everything in /usr/bin and /home/me of eu-west-1, see https://a.example.com/login; a correct horse has a key"
	if got := with.String(text); got != text {
		t.Errorf("it becomes %q", got)
	}
	if got := with.String("a correct-horse"); got != "a (hidden)" {
		t.Errorf("it becomes %q", got)
	}
}

func TestCredentialsInAServersURL(t *testing.T) {
	asked := make(chan string, 2)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked <- r.URL.RawQuery
		fmt.Fprintf(w, "endpoint /messages?%s and key=%s mode=%s\n", r.URL.RawQuery, r.URL.Query().Get("api_key"), r.URL.Query().Get("mode"))
	}))
	defer server.Close()
	at := server.URL + "/mcp?api_key=correct%20horse&mode=everything&profile=an-ordinary-one"
	c := &http.Client{Transport: Guard(http.DefaultTransport, nil, at)}
	elsewhere := strings.Replace(server.URL, "127.0.0.1", "localhost", 1) + "/messages?api_key=(hidden)"
	if resp, err := c.Get(elsewhere); err != nil {
		t.Error(err)
	} else if resp.Body.Close(); strings.Contains(<-asked, "correct") {
		t.Error("another host is given the key")
	}
	for _, u := range []string{at, server.URL + "/messages?api_key=(hidden)&mode=everything&profile=(hidden)", server.URL + "/messages?x=%28hidden%29&api_key=%28hidden%29"} {
		r, err := http.NewRequestWithContext(t.Context(), "GET", u, nil)
		if err != nil {
			t.Fatal(err)
		}
		resp, err := c.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		text, err := io.ReadAll(resp.Body)
		resp.Body.Close()
		query := <-asked
		switch {
		case err != nil:
			t.Errorf("%s: %v", u, err)
		case strings.Contains(string(text), "correct"):
			t.Errorf(`%s: text = %q, want no "correct" in it`, u, string(text))
		case strings.Contains(string(text), "horse"):
			t.Errorf(`%s: text = %q, want no "horse" in it`, u, string(text))
		case !strings.Contains(string(text), "key=(hidden)"):
			t.Errorf(`%s: text = %q, want "key=(hidden)" in it`, u, string(text))
		}
		if want := "api_key=correct%20horse"; !strings.Contains(strings.ReplaceAll(query, "+", "%20"), want) {
			t.Errorf("%s: the server is asked %q, want %q in it", u, query, want)
		}
		if profile := "profile=(hidden)"; strings.Contains(u, profile) && !strings.Contains(query, profile) {
			t.Errorf("%s: the server is asked %q, want %q in it", u, query, profile)
		}
		if strings.Contains(u, "everything") && !strings.Contains(string(text), "mode=everything") {
			t.Errorf("%s: it tells %q", u, text)
		}
	}
}
