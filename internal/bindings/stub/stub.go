// Package stub writes the files by which programs in a sandbox find and call the
// tools of another MCP server: typed functions for Python and TypeScript, what
// plain JavaScript imports, and an index.
//
// All that it is made of is foreign text, which may be hostile. Names become
// ASCII identifiers that mean nothing to either language; everything else that
// runs is an escaped literal; descriptions are in docstrings and comments, which
// nothing in them ends. What a schema cannot be read for, or has too much of, is
// Any. No reference is fetched and no regular expression executed.
//
// The files rely on a module of the guest's, servers: in Python
// tool(server, tool, names) makes a function into the tool's by its signature, and
// lazy(package, names) gives the __getattr__ and __dir__ of a package, whose names lead
// to the modules that have them; in
// JavaScript tool(server, tool) gives the function. A parameter that is ... was
// not given. Entries of a parameter with two asterisks are sent under their own
// names.
package stub

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"sync"

	"paddock/internal/bindings"
	"paddock/internal/bindings/schema"
	"paddock/internal/textsafe"
)

// File is one file of a tree.
type File struct {
	Path string // slash-separated, beneath the server's folder
	Data []byte
}

// Tree is what is in a server's folder.
type Tree struct {
	Files []File // ordered by their paths, which differ in more than their case
	Tools []Named
}

// Digest names the tree's contents: it is the same for the same files.
func (t Tree) Digest() string {
	h := sha256.New()
	for _, f := range t.Files {
		fmt.Fprintf(h, "%d %s %d\n", len(f.Path), f.Path, len(f.Data))
		h.Write(f.Data)
	}
	return hex.EncodeToString(h.Sum(nil))
}

// maxFile bounds a tool's module, in bytes: a model reads it whole.
const maxFile = 64 << 10

// function is one tool, read.
type function struct {
	tool       Named
	input      *record // nil: it takes whatever is named
	parameters []parameter
	more       string // the parameter for what else is named; empty: none
	result     *shape
	records    []*record
	notes      []string
}

// detail is how much of a tool's schemas is told.
type detail uint8

const (
	whole  detail = iota
	flat          // the arguments by name, without their types
	barely        // that there are some
)

func newFunction(tool Named, d detail) *function {
	f := &function{tool: tool, result: whatever}
	taken := map[string]bool{}
	for _, name := range []string{tool.Python, tool.JavaScript, tool.Camel, tool.types + "Args", tool.types + "Result"} {
		taken[strings.ToLower(name)] = true
	}
	for name := range usedPython {
		taken[strings.ToLower(name)] = true
	}
	for name := range reservedJavaScript {
		taken[strings.ToLower(name)] = true
	}
	if d == barely {
		f.more = "arguments"
		f.notes = []string{"Its schema is too large to be shown here."}
		return f
	}
	in := &reader{prefix: tool.types, taken: taken, flat: d == flat, arguments: true}
	args := in.read(tool.Tool.Input, "Args")
	f.fields(in, args)
	f.records, f.notes = in.records, in.notes
	if len(tool.Tool.Output) > 0 {
		out := &reader{prefix: tool.types, taken: taken, flat: d == flat}
		f.result = out.read(tool.Tool.Output, "Result")
		if f.result.form == named {
			f.result.record.used = true
		}
		if f.result.form == nothing {
			f.result = whatever
		}
		f.records = append(f.records, out.records...)
		f.notes = append(f.notes, out.notes...)
	}
	if d == flat {
		f.notes = append(f.notes, "Its types are too large to be shown here: schemas.json has them.")
	}
	return f
}

// fields takes the arguments' fields as parameters.
func (f *function) fields(in *reader, args *shape) {
	switch {
	case args.form == named && args.record.alias == nil:
		f.input = args.record
	case in.root.Kind == schema.Object && in.root.Get("properties").Kind == schema.Object && !in.root.Get("additionalProperties").Bool:
		f.input = &record{name: f.tool.types + "Args"} // it takes nothing
		in.records = append(in.records, f.input)
	default:
		f.more = "arguments"
		return
	}
	f.parameters = parameters(f.input.fields)
	if f.input.open {
		f.more = "more"
		for slices.ContainsFunc(f.parameters, func(p parameter) bool { return p.name == f.more }) {
			f.more += "_"
		}
	}
}

// doc gives the lines that say what the tool does, as its server says it.
func (f *function) doc() []string {
	t := f.tool.Tool
	lines := textsafe.Lines(t.Title, 200)
	if told := textsafe.Lines(t.Description, 6000); len(told) > 0 {
		if len(lines) > 0 && !slices.Equal(lines, told) {
			lines = append(append(lines, ""), told...)
		} else {
			lines = told
		}
	}
	if len(lines) == 0 {
		lines = []string{"The server says nothing of this tool."}
	}
	for _, note := range f.notes {
		lines = append(append(lines, ""), textsafe.Lines(note, 300)...)
	}
	return lines
}

