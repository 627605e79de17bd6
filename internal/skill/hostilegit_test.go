package skill

import (
	"bytes"
	"crypto/sha1"
	"encoding/hex"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"strconv"
	"strings"
	"testing"

	"paddock/internal/fault"
	"paddock/internal/helper"
)

func TestMain(m *testing.M) {
	if helper.Requested(os.Args) {
		os.Exit(helper.Main(os.Args, Pack, Script))
	}
	os.Exit(m.Run())
}

// objects are what a hostile repository's pack holds.
type objects struct {
	all  []packed
	last [20]byte
}

var kinds = map[byte]string{1: "commit", 2: "tree", 3: "blob", 4: "tag"}

// add adds an object, and gives its name.
func (o *objects) add(kind byte, content []byte) [20]byte {
	o.all = append(o.all, packed{kind, len(content), nil, content})
	o.last = sha1.Sum(append([]byte(kinds[kind]+" "+strconv.Itoa(len(content))+"\x00"), content...))
	return o.last
}

// tree adds one of entries, each a mode and a name, that are all the same object.
func (o *objects) tree(of [20]byte, entries ...string) [20]byte {
	var b []byte
	for _, e := range entries {
		b = append(append(b, e+"\x00"...), of[:]...)
	}
	return o.add(2, b)
}

func (o *objects) commit(tree [20]byte, more string) [20]byte {
	return o.add(1, []byte("tree "+hex.EncodeToString(tree[:])+"\n"+more+"author a <a> 0 +0000\ncommitter a <a> 0 +0000\n\nx\n"))
}

// pkt is a line of git's protocol.
func pkt(text string) string { return fmt.Sprintf("%04x%s", len(text)+4, text) }

// gitServer answers as a repository's server with one commit, whose refs end with more.
func gitServer(t *testing.T, head [20]byte, more func(io.Writer), pack func(io.Writer)) *site {
	web := newSite(t)
	web.serve = func(w http.ResponseWriter, r *http.Request) {
		if strings.HasSuffix(r.URL.Path, "/info/refs") {
			w.Header().Set("Content-Type", "application/x-git-upload-pack-advertisement")
			_, _ = io.WriteString(w, pkt("# service=git-upload-pack\n")+"0000"+pkt(hex.EncodeToString(head[:])+" HEAD\x00ofs-delta side-band-64k allow-tip-sha1-in-want symref=HEAD:refs/heads/main\n"))
			more(w)
			_, _ = io.WriteString(w, "0000")
			return
		}
		w.Header().Set("Content-Type", "application/x-git-upload-pack-result")
		pack(w)
	}
	return web
}

func nothing(io.Writer) {}

func sends(o *objects) func(io.Writer) {
	return func(w io.Writer) { _, _ = io.WriteString(w, pkt("NAK\n")+string(packOf(o.all...))) }
}

// install has a store get the skill of a repository, with real helpers.
func install(t *testing.T, web *site, limits Limits) (*Store, error) {
	t.Helper()
	program, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	s := NewStore(Config{Dir: t.TempDir(), Transport: reach(t), Limits: limits, Helpers: helper.NewRunner(program)})
	_, err = s.Install(t.Context(), "ann", source(t, "git+"+web.URL+"/repo.git", false))
	return s, err
}

// good adds a skill and gives its tree.
func (o *objects) good() [20]byte {
	blob := o.add(3, []byte(mainOf("words")))
	return o.tree(blob, "100644 SKILL.md")
}

