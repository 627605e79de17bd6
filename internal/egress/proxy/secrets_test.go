package proxy

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"paddock/internal/fault"
)

// keeper is a simple engine: what is "PLACEHOLDER" to a program is "s3cret" to 127.0.0.1.
type keeper struct {
	spoil func(*http.Request) // what a mistaken one would do
}

func (k keeper) Request(r *http.Request) error {
	if k.spoil != nil {
		k.spoil(r)
	}
	if v := r.Header.Get("Authorization"); strings.Contains(v, "PLACEHOLDER") {
		if r.URL.Hostname() != "127.0.0.1" {
			return fault.New(fault.Denied, "the secret is not for %s", r.URL.Hostname())
		}
		r.Header.Set("Authorization", strings.ReplaceAll(v, "PLACEHOLDER", "s3cret"))
	}
	if strings.Contains(r.URL.RawQuery, "PLACEHOLDER") {
		r.URL.RawQuery = strings.ReplaceAll(r.URL.RawQuery, "PLACEHOLDER", "s3cret")
	}
	return nil
}

func (k keeper) Response(resp *http.Response) error {
	for _, values := range resp.Header {
		for i := range values {
			values[i] = strings.ReplaceAll(values[i], "s3cret", "PLACEHOLDER")
		}
	}
	if resp.Body == http.NoBody {
		return nil
	}
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		return err
	}
	resp.Body = io.NopCloser(strings.NewReader(strings.ReplaceAll(string(body), "s3cret", "PLACEHOLDER")))
	resp.Header.Del("Content-Length")
	resp.ContentLength = -1
	return nil
}

// The host gets what is secret, and the program nothing of it, in whatever part of an
// answer it is echoed.
func TestSecretsGoOutAndDoNotComeBack(t *testing.T) {
	var got string
	s := serves(t, false, func(w http.ResponseWriter, r *http.Request) {
		got = r.Header.Get("Authorization") + r.URL.RawQuery
		w.Header().Set("Link", got)
		w.WriteHeader(http.StatusEarlyHints)
		w.Header().Set("Trailer", "X-Trailer")
		w.Header().Set("X-Echo", got)
		if r.URL.Path == "/moved" {
			w.Header().Set("Location", "http://evil.example/?"+got)
			w.WriteHeader(http.StatusFound)
		}
		fmt.Fprint(w, got)
		_ = http.NewResponseController(w).Flush()
		w.Header().Set("X-Trailer", got)
	})
	d, rec := opened(t, Config{Secrets: keeper{}, Resolver: names{"example.com": "127.0.0.1"}}, "127.0.0.1:"+s.port()+"!private", "example.com:*!private")
	proxy := proxied(t, d)
	at := "127.0.0.1:" + s.port()
	for _, path := range []string{"/", "/moved"} {
		text := raw(t, dial(t, proxy), "GET http://"+at+path+"?key=PLACEHOLDER HTTP/1.1\r\nHost: "+at+"\r\nAuthorization: Bearer PLACEHOLDER\r\nTE: trailers\r\nConnection: close\r\n\r\n")
		if got != "Bearer s3cretkey=s3cret" {
			t.Errorf("the host got %q", got)
		}
		if strings.Contains(text, "s3cret") {
			t.Errorf(`the program: text = %q, want no "s3cret" in it`, text)
		} else if strings.Count(text, "Bearer PLACEHOLDERkey=PLACEHOLDER") < 3 {
			t.Errorf("the program: got %d, want at least 3", strings.Count(text, "Bearer PLACEHOLDERkey=PLACEHOLDER"))
		}
	}
	before := len(s.asked())
	a := ask(t, program(t, d), "GET", "http://example.com:"+s.port()+"/", "Authorization", "PLACEHOLDER")
	switch {
	case a.status != 403:
		t.Errorf("to another host: a.status = %v, want 403: %+v", a.status, a)
	case !strings.HasPrefix(a.header.Get(deniedHeader), "secret: "):
		t.Errorf(`to another host: a.header.Get(deniedHeader) = %q, want prefix "secret: "`,
			a.header.Get(deniedHeader))
	case len(s.asked()) != before:
		t.Errorf("to another host: len(s.asked()) = %d, want %v", len(s.asked()), before)
	}
	for _, r := range rec.wait(t, 3) {
		if strings.Contains(fmt.Sprintf("%+v", r), "s3cret") {
			t.Errorf("the record is %+v", r)
		}
	}
}

