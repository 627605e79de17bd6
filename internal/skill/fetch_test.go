package skill

import (
	"archive/tar"
	"context"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"paddock/internal/egress"
	"paddock/internal/expect"
	"paddock/internal/fault"
)

// get fetches and checks by a store's ways, without keeping.
func (s *Store) get(t *testing.T, text string, local bool) (*Skill, fetched, error) {
	t.Helper()
	got, err := s.fetcher.fetch(t.Context(), source(t, text, local))
	if err != nil {
		return nil, got, err
	}
	checked, err := Check(got.Folder, got.name, got.given)
	return checked, got, err
}

func TestASkillComesFromWhereverItIs(t *testing.T) {
	web := newSite(t)
	all := append(entriesOf("owner-repo-0123456/skills/words/", example("words")), entriesOf("owner-repo-0123456/skills/other/", example("other"))...)
	all = append(all, entry{"owner-repo-0123456/link", 0, tar.TypeSymlink, "/etc"}, entry{"owner-repo-0123456/skills/", 0o755, tar.TypeDir, ""})
	web.put("/repos/owner/repo/tarball", tarGz(t, all...))
	web.put("/repos/owner/repo/tarball/v1/x", tarGz(t, entriesOf("owner-repo-0123456/", example("repo"))...))
	web.put("/one.tar.gz", tarGz(t, entriesOf("anything-1.0/", example("words"))...))
	web.put("/flat.zip", zipOf(t, entriesOf("", example("words"))...))
	web.put("/words.skill", zipOf(t, entriesOf("words/", example("words"))...))
	web.put("/many.zip", zipOf(t, append(entriesOf("top/a/words/", example("words")), entriesOf("top/other/", example("other"))...)...))
	web.put("/words/SKILL.md", []byte(mainOf("words")))
	dir := filepath.Join(t.TempDir(), "words")
	for _, f := range append(example("words"), File{Path: ".git/config", Data: []byte("x")}) {
		name := filepath.Join(dir, filepath.FromSlash(f.Path))
		if err := os.MkdirAll(filepath.Dir(name), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(name, f.Data, map[bool]fs.FileMode{true: 0o700, false: 0o600}[f.Executable]); err != nil {
			t.Fatal(err)
		}
	}
	s := storeOf(t, web)
	want := folderOf(t, example("words")...).Digest()
	for _, text := range []string{
		"github:owner/repo/skills/words", "github:owner/repo/words", web.URL + "/many.zip#words", web.URL + "/one.tar.gz", web.URL + "/flat.zip", web.URL + "/words.skill", web.URL + "/many.zip#top/a/words", web.URL + "/many.zip#a/words", web.URL + "/one.tar.gz?x=1#subdirectory=anything-1.0", dir,
	} {
		if strings.HasPrefix(text, web.URL+"/one.tar.gz?") { // there the folder's name is given, and another one
			if _, _, err := s.get(t, text, false); fault.KindOf(err) != fault.Invalid {
				t.Errorf("%s gives %v", text, err)
			}
			continue
		}
		got, from, err := s.get(t, text, text == dir)
		if err != nil {
			t.Errorf("%s gives %v: got error %v, want none: %s", text, from, err, text)
			continue
		}
		if p := paths(got.Folder); p != examplePaths && runtime.GOOS != "windows" {
			t.Errorf("%s: got the files %q, want %q", text, p, examplePaths)
			continue
		}
		if d := got.Folder.Digest(); d != want && runtime.GOOS != "windows" {
			t.Errorf("%s: got the digest %s, want %s", text, d, want)
			continue
		}
		if fromGit := strings.Contains(text, "github") || strings.Contains(text, ".tar.gz"); fromGit != (from.commit == commit) {
			t.Errorf("%s is of the commit %q", text, from.commit)
		}
	}
	if got, _, err := s.get(t, web.URL+"/words/SKILL.md", false); err != nil {
		t.Errorf("a page: got error %v, want none", err)
	} else {
		expect.Equal(t, "a page: paths(got.Folder)", paths(got.Folder), MainFile)
		expect.Equal(t, "a page: len(got.Warnings)", len(got.Warnings), 0)
	}
	if got, _, err := s.get(t, "github:owner/repo@v1/x", false); err != nil {
		t.Errorf("a ref: got error %v, want none", err)
	} else if got.Name != "repo" {
		t.Errorf("a ref: got.Name: got %q, want %q", got.Name, "repo")
	}
}

func TestFetchesThatFailSayWhy(t *testing.T) {
	web := newSite(t)
	two := append(entriesOf("top/skills/words/", example("words")), entriesOf("top/skills/other/", example("other"))...)
	web.put("/repos/owner/repo/tarball", tarGz(t, two...))
	web.put("/two.zip", zipOf(t, two...))
	web.put("/repos/owner/twice/tarball", tarGz(t, append(entriesOf("top/a/words/", example("words")), entriesOf("top/b/words/", example("words"))...)...))
	web.put("/none.zip", zipOf(t, entry{"README.md", 0o644, 0, "x"}))
	web.put("/other.zip", zipOf(t, entriesOf("x/words/", example("other"))...))
	web.put("/page/SKILL.md", []byte("<!DOCTYPE html>"))
	web.put("/damaged.zip", []byte("PK\x03\x04damaged"))
	web.put("/damaged.tar.gz", tarGz(t, two...)[:200])
	s := storeOf(t, web)
	for text, c := range map[string]struct {
		kind fault.Kind
		want string
	}{
		"github:owner/repo":                 {fault.Invalid, "2 skills there: skills/other, skills/words"},
		"github:owner/repo/skills":          {fault.NotFound, `no skill at "skills"`},
		"github:owner/repo/skills/missing":  {fault.NotFound, "it has skills/other, skills/words"},
		"github:owner/twice/words":          {fault.NotFound, "it has a/words, b/words"},
		"github:owner/none/x":               {fault.NotFound, "nothing there"},
		web.URL + "/two.zip":                {fault.Invalid, "2 skills there"},
		web.URL + "/two.zip#top/missing":    {fault.NotFound, "no skill"},
		web.URL + "/none.zip":               {fault.NotFound, "holds no SKILL.md"},
		web.URL + "/other.zip":              {fault.Invalid, "have to be the same"},
		web.URL + "/page/SKILL.md":          {fault.Invalid, "no front matter"},
		web.URL + "/damaged.zip":            {fault.Invalid, "damaged"},
		web.URL + "/damaged.tar.gz":         {fault.Invalid, "damaged"},
		"https://not.allowed.example/a.zip": {fault.Denied, "not among the hosts"},
		"git+https://not.allowed.example/r": {fault.Denied, "not among the hosts"},
	} {
		_, _, err := s.get(t, text, false)
		var told string
		if f := fault.Of(err); f != nil {
			told = f.Message + " " + f.Hint
		}
		if fault.KindOf(err) != c.kind {
			t.Errorf("%s: got %v, want one of kind %v", text, err, c.kind)
		}
		if !strings.Contains(told, c.want) {
			t.Errorf("%s: told: got %q, want %q in it", text, told, c.want)
		}
	}
	if _, _, err := s.get(t, filepath.Join(t.TempDir(), "none"), true); fault.KindOf(err) != fault.NotFound {
		t.Errorf("a folder that is not there gives %v", err)
	}
	closed := NewStore(Config{Dir: t.TempDir()})
	for _, text := range []string{"github:a/b/c", "https://a.example/SKILL.md", "git+https://a.example/r"} {
		if _, _, err := closed.get(t, text, false); fault.KindOf(err) != fault.Denied {
			t.Errorf("without a transport %s gives %v", text, err)
		}
	}
	for status, kind := range map[int]fault.Kind{401: fault.Denied, 403: fault.Denied, 404: fault.NotFound, 429: fault.Unavailable, 500: fault.Unavailable, 204: fault.Unavailable} {
		web.serve = func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(status) }
		if _, _, err := s.get(t, "github:a/b/c", false); fault.KindOf(err) != kind {
			t.Errorf("the status %d gives %v", status, err)
		}
	}
}

