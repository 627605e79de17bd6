package skill

import (
	"bytes"
	"cmp"
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

	"paddock/internal/bindings/stub"
	"paddock/internal/sandbox/typescript"
)

// MountFolder is the folder in a sandbox in which skills lie.
const MountFolder = "skills"

// Mount is where a skill's own folder lies in a sandbox.
func Mount(name string) string { return "/" + MountFolder + "/" + name }

// Module is what Python imports.
func (m FrontMatter) Module() string { return MountFolder + "." + m.Package() }

// fence is a piece of code in the instructions.
type fence struct {
	line     int    // of SKILL.md's body, from 1
	language string // as it is written there, in lower case
	whole    bool   // it says that it is a module: every statement counts
	code     string
}

func (f fence) typed() bool { return slices.Contains(typedNames, f.language) }

// pythonNames and scriptNames are what fences of a language begin with.
var (
	pythonNames = []string{"python", "py", "python3"}
	scriptNames = []string{"javascript", "js", "mjs"}
	typedNames  = []string{"typescript", "ts", "mts"}
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
		if !ok || !entering {
			return ast.WalkContinue, nil
		}
		language := strings.ToLower(string(block.Language(source)))
		if !slices.Contains(names, language) {
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
		_, info, _ := strings.Cut(string(block.Info.Value(source)), " ")
		found = append(found, fence{line, language, slices.Contains(strings.Fields(info), wholeModule), strings.TrimRight(code.String(), "\n") + "\n"})
		return ast.WalkContinue, nil
	})
	return found
}

// library is the folder in which the modules' code lies.
const library = ".lib"

// Modules makes the files by which programs in a sandbox import a skill; their paths
// are below the folder of the package "skills", in which the skill's own folder lies
// as well:
//
//	<package>.py                what Python imports: instructions, name, description, path
//	<name>.js                   the same for JavaScript; and <package>.js
//	.lib/<package>/lib/         the Python of the instructions, in order; unless the
//	                            skill brings lib.py or a package lib of its own
//	.lib/<package>/lib.js       their JavaScript
//
// instructions is a text, which can be called as well, as in Mayflower. Names of
// lib are names of the package as well; lib is executed when one is used. Modules in
// the skill's own folder are modules of the package, too. Everything that is text of
// a skill's stands in escaped literals, but for its code.
//
// Modules reads the JavaScript in this process: it is for skills that are trusted. See
// [Script].
func (s *Skill) Modules() Folder {
	script, _ := s.script()
	return s.modules(script)
}

// modules are the Modules of which lib.js is script.
func (s *Skill) modules(script string) Folder {
	of := s.Package()
	at := library + "/" + of + "/"
	var files []File
	if !s.has("lib.py") && !s.has("lib/__init__.py") {
		files = s.fencedLib(at)
	}
	files = append(files,
		File{Path: of + ".py", Data: []byte(s.modulePy())},
		File{Path: at + "lib.js", Data: []byte(script)},
		File{Path: s.Name + ".js", Data: []byte(s.moduleJS())},
	)
	if of != s.Name {
		files = append(files, File{Path: of + ".js", Data: []byte(alias(s.Name))})
	}
	for name, data := range s.instead() {
		files = append(files, File{Path: s.Name + "/" + name, Data: []byte(data)})
	}
	slices.SortFunc(files, func(a, b File) int { return strings.Compare(a.Path, b.Path) })
	return files
}

// has tells whether the skill has a file.
func (s *Skill) has(name string) bool {
	_, ok := s.Folder.Get(name)
	return ok
}

// fencedLib makes a package of the Python of the instructions.
func (s *Skill) fencedLib(at string) (files []File) {
	var lib strings.Builder
	lib.WriteString("\"\"\"The Python of a skill's instructions, in their order.\"\"\"\n")
	for k, f := range fences(s.Instructions, pythonNames) {
		piece := fmt.Sprintf("# Line %d of the instructions.\n%s", f.line, f.code)
		lib.WriteString("\n" + piece)
		files = append(files, File{Path: fmt.Sprintf("%slib/snippet_%d.py", at, k+1), Data: []byte(piece)})
	}
	return append(files, File{Path: at + "lib/__init__.py", Data: []byte(lib.String())})
}

// instead are files that programs see in the place of the skill's own of these names,
// which would keep the skill from being imported.
func (s *Skill) instead() map[string]string {
	files := map[string]string{}
	if s.has("__init__.py") && s.Package() == s.Name {
		files["__init__.py"] = s.modulePy()
	}
	if s.has("index.js") {
		files["index.js"] = alias("../" + s.Name)
	}
	return files
}

