package skill

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"paddock/internal/expect"
	"paddock/internal/helper"
	"paddock/internal/sandbox/sandboxtest"
)

var pythonIdentifier = regexp.MustCompile(`^[a-z_][a-z0-9_]*$`)

func TestEveryNameHasAModuleOfItsOwn(t *testing.T) {
	for name, want := range map[string]string{"pdf": "pdf", "pdf-tools": "pdf_tools", "3d-models": "_3d_models", "import": "import_", "class": "class_", "lib": "lib", "index": "index"} {
		if got := (FrontMatter{Name: name}).Package(); got != want {
			t.Errorf("%s: got %v, want %v", name, got, want)
		} else if !pythonIdentifier.MatchString(got) {
			t.Errorf("%s is %s, want %s", name, got, want)
		}
	}
}

func installedOf(t *testing.T, folders ...Folder) (all []*Installed) {
	t.Helper()
	for _, f := range folders {
		s, err := Check(f, "", false)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, &Installed{*recordOf(s, s.Folder.Digest(), Provenance{Kind: GitHub, Text: "github:a/b", Commit: commit, At: time.Unix(0, 0).UTC()}), s})
	}
	return all
}

// nasty is text that breaks out of literals that are not escaped.
const nasty = "\"\"\" ''' \\ \\\" ${evil} `evil` */ // # \u2028 \u2029 \U0001f600 é \x7f \\U0001f600 evil"