// What was cut on its way is not a damaged archive: it may be whole the next time.
func TestAFetchThatBreaksOffIsToBeTriedAgain(t *testing.T) {
	web := newSite(t)
	s := storeOf(t, web)
	whole := map[string][]byte{
		"/a.zip": zipOf(t, entriesOf("words/", example("words"))...), "/a.tar.gz": tarGz(t, entriesOf("words/", example("words"))...), "/SKILL.md": []byte("---\nname: words\n"),
	}
	web.serve = func(w http.ResponseWriter, r *http.Request) {
		data := whole[r.URL.Path]
		w.Header().Set("Content-Length", strconv.Itoa(len(data)))
		_, _ = w.Write(data[:len(data)/2])
	}
	for name := range whole {
		_, _, err := s.get(t, web.URL+name, false)
		if f := fault.Of(err); f == nil {
			t.Errorf("%s: got nil, want one", name)
		} else {
			expect.Equal(t, fmt.Sprintf("%s: f.Kind", name), f.Kind, fault.Unavailable)
			expect.Part(t, fmt.Sprintf("%s: f.Message", name), f.Message, "broke off")
			expect.Equal(t, fmt.Sprintf("%s: f.Hint", name), f.Hint, "try again")
		}
	}
}

func TestAHostileArchiveGivesNothing(t *testing.T) {
	limits := Limits{Bytes: 1 << 20, Files: 50, Download: 2 << 20, Entries: 200}
	good := entriesOf("words/", example("words"))
	with := func(more ...entry) []entry { return append(append([]entry{}, good...), more...) }
	many := func(n int, name string) (all []entry) {
		for k := range n {
			e := entry{fmt.Sprintf(name, k), 0o644, 0, "x"}
			if strings.HasSuffix(name, "/") {
				e.mode, e.kind, e.data = fs.ModeDir|0o755, tar.TypeDir, ""
			}
			all = append(all, e)
		}
		return all
	}
	noise := make([]byte, 3<<20)
	for k, x := 0, uint32(1); k < len(noise); k++ {
		x ^= x << 13
		x ^= x >> 17
		x ^= x << 5
		noise[k] = byte(x)
	}
	for name, c := range map[string]struct {
		entries []entry
		kind    fault.Kind
		tarOnly bool
	}{
		"a path out":               {with(entry{"words/../../evil", 0o644, 0, "x"}), fault.Denied, false},
		"a path out, at once":      {with(entry{"../evil", 0o644, 0, "x"}), fault.Denied, false},
		"an absolute path":         {with(entry{"/etc/evil", 0o644, 0, "x"}), fault.Denied, false},
		"a backslash":              {with(entry{`words\..\..\evil`, 0o644, 0, "x"}), fault.Invalid, false},
		"a drive":                  {with(entry{`C:/evil`, 0o644, 0, "x"}), fault.Denied, false},
		"a link":                   {with(entry{"words/l", 0, tar.TypeSymlink, "/etc/passwd"}), fault.Denied, true},
		"a link in a zip":          {with(entry{"words/l", fs.ModeSymlink | 0o777, 0, "/etc/passwd"}), fault.Denied, false},
		"a link and a file behind": {with(entry{"words/l", 0, tar.TypeSymlink, "/tmp"}, entry{"words/l/evil", 0o644, 0, "x"}), fault.Denied, true},
		"a hard link":              {with(entry{"words/l", 0, tar.TypeLink, "/etc/passwd"}), fault.Denied, true},
		"a device":                 {with(entry{"words/null", 0, tar.TypeChar, ""}), fault.Denied, true},
		"a FIFO":                   {with(entry{"words/fifo", 0, tar.TypeFifo, ""}), fault.Denied, true},
		"a file twice":             {with(entry{"words/SKILL.md", 0o644, 0, mainOf("evil")}), fault.Invalid, false},
		"a file twice, by case":    {with(entry{"words/skill.MD", 0o644, 0, mainOf("evil")}), fault.Invalid, false},
		"a file below a file":      {with(entry{"words/SKILL.md/x", 0o644, 0, "x"}), fault.Invalid, false},
		"an escape in a name":      {with(entry{"words/a\x1b[2Jb", 0o644, 0, "x"}), fault.Invalid, false},
		"too many files":           {with(many(60, "words/f%d")...), fault.Exhausted, false},
		"too many entries":         {with(many(300, "d%d/")...), fault.Exhausted, false},
		"too large a file":         {with(entry{"words/f", 0o644, 0, string(noise[:1<<20])}), fault.Exhausted, false},
		"too large":                {with(entry{"words/f", 0o644, 0, string(noise)}), fault.Exhausted, false},
		"a bomb":                   {with(entry{"words/f", 0o644, 0, strings.Repeat("\x00", 9<<20)}), fault.Exhausted, false},
		"a bomb outside":           {with(entry{"other/f", 0o644, 0, strings.Repeat("\x00", 9<<20)}), fault.Exhausted, false},
	} {
		t.Run(name, func(t *testing.T) {
			web := newSite(t)
			s := NewStore(Config{Dir: t.TempDir(), Transport: reach(t), GitHub: GitHubConfig{API: web.URL}, Limits: limits})
			web.put("/a.tar.gz", tarGz(t, c.entries...))
			texts := []string{web.URL + "/a.tar.gz"}
			if !c.tarOnly {
				web.put("/a.zip", zipOf(t, c.entries...))
				texts = append(texts, web.URL+"/a.zip")
			}
			for _, text := range texts {
				if strings.HasSuffix(text, "gz") && strings.Contains(name, "in a zip") {
					continue
				}
				got, _, err := s.get(t, text, false)
				if fault.KindOf(err) != c.kind {
					t.Errorf("%s gives %v, %v", filepath.Ext(text), got, err)
				}
			}
		})
	}
}

