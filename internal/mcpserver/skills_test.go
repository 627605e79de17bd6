package mcpserver

import (
	"archive/zip"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"paddock/internal/expect"
	"paddock/internal/mcpserver/transport"
	"paddock/internal/session"
	"paddock/internal/skill"
)

const exampleSkill = "---\nname: words\ndescription: Counts the words of a text.\nlicense: MIT\nmetadata:\n  version: \"1.0\"\n  paddock.tools: github/*\n---\n# Words\n\n```python\ndef count(text):\n    return len(text.split())\n```\n"

// skillsFor makes a store in which an owner has two skills.
func skillsFor(t *testing.T, owner string) *skill.Store {
	t.Helper()
	s := skill.NewStore(skill.Config{Dir: t.TempDir()})
	dir := filepath.Join(t.TempDir(), "words")
	for name, text := range map[string]string{skill.MainFile: exampleSkill, "scripts/count.py": "print(1)\n", "references/deep/more.md": "More.\n", "assets/a.bin": "\x00\x01"} {
		file := filepath.Join(dir, filepath.FromSlash(name))
		if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	from, err := skill.ParseSource(dir, true)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.Install(t.Context(), owner, from); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Save(owner, "zeros", "", "def zeros(n):\n    return [0] * n", "Makes zeros.", []string{"numbers"}); err != nil {
		t.Fatal(err)
	}
	return s
}

// shelf is a host of skills.
type shelf struct {
	*httptest.Server
	mu    sync.Mutex // guards files
	files map[string][]byte
}

func newShelf(t *testing.T) *shelf {
	s := &shelf{files: map[string][]byte{}}
	s.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s.mu.Lock()
		data, ok := s.files[r.URL.Path]
		s.mu.Unlock()
		if !ok {
			http.NotFound(w, r)
			return
		}
		_, _ = w.Write(data)
	}))
	t.Cleanup(s.Close)
	return s
}

