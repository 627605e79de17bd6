package cli

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"

	"paddock/internal/sandbox/sandboxtest"
)

// tarball packs files as GitHub's archives do.
func tarball(t *testing.T, files map[string]string) []byte {
	t.Helper()
	var b bytes.Buffer
	z := gzip.NewWriter(&b)
	w := tar.NewWriter(z)
	for name, text := range files {
		err := w.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: "anthropics-skills-0123456/" + name, Mode: 0o644, Size: int64(len(text))})
		if err == nil {
			_, err = io.WriteString(w, text)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	for _, c := range []io.Closer{w, z} {
		if err := c.Close(); err != nil {
			t.Fatal(err)
		}
	}
	return b.Bytes()
}

// use calls a tool, and gives the structured content.
func (c *client) use(tool string, arguments any) map[string]any {
	c.t.Helper()
	line, err := json.Marshal(map[string]any{"jsonrpc": "2.0", "id": 2, "method": "tools/call", "params": map[string]any{"name": tool, "arguments": arguments}})
	if err != nil {
		c.t.Fatal(err)
	}
	c.send(string(line))
	var got struct {
		Result struct {
			StructuredContent map[string]any `json:"structuredContent"`
		} `json:"result"`
	}
	if err := json.Unmarshal([]byte(c.receive()), &got); err != nil {
		c.t.Fatal(err)
	}
	return got.Result.StructuredContent
}

// runs runs a program, which has to print this and nothing else.
func (c *client) runs(language, code, want string) {
	c.t.Helper()
	got := c.use("execute_code", map[string]any{"language": language, "code": code})
	if got["stdout"] != want {
		c.t.Errorf(`%s: got["stdout"]: got %v, want %v`, code, got["stdout"], want)
	}
	if got["success"] != true {
		c.t.Errorf(`%s: got["success"]: got %v, want true`, code, got["success"])
	}
}

const artSkill = `---
name: algorithmic-art
description: Creating algorithmic art using p5.js with seeded randomness.
license: Complete terms in LICENSE.txt
---
Algorithmic philosophies are computational aesthetic movements.

` + "```python\ndef seeded(seed):\n    import random\n    return random.Random(seed).random()\n```\n\n```js\nexport const frames = 3\nfunction draw(n) { return `frame ${n}` }\n```\n"