func TestTheTokenGoesToGitHubAlone(t *testing.T) {
	store := newSite(t)
	store.put("/archive", tarGz(t, entriesOf("top/words/", example("words"))...))
	api := newSite(t)
	api.serve = func(w http.ResponseWriter, r *http.Request) {
		http.Redirect(w, r, store.URL+"/archive", http.StatusFound)
	}
	s := NewStore(Config{Dir: t.TempDir(), Transport: reach(t), GitHub: GitHubConfig{API: api.URL, Token: "secret"}})
	if _, _, err := s.get(t, "github:a/b/words@main", false); err != nil {
		t.Fatal(err)
	}
	if got := api.asked[0]; got.Header.Get("Authorization") != "Bearer secret" {
		t.Errorf(`the API: got.Header.Get("Authorization"): got %q, want %q`,
			got.Header.Get("Authorization"), "Bearer secret")
	} else if got.URL.Path != "/repos/a/b/tarball/main" {
		t.Errorf("the API: got.URL.Path: got %q, want %q", got.URL.Path, "/repos/a/b/tarball/main")
	}
	if got := store.asked[0].Header; got.Get("Authorization") != "" {
		t.Errorf("the token went on: %v", got)
	}
	store.put("/a.zip", zipOf(t, entriesOf("", example("words"))...))
	if _, _, err := s.get(t, store.URL+"/a.zip", false); err != nil {
		t.Errorf("another source: got error %v, want none", err)
	} else if store.asked[1].Header.Get("Authorization") != "" {
		t.Errorf(`another source: store.asked[1].Header.Get("Authorization"): got %q, want none`,
			store.asked[1].Header.Get("Authorization"))
	}
}

