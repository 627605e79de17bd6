package pkgproxy_test

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"paddock/internal/fault"
	"paddock/internal/pkgproxy"
)

const simpleJSON = "application/vnd.pypi.simple.v1+json"

// filesOf are the names of the files that the front shows of a package.
func filesOf(t testing.TB, front, name string) string {
	t.Helper()
	a := get(t, front+"/pypi/simple/"+name+"/", simpleJSON)
	if a.status != http.StatusOK {
		return a.body
	}
	var page struct{ Files []struct{ Filename string } }
	if err := json.Unmarshal([]byte(a.body), &page); err != nil {
		t.Fatalf("%v: %s", err, a.body)
	}
	var all []string
	for _, f := range page.Files {
		all = append(all, f.Filename)
	}
	return strings.Join(all, " ")
}

// pip itself, and real packages with what they depend on, over both kinds of index.
func TestPipInstallsRealPackagesThroughTheFront(t *testing.T) {
	wheels := real(t)
	for _, kind := range []string{"json", "html"} {
		x := newIndex(t)
		x.HTML = kind == "html"
		x.Add("openpyxl", wheels["openpyxl"]).Add("et-xmlfile", wheels["et_xmlfile"]).Add("pypdf", wheels["pypdf"])
		_, front := pythonOf(t, x)
		target := t.TempDir()
		if out, err := runPip(t.Context(), t, front.URL, target, "OpenPyXL", "pypdf>=5,<6"); err != nil {
			t.Errorf("%s: got error %v, want none: %s", kind, err, out)
		} else if !strings.Contains(out, "et-xmlfile-2.0.0 pypdf-5.4.0") {
			t.Errorf("%s: got %q, want %q in it", kind, out, "et-xmlfile-2.0.0 pypdf-5.4.0")
		}
		if _, err := os.Stat(filepath.Join(target, "et_xmlfile", "__init__.py")); err != nil {
			t.Error(err)
		}
		if out, err := runPip(t.Context(), t, front.URL, t.TempDir(), "openpyxl==9"); err == nil {
			t.Errorf("%s: a version that is not there is installed:\n%s", kind, out)
		}
	}
}