func TestASecretChangesNothingThatWasDecided(t *testing.T) {
	s := serves(t, false, nil)
	for name, spoil := range map[string]func(*http.Request){
		"host":   func(r *http.Request) { r.URL.Host = "example.com:" + s.port() },
		"scheme": func(r *http.Request) { r.URL.Scheme = "https" },
		"path":   func(r *http.Request) { r.URL.Path = "/other" },
		"method": func(r *http.Request) { r.Method = "DELETE" },
	} {
		d, _ := opened(t, Config{Secrets: keeper{spoil}}, "*:*", "127.0.0.1:*!private")
		if a := ask(t, program(t, d), "GET", s.URL+"/x"); a.status != 500 {
			t.Errorf("%s: %+v", name, a)
		}
	}
	if len(s.asked()) > 0 {
		t.Error("it was sent")
	}
}

// What a session's authority is: one of its own, whose key no one else has, and certificates
// that strict clients take (attack 49).
func TestTheAuthorityIsTheSessionsAlone(t *testing.T) {
	s := serves(t, true, nil)
	at := "example.com:" + s.port()
	d, _ := opened(t, Config{}, at+"!private")
	other, _ := opened(t, Config{}, at+"!private")
	block, rest := pem.Decode(d.CA())
	switch {
	case block == nil:
		t.Fatalf("no PEM block, want one: %s", d.CA())
	case block.Type != "CERTIFICATE":
		t.Fatalf(`block.Type = %q, want "CERTIFICATE"`, block.Type)
	case len(rest) > 0:
		t.Fatalf("rest = %v, want none: %s", rest, d.CA())
	case strings.Contains(string(d.CA()), "PRIVATE"):
		t.Fatalf(`d.CA() = %q, want no "PRIVATE" in it`, string(d.CA()))
	}
	if _, err := greeted(other, tunnelTo(t, proxied(t, d), at), "example.com"); err == nil {
		t.Error("one session's certificates are good in another")
	}
	c, err := greeted(d, tunnelTo(t, proxied(t, d), at), "example.com")
	if err != nil {
		t.Fatal(err)
	}
	ca, leaf := d.ca.cert, c.ConnectionState().PeerCertificates[0]
	switch {
	case !ca.IsCA:
		t.Errorf("the authority: ca.IsCA = false, want true: %+v", ca)
	case !ca.BasicConstraintsValid:
		t.Errorf("the authority: ca.BasicConstraintsValid = false, want true: %+v", ca)
	case ca.KeyUsage&x509.KeyUsageCertSign == 0:
		t.Errorf("the authority: ca.KeyUsage & x509.KeyUsageCertSign = %v, want other than 0: %+v",
			ca.KeyUsage&x509.KeyUsageCertSign, ca)
	case len(ca.SubjectKeyId) == 0:
		t.Errorf("the authority: ca.SubjectKeyId is empty, want some: %+v", ca)
	case !ca.MaxPathLenZero:
		t.Errorf("the authority: ca.MaxPathLenZero = false, want true: %+v", ca)
	}
	switch {
	case leaf.IsCA:
		t.Errorf("a certificate: leaf.IsCA = true, want false: %+v", leaf)
	case string(leaf.AuthorityKeyId) != string(ca.SubjectKeyId):
		t.Errorf("a certificate: leaf.AuthorityKeyId = %q, want %q",
			string(leaf.AuthorityKeyId), string(ca.SubjectKeyId))
	case !slices.Equal(leaf.DNSNames, []string{"example.com"}):
		t.Errorf("a certificate: leaf.DNSNames = %v, want %v: %+v",
			leaf.DNSNames, []string{"example.com"}, leaf)
	case leaf.NotAfter.Sub(leaf.NotBefore) > 397*24*time.Hour:
		t.Errorf("a certificate: leaf.NotAfter.Sub(leaf.NotBefore) = %v, want at most %v: %+v",
			leaf.NotAfter.Sub(leaf.NotBefore), 397*24*time.Hour, leaf)
	case leaf.SerialNumber.Sign() <= 0:
		t.Errorf("a certificate: leaf.SerialNumber.Sign() = %v, want more than 0: %+v",
			leaf.SerialNumber.Sign(), leaf)
	case !slices.Equal(leaf.ExtKeyUsage, []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}):
		t.Errorf("a certificate: leaf.ExtKeyUsage = %v, want %v: %+v",
			leaf.ExtKeyUsage, []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}, leaf)
	}
	// An authority that the program made is not the proxy's, nor anybody's outside.
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: leaf.SerialNumber, Subject: ca.Subject, NotAfter: ca.NotAfter, IsCA: true, BasicConstraintsValid: true}
	if _, err := x509.CreateCertificate(rand.Reader, template, ca, &key.PublicKey, key); err == nil {
		t.Error("somebody else's key signs for the authority")
	}
}