func TestAFetchThatNeverEndsEnds(t *testing.T) {
	web := newSite(t)
	web.serve = func(w http.ResponseWriter, r *http.Request) {
		w.(http.Flusher).Flush()
		<-r.Context().Done()
	}
	s := NewStore(Config{Dir: t.TempDir(), Transport: reach(t), GitHub: GitHubConfig{API: web.URL}, Limits: Limits{Time: 50 * time.Millisecond}})
	for _, text := range []string{"github:a/b", web.URL + "/a.zip", web.URL + "/a/SKILL.md", "git+" + web.URL + "/r"} {
		if _, _, err := s.get(t, text, false); fault.KindOf(err) != fault.Unavailable {
			t.Errorf("%s gives %v", text, err)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := s.fetcher.fetch(ctx, source(t, "github:a/b", false)); fault.KindOf(err) != fault.Cancelled {
		t.Errorf("got %v", err)
	}
}

func TestALocalFolderWithALinkIsRefused(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "words")
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, MainFile), []byte(mainOf("words")), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("/etc/passwd", filepath.Join(dir, "secrets")); err != nil {
		t.Skipf("links cannot be made: %v", err)
	}
	s := storeOf(t, nil)
	if _, _, err := s.get(t, dir, true); fault.KindOf(err) != fault.Denied {
		t.Errorf("got %v", err)
	}
}