// Without any network a folder will do.
func TestAFolderIsAnIndex(t *testing.T) {
	dir := t.TempDir()
	for _, w := range real(t) {
		if err := os.WriteFile(filepath.Join(dir, w.Name), w.Data, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Symlink("/etc/passwd", filepath.Join(dir, "leak-1.0-py3-none-any.whl")); err != nil {
		t.Fatal(err)
	}
	p := open(t, pkgproxy.Config{Python: pkgproxy.Ecosystem{Indexes: []pkgproxy.Index{{URL: dir}}, Allow: []string{"*"}, Cooldown: 1000 * time.Hour}})
	front := httptest.NewServer(p.Handler(""))
	defer front.Close()
	if out, err := runPip(t.Context(), t, front.URL, t.TempDir(), "openpyxl", "pypdf"); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
	if a := get(t, front.URL+"/pypi/simple/", simpleJSON); !strings.Contains(a.body, `[{"name":"et-xmlfile"},{"name":"openpyxl"},{"name":"pypdf"}]`) {
		t.Errorf("its packages: %s", a.body)
	}
	if got := filesOf(t, front.URL, "leak"); !strings.Contains(got, "no index has") {
		t.Errorf("a link out of the folder: %s", got)
	}
}

// No byte of a file that is not what the index says is given out, or kept.
func TestAFileWithAnotherDigestIsNotGivenOut(t *testing.T) {
	bad := simple(t, "bad", "1.0")
	bad.Sum = strings.Repeat("0", 64)
	x := newIndex(t).Add("bad", bad)
	dir := t.TempDir()
	_, front := pythonWith(t, pkgproxy.Ecosystem{Allow: []string{"*"}}, pkgproxy.Config{Dir: dir}, x)
	for range 2 {
		a := get(t, front.URL+"/pypi/files/bad/"+bad.Name)
		switch {
		case a.status != http.StatusForbidden:
			t.Errorf("a.status = %v, want %v: %.200s", a.status, http.StatusForbidden, a.body)
		case strings.Contains(a.body, "PK"):
			t.Errorf(`a.body = %q, want no "PK" in it`, a.body)
		case a.header.Get("X-Paddock-Denied") == "":
			t.Errorf("header X-Paddock-Denied is empty, want a text: %d, %.200s", a.status, a.body)
		case !strings.Contains(a.body, "sha256"):
			t.Errorf(`a.body = %q, want "sha256" in it`, a.body)
		}
	}
	for _, folder := range []string{"files", "new"} {
		if list, err := os.ReadDir(filepath.Join(dir, folder)); err != nil {
			t.Errorf("%s: got error %v, want none", folder, err)
		} else if len(list) > 0 {
			t.Errorf("%s: got %v, want none", folder, list)
		}
	}
}

// A package belongs to the first index that has it, also while that cannot be asked.
func TestAPackageIsOfTheFirstIndexThatHasIt(t *testing.T) {
	own := newIndex(t).Add("internal", simple(t, "internal", "1.0"))
	public := newIndex(t).Add("internal", simple(t, "internal", "99.0")).Add("other", simple(t, "other", "1.0"))
	now := time.Now()
	_, front := pythonWith(t, pkgproxy.Ecosystem{Allow: []string{"*"}}, pkgproxy.Config{Now: func() time.Time { return now }}, own, public)
	if got := filesOf(t, front.URL, "internal"); got != "internal-1.0-py3-none-any.whl" {
		t.Errorf("got %s", got)
	}
	if got := filesOf(t, front.URL, "other"); got != "other-1.0-py3-none-any.whl" {
		t.Errorf("got %s", got)
	}
	for _, status := range []int{http.StatusInternalServerError, http.StatusUnauthorized, http.StatusForbidden, http.StatusTooManyRequests} {
		own.Mu.Lock()
		own.Status = status
		own.Mu.Unlock()
		now = now.Add(48 * time.Hour)
		if got := filesOf(t, front.URL, "internal"); strings.Contains(got, "99.0") {
			t.Errorf("with status %d: got %q, want no %q in it", status, got, "99.0")
		} else if strings.Contains(got, ".whl") {
			t.Errorf("with status %d: got %q, want no %q in it", status, got, ".whl")
		}
	}
}

func TestOnlyNamesOnTheListAreShown(t *testing.T) {
	x := newIndex(t)
	for _, name := range []string{"requests", "reqeusts", "acme-tools", "acme-evil"} {
		x.Add(name, simple(t, strings.ReplaceAll(name, "-", "_"), "1.0"))
	}
	_, front := pythonWith(t, pkgproxy.Ecosystem{Allow: []string{"Requests", "acme_t*"}}, pkgproxy.Config{}, x)
	for name, shown := range map[string]bool{"requests": true, "reqeusts": false, "acme-tools": true, "acme-evil": false} {
		a := get(t, front.URL+"/pypi/simple/"+name+"/", simpleJSON)
		if (a.status == http.StatusOK) != shown {
			t.Errorf("%s: %d %s", name, a.status, a.body)
		}
		if !shown && (a.status != http.StatusForbidden || !strings.Contains(a.body, "packages.pypi.allow")) {
			t.Errorf("%s: %d %s", name, a.status, a.body)
		}
	}
	_, closed := pythonWith(t, pkgproxy.Ecosystem{}, pkgproxy.Config{}, x)
	if a := get(t, closed.URL+"/pypi/simple/requests/"); a.status != http.StatusForbidden {
		t.Errorf("without a list: %d", a.status)
	}
}

// There is one way to write a name, and an index has files of that package alone.
func TestNamesAreNotConfused(t *testing.T) {
	x := newIndex(t).Add("foo-bar", simple(t, "Foo_Bar", "1.0"), simple(t, "evil", "2.0"), distribution{Name: "../foo-bar-3.0.tar.gz", Data: []byte("x")}, distribution{Name: "foo-bar-3.0.exe", Data: []byte("x")})
	_, front := pythonOf(t, x)
	for _, name := range []string{"Foo_Bar", "FOO.bar", "foo-bar", "foo--bar"} {
		a := get(t, front.URL+"/pypi/simple/"+name)
		if a.status != http.StatusMovedPermanently {
			t.Errorf("%s: a.status: got %v, want %v: %.200s", name, a.status, http.StatusMovedPermanently, a.body)
		}
		if a.header.Get("Location") != "/pypi/simple/foo-bar/" {
			t.Errorf(`%s: a.header.Get("Location"): got %q, want %q`,
				name, a.header.Get("Location"), "/pypi/simple/foo-bar/")
		}
	}
	if got := filesOf(t, front.URL, "foo-bar"); got != "Foo_Bar-1.0-py3-none-any.whl" {
		t.Errorf("got %s", got)
	}
	for _, name := range []string{"..%2f..", "a%00b", "-", "%2e%2e", strings.Repeat("a", 300)} {
		if a := get(t, front.URL+"/pypi/simple/"+name+"/"); a.status < 300 || a.status >= 500 {
			t.Errorf("%s: %d", name, a.status)
		}
	}
}

func TestWhatIsYoungOrWithdrawn(t *testing.T) {
	now := old.AddDate(1, 0, 0)
	young, unknown, yanked := simple(t, "p", "3.0"), simple(t, "p", "2.0"), simple(t, "p", "1.5")
	young.Uploaded, unknown.Uploaded, yanked.Yanked = now.Add(-time.Hour), time.Time{}, `broken "<b>"`
	x := newIndex(t).Add("p", simple(t, "p", "1.0"), yanked, unknown, young)
	_, front := pythonWith(t, pkgproxy.Ecosystem{Allow: []string{"*"}, Cooldown: 24 * time.Hour}, pkgproxy.Config{Now: func() time.Time { return now }}, x)
	if got := filesOf(t, front.URL, "p"); got != "p-1.0-py3-none-any.whl p-1.5-py3-none-any.whl" {
		t.Errorf("got %s", got)
	}
	if a := get(t, front.URL+"/pypi/files/p/"+young.Name); a.status != http.StatusNotFound {
		t.Errorf("a young file: %d", a.status)
	}
	out, err := runPip(t.Context(), t, front.URL, t.TempDir(), "p")
	if err != nil {
		t.Fatalf("got error %v, want none: %s", err, out)
	}
	if !strings.Contains(out, "Successfully installed p-1.0") {
		t.Errorf("out: got %q, want %q in it", out, "Successfully installed p-1.0")
	}
	if a := get(t, front.URL+"/pypi/simple/p/", "text/html"); !strings.Contains(a.body, `data-yanked="broken &#34;&lt;b&gt;&#34;"`) {
		t.Errorf("the page: %s", a.body)
	}
}

// Credentials go to the index that they are for and nowhere else, and what is not the
// index's own has to be named where it is not public.
func TestCredentialsStayWithTheirIndex(t *testing.T) {
	var leaked []string
	elsewhere := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if a := r.Header.Get("Authorization"); a != "" {
			leaked = append(leaked, a)
		}
		_, _ = w.Write([]byte("no file"))
	}))
	defer elsewhere.Close()
	far, near := simple(t, "far", "1.0"), simple(t, "near", "1.0")
	far.Href = elsewhere.URL + "/" + far.Name
	x := newIndex(t).Add("far", far).Add("near", near)
	x.Auth = "Basic " + base64.StdEncoding.EncodeToString([]byte("ann:s3cret"))
	at := pkgproxy.Index{URL: x.Server.URL + "/simple", User: "ann", Password: "s3cret"}
	for _, files := range [][]string{nil, {strings.TrimPrefix(elsewhere.URL, "http://") + "!private"}} {
		at.Files = files
		p := open(t, pkgproxy.Config{Python: pkgproxy.Ecosystem{Indexes: []pkgproxy.Index{at}, Allow: []string{"*"}}})
		front := httptest.NewServer(p.Handler(""))
		defer front.Close()
		if a := get(t, front.URL+"/pypi/files/near/"+near.Name); a.status != http.StatusOK {
			t.Errorf("its own file: a.status: got %v, want %v: %.200s", a.status, http.StatusOK, a.body)
		} else if a.body != string(near.Data) {
			t.Errorf("its own file: a.body: got %q, want %q", a.body, string(near.Data))
		}
		a := get(t, front.URL+"/pypi/files/far/"+far.Name)
		switch {
		case a.status != http.StatusForbidden:
			t.Errorf("%v: a file elsewhere: a.status = %v, want %v: %s",
				files, a.status, http.StatusForbidden, a.body)
		case strings.Contains(a.body, "s3cret"):
			t.Errorf(`%v: a file elsewhere: a.body = %q, want no "s3cret" in it`, files, a.body)
		case (files == nil) != strings.Contains(a.body, "from which none is taken"):
			t.Errorf("%v: a file elsewhere: files == nil = %v, want %v: %d, %s",
				files, files == nil, strings.Contains(a.body, "from which none is taken"), a.status, a.body)
		}
		if page := get(t, front.URL+"/pypi/simple/far/"); strings.Contains(page.body, elsewhere.URL) {
			t.Errorf("the page: page.body: got %q, want no %q in it", page.body, elsewhere.URL)
		} else if strings.Contains(page.body, x.Server.URL) {
			t.Errorf("the page: page.body: got %q, want no %q in it", page.body, x.Server.URL)
		}
	}
	x.Mu.Lock()
	x.Redirect = elsewhere.URL
	x.Mu.Unlock()
	p := open(t, pkgproxy.Config{Python: pkgproxy.Ecosystem{Indexes: []pkgproxy.Index{at}, Allow: []string{"*"}}})
	front := httptest.NewServer(p.Handler(""))
	defer front.Close()
	if a := get(t, front.URL+"/pypi/simple/near/"); a.status != http.StatusForbidden {
		t.Errorf("a page that redirects elsewhere: a.status: got %v, want %v: %.200s",
			a.status, http.StatusForbidden, a.body)
	} else if !strings.Contains(a.body, "redirects") {
		t.Errorf("a page that redirects elsewhere: a.body: got %q, want %q in it", a.body, "redirects")
	}
	if len(leaked) > 0 {
		t.Errorf("credentials went elsewhere: %q", leaked)
	}
}

