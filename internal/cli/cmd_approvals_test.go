//go:build unix

package cli

import (
	"context"
	"encoding/json"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"paddock/internal/approval"
	"paddock/internal/auth"
)

// Attack 81 at the real server: the token that runs programs decides nothing, one that
// names the scope does, and that is in the audit log.
func TestApprovalsAreDecidedOverHTTPWithATokenForThat(t *testing.T) {
	state := t.TempDir()
	store, a, boss := asked(t, state)
	s := startServe(t, "--state-dir", state)
	base := strings.TrimSuffix(s.url, "/mcp") + "/api/v1/approvals"
	for _, test := range []struct {
		token, method, path string
		status              int
		says                string
	}{
		{"", "GET", "", 401, ""}, {s.token, "GET", "", 403, "paddock token create NAME --approve"}, {s.token, "POST", "/" + a.ID + "/grant", 403, ""},
		{boss, "GET", "", 200, a.ID}, {boss, "GET", "/" + a.ID, 200, `"to":"ann"`}, {boss, "POST", "/" + a.ID + "/grant", 200, `"state":"granted"`}, {boss, "POST", "/" + a.ID + "/deny", 409, "granted"},
	} {
		status, body := request(t.Context(), t, test.method, base+test.path, test.token)
		if status != test.status {
			t.Errorf("%s %s: status: got %v, want %v: %s", test.method, test.path, status, test.status, body)
		}
		if !strings.Contains(body, test.says) {
			t.Errorf("%s %s: body: got %q, want %q in it", test.method, test.path, body, test.says)
		}
	}
	if status, _ := s.call(boss, "1"); status == http.StatusOK {
		if _, body := s.call(boss, "1"); strings.Contains(body, `"success":true`) {
			t.Errorf("a token for approvals runs programs: %s", body)
		}
	}
	if got, err := store.Get(auth.Local, a.ID); err != nil {
		t.Error(err)
	} else if got.State != approval.Granted {
		t.Errorf("got.State: got %v, want %v", got.State, approval.Granted)
	} else if !strings.HasPrefix(got.By, auth.OfToken) {
		t.Errorf("got.By: got %q, want it to begin with %q", got.By, auth.OfToken)
	}
	var log strings.Builder
	days, _ := filepath.Glob(filepath.Join(state, "audit", "*.jsonl"))
	for _, day := range days {
		data, err := os.ReadFile(day)
		if err != nil {
			t.Fatal(err)
		}
		log.Write(data)
	}
	if !strings.Contains(log.String(), `"action":"approval_grant"`) {
		t.Errorf("the audit log: log.String(): got %q, want %q in it", log.String(), `"action":"approval_grant"`)
	}
	if strings.Contains(log.String(), `"to":"ann"`) {
		t.Errorf("the audit log: log.String(): got %q, want no %q in it", log.String(), `"to":"ann"`)
	}
}

// Where no token is asked for, one that may decide counts all the same, and nothing else does.
func TestWithoutTokensOneThatMayDecideDoes(t *testing.T) {
	state := t.TempDir()
	_, a, boss := asked(t, state)
	s := startServe(t, "--dev", "--state-dir", state)
	grant := strings.TrimSuffix(s.url, "/mcp") + "/api/v1/approvals/" + a.ID + "/grant"
	for _, test := range []struct {
		token  string
		status int
	}{{"", 403}, {boss + "x", 403}, {boss, 200}} {
		if status, body := request(t.Context(), t, "POST", grant, test.token); status != test.status {
			t.Errorf("with %q: %d, %s", test.token, status, body)
		}
	}
	if status, body := s.call(boss, "print(1)"); status != http.StatusOK {
		t.Errorf("a program is answered: status: got %v, want %v: %s", status, http.StatusOK, body)
	} else if !strings.Contains(body, `"success":true`) {
		t.Errorf("a program is answered: body: got %q, want %q in it", body, `"success":true`)
	}
}

// asked puts a question into a state folder, and makes a token that may answer it.
func asked(t *testing.T, state string) (store *approval.Store, a approval.Approval, token string) {
	t.Helper()
	store = approval.Open(filepath.Join(state, "approvals"), approval.Options{})
	a, err := store.Request(t.Context(), approval.Request{
		Key:  approval.Key{Owner: auth.Local, Session: "s-1", Execution: "x-1", Number: 1},
		Call: approval.Call{Server: "mail", Definition: "d", Tool: "send", Arguments: json.RawMessage(`{"to":"ann"}`)},
	})
	if err != nil {
		t.Fatal(err)
	}
	token, _, err = auth.OpenTokens(state).Create(auth.Token{Name: "boss", Owner: auth.Local, Tools: []string{"approve"}})
	if err != nil {
		t.Fatal(err)
	}
	return store, a, token
}

func request(ctx context.Context, t *testing.T, method, url, token string) (int, string) {
	t.Helper()
	r, err := http.NewRequestWithContext(ctx, method, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	if token != "" {
		r.Header.Set("Authorization", "Bearer "+token)
	}
	res, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	body, err := io.ReadAll(res.Body)
	if err != nil {
		t.Fatal(err)
	}
	return res.StatusCode, string(body)
}