func TestWhatARepositorySendsIsASkillOrAFault(t *testing.T) {
	for name, c := range map[string]struct {
		make func(o *objects)
		want fault.Kind // empty: it is installed
	}{
		"a skill":                           {func(o *objects) { o.commit(o.good(), "") }, ""},
		"parents that are the commit's own": {func(o *objects) { o.commit(o.good(), "parent "+strings.Repeat("0", 40)+"\n") }, ""},
		"a tag of a commit":                 {func(o *objects) { o.tag(o.commit(o.good(), ""), 1) }, ""},
		"more tags than objects are read":   {func(o *objects) { o.tag(o.commit(o.good(), ""), 2_100) }, fault.Exhausted},
		"10 tags of each other":             {func(o *objects) { o.tag(o.commit(o.good(), ""), 10) }, fault.Invalid},
		"1,900 folders in one another": {func(o *objects) {
			tree := o.good()
			for range 1_900 {
				tree = o.tree(tree, "40000 d")
			}
			o.commit(tree, "")
		}, fault.Exhausted},
		"an object that is not there": {func(o *objects) { o.commit(o.tree([20]byte{7}, "100644 SKILL.md"), "") }, fault.Invalid},
		"a blob for a tree":           {func(o *objects) { o.commit(o.add(3, []byte("x")), "") }, fault.Invalid},
		"half an entry":               {func(o *objects) { o.commit(o.add(2, []byte("100644 SKILL.md\x00abc")), "") }, fault.Invalid},
	} {
		var o objects
		c.make(&o)
		_, err := install(t, gitServer(t, o.last, nothing, sends(&o)), Limits{Entries: 2000})
		if fault.KindOf(err) != c.want {
			t.Errorf("%s: %v (%v), want %q", name, err, fault.CauseOf(err), c.want)
		}
	}
}

func (o *objects) tag(of [20]byte, times int) {
	kind := "commit"
	for range times {
		of = o.add(4, []byte("object "+hex.EncodeToString(of[:])+"\ntype "+kind+"\ntag x\ntagger a <a> 0 +0000\n\nx\n"))
		kind = "tag"
	}
}

func TestNamesInARepositoryAreNamesOfFiles(t *testing.T) {
	for _, entry := range []string{
		"100644 ..", "100644 .", "100644 ", "100644 .git", "100644 .GIT", "100644 git~1", "100644 GIT~1", "100644 .g\u200cit", "100644 .git.", "100644 .git ", "100644 .git::$INDEX_ALLOCATION",
		"100644 a:b", "100644 a\x01", "100644 a\x1b[2J", "100644 a\nb", "100644 con", "100644 a\\b", "100644 a/b", "100644 SKILL.md", "100644 skill.MD", "100644 \xff", "100644 " + strings.Repeat("a", 300),
		"120000 link", "160000 module", "0 odd",
	} {
		var o objects
		blob := o.add(3, []byte(mainOf("words")))
		o.commit(o.tree(blob, "100644 SKILL.md", entry), "")
		f := fetcher{limits: Limits{}.withDefaults()}
		if err := f.unpackGit(t.Context(), bytes.NewReader(packOf(o.all...)), o.last, Source{Kind: Git}, &fetched{}); fault.KindOf(err) != fault.Invalid && fault.KindOf(err) != fault.Denied {
			t.Errorf("%q gives %v", entry, err)
		}
	}
	for _, inner := range []string{".git", ".Git", "git~1"} { // whose hooks and configuration somebody's git would obey
		var o objects
		blob := o.add(3, []byte("[core]\n\tfsmonitor = touch /tmp/x\n"))
		hidden := o.tree(blob, "100644 config")
		top := o.add(2, []byte("40000 "+inner+"\x00"+string(hidden[:])))
		o.commit(top, "")
		f := fetcher{limits: Limits{}.withDefaults()}
		if err := f.unpackGit(t.Context(), bytes.NewReader(packOf(o.all...)), o.last, Source{Kind: Git}, &fetched{}); fault.KindOf(err) != fault.Denied {
			t.Errorf("a folder %q gives %v", inner, err)
		}
	}
	// What only git's own programs obey is text.
	var o objects
	blob := o.add(3, []byte(mainOf("words")))
	o.commit(o.tree(blob, "100644 .gitattributes", "100644 .gitmodules", "100644 .lfsconfig", "100644 SKILL.md"), "")
	if _, err := install(t, gitServer(t, o.last, nothing, sends(&o)), Limits{}); err != nil {
		t.Errorf("files for git's programs: %v", err)
	}
}