func TestCertificatesAreKeptAndBounded(t *testing.T) {
	a, err := newAuthority(nil)
	if err != nil {
		t.Fatal(err)
	}
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(a.pem)
	first, err := a.certificate("first.example")
	if err != nil {
		t.Fatal(err)
	}
	for k := range maxLeaves {
		if k == maxLeaves-1 {
			if again, err := a.certificate("first.example"); err != nil {
				t.Errorf("it is made again: got error %v, want none", err)
			} else if again != first {
				t.Error("it is made again: got another certificate, want the first")
			}
		}
		if _, err := a.certificate(fmt.Sprintf("h%d.example", k)); err != nil {
			t.Fatal(err)
		}
	}
	switch {
	case a.order.Len() != maxLeaves:
		t.Errorf("a.order.Len() = %v, want %v", a.order.Len(), maxLeaves)
	case len(a.leaves) != maxLeaves:
		t.Errorf("len(a.leaves) = %d, want %v", len(a.leaves), maxLeaves)
	case a.leaves["h0.example"] != nil:
		t.Errorf(`a.leaves["h0.example"] = %v, want nil`, a.leaves["h0.example"])
	case a.leaves["first.example"] == nil:
		t.Error(`a.leaves["first.example"] is nil, want a value`)
	}
	for _, host := range []string{"192.0.2.1", "2001:db8::1", "my_service.example", strings.Repeat("a", 63) + "." + strings.Repeat("b", 63) + ".example"} {
		c, err := a.certificate(host)
		if err != nil {
			t.Fatal(err)
		}
		leaf, err := x509.ParseCertificate(c.Certificate[0])
		if err != nil {
			t.Fatal(err)
		}
		if _, err := leaf.Verify(x509.VerifyOptions{Roots: pool, DNSName: host}); err != nil {
			t.Errorf("%s: %v", host, err)
		}
	}
	a.leaves["first.example"].Value.(*leaf).end = time.Now() // it is as if it were old
	if again, err := a.certificate("first.example"); err != nil {
		t.Errorf("an old one is still given: got error %v, want none", err)
	} else if again == first {
		t.Error("an old one is still given: got the first certificate, want another")
	}
}

// session is the environment of a program in a sandbox.
func environment(t *testing.T, d *Proxy) (ca string, env []string) {
	t.Helper()
	ca = filepath.Join(t.TempDir(), "ca.pem")
	if err := os.WriteFile(ca, d.CA(), 0o600); err != nil {
		t.Fatal(err)
	}
	proxy := "http://" + proxied(t, d)
	return ca, []string{"PATH=" + os.Getenv("PATH"), "HOME=" + t.TempDir(), "http_proxy=" + proxy, "https_proxy=" + proxy, "HTTP_PROXY=" + proxy, "HTTPS_PROXY=" + proxy, "CURL_CA_BUNDLE=" + ca, "SSL_CERT_FILE=" + ca, "no_proxy="}
}

