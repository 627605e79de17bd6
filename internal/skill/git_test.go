package skill

import (
	"bytes"
	"compress/zlib"
	"crypto/sha1"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/cgi"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"paddock/internal/expect"
	"paddock/internal/fault"
	"paddock/internal/sandbox/sandboxtest"
)

// gitSite serves repositories below a folder with git's own server.
func gitSite(t *testing.T) (web *site, dir string) {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), "git", "--exec-path").Output()
	backend := filepath.Join(strings.TrimSpace(string(out)), "git-http-backend")
	if err == nil {
		_, err = os.Stat(backend)
	}
	sandboxtest.Require(t, "git", err == nil, "there is no git-http-backend")
	dir = t.TempDir()
	web = newSite(t)
	handler := &cgi.Handler{Path: backend, Env: []string{"GIT_PROJECT_ROOT=" + dir, "GIT_HTTP_EXPORT_ALL=1", "GIT_CONFIG_NOSYSTEM=1", "HOME=" + dir}, Stderr: io.Discard}
	web.serve = func(w http.ResponseWriter, r *http.Request) { handler.ServeHTTP(w, r) }
	return web, dir
}

// git runs a command in a repository.
func git(t *testing.T, dir string, args ...string) string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "git", args...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "GIT_CONFIG_NOSYSTEM=1", "HOME="+dir, "GIT_AUTHOR_NAME=a", "GIT_AUTHOR_EMAIL=a@a.example", "GIT_COMMITTER_NAME=a", "GIT_COMMITTER_EMAIL=a@a.example")
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("git %v: %v: %s", args, err, out)
	}
	return strings.TrimSpace(string(out))
}

// commitFiles writes files into a repository and commits them.
func commitFiles(t *testing.T, repo, top string, files []File) string {
	t.Helper()
	for _, f := range files {
		name := filepath.Join(repo, top, filepath.FromSlash(f.Path))
		if err := os.MkdirAll(filepath.Dir(name), 0o700); err != nil {
			t.Fatal(err)
		}
		mode := os.FileMode(0o600)
		if f.Executable {
			mode = 0o700
		}
		if err := os.WriteFile(name, f.Data, mode); err != nil {
			t.Fatal(err)
		}
	}
	git(t, repo, "add", "-A")
	git(t, repo, "commit", "-q", "-m", "x")
	return git(t, repo, "rev-parse", "HEAD")
}

func newRepo(t *testing.T, dir, name string) string {
	t.Helper()
	repo := filepath.Join(dir, name)
	if err := os.Mkdir(repo, 0o700); err != nil {
		t.Fatal(err)
	}
	git(t, repo, "init", "-q", "-b", "main")
	return repo
}

func TestASkillComesByGit(t *testing.T) {
	web, dir := gitSite(t)
	repo := newRepo(t, dir, "words")
	first := commitFiles(t, repo, "skills/words", example("words"))
	git(t, repo, "tag", "-a", "v1", "-m", "the first")
	git(t, repo, "config", "uploadpack.allowAnySHA1InWant", "true")
	git(t, repo, "checkout", "-q", "-b", "next/one")
	changed := example("words")
	changed[1].Data = append(bytes.Repeat([]byte("# a line that is long enough\n"), 100), changed[1].Data...)
	second := commitFiles(t, repo, "skills/words", changed)
	git(t, repo, "gc", "-q", "--aggressive") // so that there are differences
	git(t, repo, "checkout", "-q", "main")
	s := storeOf(t, web)
	url := "git+" + web.URL + "/words/.git"
	for text, want := range map[string]struct {
		commit string
		files  []File
	}{
		url:                                     {first, example("words")},
		url + "#skills/words":                   {first, example("words")},
		url + "#words":                          {first, example("words")},
		url + "@main#skills/words":              {first, example("words")},
		url + "@v1#skills/words":                {first, example("words")},
		url + "@next/one#skills/words":          {second, changed},
		url + "@" + second:                      {second, changed},
		url + "@refs/heads/main":                {first, example("words")},
		url + "@v1#subdirectory=/skills/words/": {first, example("words")},
	} {
		got, from, err := s.get(t, text, false)
		if err != nil {
			t.Fatalf("%s: got error %v, want none: %s", text, err, text)
		}
		expect.Equal(t, fmt.Sprintf("%s: from.commit", text), from.commit, want.commit)
		expect.Equal(t, fmt.Sprintf("%s: got.Folder.Digest()", text),
			got.Folder.Digest(), folderOf(t, want.files...).Digest())
	}
	for text, kind := range map[string]fault.Kind{
		url + "@missing": fault.NotFound, url + "#missing": fault.NotFound, url + "#skills": fault.NotFound, "git+" + web.URL + "/none/.git": fault.NotFound,
		url + "@" + strings.Repeat("0", 39) + "1": fault.Unavailable,
	} {
		if _, _, err := s.get(t, text, false); fault.KindOf(err) != kind {
			t.Errorf("%s gives %v", text, err)
		}
	}
	small := NewStore(Config{Dir: t.TempDir(), Transport: reach(t), Limits: Limits{Download: 300}})
	if _, _, err := small.get(t, url, false); fault.KindOf(err) != fault.Exhausted {
		t.Errorf("what is too large gives %v", err)
	}
	small = NewStore(Config{Dir: t.TempDir(), Transport: reach(t), Limits: Limits{Unpacked: 300}})
	if _, _, err := small.get(t, url, false); fault.KindOf(err) != fault.Exhausted {
		t.Errorf("what unpacks to too much gives %v", err)
	}
}

