package approvals_test

import (
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"paddock/internal/approval"
	"paddock/internal/auth"
	"paddock/internal/web/approvals"
)

// api is the handler with three approvals in it, of three owners.
type api struct {
	t     *testing.T
	h     http.Handler
	store *approval.Store
	ids   map[string]string // by owner
}

func newAPI(t *testing.T) *api {
	t.Helper()
	a := &api{t: t, store: approval.Open(t.TempDir(), approval.Options{}), ids: map[string]string{}}
	for _, owner := range []string{"local", "token:runner", "oauth:ann"} {
		made, err := a.store.Request(t.Context(), approval.Request{
			Key:  approval.Key{Owner: owner, Session: "s-1", Execution: "x-1", Number: 1},
			Call: approval.Call{Server: "mail", Definition: "d", Tool: "send", Arguments: json.RawMessage(`{"n":9007199254740993,"to":"<b>"}`)},
		})
		if err != nil {
			t.Fatal(err)
		}
		a.ids[owner] = made.ID
	}
	var err error
	if a.h, err = approvals.New(approvals.Config{Store: a.store}); err != nil {
		t.Fatal(err)
	}
	return a
}

func (a *api) do(who *auth.Principal, method, path, body string) (int, string) {
	a.t.Helper()
	r := httptest.NewRequestWithContext(auth.With(a.t.Context(), who), method, approvals.Path+path, strings.NewReader(body))
	w := httptest.NewRecorder()
	a.h.ServeHTTP(w, r)
	data, err := io.ReadAll(w.Result().Body)
	if err != nil {
		a.t.Fatal(err)
	}
	return w.Code, string(data)
}

var (
	boss   = &auth.Principal{ID: "token:boss", Tools: []string{"approve"}}
	runner = &auth.Principal{ID: "token:runner"} // all tools, as tokens have that name none
	lead   = &auth.Principal{ID: "oauth:ann", Tools: []string{"core", "approve"}}
	ann    = &auth.Principal{ID: "oauth:ann", Tools: []string{"core"}}
	local  = &auth.Principal{ID: "local"}
)

// Attack 81: who runs programs cannot allow their calls, unless a token says so by name.
func TestOnlyTokensWithTheScopeDecide(t *testing.T) {
	a := newAPI(t)
	for name, who := range map[string]*auth.Principal{"a token of all tools": runner, "an issuer's without the scope": ann, "the local user's": local, "no principal": nil} {
		id := a.ids["local"]
		if who != nil {
			id = a.ids[who.ID]
		}
		for _, request := range [][2]string{{"GET", ""}, {"GET", "/" + id}, {"POST", "/" + id + "/grant"}, {"POST", "/" + id + "/deny"}, {"DELETE", "/" + id}} {
			if status, body := a.do(who, request[0], request[1], ""); status != http.StatusForbidden {
				t.Errorf("%s: %v: status = %d, want %d: %s", name, request, status, http.StatusForbidden, body)
			} else if strings.Contains(body, "mail") {
				t.Errorf(`%s: %v: body = %q, want no "mail" in it`, name, request, body)
			}
		}
	}
	all, err := a.store.All()
	for _, one := range all {
		if err != nil {
			t.Errorf("got error %v, want none", err)
		} else if one.State != approval.Pending {
			t.Errorf("one.State = %q, want %q", one.State, approval.Pending)
		}
	}
}