func TestCurl(t *testing.T) {
	curl, err := exec.LookPath("curl")
	if err != nil {
		t.Skip("there is no curl")
	}
	s := serves(t, true, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("X-Proto", r.Proto)
		_, _ = io.Copy(w, r.Body)
		fmt.Fprint(w, "hello ", r.Method)
	})
	d, _ := opened(t, Config{}, "GET example.com:"+s.port()+"/ok/*!private", "POST example.com:"+s.port()+"/ok/*!private")
	_, env := environment(t, d)
	at := "https://example.com:" + s.port()
	for _, c := range []struct {
		args []string
		want string
		exit int
	}{
		{[]string{at + "/ok/a"}, "hello GET", 0},
		{[]string{"-d", "x=1", at + "/ok/a"}, "x=1hello POST", 0},
		{[]string{"-T", "-", "-X", "POST", at + "/ok/a"}, "inputhello POST", 0},
		{[]string{at + "/no"}, "paddock: the request GET /no is not among those that example.com:" + s.port() + " may be asked.", 0},
		{[]string{"-X", "DELETE", at + "/ok/a"}, "paddock: the request DELETE /ok/a is not among", 0},
		{[]string{"-f", at + "/no"}, "", 22},
		{[]string{"https://evil.example/"}, "", 56},
		{[]string{"http://evil.example/"}, "paddock: evil.example:80 is not among", 0},
		{[]string{"--http2", at + "/ok/a"}, "hello GET", 0},
		{[]string{"--path-as-is", at + "/ok/../no"}, "paddock: not every path", 0},
		{[]string{"--tls-max", "1.1", at + "/ok/a"}, "", 35},
		{[]string{"--cacert", "/dev/null", at + "/ok/a"}, "", -1},
	} {
		cmd := exec.CommandContext(t.Context(), curl, append([]string{"-sS", "--max-time", "60"}, c.args...)...)
		cmd.Env, cmd.Stdin = env, strings.NewReader("input")
		out, err := cmd.Output()
		code := 0
		var exit *exec.ExitError
		if errors.As(err, &exit) {
			code = exit.ExitCode()
		}
		if !strings.HasPrefix(string(out), c.want) {
			t.Errorf("curl %q prints %q, want it to begin with %q", c.args, out, c.want)
		}
		if code != c.exit && (c.exit >= 0 || code == 0) {
			t.Errorf("curl %q exits with %d, want %d (-1: any but 0): %q", c.args, code, c.exit, out)
		}
	}
}

// Python verifies certificates more strictly than others do, and says what a proxy said.
func TestPython(t *testing.T) {
	python, err := exec.LookPath("python3")
	if err != nil {
		t.Skip("there is no python3")
	}
	s := serves(t, true, func(w http.ResponseWriter, r *http.Request) { fmt.Fprint(w, "hello ", r.Method) })
	d, _ := opened(t, Config{}, "example.com:"+s.port()+"!private")
	_, env := environment(t, d)
	program := `
import ssl, sys, urllib.request, urllib.error
at = "https://example.com:" + sys.argv[1]
context = ssl.create_default_context()
context.verify_flags |= getattr(ssl, "VERIFY_X509_STRICT", 0)
print(urllib.request.urlopen(at, context=context).read().decode())
try:
    urllib.request.urlopen("https://evil.example/")
except OSError as e:
    print(e)
try:
    urllib.request.urlopen("http://evil.example/")
except urllib.error.HTTPError as e:
    print(e.code, e.headers["X-Paddock-Denied"])
`
	cmd := exec.CommandContext(t.Context(), python, "-I", "-c", program, s.port())
	cmd.Env = env
	out, err := cmd.CombinedOutput()
	want := "hello GET\n" +
		"<urlopen error Tunnel connection failed: 403 Forbidden by paddock: evil.example:443 is not among the hosts that may be reached>\n" +
		"403 host: evil.example:80 is not among the hosts that may be reached\n"
	if err != nil {
		t.Errorf("got error %v, want none", err)
	} else if string(out) != want {
		t.Errorf("out = %q, want %q", string(out), want)
	}
}
