package skill

import (
	"bytes"
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/evanw/esbuild/pkg/api"
	"github.com/yuin/goldmark/ast"
	"github.com/yuin/goldmark/parser"
	"github.com/yuin/goldmark/text"
)

// Mount is where a skill's own folder lies in a sandbox.
func Mount(name string) string { return "/skills/" + name }

// fence is a piece of code in the instructions.
type fence struct {
	line int // of SKILL.md's body, from 1
	code string
}

// pythonNames and scriptNames are what fences of a language begin with.
var (
	pythonNames = []string{"python", "py", "python3"}
	scriptNames = []string{"javascript", "js", "mjs"}
)

// maxNesting bounds how deep lists and quotes of the instructions lie in one
// another where code is looked for in them: the work for a line grows with it.
const maxNesting = 40

// maxFences bounds how many pieces of code in one language are taken.
const maxFences = 500

// container matches what begins a list's item or a quote.
var container = regexp.MustCompile(`^(?:>|[-+*](?:[ \t]|$)|[0-9]{1,9}[.)](?:[ \t]|$))`)

// nested tells whether a text is deeper than that.
func nested(markdown string) bool {
	for line := range strings.SplitSeq(markdown, "\n") {
		depth := 0
		for rest := line; depth <= maxNesting; depth++ {
			trimmed := strings.TrimLeft(rest, " \t")
			found := container.FindString(trimmed)
			if found == "" {
				break
			}
			if len(line)-len(trimmed) > 4*maxNesting {
				return true
			}
			rest = trimmed[len(found):]
		}
		if depth > maxNesting {
			return true
		}
	}
	return false
}

// blocks finds blocks of Markdown and nothing within them: what a line says is not
// of interest, and takes a time that grows with its square.
var blocks = parser.NewParser(parser.WithBlockParsers(parser.DefaultBlockParsers()...))

// fences gives the pieces of code in a language, in order. What shows a console is
// none. In a text that is too deep none is found.
func fences(markdown string, names []string) (found []fence) {
	if nested(markdown) {
		return nil
	}
	source := []byte(markdown)
	doc := blocks.Parse(text.NewReader(source))
	line, counted := 1, 0 // of what comes before counted
	_ = ast.Walk(doc, func(n ast.Node, entering bool) (ast.WalkStatus, error) {
		block, ok := n.(*ast.FencedCodeBlock)
		if !ok || !entering || !slices.Contains(names, strings.ToLower(string(block.Language(source)))) {
			return ast.WalkContinue, nil
		}
		var code strings.Builder
		lines := block.Lines()
		for k := range lines.Len() {
			at := lines.At(k)
			code.Write(at.Value(source))
		}
		first := strings.TrimSpace(code.String())
		if first == "" || strings.HasPrefix(first, ">>>") {
			return ast.WalkContinue, nil
		}
		if len(found) == maxFences {
			return ast.WalkStop, nil
		}
		if at := lines.At(0).Start; at > counted {
			line, counted = line+bytes.Count(source[counted:at], []byte("\n")), at
		}
		found = append(found, fence{line, strings.TrimRight(code.String(), "\n") + "\n"})
		return ast.WalkContinue, nil
	})
	return found
}

// Modules makes the files of the package "skills", as programs in a sandbox import
// them, for these skills; their paths are below the folder of the package:
//
//	index.json                what there is, by name
//	__init__.py
//	<package>/__init__.py     instructions, name, description, path
//	<package>/lib/            the Python of the instructions, in order
//	<package>/index.js        the same for JavaScript, whose code is in lib.js
//
// instructions is a text, which can be called as well, as in Mayflower. Names of
// lib are names of the package as well; lib is executed when one is used.
// Everything that is text of a skill's stands in escaped literals, but for its code.
func Modules(installed []*Installed) Folder {
	files := []File{{Path: "__init__.py", Data: []byte("\"\"\"The skills that are installed.\"\"\"\n")}, {Path: "index.json", Data: index(installed)}}
	for _, in := range installed {
		files = append(files, in.Skill.modules()...)
	}
	slices.SortFunc(files, func(a, b File) int { return strings.Compare(a.Path, b.Path) })
	return files
}

// indexEntry is what index.json says of a skill.
type indexEntry struct {
	Name        string    `json:"name"`
	Package     string    `json:"package"`
	Path        string    `json:"path"`
	Description string    `json:"description"`
	Source      string    `json:"source"`
	Ref         string    `json:"ref,omitempty"`
	Commit      string    `json:"commit,omitempty"`
	Digest      string    `json:"digest"`
	Installed   time.Time `json:"installed_at"`
	Files       []string  `json:"files"`
}

func index(installed []*Installed) []byte {
	all := map[string]indexEntry{}
	for _, in := range installed {
		e := indexEntry{in.Name, "skills." + in.Skill.Package(), Mount(in.Name), in.Skill.Description, in.Source.Text, in.Source.Ref, in.Source.Commit, in.Digest, in.Source.At, []string{}}
		for _, file := range in.Skill.Folder {
			e.Files = append(e.Files, file.Path)
		}
		all[in.Name] = e
	}
	data, err := json.MarshalIndent(all, "", "  ")
	if err != nil {
		panic("skill: " + err.Error()) // of this package's own types
	}
	return append(data, '\n')
}