func TestApprovalsAreListedShownAndDecided(t *testing.T) {
	a := newAPI(t)
	var list struct{ Approvals []approval.Approval }
	status, body := a.do(boss, "GET", "", "")
	switch err := json.Unmarshal([]byte(body), &list); {
	case err != nil:
		t.Fatalf("an operator's token lists: %v", err)
	case status != 200:
		t.Fatalf("an operator's token lists: status = %v, want 200: %s", status, body)
	case len(list.Approvals) != 3:
		t.Fatalf("an operator's token lists: len(list.Approvals) = %d, want 3: %+v",
			len(list.Approvals), list.Approvals)
	}
	switch status, body := a.do(lead, "GET", "", ""); {
	case status != 200:
		t.Errorf("an issuer's user lists: status = %v, want 200: %s", status, body)
	case strings.Count(body, `"id"`) != 1:
		t.Errorf("an issuer's user lists: count of id in body = %v, want 1: %d, %s",
			strings.Count(body, `"id"`), status, body)
	case !strings.Contains(body, a.ids["oauth:ann"]):
		t.Errorf("an issuer's user lists: body = %q, want %q in it", body, a.ids["oauth:ann"])
	}
	switch status, body := a.do(boss, "GET", "/"+a.ids["local"], ""); {
	case status != 200:
		t.Errorf("status = %v, want 200: %s", status, body)
	case !strings.Contains(body, "9007199254740993"):
		t.Errorf(`body = %q, want "9007199254740993" in it`, body)
	case !strings.Contains(body, `"state":"pending"`):
		t.Errorf("body = %q, want %q in it", body, `"state":"pending"`)
	}
	for _, path := range []string{"/" + a.ids["local"], "/ap-aaaaaaaaaaaaaaaaaaaaaaaaaa", "/..", "/%2e%2e"} {
		if status, body := a.do(lead, "GET", path, ""); status != 404 {
			t.Errorf("%s is shown: %d, %s", path, status, body)
		}
	}
	if status, body := a.do(lead, "POST", "/"+a.ids["local"]+"/grant", "{}"); status != 404 {
		t.Errorf("another's is granted: %d, %s", status, body)
	}
	switch status, body := a.do(boss, "POST", "/"+a.ids["local"]+"/grant", `{"reason":"mine"}`); {
	case status != 200:
		t.Errorf("granting: status = %v, want 200: %s", status, body)
	case !strings.Contains(body, `"state":"granted"`):
		t.Errorf("granting: body = %q, want %q in it", body, `"state":"granted"`)
	case !strings.Contains(body, `"decided_by":"token:boss"`):
		t.Errorf("granting: body = %q, want %q in it", body, `"decided_by":"token:boss"`)
	case !strings.Contains(body, `"reason":"mine"`):
		t.Errorf("granting: body = %q, want %q in it", body, `"reason":"mine"`)
	}
	if status, body := a.do(boss, "POST", "/"+a.ids["local"]+"/deny", ``); status != 409 {
		t.Errorf("a second decision gives %d, %s", status, body)
	}
	if status, body := a.do(lead, "POST", "/"+a.ids["oauth:ann"]+"/deny", ``); status != 200 {
		t.Errorf("denying: status = %d, want 200: %s", status, body)
	} else if !strings.Contains(body, `"state":"denied"`) {
		t.Errorf("denying: body = %q, want %q in it", body, `"state":"denied"`)
	}
	if _, body := a.do(boss, "GET", "?state=denied", ""); strings.Count(body, `"id"`) != 1 {
		t.Errorf("denied are %s", body)
	}
	if _, body := a.do(boss, "GET", "?state=all", ""); strings.Count(body, `"id"`) != 3 {
		t.Errorf("all are %s", body)
	}
	if _, body := a.do(boss, "GET", "", ""); strings.Count(body, `"id"`) != 2 {
		t.Errorf("open are %s", body)
	}
}

func TestRequestsThatMakeNoSense(t *testing.T) {
	a := newAPI(t)
	id := "/" + a.ids["local"]
	for _, test := range []struct {
		method, path, body string
		status             int
	}{
		{"POST", "", "{}", 405}, {"GET", id + "/grant", "", 405}, {"POST", id, "", 405}, {"POST", id + "/allow", "", 404}, {"POST", id + "/grant/x", "", 404},
		{"POST", id + "/grant", "{", 400}, {"POST", id + "/grant", `{"reason":1}`, 400}, {"POST", id + "/grant", `{"Grant":true}`, 400},
		{"POST", id + "/grant", `{"reason":"` + strings.Repeat("a", 20<<10) + `"}`, 400},
	} {
		if status, body := a.do(boss, test.method, test.path, test.body); status != test.status {
			t.Errorf("%s %s: status = %d, want %d: %s", test.method, test.path, status, test.status, body)
		} else if !strings.Contains(body, `"error"`) {
			t.Errorf("%s %s: body = %q, want %q in it", test.method, test.path, body, `"error"`)
		}
	}
	if one, err := a.store.Get("local", a.ids["local"]); err != nil {
		t.Errorf("got error %v, want none", err)
	} else if one.State != approval.Pending {
		t.Errorf("one.State = %q, want %q", one.State, approval.Pending)
	}
}