// What Mayflower's documents show works unchanged: a skill is installed from GitHub
// and imported, and its files are there.
func TestMayflowersSkillExample(t *testing.T) {
	names, reason := guests(t)
	sandboxtest.Require(t, "wasm", len(names) == 2, reason)
	var archive atomic.Value
	files := map[string]string{
		"algorithmic-art/SKILL.md": artSkill, "algorithmic-art/LICENSE.txt": "Apache", "algorithmic-art/templates/viewer.html": "<html>",
		"algorithmic-art/scripts/grow.py": "import sys\nprint('grown', sys.argv[1:], open('/skills/algorithmic-art/templates/viewer.html').read())\n", "README.md": "Others.",
	}
	archive.Store(tarball(t, files))
	var asked atomic.Value
	github := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked.Store(r.URL.Path + " " + r.Header.Get("Authorization"))
		_, _ = w.Write(archive.Load().([]byte))
	}))
	t.Cleanup(github.Close)
	t.Setenv("PADDOCK_SKILLS_ALLOW", "127.0.0.1:*!private")
	t.Setenv("PADDOCK_SKILLS_GITHUB_API", github.URL)
	t.Setenv("PADDOCK_SKILLS_GITHUB_TOKEN", "0123456789abcdef-token")
	c := startWith(t, paddock(t, false, "mcp"))
	c.runs("python", "import os\nprint('algorithmic-art' in os.listdir('/skills'))", "False\n")

	got := c.use("skill_install", map[string]any{"source": "github:anthropics/skills/algorithmic-art"})
	if got["name"] != "algorithmic-art" {
		t.Fatalf(`got["name"]: got %q, want %q`, got["name"], "algorithmic-art")
	}
	if got["package"] != "skills.algorithmic_art" {
		t.Fatalf(`got["package"]: got %q, want %q`, got["package"], "skills.algorithmic_art")
	}
	if len(got["files"].([]any)) != 4 {
		t.Fatalf(`len(got["files"].([]any)): got %d, want 4: %v`, len(got["files"].([]any)), got["files"].([]any))
	}
	if asked.Load() != "/repos/anthropics/skills/tarball Bearer 0123456789abcdef-token" {
		t.Errorf("GitHub was asked for %v", asked.Load())
	}
	c.runs("python", "from skills.algorithmic_art import instructions\nprint(instructions()[:23])\nprint(instructions == instructions())", "Algorithmic philosophie\nTrue\n")
	c.runs("python", "from skills.algorithmic_art.lib import seeded\nfrom skills.algorithmic_art import seeded as again\nprint(seeded(1) == again(1))", "True\n")
	c.runs("python", "import json\nindex = json.load(open('/skills/index.json'))\nprint(index['algorithmic-art']['package'], open('/skills/algorithmic-art/LICENSE.txt').read())", "skills.algorithmic_art Apache\n")
	c.runs("python", "import runpy, sys\nsys.argv[1:] = ['a']\n_ = runpy.run_path('/skills/algorithmic-art/scripts/grow.py', run_name='__main__')", "grown ['a'] <html>\n")
	c.runs("python", "try:\n    open('/skills/algorithmic-art/SKILL.md', 'w')\nexcept OSError as e:\n    print(type(e).__name__)", "OSError\n")
	c.runs("javascript", `import { instructions, draw, frames } from "skills/algorithmic-art"; console.log(instructions.slice(0, 11), draw(2), frames)`, "Algorithmic frame 2 3\n")
	c.runs("typescript", `import { draw } from "skills/algorithmic_art"; const n: number = 5; console.log(draw(n))`, "frame 5\n")

	files["algorithmic-art/SKILL.md"] = strings.ReplaceAll(artSkill, "random()", "random() + 1")
	delete(files, "algorithmic-art/LICENSE.txt")
	archive.Store(tarball(t, files))
	update, err := json.Marshal(c.use("skill_install", map[string]any{"source": "github:anthropics/skills/algorithmic-art"})["update"])
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{`"added":[]`, `"changed":["SKILL.md"]`, `"removed":["LICENSE.txt"]`} {
		if !strings.Contains(string(update), want) {
			t.Errorf("an update gives %s, want %s in it", update, want)
		}
	}
	c.runs("python", "import importlib, os, skills.algorithmic_art.lib as lib\nold = lib.seeded(1)\nnew = importlib.reload(lib).seeded(1)\nprint(round(new - old), os.listdir('/skills/algorithmic-art'))", "1 ['SKILL.md', 'scripts', 'templates']\n")

	c.use("skill_save", map[string]any{"name": "double", "code": "def double(x):\n    return 2 * x", "description": "Doubles a number."})
	c.runs("python", "from skills.double import double\nprint(double(21))", "42\n")
	found := c.use("skill_search", map[string]any{"query": "doubling numbers"})["skills"].([]any)
	if first := found[0].(map[string]any); first["name"] != "double" {
		t.Errorf(`first["name"]: got %q, want %q`, first["name"], "double")
	} else if first["uses"] != 1.0 {
		t.Errorf(`first["uses"]: got %v, want %v`, first["uses"], 1.0)
	} else if first["successes"] != 1.0 {
		t.Errorf(`first["successes"]: got %v, want %v`, first["successes"], 1.0)
	}
	c.use("skill_remove", map[string]any{"name": "double"})
	c.runs("python", "import os\nprint(os.path.exists('/skills/double'), os.path.exists('/skills/double.py'))", "False False\n")
	if denied := c.use("skill_install", map[string]any{"source": "https://example.com/SKILL.md"}); denied["error"].(map[string]any)["code"] != "denied" {
		t.Errorf("a host that is not allowed gives %v", denied)
	}
	c.stdin.Close()
	c.ends()
}
