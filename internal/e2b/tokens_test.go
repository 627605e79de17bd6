package e2b

import (
	"net/http/httptest"
	"net/url"
	"strconv"
	"testing"
	"time"

	"paddock/internal/expect"
	"paddock/internal/session"
)

// newServer makes a Server without sessions, for what needs none.
func newServer(t *testing.T, records ...record) *Server {
	t.Helper()
	s, err := New(Config{Dir: t.TempDir(), Key: func() ([]byte, error) { return []byte("key"), nil }, Domain: func() string { return "" }})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	for _, r := range records {
		r.End = time.Now().Add(time.Hour)
		if _, err := s.add(r); err != nil {
			t.Fatal(err)
		}
	}
	return s
}

func TestASignatureIsTheSDKs(t *testing.T) {
	// As getSignature of e2b 2.45.0 makes them.
	for query, want := range map[string]string{
		"path=/a b&username=user":                "v1_3y7zC7/SVa0mfOWGah2e4+8/STWMnZ8YMEZ8XJy2GHA",
		"path=f&signature_expiration=1700000000": "v1_eDorXVeUTNRmBbeyYGOCvq0Q/bBVcpCw4hkpLn9XXSY",
	} {
		q, err := url.ParseQuery(query)
		if err != nil {
			t.Fatal(err)
		}
		expect.Equal(t, query, signature(q, "read", "token"), want)
	}
}

func TestASignedRequestFindsItsSandboxAlone(t *testing.T) {
	s := newServer(t, record{ID: "one", Owner: "a", Session: "s1"}, record{ID: "two", Owner: "b", Session: "s2"}, record{ID: "snap", Owner: "a", Session: "s3", Snapshot: true})
	signed := func(id string, q url.Values) string {
		q.Set("signature", signature(q, "read", s.envdToken(id)))
		return "/files?" + q.Encode()
	}
	past := time.Now().Add(-time.Minute).Unix()
	for name, test := range map[string]struct {
		url   string
		owner session.Owner // empty: it is refused
		why   error
	}{
		"its own":             {signed("two", url.Values{"path": {"f"}}), "b", nil},
		"a snapshot's":        {signed("snap", url.Values{"path": {"f"}}), "", errBadToken},
		"none":                {"/files?path=f", "", errBadToken},
		"one with a second":   {signed("one", url.Values{"path": {"f"}}) + "&path=g", "a", nil},
		"one that expired":    {signed("one", url.Values{"path": {"f"}, "signature_expiration": {strconv.FormatInt(past, 10)}}), "", errExpired},
		"one without a limit": {signed("one", url.Values{"path": {"f"}, "signature_expiration": {"never"}}), "", errExpired},
	} {
		r := httptest.NewRequest("GET", test.url, nil)
		b, port, err := s.target(r)
		if err == nil {
			err = s.permit(r, b.id, port)
		}
		expect.Equal(t, name, err, test.why)
		if err == nil {
			expect.Equal(t, name, b.owner, test.owner)
		}
	}
}

// Who has no token of a sandbox does not learn whether it is there.
func TestASandboxThatIsGoneIsToldToItsOwnToken(t *testing.T) {
	s := newServer(t, record{ID: "one", Owner: "a", Session: "s1"})
	for name, test := range map[string]struct {
		token string
		why   error
	}{
		"its own":    {s.envdToken("gone"), errGone},
		"none":       {"", errBadToken},
		"another's":  {s.envdToken("one"), errBadToken},
		"for a port": {s.trafficToken("gone"), errBadToken},
	} {
		r := httptest.NewRequest("POST", "/process.Process/List", nil)
		r.Header.Set(idHeader, "gone")
		r.Header.Set("X-Access-Token", test.token)
		_, _, err := s.target(r)
		expect.Equal(t, name, err, test.why)
	}
}