func TestAnIndexMayNotNameFilesOfAnotherKind(t *testing.T) {
	for _, href := range []string{"file:///etc/passwd", "ftp://127.0.0.1/x", "gopher://127.0.0.1/", "http://user:pass@127.0.0.1/x", "data:text/plain,x", "http://169.254.169.254/x"} {
		d := simple(t, "p", "1.0")
		d.Href = href
		for _, html := range []bool{false, true} {
			x := newIndex(t).Add("p", d)
			x.HTML = html
			_, front := pythonOf(t, x)
			if a := get(t, front.URL+"/pypi/files/p/"+d.Name); a.status != http.StatusNotFound && a.status != http.StatusForbidden {
				t.Errorf("%s: %d %s", href, a.status, a.body)
			}
		}
	}
}

// Files and answers have a bound, those that never end as well.
func TestWhatIsTooLargeEnds(t *testing.T) {
	endless := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if strings.HasPrefix(r.URL.Path, "/simple/") {
			w.Header().Set("Content-Type", simpleJSON)
			_ = json.NewEncoder(w).Encode(map[string]any{"files": []any{map[string]any{"filename": "p-1.0-py3-none-any.whl", "url": "/f", "hashes": map[string]string{"sha256": strings.Repeat("0", 64)}}}})
			return
		}
		for block := make([]byte, 64<<10); r.Context().Err() == nil; {
			if _, err := w.Write(block); err != nil {
				return
			}
		}
	}))
	defer endless.Close()
	p := open(t, pkgproxy.Config{FileBytes: 1 << 20, Python: pkgproxy.Ecosystem{Indexes: []pkgproxy.Index{{URL: endless.URL + "/simple"}}, Allow: []string{"*"}}})
	front := httptest.NewServer(p.Handler(""))
	defer front.Close()
	if a := get(t, front.URL+"/pypi/files/p/p-1.0-py3-none-any.whl"); a.status != http.StatusBadGateway {
		t.Errorf("a.status: got %v, want %v: %.200s", a.status, http.StatusBadGateway, a.body)
	} else if !strings.Contains(a.body, "larger than") {
		t.Errorf("a.body: got %q, want %q in it", a.body, "larger than")
	}
}