func (f *function) resultDoc() []string {
	switch output := f.tool.Tool.Output; {
	case len(output) == 0:
		return []string{"", "What it gives is not described."}
	case schema.Learned(output):
		return []string{"", "What it gives was learned from earlier results; the server promises nothing."}
	}
	return nil
}

// fieldDoc gives one line about a field: what it is and its default.
func fieldDoc(f field) string {
	line := textsafe.Line(f.doc, 400)
	if f.value.Kind != schema.None {
		line += " (default: " + textsafe.Line(textsafe.Shorten(f.value.JSON(), 80), 80) + ")"
	}
	return strings.TrimSpace(line)
}

// modules writes the two modules of a tool, with less detail where they would be
// too large.
func modules(server string, tool Named) (python, script string) {
	for d := whole; ; d++ {
		f := newFunction(tool, d)
		python, script = f.pythonFile(server), f.scriptFile(server)
		if d == barely || len(python) <= maxFile && len(script) <= maxFile {
			return python, script
		}
	}
}

// Generate makes the files of a server's folder. The same server and tools give
// the same bytes, in whatever order the tools are. A tool whose name is longer
// than 8 KiB has no file, and neither have those beyond the first 10,000.
func Generate(server string, tools []bindings.Tool) Tree {
	t := Tree{Tools: Names(tools)}
	add := func(path, data string) { t.Files = append(t.Files, File{path, []byte(data)}) }
	for _, n := range t.Tools {
		t.Files = append(t.Files, moduleFiles(server, n)...)
	}
	left := len(tools) - len(t.Tools)
	add("__init__.py", initFile(server, t.Tools))
	add("tools.py", toolsFile(server, t.Tools))
	add("__init__.pyi", "from . import tools as tools\n"+pyiFile(t.Tools))
	add("tools.pyi", pyiFile(t.Tools))
	add("index.js", indexScript(server, t.Tools))
	types := indexTypes(t.Tools)
	add("index.ts", types)
	add("index.d.ts", types)
	add("index.md", indexText(server, t.Tools, left))
	add("schemas.json", schemasFile(server, t.Tools))
	slices.SortFunc(t.Files, func(a, b File) int { return strings.Compare(a.Path, b.Path) })
	return t
}

func moduleFiles(server string, n Named) []File {
	py, ts := modules(server, n)
	return []File{{n.Python + ".py", []byte(py)}, {n.JavaScript + ".ts", []byte(ts)}}
}

// Differing makes those files of Generate(server, tools) that are other ones than they
// were when the tools of these names had other output schemas, or none.
func Differing(server string, tools []bindings.Tool, names []string) []File {
	all := Names(tools)
	files := []File{{"schemas.json", []byte(schemasFile(server, all))}}
	for _, n := range all {
		if slices.Contains(names, n.Tool.Name) {
			files = append(files, moduleFiles(server, n)...)
		}
	}
	return files
}

// Version names how files are made: it is another one where the same tools would give
// other files, as far as a sample of tools shows.
var Version = sync.OnceValue(func() string {
	input := json.RawMessage(`{"type":"object","properties":{"text":{"type":"string","description":"some \"text\"","default":"a"},"class":{"enum":["a","b",1,null]},"list":{"type":"array","items":{"$ref":"#/$defs/node"}},"any":{"anyOf":[{"type":"integer"},{"type":"boolean"}]}},"required":["text"],"additionalProperties":false,"$defs":{"node":{"type":"object","properties":{"next":{"$ref":"#/$defs/node"},"of":{"type":"object","additionalProperties":{"type":"number"}}}}}}`)
	output := json.RawMessage(`{"type":"object","properties":{"degrees":{"type":"number"},"at":{"type":["string","null"]}},"required":["degrees"]}`)
	learned := schema.Learn(nil, json.RawMessage(`{"a":[1,2.5,{"b":null}]}`))
	return Generate("a-sample", []bindings.Tool{
		{Name: "get-sum", Title: "A title", Description: "Text.\n\n\"\"\" */ ${x}", Input: input, Output: output},
		{Name: "getSum", Input: json.RawMessage(`{"type":"object"}`), Output: learned},
		{Name: "import", Description: "A keyword.", Input: json.RawMessage(`{"type":"object","additionalProperties":true,"properties":{"self":{}}}`)},
		{Name: "no schema"},
	}).Digest()
})

// raw gives a schema as it came where it is JSON of a size that may be handed on,
// and null where not.
func raw(s json.RawMessage) string {
	if len(s) == 0 || len(s) > 1<<20 || !json.Valid(s) {
		return "null"
	}
	return string(s)
}
