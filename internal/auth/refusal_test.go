package auth

import (
	"encoding/json"
	"errors"
	"net/http"
	"strings"
	"testing"

	"paddock/internal/fault"
)

func TestChallenge(t *testing.T) {
	_, missing := BearerToken(http.Header{})
	const meta = "https://here.test/.well-known/oauth-protected-resource/mcp"
	for _, test := range []struct {
		name   string
		err    error
		meta   string
		scopes []string
		status int
		header string
	}{
		{"no token", missing, meta, nil, 401, `Bearer resource_metadata="` + meta + `"`},
		{"no token, and scopes to ask for", missing, meta, []string{"a", "b"}, 401, `Bearer scope="a b", resource_metadata="` + meta + `"`},
		{"no token, and nothing to say", missing, "", nil, 401, `Bearer`},
		{"a bad token", invalid("the token has expired"), meta, []string{"a"}, 401,
			`Bearer error="invalid_token", error_description="the token has expired", scope="a", resource_metadata="` + meta + `"`},
		{"too few scopes", InsufficientScope("paddock:files"), meta, []string{"a"}, 403,
			`Bearer error="insufficient_scope", error_description="the token does not reach that far: it needs the scope paddock:files", scope="paddock:files", resource_metadata="` + meta + `"`},
		{"what would end the quotes", invalid("a\"b\\c\r\nSet-Cookie: x\x7fé"), `https://h"/`, nil, 401,
			`Bearer error="invalid_token", error_description="a'b'c''Set-Cookie: x''", resource_metadata="https://h'/"`},
		{"a rule that is not about tokens", fault.New(fault.Denied, "no"), meta, nil, 403, ""},
		{"an issuer that is down", unavailable(0), meta, nil, 503, ""},
		{"anything else", errors.New("x"), meta, nil, 500, ""},
	} {
		t.Run(test.name, func(t *testing.T) {
			if status, header := Challenge(test.err, test.meta, test.scopes...); status != test.status {
				t.Errorf("status = %d, want %d", status, test.status)
			} else if header != test.header {
				t.Errorf("header = %q, want %q", header, test.header)
			}
		})
	}
}

func TestBearerToken(t *testing.T) {
	for _, test := range []struct {
		name   string
		values []string
		token  string
		status int
	}{
		{"a token", []string{"Bearer abc-._~+/1=="}, "abc-._~+/1==", 0},
		{"in other letters, with spaces", []string{"bEARER   abc"}, "abc", 0},
		{"none", nil, "", 401},
		{"a password", []string{"Basic abc"}, "", 401},
		{"no scheme", []string{"abc"}, "", 401},
		{"an empty one", []string{"Bearer "}, "", 401},
		{"only padding", []string{"Bearer =="}, "", 401},
		{"two in one", []string{"Bearer a b"}, "", 401},
		{"two with a comma", []string{"Bearer a, Bearer b"}, "", 401},
		{"letters of another alphabet", []string{"Bearer ä"}, "", 401},
		{"a huge one", []string{"Bearer " + strings.Repeat("a", maxToken+1)}, "", 401},
		{"two headers", []string{"Bearer a", "Bearer a"}, "", 400},
	} {
		t.Run(test.name, func(t *testing.T) {
			token, err := BearerToken(http.Header{"Authorization": test.values})
			if token != test.token {
				t.Fatalf("got the token %q, want %q: %v", token, test.token, err)
			}
			if test.status == 0 && err != nil {
				t.Fatalf("got error %v, want none", err)
			}
			if test.status != 0 {
				if status, _ := Challenge(err, ""); status != test.status {
					t.Errorf("status = %d, want %d", status, test.status)
				} else if fault.KindOf(err) != fault.Denied {
					t.Errorf("got an error of the kind %q, want %q: %v", fault.KindOf(err), fault.Denied, err)
				}
			}
		})
	}
}

func TestMetadata(t *testing.T) {
	o, err := NewOAuth(OAuthConfig{Issuer: "https://issuer.test", Audience: audience, Sets: []string{"core", "files"}, Required: []string{"mcp"}})
	if err != nil {
		t.Fatal(err)
	}
	got, err := json.Marshal(o.Metadata())
	if err != nil {
		t.Fatal(err)
	}
	const want = `{"resource":"https://here.test/mcp","authorization_servers":["https://issuer.test"],` +
		`"scopes_supported":["mcp","paddock","paddock:core","paddock:files"],"bearer_methods_supported":["header"]}`
	if string(got) != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}