// put packs files as a zip, and gives its address.
func (s *shelf) put(t *testing.T, name string, files ...string) string {
	t.Helper()
	var b bytes.Buffer
	z := zip.NewWriter(&b)
	for k := 0; k < len(files); k += 2 {
		h := &zip.FileHeader{Name: files[k], Method: zip.Deflate}
		h.SetMode(0o644)
		if strings.HasPrefix(files[k+1], "-> ") {
			h.SetMode(0o777 | os.ModeSymlink)
		}
		w, err := z.CreateHeader(h)
		if err == nil {
			_, err = io.WriteString(w, strings.TrimPrefix(files[k+1], "-> "))
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.files["/"+name] = b.Bytes()
	return s.URL + "/" + name
}

// withSkills serves an owner who may fetch from everywhere.
func withSkills(t *testing.T) (*mcp.ClientSession, *Server) {
	t.Helper()
	s := newServer(t, Config{Skills: skill.NewStore(skill.Config{Dir: t.TempDir(), Transport: http.DefaultTransport})}, session.Config{})
	return connect(t, s, "test", nil), s
}

func TestASkillIsInstalledUpdatedFoundAndRemoved(t *testing.T) {
	web := newShelf(t)
	cs, _ := withSkills(t)
	url := web.put(t, "words.zip", "words/SKILL.md", exampleSkill, "words/scripts/count.py", "print(1)\n", "words/old.md", "Old.\n")
	res := use(t, cs, "skill_install", map[string]any{"source": url})
	if res.IsError {
		t.Fatalf("it gives %v", res.StructuredContent)
	}
	expect.Equal(t, "the package", field[string](t, res, "package"), "skills.words")
	expect.Equal(t, "the path", field[string](t, res, "path"), "/skills/words")
	expect.Equal(t, "how many files there are", len(field[[]any](t, res, "files")), 3)
	if got, want := field[string](t, res, "digest"), "sha256:"; !strings.HasPrefix(got, want) {
		t.Errorf("the digest: got %s, want %s at its beginning", got, want)
	}
	if notes := fmt.Sprint(field[[]any](t, res, "notes")); !strings.Contains(notes, "has the rights of the program's session") {
		t.Errorf(`field[[]any](t, res, "notes"): got %q, want %q in it`,
			notes, "has the rights of the program's session")
	} else if !strings.Contains(notes, "it uses: github/*.") {
		t.Errorf(`field[[]any](t, res, "notes"): got %q, want %q in it`, notes, "it uses: github/*.")
	}
	first := field[string](t, res, "digest")
	web.put(t, "words.zip", "words/SKILL.md", exampleSkill, "words/scripts/count.py", "print(2)\n", "words/new.md", "New.\n")
	res = use(t, cs, "skill_install", map[string]any{"source": url})
	if got := fmt.Sprint(field[map[string]any](t, res, "update")); got != "map[added:[new.md] before:"+first+" changed:[scripts/count.py] removed:[old.md]]" {
		t.Errorf("an update gives %s", got)
	}
	id := onlySession(t, cs)
	if info := use(t, cs, "get_workspace_info", map[string]any{}); fmt.Sprint(field[[]any](t, info, "skills")) != "[words]" {
		t.Errorf("the session has %v", info.StructuredContent)
	}
	if res := use(t, cs, "skill_install", map[string]any{"source": url, "session_id": id}); res.IsError {
		t.Errorf("for a session: %v", res.StructuredContent)
	}
	use(t, cs, "skill_save", map[string]any{"name": "zeros", "code": "def zeros(n):\n    return [0] * n", "description": "Makes lists of zeros.", "tags": []string{"numbers"}})
	for level, want := range map[string]string{
		"name":        `{"name":"words","package":"skills.words","successes":0,"uses":0}`,
		"description": `{"description":"Counts the words of a text.","name":"words","package":"skills.words","path":"/skills/words","successes":0,"uses":0}`,
	} {
		res := use(t, cs, "skill_search", map[string]any{"query": "words of a text", "detail_level": level})
		if found := field[[]any](t, res, "skills"); len(found) != 1 {
			t.Errorf("%s: len(found): got %d, want 1: %v", level, len(found), found)
		} else if string(transport.Encoded(found[0])) != want {
			t.Errorf("%s: string(transport.Encoded(found[0])): got %q, want %q",
				level, string(transport.Encoded(found[0])), want)
		}
	}
	res = use(t, cs, "skill_search", map[string]any{"query": "words", "detail_level": "full"})
	full := string(transport.Encoded(res.StructuredContent))
	expect.Part(t, "all of it", full, `"instructions":"# Words`)
	expect.Part(t, "all of it", full, `"tools":["github/*"]`)
	expect.Part(t, "all of it", full, url)
	if res := use(t, cs, "skill_remove", map[string]any{"name": "words"}); res.IsError {
		t.Errorf("removing gives %v", res.StructuredContent)
	}
	if res := use(t, cs, "skill_search", map[string]any{}); len(field[[]any](t, res, "skills")) != 1 {
		t.Errorf("there are %v", res.StructuredContent)
	}
}

func TestADamagedSkillKeepsNoOtherFromBeingToldOf(t *testing.T) {
	dir := t.TempDir()
	s := newServer(t, Config{Skills: skill.NewStore(skill.Config{Dir: dir})}, session.Config{})
	cs := connect(t, s, "test", nil)
	for _, name := range []string{"bad", "good"} {
		use(t, cs, "skill_save", map[string]any{"name": name, "code": "def " + name + "():\n    return 1", "description": "Gives numbers."})
	}
	damaged := 0
	err := filepath.WalkDir(dir, func(file string, d os.DirEntry, err error) error {
		if err != nil || d.Name() != skill.MainFile {
			return err
		}
		if text, err := os.ReadFile(file); err != nil || !strings.Contains(string(text), "def bad") {
			return err
		}
		damaged++
		return errors.Join(os.Remove(file), os.WriteFile(file, []byte("spoilt"), 0o600))
	})
	if err != nil {
		t.Fatal(err)
	}
	if damaged == 0 {
		t.Fatal("damaged: got 0, want more")
	}
	res := use(t, cs, "skill_search", map[string]any{"query": "numbers", "detail_level": "full"})
	if res.IsError {
		t.Fatalf("it gives %s", transport.Encoded(res.StructuredContent))
	}
	for _, one := range field[[]any](t, res, "skills") {
		one := one.(map[string]any)
		text, problem := fmt.Sprint(one["instructions"]), fmt.Sprint(one["problem"])
		good := strings.Contains(text, "def good") && one["problem"] == nil
		bad := one["instructions"] == nil && strings.HasPrefix(problem, "what it holds is left out: the skill ")
		if name := one["name"]; name == "good" && !good {
			t.Errorf("the good one gives %s", transport.Encoded(one))
		} else if name == "bad" && !bad {
			t.Errorf("the bad one gives %s", transport.Encoded(one))
		}
	}
	if n := len(field[[]any](t, res, "skills")); n != 2 {
		t.Errorf("%d were found", n)
	}
}

func TestHostileBundlesAreRefused(t *testing.T) {
	web := newShelf(t)
	cs, _ := withSkills(t)
	for name, test := range map[string]struct {
		files []string
		want  string
	}{
		"climbs":        {[]string{"a/SKILL.md", strings.Replace(exampleSkill, "words", "a", 1), "a/../../evil", "x"}, "denied"},
		"link":          {[]string{"a/SKILL.md", strings.Replace(exampleSkill, "words", "a", 1), "a/link", "-> /etc/passwd"}, "denied"},
		"absolute":      {[]string{"a/SKILL.md", strings.Replace(exampleSkill, "words", "a", 1), "/etc/evil", "x"}, "denied"},
		"twice":         {[]string{"a/SKILL.md", strings.Replace(exampleSkill, "words", "a", 1), "a/x", "1", "a/X", "2"}, "invalid"},
		"name climbs":   {[]string{"a/SKILL.md", strings.Replace(exampleSkill, "words", "../evil", 1)}, "invalid"},
		"another name":  {[]string{"t/a/SKILL.md", exampleSkill}, "invalid"},
		"aliases":       {[]string{"a/SKILL.md", "---\nname: a\ndescription: &x [lol]\nmetadata: {a: *x, b: *x}\n---\n"}, "invalid"},
		"a bomb":        {[]string{"a/SKILL.md", strings.Replace(exampleSkill, "words", "a", 1), "a/zeros", strings.Repeat("\x00", 20<<20)}, "exhausted"},
		"no skill":      {[]string{"a/README.md", "x"}, "not_found"},
		"wide manifest": {[]string{"a/SKILL.md", "---\nname: a\ndescription: x\nmetadata:\n  paddock.hosts: \"*\"\n---\n"}, "denied"},
	} {
		t.Run(name, func(t *testing.T) {
			res := use(t, cs, "skill_install", map[string]any{"source": web.put(t, "a.zip", test.files...)})
			if code := field[map[string]any](t, res, "error")["code"]; !res.IsError {
				t.Errorf("res.IsError: got false, want true: %v", res.StructuredContent)
			} else if code != test.want {
				t.Errorf(`field[map[string]any](t, res, "error")["code"]: got %v, want %v`, code, test.want)
			}
		})
	}
	if res := use(t, cs, "skill_search", map[string]any{}); len(field[[]any](t, res, "skills")) != 0 {
		t.Errorf("there are %v", res.StructuredContent)
	}
	hidden := strings.Replace(exampleSkill, "# Words", "# Words\U000e0069\U000e0067\U000e006e\U000e006f\U000e0072\U000e0065", 1)
	res := use(t, cs, "skill_install", map[string]any{"source": web.put(t, "words.zip", "words/SKILL.md", hidden)})
	if notes := fmt.Sprint(field[[]any](t, res, "notes")); !strings.Contains(notes, `Warning: SKILL.md:9: it holds text in invisible tag characters: "ignore"`) {
		t.Errorf("of what cannot be seen it notes %s", notes)
	}
}

func TestAnotherOnesSkillsAreNotSeen(t *testing.T) {
	s := newServer(t, Config{Skills: skillsFor(t, "alice"), Binding: func(context.Context, transport.Caller) (Bound, error) { return Bound{Owner: "bob"}, nil }}, session.Config{})
	cs := inMemory(t, s)
	if res := use(t, cs, "skill_search", map[string]any{}); len(field[[]any](t, res, "skills")) != 0 {
		t.Errorf("there are %v", res.StructuredContent)
	}
	if _, err := cs.ReadResource(t.Context(), &mcp.ReadResourceParams{URI: "skill://words/SKILL.md"}); err == nil {
		t.Error("another one's skill was read")
	}
	if res := use(t, cs, "skill_remove", map[string]any{"name": "words"}); !res.IsError {
		t.Error("another one's skill was removed")
	}
}

func TestSkillsAreResources(t *testing.T) {
	s := newServer(t, Config{Skills: skillsFor(t, string(session.Local))}, session.Config{})
	cs := connect(t, s, "test", nil)
	use(t, cs, "execute_code", map[string]any{"language": "python", "code": `write("a.txt", "x")`})
	var names []string
	for r, err := range cs.Resources(t.Context(), nil) {
		if err != nil {
			t.Fatal(err)
		}
		names = append(names, r.Name)
	}
	if strings.Join(names, " ") != "words zeros a.txt" {
		t.Errorf("there are %v", names)
	}
	for uri, want := range map[string]string{"skill://words/SKILL.md": exampleSkill, "skill://words/references/deep/more.md": "More.\n"} {
		read, err := cs.ReadResource(t.Context(), &mcp.ReadResourceParams{URI: uri})
		if err != nil {
			t.Fatalf("%s: got error %v, want none", uri, err)
		}
		expect.Equal(t, fmt.Sprintf("%s: read.Contents[0].Text", uri), read.Contents[0].Text, want)
		expect.Equal(t, fmt.Sprintf("%s: read.Contents[0].MIMEType", uri), read.Contents[0].MIMEType, "text/markdown")
	}
	read, err := cs.ReadResource(t.Context(), &mcp.ReadResourceParams{URI: "skill://words/assets/a.bin"})
	if err != nil {
		t.Fatalf("bytes: got error %v, want none", err)
	}
	if !bytes.Equal(read.Contents[0].Blob, []byte{0, 1}) {
		t.Errorf("bytes: read.Contents[0].Blob: got %q, want %q", read.Contents[0].Blob, []byte{0, 1})
	}
	for _, uri := range []string{"skill://words/", "skill://words/../zeros/SKILL.md", "skill://words/..%2fzeros%2fSKILL.md", "skill://words/nothing", "skill://../words/SKILL.md", "skill://words%2f..%2fzeros/SKILL.md", "skill://nothing/SKILL.md", "skill://"} {
		_, err := cs.ReadResource(t.Context(), &mcp.ReadResourceParams{URI: uri})
		var wire *jsonrpc.Error
		if err == nil {
			t.Fatalf("%s: got no error, want one", uri)
		}
		if !errors.As(err, &wire) {
			t.Fatalf("%s: got %v, want an error of another type", uri, err)
		}
		if wire.Code != jsonrpc.CodeInvalidParams {
			t.Errorf("%s: wire.Code: got %v, want %v", uri, wire.Code, jsonrpc.CodeInvalidParams)
		}
	}
}

func TestManySkillsAreListedInPages(t *testing.T) {
	store := skill.NewStore(skill.Config{Dir: t.TempDir()})
	for k := range skillPage + 3 {
		if _, err := store.Save("local", fmt.Sprintf("s%03d", k), "", "x = 1", "Does it.", nil); err != nil {
			t.Fatal(err)
		}
	}
	s := newServer(t, Config{Skills: store}, session.Config{})
	first, err := s.listSkills("local", &listSkillsParams{})
	if err != nil {
		t.Fatalf("the first page: got error %v, want none", err)
	}
	if len(first.Skills) != skillPage {
		t.Fatalf("the first page: len(first.Skills): got %d, want %d: %v",
			len(first.Skills), skillPage, first.Skills)
	}
	if first.NextCursor != "s049" {
		t.Fatalf("the first page: first.NextCursor: got %q, want %q", first.NextCursor, "s049")
	}
	second, err := s.listSkills("local", &listSkillsParams{Cursor: first.NextCursor})
	if err != nil {
		t.Fatal(err)
	}
	if len(second.Skills) != 3 {
		t.Fatalf("the second page has %d skills, want 3: %s", len(second.Skills), transport.Encoded(second))
	}
	expect.Equal(t, "the next page", second.NextCursor, "")
	expect.Equal(t, "the first of the second page", second.Skills[0].URI, "skill://s050/SKILL.md")
	var raw map[string]json.RawMessage
	if err := json.Unmarshal(transport.Encoded(second), &raw); err != nil {
		t.Fatal(err)
	}
	expect.Equal(t, "ttlMs", string(raw["ttlMs"]), "0")
	expect.Equal(t, "cacheScope", string(raw["cacheScope"]), `"private"`)
	expect.Equal(t, "resultType", string(raw["resultType"]), `"complete"`)
}

// A token without the set reads no skill.
func TestSkillsAreOfTheirSet(t *testing.T) {
	s := newServer(t, Config{Skills: skillsFor(t, "local")}, session.Config{})
	if s.SDK([]string{"core", "files"}, false, false) == s.SDK(nil, false, false) {
		t.Fatal("they are one server")
	}
	for _, only := range [][]string{{"core"}, {"core", "files"}} {
		client := mcp.NewClient(&mcp.Implementation{Name: "test", Version: "1"}, nil)
		to, from := mcp.NewInMemoryTransports()
		if _, err := s.SDK(only, false, false).Connect(t.Context(), from, nil); err != nil {
			t.Fatal(err)
		}
		cs, err := client.Connect(t.Context(), to, nil)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := cs.ReadResource(t.Context(), &mcp.ReadResourceParams{URI: "skill://words/SKILL.md"}); err == nil {
			t.Errorf("%v: a skill was read", only)
		}
		cs.Close()
	}
}

func TestSkillsAreSavedInEachLanguageAndChecked(t *testing.T) {
	cs, _ := withSkills(t)
	save := func(name, language, code string) *mcp.CallToolResult {
		return use(t, cs, "skill_save", map[string]any{"name": name, "language": language, "code": code, "description": "Adds numbers."})
	}
	for _, c := range []struct{ name, language, code, wrong string }{
		{"py", "python", "```python\ndef add(a, b):\n    return a + b\n```", ""},
		{"js", "javascript", "function add(a, b) { return a + b }", ""},
		{"ts", "typescript", "export function add(a: number, b: number): number { return a + b }", ""},
		{"bad-py", "python", "a syntax error", "not Python: SyntaxError: invalid syntax"},
		{"bad-js", "javascript", "function add(a, b { return a + b }", "cannot be imported: Expected"},
		{"bad-ts", "typescript", "function add(a: number, b: { return a + b }", "cannot be imported: line"},
		{"none", "perl", "sub add {}", "language"},
	} {
		res := save(c.name, c.language, c.code)
		if text := string(transport.Encoded(res)); res.IsError != (c.wrong != "") {
			t.Errorf("%s: is an error: got %v, want %v: %s", c.name, res.IsError, c.wrong != "", text)
		} else if !strings.Contains(text, c.wrong) {
			t.Errorf("string(transport.Encoded(res)): got %q, want %q in it", text, c.wrong)
		}
	}
}