func TestLinksAndSubmodulesDoNotComeByGit(t *testing.T) {
	web, dir := gitSite(t)
	repo := newRepo(t, dir, "r")
	commitFiles(t, repo, "words", example("words"))
	if err := os.Symlink("/etc/passwd", filepath.Join(repo, "outside")); err != nil {
		t.Skipf("links cannot be made: %v", err)
	}
	commitFiles(t, repo, "good/words", example("words"))
	url := "git+" + web.URL + "/r/.git"
	s := storeOf(t, web)
	if _, _, err := s.get(t, url+"#words", false); err != nil {
		t.Errorf("a link elsewhere is in the way: %v", err)
	}
	if err := os.Symlink("/etc/passwd", filepath.Join(repo, "words", "secrets")); err != nil {
		t.Fatal(err)
	}
	head := commitFiles(t, repo, "", nil)
	if _, _, err := s.get(t, url+"#words", false); fault.KindOf(err) != fault.Denied {
		t.Errorf("a link gives %v", err)
	}
	git(t, repo, "update-index", "--add", "--cacheinfo", "160000,"+head+",good/words/module")
	git(t, repo, "commit", "-q", "-m", "x")
	if _, _, err := s.get(t, url+"#good/words", false); fault.KindOf(err) != fault.Denied {
		t.Errorf("a submodule gives %v", err)
	}
}

// packed is an object of a pack: its type and size, what stands before its
// content, and that.
type packed struct {
	kind    byte
	size    int
	before  []byte
	content []byte
}

func packOf(objects ...packed) []byte {
	var b bytes.Buffer
	b.WriteString("PACK")
	_ = binary.Write(&b, binary.BigEndian, [2]uint32{2, uint32(len(objects))})
	for _, o := range objects {
		first, rest := o.kind<<4|byte(o.size&0xf), o.size>>4
		for rest > 0 {
			b.WriteByte(first | 0x80)
			first, rest = byte(rest&0x7f), rest>>7
		}
		b.WriteByte(first)
		b.Write(o.before)
		z := zlib.NewWriter(&b)
		_, _ = z.Write(o.content)
		_ = z.Close()
	}
	sum := sha1.Sum(b.Bytes())
	return append(b.Bytes(), sum[:]...)
}