// The default policy does not let a model's source reach this host.
func TestASourceDoesNotReachThisHost(t *testing.T) {
	web := newSite(t)
	web.put("/words/SKILL.md", []byte(mainOf("words")))
	p, err := egress.Parse([]string{"127.0.0.1:*", "localhost:*"}, egress.Rights{})
	if err != nil {
		t.Fatal(err)
	}
	s := NewStore(Config{Dir: t.TempDir(), Transport: egress.NewTransport(p, egress.Options{})})
	for _, text := range []string{web.URL + "/words/SKILL.md", "git+" + web.URL + "/r"} {
		if _, _, err := s.get(t, text, false); fault.KindOf(err) != fault.Denied {
			t.Errorf("%s gives %v", text, err)
		}
	}
	if len(web.asked) != 0 {
		t.Errorf("it was asked for %v", web.asked)
	}
}

// silent is a server that takes a request, and sends as much as its bodies have, and
// then nothing more.
type silent struct{ answers int }

func (s *silent) RoundTrip(r *http.Request) (*http.Response, error) {
	if s.answers--; s.answers < 0 {
		<-r.Context().Done()
		return nil, r.Context().Err()
	}
	body := io.MultiReader(strings.NewReader("---"), stalled{r.Context()})
	return &http.Response{StatusCode: http.StatusOK, Header: http.Header{}, Body: io.NopCloser(body), Request: r}, nil
}

type stalled struct{ context.Context }

func (s stalled) Read([]byte) (int, error) {
	<-s.Done()
	return 0, s.Err()
}

func TestAServerThatSendsNothingIsGivenUp(t *testing.T) {
	for _, text := range []string{"github:owner/repo", "git+https://a.test/repo", "https://a.test/x.zip", "https://a.test/words/SKILL.md"} {
		for answers := range 2 {
			synctest.Test(t, func(t *testing.T) {
				s := NewStore(Config{Dir: t.TempDir(), Transport: &silent{answers}})
				began := time.Now()
				_, _, err := s.get(t, text, false)
				if took := time.Since(began); took != 15*time.Second {
					t.Errorf("%s is given up after %v", text, took)
				}
				if f := fault.Of(err); f.Kind != fault.Unavailable {
					t.Errorf("%s: f.Kind: got %v, want %v", text, f.Kind, fault.Unavailable)
				} else if !strings.Contains(f.Message, "has sent nothing for 15s") {
					t.Errorf("%s: f.Message: got %q, want %q in it", text, f.Message, "has sent nothing for 15s")
				}
			})
		}
	}
}

// TestALocalArchiveIsASource installs what people download: a .skill or a .zip.
func TestALocalArchiveIsASource(t *testing.T) {
	dir := t.TempDir()
	want := folderOf(t, example("words")...).Digest()
	s := storeOf(t, newSite(t))
	for name, data := range map[string][]byte{
		"words.skill": zipOf(t, entriesOf("words/", example("words"))...), "flat.zip": zipOf(t, entriesOf("", example("words"))...),
		"words.tar.gz": tarGz(t, entriesOf("words-1.0/", example("words"))...),
	} {
		at := filepath.Join(dir, name)
		if err := os.WriteFile(at, data, 0o600); err != nil {
			t.Fatal(err)
		}
		got, _, err := s.get(t, at, true)
		if err != nil {
			t.Fatalf("%s: got error %v, want none", name, err)
		}
		if got.Folder.Digest() != want {
			t.Errorf("%s: got.Folder.Digest(): got %v, want %v", name, got.Folder.Digest(), want)
		}
		if _, err := ParseSource(at, false); fault.KindOf(err) != fault.Denied {
			t.Errorf("for a model %s gives %v", name, err)
		}
	}
	for name, c := range map[string]struct {
		data []byte
		want fault.Kind
	}{
		"damaged.skill": {[]byte("PK\x03\x04damaged"), fault.Invalid}, "text.zip": {[]byte("hello"), fault.Invalid},
		"climbing.zip": {zipOf(t, entry{"../SKILL.md", 0o644, 0, mainOf("a")}), fault.Denied},
	} {
		at := filepath.Join(dir, name)
		if err := os.WriteFile(at, c.data, 0o600); err != nil {
			t.Fatal(err)
		}
		if _, _, err := s.get(t, at, true); fault.KindOf(err) != c.want {
			t.Errorf("%s gives %v", name, err)
		}
	}
	small := NewStore(Config{Dir: t.TempDir(), Limits: Limits{Download: 100}})
	if _, _, err := small.get(t, filepath.Join(dir, "words.skill"), true); fault.KindOf(err) != fault.Exhausted {
		t.Errorf("what is too large gives %v", err)
	}
}