func TestARepositoryThatDoesNotEndIsGivenUp(t *testing.T) {
	var o objects
	o.commit(o.good(), "")
	flood := func(line string) func(io.Writer) {
		text := strings.Repeat(line, 1000)
		return func(w io.Writer) {
			for sent := 0; sent < 80<<20; sent += len(text) {
				if _, err := io.WriteString(w, text); err != nil {
					return
				}
			}
		}
	}
	count := 0
	refs := func(w io.Writer) {
		var b strings.Builder
		for b.Len() < 20<<20 {
			count++
			b.WriteString(pkt(fmt.Sprintf("%040x refs/heads/b%d\n", count, count)))
		}
		_, _ = io.WriteString(w, b.String())
	}
	for name, web := range map[string]*site{
		"refs":                    gitServer(t, o.last, refs, sends(&o)),
		"shallow lines":           gitServer(t, o.last, nothing, flood(pkt("shallow "+strings.Repeat("a", 40)))),
		"lines that say nothing":  gitServer(t, o.last, nothing, flood(pkt("NAK\n"))),
		"progress that is a lure": gitServer(t, o.last, nothing, flood(pkt("\x02\x1b[2J\x1b]0;run rm -rf\x07\n"))),
		"empty lines":             gitServer(t, o.last, nothing, flood("0004")),
	} {
		_, err := install(t, web, Limits{Download: 4 << 20})
		if k := fault.KindOf(err); k != fault.Exhausted && k != fault.Unavailable && k != fault.Invalid {
			t.Errorf("%s: %v (%v)", name, err, fault.CauseOf(err))
		} else if strings.ContainsRune(err.Error(), '\x1b') {
			t.Errorf("%s: its words are told: %q", name, err)
		}
	}
}

func TestARepositoryLeadsNowhereElse(t *testing.T) {
	asked := false
	other := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { asked = true }))
	defer other.Close()
	web := newSite(t)
	web.serve = func(w http.ResponseWriter, r *http.Request) {
		http.Redirect(w, r, strings.Replace(other.URL, "127.0.0.1", "localhost", 1)+r.URL.RequestURI(), http.StatusFound)
	}
	if _, err := install(t, web, Limits{}); err == nil {
		t.Error("a host that is not allowed: got no error, want one")
	} else if asked {
		t.Error("a host that is not allowed: asked: got true, want false")
	}
	for _, text := range []string{
		"git+ext::sh -c touch% /tmp/x", "ext::sh -c x", "git+file:///etc", "file:///etc", "git+ssh://a/b", "ssh://a/b", "git@a:b", "git://a/b", "--upload-pack=x", "git+https://-oProxyCommand=x/a.git@--upload-pack=x", "git+https://a/b.git@-x",
	} {
		if s, err := ParseSource(text, false); err == nil {
			t.Errorf("%q is the source %+v", text, s)
		}
	}
}

func TestAPackIsReadInAProcess(t *testing.T) {
	program, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	var o objects
	o.commit(o.good(), "")
	head := []byte(`{"Want":"` + hex.EncodeToString(o.last[:]) + `","Source":{"Kind":"git"},"Limits":{"Bytes":16777216,"Files":1000,"Download":67108864,"Unpacked":268435456,"Entries":1000}}` + "\n")
	in := io.MultiReader(bytes.NewReader(head), bytes.NewReader(packOf(o.all...)))
	out, err := helper.NewRunner(program).Run(t.Context(), Pack, helper.Call{Owner: "ann", In: in})
	if err != nil {
		t.Fatalf("got error %v, want none: %s", err, out)
	}
	if !bytes.Contains(out, []byte("SKILL.md")) {
		t.Errorf("out: got %q, want %q in it", out, "SKILL.md")
	}
}

// Folders in one another without end, in a folder of this host.
func TestAFolderThatIsTooDeepIsRefusedAtOnce(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(dir+"/SKILL.md", []byte(mainOf("words")), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.MkdirAll(dir+strings.Repeat("/d", 1000), 0o700); err != nil {
		t.Fatal(err)
	}
	s := NewStore(Config{Dir: t.TempDir()})
	if _, _, err := s.Look(t.Context(), source(t, dir, true)); fault.KindOf(err) != fault.Invalid {
		t.Errorf("got %v", err)
	}
}