// The cache is asked before the index, and not believed.
func TestTheCacheIsVerified(t *testing.T) {
	d := simple(t, "p", "1.0")
	x := newIndex(t).Add("p", d)
	dir := t.TempDir()
	_, front := pythonWith(t, pkgproxy.Ecosystem{Allow: []string{"*"}}, pkgproxy.Config{Dir: dir}, x)
	fetch := func() int {
		t.Helper()
		if a := get(t, front.URL+"/pypi/files/p/"+d.Name); a.status != http.StatusOK {
			t.Fatalf("a.status: got %v, want %v: %.200s", a.status, http.StatusOK, a.body)
		} else if a.body != string(d.Data) {
			t.Fatalf("a.body: got %q, want %q", a.body, string(d.Data))
		}
		n := 0
		for _, r := range x.Asked {
			if strings.HasPrefix(r.URL.Path, "/files/") {
				n++
			}
		}
		return n
	}
	if fetch(); fetch() != 1 {
		t.Error("the file is fetched twice")
	}
	kept, err := filepath.Glob(filepath.Join(dir, "files", "sha256-*"))
	if err != nil {
		t.Fatal(err)
	}
	if len(kept) != 1 {
		t.Fatalf("len(kept): got %d, want 1: %v", len(kept), kept)
	}
	if err := os.WriteFile(kept[0], []byte("poison"), 0o600); err != nil {
		t.Fatal(err)
	}
	if n := fetch(); n != 2 {
		t.Errorf("a file that was changed: fetched %d times", n)
	}
	if a := get(t, front.URL+"/pypi/files/p/"+d.Name+".metadata"); a.body != string(d.Metadata) {
		t.Errorf("metadata: %d %s", a.status, a.body)
	}
}

