package skill

import (
	"fmt"
	"strings"
	"testing"

	"paddock/internal/expect"
	"paddock/internal/fault"
)

func TestSourcesThatAreOnes(t *testing.T) {
	pin := strings.Repeat("ab", 32)
	for text, want := range map[string]Source{
		"github:owner/repo":                          {Kind: GitHub, Repo: "owner/repo"},
		"github:owner/repo/skills/pdf":               {Kind: GitHub, Repo: "owner/repo", Path: "skills/pdf"},
		"github:owner/re.po/skills/pdf@v1.2/x":       {Kind: GitHub, Repo: "owner/re.po", Path: "skills/pdf", Ref: "v1.2/x"},
		"github:owner/repo/pdf/SKILL.md@main":        {Kind: GitHub, Repo: "owner/repo", Path: "pdf", Ref: "main"},
		"github:owner/repo/pdf@main#sha256=" + pin:   {Kind: GitHub, Repo: "owner/repo", Path: "pdf", Ref: "main", Digest: "sha256:" + pin},
		"https://a.example/x/SKILL.md":               {Kind: Page, URL: "https://a.example/x/SKILL.md"},
		"https://a.example/x.zip#subdirectory=a/b":   {Kind: Archive, URL: "https://a.example/x.zip", Path: "a/b"},
		"https://a.example/x.tar.gz?t=1#a":           {Kind: Archive, URL: "https://a.example/x.tar.gz?t=1", Path: "a"},
		"https://a.example/x.skill#sha256=" + pin:    {Kind: Archive, URL: "https://a.example/x.skill", Digest: "sha256:" + pin},
		"git+https://a.example/r.git":                {Kind: Git, URL: "https://a.example/r.git"},
		"git+https://a.example/r.git@v1#skills/a":    {Kind: Git, URL: "https://a.example/r.git", Ref: "v1", Path: "skills/a"},
		"git+https://a.example/r@b/c#sha256=" + pin:  {Kind: Git, URL: "https://a.example/r", Ref: "b/c", Digest: "sha256:" + pin},
		"git+http://127.0.0.1:1/r.git#./a/SKILL.md/": {Kind: Git, URL: "http://127.0.0.1:1/r.git", Path: "a"},
	} {
		got, err := ParseSource(text, false)
		want.Text = text
		if err != nil {
			t.Fatalf("%s: got error %v, want none: %s", text, err, text)
		}
		if got != want {
			t.Errorf("%s: got %v, want %v", text, got, want)
		}
	}
	if got, err := ParseSource("./some/folder", true); err != nil {
		t.Errorf("a folder: got error %v, want none", err)
	} else {
		expect.Equal(t, "a folder: got.Kind", got.Kind, Local)
		expect.Equal(t, "a folder: got.URL", got.URL, "./some/folder")
	}
}

func TestSourcesThatAreNone(t *testing.T) {
	for _, text := range []string{
		"", "github:", "github:owner", "github:owner/", "github:/repo", "github:own er/repo", "github:owner/..", "github:-owner/repo", "github:owner/repo/../x", "github:owner/repo/a/../../x",
		"github:owner/repo@", "github:owner/repo@-x", "github:owner/repo@a..b", "github:owner/repo@a b", "github:owner/repo@a?b", "github:owner/repo#sha256=12", "github:owner/repo#x=1", `github:owner/repo/a\b`, "github:owner/repo/a?b",
		"http://a.example/SKILL.md", "git+http://a.example/r", "http://10.0.0.1/SKILL.md", "https://", "https://a.example", "https://a.example/x", "https://a.example/x.exe", "https://u:p@a.example/SKILL.md", "https://a.example/SKILL.md#x",
		"git+ssh://a.example/r", "git+file:///etc", "git+https://a.example", "git+https://a.example/", "git+https://u@a.example/r", "git+https://a.example/r?x", "git+https://a.example/r@", "git+https://a.example/r@--upload-pack=x", "git+https://a.example/r#../x", "git+https://a.example/r#/etc/../x",
		"file:///etc/passwd", "ssh://a.example/r", "ftp://a.example/SKILL.md", "/etc", "./x", "..", `C:\x`, "a\nb", strings.Repeat("a", 3000), "git://a.example/r", "ext::sh -c x",
	} {
		if got, err := ParseSource(text, false); fault.KindOf(err) != fault.Invalid && fault.KindOf(err) != fault.Denied {
			t.Errorf("%q is %+v, %v", text, got, err)
		}
	}
	for _, text := range []string{"file:///etc", "ssh://a.example/r"} {
		if _, err := ParseSource(text, true); err == nil {
			t.Errorf("%q is a folder", text)
		}
	}
	if _, err := ParseSource("./x", false); fault.KindOf(err) != fault.Denied {
		t.Errorf("a model names a folder: %v", err)
	}
}

// What is a source leads nowhere but where it says.
func FuzzSource(f *testing.F) {
	for _, s := range []string{"github:a/b/c@d", "git+https://a.example/r@b#c", "https://a.example/x.zip#subdirectory=a&sha256=00", "github:a/b/../c"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, text string) {
		s, err := ParseSource(text, false)
		if err != nil {
			if k := fault.KindOf(err); k != fault.Invalid && k != fault.Denied {
				t.Errorf("%q gives %v", text, err)
			}
			return
		}
		if s.Kind == Local {
			t.Errorf("%q: s.Kind: got %v, want another", text, s.Kind)
		}
		expect.NoPart(t, fmt.Sprintf(`%q: "/"+s.Path+"/"`, text), "/"+s.Path+"/", "/../")
		if strings.HasPrefix(s.Path, "/") {
			t.Errorf("%q: s.Path: got %q, want it not to begin with %q", text, s.Path, "/")
		}
		if strings.HasPrefix(s.Ref, "-") {
			t.Errorf("%q: s.Ref: got %q, want it not to begin with %q", text, s.Ref, "-")
		}
		expect.NoPart(t, fmt.Sprintf("%q: s.Ref", text), s.Ref, "..")
		if s.Kind == GitHub && (strings.Count(s.Repo, "/") != 1 || strings.ContainsAny(s.Repo, "?#@%\\: ")) {
			t.Errorf("%q is the repository %q", text, s.Repo)
		}
		if s.Kind != GitHub && !strings.HasPrefix(s.URL, "https://") && !strings.HasPrefix(s.URL, "http://") {
			t.Errorf("%q is the URL %q", text, s.URL)
		}
		if s.origin() == "" {
			t.Errorf("%q has no origin", text)
		}
	})
}

func TestWhoSharesAHostHasNoSayOverAnothersSkill(t *testing.T) {
	origin := func(text string) string {
		t.Helper()
		s, err := ParseSource(text, false)
		if err != nil {
			t.Fatal(err)
		}
		return s.origin()
	}
	hers := origin("https://raw.example.com/alice/skills/main/words/SKILL.md")
	if next := origin("https://raw.example.com/alice/skills/v2/words/SKILL.md"); next != hers {
		t.Errorf("a later version comes from %q, not %q", next, hers)
	}
	for _, text := range []string{"https://raw.example.com/mallory/skills/main/words/SKILL.md", "https://raw.example.com/alice/../mallory/words/SKILL.md", "https://raw.example.com/alice/%2e%2e/mallory/words/SKILL.md"} {
		if his := origin(text); his == hers {
			t.Errorf("both come from %q", his)
		}
	}
	if one, other := origin("https://example.com/words-1.zip"), origin("https://example.com/words-2.zip"); one != other {
		t.Errorf("versions at the root come from %q and %q", one, other)
	}
}