// laid writes the modules of skills into a folder.
func laid(t *testing.T, folders ...Folder) string {
	t.Helper()
	dir := t.TempDir()
	var all Folder
	var records []Record
	for _, in := range installedOf(t, folders...) {
		all = append(all, in.Skill.Modules()...)
		records = append(records, in.Record)
	}
	for _, f := range append(all, File{Path: indexFile, Data: index(records)}) {
		name := filepath.Join(dir, "skills", f.Path)
		if err := os.MkdirAll(filepath.Dir(name), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(name, f.Data, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

func nastySkill(t *testing.T) Folder {
	t.Helper()
	description, err := json.Marshal(nasty)
	if err != nil {
		t.Fatal(err)
	}
	return folderOf(t, File{Path: MainFile, Data: []byte("---\nname: class\ndescription: " + strings.ReplaceAll(string(description), "\x7f", `\u007f`) + "\n---\n" + nasty + "\n")})
}

func run(t *testing.T, dir, program string, args ...string) string {
	t.Helper()
	path, err := exec.LookPath(program)
	sandboxtest.Require(t, map[string]string{"python3": "python", "node": "node"}[program], err == nil, "there is no "+program)
	cmd := exec.CommandContext(t.Context(), path, args...)
	cmd.Dir = dir
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	return string(out)
}

func TestPythonImportsASkill(t *testing.T) {
	dir := laid(t, folderOf(t, example("word-count")...), nastySkill(t))
	expected, err := json.Marshal(nasty)
	if err != nil {
		t.Fatal(err)
	}
	run(t, dir, "python3", "-c", `
import json, sys
from skills.word_count import instructions, count, lib, path, name
assert name == "word-count" and path == "/skills/word-count"
assert instructions.startswith("# Words") and instructions() == instructions and type(instructions()) is str
assert count("a b c") == 3 and lib.count is count
from skills.word_count.lib import count as again
from skills.word_count.lib.snippet_1 import re
assert again is count
import skills.class_ as odd
assert odd.description == odd.instructions == odd.__doc__ == json.loads(sys.argv[1]), (odd.description, odd.instructions)
try:
    odd.missing
    raise SystemExit("it is there")
except AttributeError:
    pass
index = json.load(open("skills/index.json"))
assert list(index) == ["class", "word-count"], index
entry = index["word-count"]
assert entry["package"] == "skills.word_count" and entry["source"] == "github:a/b" and entry["digest"].startswith("sha256:") and len(entry["files"]) == 4, entry
`, string(expected))
}

func TestJavaScriptImportsASkill(t *testing.T) {
	more := folderOf(t, File{Path: MainFile, Data: []byte("---\nname: more\ndescription: x\n---\n```js\nimport { join } from 'node:path';\nexport const two = 2\n```\n\n" +
		"```javascript\n/*\nfunction none() {}\n*/\nasync function later() { return join('a', 'b') }\nclass Thing {}\nconst name = 'mine'\n```\n")},
		File{Path: "a", Data: []byte("x")})
	broken := folderOf(t, File{Path: MainFile, Data: []byte("---\nname: broken\ndescription: x\n---\nSee.\n```js\nfunction ( {\n```\n")})
	dir := laid(t, folderOf(t, example("word-count")...), nastySkill(t), more, broken)
	expected, err := json.Marshal(nasty)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "package.json"), []byte(`{"type":"module"}`), 0o600); err != nil {
		t.Fatal(err)
	}
	program := `
import assert from "node:assert";
import { count, instructions, path } from "./skills/word_count.js";
import * as odd from "./skills/class.js";
import * as more from "./skills/more.js";
import * as broken from "./skills/broken.js";
assert.equal(count("a b c"), 3);
assert(instructions.startsWith("# Words"));
assert.equal(path, "/skills/word-count");
assert.equal(odd.instructions, JSON.parse(process.argv[2]));
assert.equal(odd.description, odd.instructions);
assert.equal(await more.later(), "a/b");
assert.equal(more.two, 2);
assert.equal(typeof more.Thing, "function");
assert.equal(more.none, undefined);
assert.equal(more.name, "more");
assert.equal(broken.instructions.slice(0, 4), "See.");
`
	if err := os.WriteFile(filepath.Join(dir, "main.js"), []byte(program), 0o600); err != nil {
		t.Fatal(err)
	}
	run(t, dir, "node", "main.js", string(expected))
}

// What uses a function in the instructions is an example: a program that imports the skill
// gets the function.
func TestExamplesInJavaScriptAreNotRun(t *testing.T) {
	const code = "import { join } from 'node:path';\nexport function double(x) {\n  return 2 * x;\n}\n\nconst limit = 3, all = new Map();\nconst clamp = (x) =>\n  Math.min(x, limit);\nlet got = await double(\n  4,\n);\nconsole.log(\n  got,\n);\nif (got) {\n  throw new Error('example');\n}\nfetch('x')\n  .then((r) => r)\n"
	for info, want := range map[string]string{
		"js":                "import { join } from 'node:path';\nexport function double(x) {\n  return 2 * x;\n}\n\nconst limit = 3, all = new Map();\nconst clamp = (x) =>\n  Math.min(x, limit);\n",
		"js " + wholeModule: code,
	} {
		s := &Skill{Instructions: "```" + info + "\n" + code + "```\n"}
		module, why := s.script()
		expect.Equal(t, fmt.Sprintf("%s: why", info), why, "")
		expect.Part(t, fmt.Sprintf("%s: module", info), module, want+"\nexport {")
		if strings.Contains(module, "example") != (want == code) {
			t.Errorf("%s: %s\n%s", info, why, module)
		}
	}
}

func TestWhichFencesAreCode(t *testing.T) {
	markdown := "```python\na\n```\n\n- item\n\n  ```py\n  if b:\n      b\n  ```\n\n~~~Python3 title=x\nc\n~~~\n\n```\nno\n```\n\n```bash\nno\n```\n\n```python\n>>> no\n```\n\n````python\n```\nd\n````\n\n    ```python\n    no\n    ```\n\n```python\n```\n\n```python\nunclosed"
	var got []string
	for _, f := range fences(markdown, pythonNames) {
		got = append(got, f.code)
	}
	if want := "a\n|if b:\n    b\n|c\n|```\nd\n|unclosed\n"; strings.Join(got, "|") != want {
		t.Errorf("got %q", got)
	}
	if f := fences(markdown, pythonNames); f[1].line != 8 {
		t.Errorf("the second is in line %d", f[1].line)
	}
}

// Each of these took other ways of reading Markdown minutes or more; none may take
// noticeable time here, or the test does not end.
func TestTextsThatGrowWithTheirSquareDoNot(t *testing.T) {
	for name, text := range map[string]string{
		"emphasis":        strings.Repeat("*a_ ", 60_000),
		"links":           strings.Repeat("[a](", 60_000),
		"quotes":          strings.Repeat(">", 250_000),
		"lists":           strings.Repeat("1. ", 80_000),
		"fences":          strings.Repeat("```py\na\n```\n", 20_000),
		"hidden":          strings.Repeat("\U000e0041", 60_000),
		"hidden by lines": strings.Repeat("\n", 250_000) + "\u200b",
	} {
		s, err := check(t, mainOf("a")[:len(mainOf("a"))-1]+"\n"+text)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if deep := name == "quotes" || name == "lists"; deep != strings.Contains(fmt.Sprint(s.Warnings), "too deep") {
			t.Errorf("%s gives %v", name, s.Warnings)
		}
		if n := len(fences(s.Instructions, pythonNames)); n > maxFences {
			t.Errorf("len(fences(s.Instructions, pythonNames)): got %v, want at most %v", n, maxFences)
		} else if name == "emphasis" && n != 2 {
			t.Errorf("%s has %d pieces of code", name, n)
		}
	}
}

// JavaScript that ends a process, or that it does not end with, costs the skill its module.
func TestDeepJavaScriptIsLeftOut(t *testing.T) {
	program, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	helpers := helper.NewRunner(program)
	defer helpers.Close()
	store := NewStore(Config{Dir: t.TempDir(), Helpers: helpers})
	script := func(s *Skill) (module, why string) {
		t.Helper()
		module, why, err := store.script(t.Context(), "ann", s, Saved)
		if err != nil {
			t.Fatal(err)
		}
		return module, why
	}
	for _, part := range []string{"(", "[", "`${", "a=>", "!", "if(a)", "{", "class a extends ", "new ", "x?"} {
		for _, size := range []int{maxScript - 200, 4 * maxScript} {
			s := &Skill{Instructions: "```js\n" + strings.Repeat(part, size/len(part)) + "\n```\n"}
			module, why := script(s)
			if why == "" && strings.Contains(module, part) {
				t.Errorf("%d times %q is a module: %.100s", size/len(part), part, module)
			}
			if len(module) > 200 {
				t.Errorf("%d times %q: got a module of %d bytes, want none", size/len(part), part, len(module))
			}
		}
	}
	// Nothing is wrong with this, but that reading it takes years.
	s := &Skill{Instructions: "```ts\nx=" + strings.Repeat("a?(b):c=>", maxScript/10) + "d\n```\n"}
	module, why := script(s)
	if want := "took longer than"; !strings.Contains(why, want) {
		t.Errorf("functions in one another: got %q, want it to say %q", why, want)
	}
	if module != noScript {
		t.Errorf("functions in one another: got the module %.100q, want %q", module, noScript)
	}
}