// alias is a module that is another one.
func alias(of string) string {
	if !strings.HasPrefix(of, ".") {
		of = "./" + of
	}
	return fmt.Sprintf("export * from %s;\n", stub.ScriptLiteral(of+".js"))
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

// indexFile says what there is, by name.
const indexFile = "index.json"

func index(records []Record) []byte {
	all := map[string]indexEntry{}
	for _, r := range records {
		e := indexEntry{r.Name, r.Module(), Mount(r.Name), r.Description, r.Source.Text, r.Source.Ref, r.Source.Commit, r.Digest, r.Source.At, []string{}}
		for _, file := range r.Files {
			e.Files = append(e.Files, file.Path)
		}
		all[r.Name] = e
	}
	data, err := json.MarshalIndent(all, "", "  ")
	if err != nil {
		panic("skill: " + err.Error()) // of this package's own types
	}
	return append(data, '\n')
}

func (s *Skill) modulePy() string {
	return fmt.Sprintf(`__doc__ = %[1]s


class _Text(str):
    __slots__ = ()

    def __call__(self):
        return str(self)


name = %[2]s
description = %[1]s
path = %[3]s
instructions = _Text(%[4]s)

_folder = __file__.rpartition("/%[5]s")[0]
__path__ = [_folder + "/%[6]s/%[5]s", _folder + "/" + name]


def __getattr__(attribute):
    if attribute.startswith("__"):
        raise AttributeError(attribute)
    from importlib import import_module

    lib = import_module(__name__ + ".lib")
    return lib if attribute == "lib" else getattr(lib, attribute)
`, stub.PythonLiteral(s.Description), stub.PythonLiteral(s.Name), stub.PythonLiteral(Mount(s.Name)), stub.PythonLiteral(s.Instructions), s.Package(), library)
}

func (s *Skill) moduleJS() string {
	return fmt.Sprintf(`export * from "./%s/%s/lib.js";
export const name = %s;
export const description = %s;
export const path = %s;
export const instructions = %s;
`, library, s.Package(), stub.ScriptLiteral(s.Name), stub.ScriptLiteral(s.Description), stub.ScriptLiteral(Mount(s.Name)), stub.ScriptLiteral(s.Instructions))
}

// declared matches what a piece of JavaScript declares at its outermost, as people
// write it: at the beginning of a line.
var (
	declared = regexp.MustCompile(`(?m)^(?:async\s+)?(?:function\s*\*?|class|const|let|var)\s+([A-Za-z_$][A-Za-z0-9_$]*)`)
	quoted   = regexp.MustCompile(`"([A-Za-z_$][A-Za-z0-9_$]*)"`)
)

// maxScript bounds the JavaScript of a skill's instructions, in bytes.
const maxScript = 32 << 10

// untyped is TypeScript without its types; why says why it is none.
func untyped(code string) (js, why string) {
	if len(code) > maxScript {
		return "", fmt.Sprintf("it has more than %d KiB; put it into scripts/", maxScript>>10)
	}
	js, _, failed := typescript.Strip(code, "skill.ts")
	if failed != nil {
		return "", fmt.Sprintf("%s (line %d of the code)", failed.Message, failed.Line)
	}
	return js, ""
}

// wholeModule stands behind a block's language where its code is a module: then none of its
// statements is taken for an example.
const wholeModule = "module"

// What a statement of a module begins with that declares something, in the first column;
// and what the value of a constant begins with when an example worked it out. The rest of a
// statement is indented, or begins with a bracket that closes it.
var (
	declares = regexp.MustCompile(`^(?:import\b[^(.]|export\b|(?:async\s+)?function\b|class\b|const\b|let\b|var\b|//|/\*|\*)`)
	worked   = regexp.MustCompile(`^(?:export\s+)?(?:const|let|var)\s[^=]*=\s*(?:await\b|[A-Za-z_$][A-Za-z0-9_$.]*\s*\()`)
	required = regexp.MustCompile(`=\s*(?:require|new\s|function|async)\b`)
)

// declarations are what a block declares, without the statements that use it: who imports a
// skill does not mean to run its examples.
func (f fence) declarations() string {
	if f.whole {
		return f.code
	}
	var kept strings.Builder
	keep := true
	for line := range strings.Lines(f.code) {
		if line[0] > ' ' && !strings.ContainsRune("})]`.?:+-&|", rune(line[0])) {
			keep = declares.MatchString(line) && (!worked.MatchString(line) || required.MatchString(line))
		}
		if keep {
			kept.WriteString(line)
		}
	}
	return kept.String()
}

// What a module of a skill's JavaScript begins with, and one that has nothing.
const (
	scriptHead = "// The JavaScript of a skill's instructions, in their order.\n"
	noScript   = scriptHead + "export {};\n"
)

// scripts are the pieces of JavaScript and TypeScript in the instructions.
func (s *Skill) scripts() []fence {
	return fences(s.Instructions, slices.Concat(scriptNames, typedNames))
}

// script makes a module of the JavaScript of the instructions, which exports what
// it declares. Where that is no module, it is left out, and why says why. There is code
// that ends the process, or that it does not end with: see [Script].
func (s *Skill) script() (module, why string) {
	var all, b strings.Builder
	b.WriteString(scriptHead)
	var names []string
	leftOut := "" // why a piece of TypeScript is
	for _, f := range s.scripts() {
		if f.typed() {
			js, wrong := untyped(f.code)
			if wrong != "" {
				leftOut = cmp.Or(leftOut, fmt.Sprintf("line %d: %s", f.line, wrong))
				continue
			}
			f.code = js
		}
		if all.Len() > maxScript {
			break
		}
		all.WriteString(f.code)
		fmt.Fprintf(&b, "\n// Line %d of the instructions.\n%s", f.line, f.declarations())
		for _, m := range declared.FindAllStringSubmatch(f.code, -1) {
			names = append(names, m[1])
		}
	}
	slices.Sort(names)
	names = slices.Compact(names)
	code := b.String()
	if len(code) > maxScript || all.Len() > maxScript {
		return noScript, fmt.Sprintf("it has more than %d KiB; put it into scripts/", maxScript>>10)
	}
	for range 3 { // each time without the names that were none
		module = code
		if len(names) > 0 {
			module += "\nexport { " + strings.Join(names, ", ") + " };\n"
		}
		result := api.Transform(module, api.TransformOptions{Loader: api.LoaderJS, Format: api.FormatESModule, Target: api.ESNext, LogLevel: api.LogLevelSilent})
		if len(result.Errors) == 0 {
			return module, leftOut
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
	return noScript, why
}