// An answer is believed for a while, then asked for with its ETag; and where the index
// does not answer it does for a day.
func TestAnswersAreKeptForAWhile(t *testing.T) {
	now := time.Now()
	x := newIndex(t).Add("p", simple(t, "p", "1.0"))
	x.ETag = `"1"`
	_, front := pythonWith(t, pkgproxy.Ecosystem{Allow: []string{"*"}}, pkgproxy.Config{Fresh: time.Minute, Now: func() time.Time { return now }}, x)
	for _, step := range []struct {
		after  time.Duration
		status int
		asked  int
		shown  bool
	}{{0, 0, 1, true}, {30 * time.Second, 0, 1, true}, {2 * time.Minute, 0, 2, true}, {30 * time.Second, 0, 2, true}, {time.Hour, 503, 3, true}, {30 * time.Hour, 503, 4, false}, {0, 0, 5, true}} {
		now = now.Add(step.after)
		x.Mu.Lock()
		x.Status = step.status
		x.Mu.Unlock()
		if got := filesOf(t, front.URL, "p"); strings.HasPrefix(got, "p-1.0") != step.shown {
			t.Errorf(`strings.HasPrefix(got, "p-1.0"): got %v, want %v`, strings.HasPrefix(got, "p-1.0"), step.shown)
		} else if len(x.Asked) != step.asked {
			t.Errorf("len(x.Asked): got %d, want %d: %v", len(x.Asked), step.asked, x.Asked)
		}
	}
}

func TestConfigurationsThatAreNone(t *testing.T) {
	for _, url := range []string{"", "ftp://x/simple", "//x", "http://u:p@127.0.0.1/", "http://127.1/", "relative/folder", "/nowhere/at/all"} {
		_, err := pkgproxy.Open(pkgproxy.Config{Dir: t.TempDir(), Python: pkgproxy.Ecosystem{Indexes: []pkgproxy.Index{{URL: url}}}})
		if fault.KindOf(err) != fault.Invalid {
			t.Fatalf("%q: got %v, want one of kind %v", url, err, fault.Invalid)
		}
		if strings.Contains(err.Error(), "u:p") {
			t.Errorf("%q: got error %v, want no %q in it", url, err, "u:p")
		}
	}
	if _, err := pkgproxy.Open(pkgproxy.Config{Dir: t.TempDir(), Python: pkgproxy.Ecosystem{Allow: []string{"["}}}); fault.KindOf(err) != fault.Invalid {
		t.Errorf("a pattern: %v", err)
	}
	p := open(t, pkgproxy.Config{})
	front := httptest.NewServer(p.Handler(""))
	defer front.Close()
	if a := get(t, front.URL+"/pypi/simple/p/"); a.status != http.StatusNotFound {
		t.Errorf("without an index: a.status: got %v, want %v: %.200s", a.status, http.StatusNotFound, a.body)
	} else if !strings.Contains(a.body, "packages.pypi.index") {
		t.Errorf("without an index: a.body: got %q, want %q in it", a.body, "packages.pypi.index")
	}
}

// Files often lie at URLs that somebody signed, to which an index redirects.
func TestWhatSignsAURLIsNotLogged(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/simple/p/":
			w.Header().Set("Content-Type", simpleJSON)
			_ = json.NewEncoder(w).Encode(map[string]any{"files": []any{map[string]any{"filename": "p-1.0-py3-none-any.whl", "url": "/f", "hashes": map[string]string{"sha256": strings.Repeat("0", 64)}}}})
		case "/f":
			http.Redirect(w, r, "/signed?Signature=s3cret", http.StatusFound)
		default:
			panic(http.ErrAbortHandler)
		}
	}))
	defer server.Close()
	var logged bytes.Buffer
	p := open(t, pkgproxy.Config{Log: slog.New(slog.NewTextHandler(&logged, nil)), Python: pkgproxy.Ecosystem{Indexes: []pkgproxy.Index{{URL: server.URL + "/simple"}}, Allow: []string{"*"}}})
	front := httptest.NewServer(p.Handler(""))
	defer front.Close()
	if a := get(t, front.URL+"/pypi/files/p/p-1.0-py3-none-any.whl"); a.status != http.StatusBadGateway {
		t.Errorf("it answers %d %s", a.status, a.body)
	}
	if !strings.Contains(logged.String(), "/signed") {
		t.Errorf("the log: logged.String(): got %q, want %q in it", logged.String(), "/signed")
	}
	if strings.Contains(logged.String(), "s3cret") {
		t.Errorf("the log: logged.String(): got %q, want no %q in it", logged.String(), "s3cret")
	}
}