func TestAPackIsWeighedBeforeItIsUnpacked(t *testing.T) {
	limits := Limits{Unpacked: 1 << 20, Entries: 100}.withDefaults()
	blob := packed{3, 5, nil, []byte("hello")}
	back := []byte{byte(len(packOf(blob)) - 32)} // without the pack's head and sum
	// A difference whose result is 2 GiB, of a few bytes.
	bomb := packed{6, 8, back, []byte{5, 0x80, 0x80, 0x80, 0x80, 8, 0x90, 5}}
	delta := packed{6, 4, back, []byte{5, 5, 0x90, 5}}
	if err := weigh(t.Context(), bytes.NewReader(packOf(blob, delta)), limits); err != nil {
		t.Fatalf("a good one gives %v", err)
	}
	chain := []packed{blob}
	for k := range maxChain + 2 {
		d := delta
		if k > 0 {
			d.before = []byte{byte(len(packOf(delta)) - 32)}
		}
		chain = append(chain, d)
	}
	if err := weigh(t.Context(), bytes.NewReader(packOf(chain[:maxChain]...)), limits); err != nil {
		t.Fatalf("a chain that is short enough gives %v, %v", err, errors.Unwrap(err))
	}
	many := make([]packed, 200)
	for k := range many {
		many[k] = blob
	}
	lies := packed{3, 5, nil, bytes.Repeat([]byte("a"), 100)}
	for name, c := range map[string]struct {
		data []byte
		kind fault.Kind
	}{
		"a difference that is a bomb": {packOf(blob, bomb), fault.Exhausted},
		"a chain":                     {packOf(chain...), fault.Invalid},
		"too many objects":            {packOf(many...), fault.Exhausted},
		"a large object":              {packOf(packed{3, 2 << 20, nil, make([]byte, 2<<20)}), fault.Exhausted},
		"a size that is a lie":        {packOf(lies), fault.Invalid},
		"a difference to nothing":     {packOf(blob, packed{6, 4, []byte{5}, []byte{5, 5, 0x90, 5}}), fault.Invalid},
		"a difference by name":        {packOf(blob, packed{7, 4, make([]byte, 20), []byte{5, 5, 0x90, 5}}), fault.Unsupported},
		"a difference without sizes":  {packOf(blob, packed{6, 1, back, []byte{0x80}}), fault.Invalid},
		"half":                        {packOf(blob, delta)[:30], fault.Invalid},
		"nothing":                     {nil, fault.Invalid},
		"no pack":                     {[]byte("hello, this is not a pack"), fault.Invalid},
	} {
		if err := weigh(t.Context(), bytes.NewReader(c.data), limits); fault.KindOf(err) != c.kind {
			t.Errorf("%s gives %v", name, err)
		}
	}
}

// A tree that holds itself many times over is 10^9 files in a few bytes.
func TestATreeOfTreesEnds(t *testing.T) {
	hash := func(kind string, data []byte) []byte {
		sum := sha1.Sum(append([]byte(kind+" "+strconv.Itoa(len(data))+"\x00"), data...))
		return sum[:]
	}
	blob := []byte("x")
	objects := []packed{{3, 1, nil, blob}}
	below, mode := hash("blob", blob), "100644"
	for range 9 {
		var tree []byte
		for k := range 10 {
			tree = append(append(tree, mode+" "+strconv.Itoa(k)+"\x00"...), below...)
		}
		objects = append(objects, packed{2, len(tree), nil, tree})
		below, mode = hash("tree", tree), "40000"
	}
	commit := []byte("tree " + hex.EncodeToString(below) + "\nauthor a <a> 0 +0000\ncommitter a <a> 0 +0000\n\nx\n")
	objects = append(objects, packed{1, len(commit), nil, commit})
	s := storeOf(t, nil)
	var want [20]byte
	copy(want[:], hash("commit", commit))
	err := s.fetcher.unpackGit(t.Context(), bytes.NewReader(packOf(objects...)), want, Source{Kind: Git}, &fetched{})
	if fault.KindOf(err) != fault.Exhausted {
		t.Errorf("got %v", err)
	}
}

// Whatever a server sends, it is a skill's folder or a fault.
func FuzzPack(f *testing.F) {
	f.Add(packOf(packed{3, 5, nil, []byte("hello")}, packed{6, 4, []byte{18}, []byte{5, 5, 0x90, 5}}))
	f.Add(packOf(packed{1, 4, nil, []byte("tree")}))
	limits := Limits{Unpacked: 1 << 20, Entries: 100}.withDefaults()
	f.Fuzz(func(t *testing.T, data []byte) {
		fetcher := fetcher{limits: limits}
		err := fetcher.unpackGit(t.Context(), bytes.NewReader(data), [20]byte{1}, Source{Kind: Git}, &fetched{})
		if k := fault.KindOf(err); k != fault.Invalid && k != fault.Exhausted && k != fault.Unsupported {
			t.Errorf("it gives %v", err)
		}
	})
}