// modules makes the files of one skill.
func (s *Skill) modules() []File {
	at := s.Package() + "/"
	var lib strings.Builder
	lib.WriteString("\"\"\"The Python of a skill's instructions, in their order.\"\"\"\n")
	var files []File
	for k, f := range fences(s.Instructions, pythonNames) {
		piece := fmt.Sprintf("# Line %d of the instructions.\n%s", f.line, f.code)
		lib.WriteString("\n" + piece)
		files = append(files, File{Path: fmt.Sprintf("%slib/snippet_%d.py", at, k+1), Data: []byte(piece)})
	}
	script, _ := s.script()
	return append(files,
		File{Path: at + "__init__.py", Data: []byte(s.initPy())},
		File{Path: at + "lib/__init__.py", Data: []byte(lib.String())},
		File{Path: at + "lib.js", Data: []byte(script)},
		File{Path: at + "index.js", Data: []byte(s.indexJS())},
	)
}

func (s *Skill) initPy() string {
	return fmt.Sprintf(`__doc__ = %s


class _Text(str):
    __slots__ = ()

    def __call__(self):
        return str(self)


name = %s
description = %s
path = %s
instructions = _Text(%s)


def __getattr__(attribute):
    if attribute.startswith("__"):
        raise AttributeError(attribute)
    from importlib import import_module

    lib = import_module(__name__ + ".lib")
    return lib if attribute == "lib" else getattr(lib, attribute)
`, python(s.Description), python(s.Name), python(s.Description), python(Mount(s.Name)), python(s.Instructions))
}

func (s *Skill) indexJS() string {
	return fmt.Sprintf(`export * from "./lib.js";
export const name = %s;
export const description = %s;
export const path = %s;
export const instructions = %s;
`, javascript(s.Name), javascript(s.Description), javascript(Mount(s.Name)), javascript(s.Instructions))
}

// python writes a text as a literal of ASCII characters.
func python(s string) string {
	var b strings.Builder
	b.WriteByte('"')
	for _, r := range s {
		switch {
		case r == '"' || r == '\\':
			b.WriteByte('\\')
			b.WriteRune(r)
		case r == '\n':
			b.WriteString(`\n`)
		case r >= ' ' && r < 0x7f:
			b.WriteRune(r)
		case r <= 0xffff:
			fmt.Fprintf(&b, `\u%04x`, r)
		default:
			fmt.Fprintf(&b, `\U%08x`, r)
		}
	}
	b.WriteByte('"')
	return b.String()
}

// beyond matches what Python's literals have for characters beyond the first 65,536,
// and the escape that might stand before its like.
var beyond = regexp.MustCompile(`(\\\\|\\U[0-9a-f]{8})`)

// javascript writes a text as a literal of ASCII characters.
func javascript(s string) string {
	return beyond.ReplaceAllStringFunc(python(s), func(found string) string {
		if found == `\\` {
			return found
		}
		return `\u{` + strings.TrimLeft(found[2:], "0") + `}`
	})
}

// declared matches what a piece of JavaScript declares at its outermost, as people
// write it: at the beginning of a line.
var (
	declared = regexp.MustCompile(`(?m)^(?:async\s+)?(?:function\s*\*?|class|const|let|var)\s+([A-Za-z_$][A-Za-z0-9_$]*)`)
	quoted   = regexp.MustCompile(`"([A-Za-z_$][A-Za-z0-9_$]*)"`)
)

// maxScript bounds the JavaScript of a skill's instructions, in bytes: it is read
// by a parser in this process, whose stack grows by some 2 KB with each bracket, and
// may not grow to the gigabyte that ends a process.
const maxScript = 32 << 10

// script makes a module of the JavaScript of the instructions, which exports what
// it declares. Where that is no module, it is left out, and why says why.
func (s *Skill) script() (module, why string) {
	const head = "// The JavaScript of a skill's instructions, in their order.\n"
	var b strings.Builder
	b.WriteString(head)
	var names []string
	for _, f := range fences(s.Instructions, scriptNames) {
		fmt.Fprintf(&b, "\n// Line %d of the instructions.\n%s", f.line, f.code)
		for _, m := range declared.FindAllStringSubmatch(f.code, -1) {
			names = append(names, m[1])
		}
	}
	slices.Sort(names)
	names = slices.Compact(names)
	code := b.String()
	if len(code) > maxScript {
		return head + "export {};\n", fmt.Sprintf("it has more than %d KiB; put it into scripts/", maxScript>>10)
	}
	for range 3 { // each time without the names that were none
		module = code
		if len(names) > 0 {
			module += "\nexport { " + strings.Join(names, ", ") + " };\n"
		}
		result := api.Transform(module, api.TransformOptions{Loader: api.LoaderJS, Format: api.FormatESModule, Target: api.ESNext, LogLevel: api.LogLevelSilent})
		if len(result.Errors) == 0 {
			return module, ""
		}
		why = result.Errors[0].Text
		before := len(names)
		for _, e := range result.Errors {
			if m := quoted.FindStringSubmatch(e.Text); m != nil {
				names = slices.DeleteFunc(names, func(name string) bool { return name == m[1] })
			}
		}
		if len(names) == before {
			break
		}
	}
	return head + "export {};\n", why
}
