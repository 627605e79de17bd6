package stub

import (
	"encoding/json"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"paddock/internal/bindings"
	"paddock/internal/bindings/schema"
	"paddock/internal/sandbox/sandboxtest"
)

var update = flag.Bool("update", false, "write the golden files again")

// evil are texts that end the literal or comment around them, or do not show what they are.
var evil = []string{
	`*/ globalThis.pwned = 1; /*`, "`${globalThis.pwned=1}`", `"; globalThis.pwned = 1; "`, `'; globalThis.pwned = 1; '`,
	`"""` + "\nopen('pwned', 'w')\n" + `"""`, `""`, `"`, `\`, `\"`, `\\"`, `"""`, `""""`, `x"""y`, `\"""`, `x\`, "\n", "\r\nimport os\r\n",
	"a\nimport os; os.system('touch pwned')\n", "\u2028globalThis.pwned=1\u2029", "nul\x00byte", "\u202eltr\u2066", "\x1b[31mred\x1b[0m",
	"\x7f\u0085\ufeff\u200b\U000e0041", "# -*- coding: utf-7 -*-", "+ACI-", `{open('pwned','w')}`, `%s %n`, `\u0022); globalThis.pwned=1; (\u0022`, `\N{BULLET}`, `\x22`,
	`</script><script>`, "![x](https://elsewhere.example/?q=1)", "*/", "//# sourceMappingURL=x", "@ts-nocheck", "\\\u2028", "日本語 – ключ", "🎉", strings.Repeat("y", 5000),
}

// hostile are tools made of them, each text in each place.
func hostile() []bindings.Tool {
	tools := []bindings.Tool{}
	for _, e := range evil {
		object := func(v any) json.RawMessage {
			text, err := json.Marshal(v)
			if err != nil {
				panic(err)
			}
			return text
		}
		nested := map[string]any{"type": "object", "title": e, "description": e, "properties": map[string]any{
			e: map[string]any{"type": "string", "description": e, "default": e}, "class": map[string]any{"const": e}, "list": map[string]any{"type": "array"}}, "required": []string{e}}
		tools = append(tools, bindings.Tool{
			Name: e, Title: e, Description: e,
			Input: object(map[string]any{"type": "object", "$defs": map[string]any{e: nested}, "description": e, "properties": map[string]any{
				e: map[string]any{"type": "string", "description": e, "title": e, "pattern": e, "format": e}, "b": map[string]any{"enum": []any{e, 1, nil, e + "!"}},
				"c": nested, "d": map[string]any{"$ref": "#/$defs/" + e}, "e": map[string]any{"type": e}, "f": map[string]any{"anyOf": []any{nested, map[string]any{"const": e}}},
				"g": map[string]any{"type": "object", "description": e, "properties": map[string]any{"x": map[string]any{"type": "string", "description": e}}}}, "required": []string{e, "c"}}),
			Output: object(nested),
		})
	}
	return tools
}

// TestNothingInAToolsTextsIsExecuted holds attack 79 against both languages.
func TestNothingInAToolsTextsIsExecuted(t *testing.T) {
	tools := hostile()
	for _, server := range []string{"evil", "a-b", evil[0], evil[4], evil[12]} {
		tree := Generate(server, tools)
		if len(tree.Tools) != len(tools) {
			t.Fatalf("%d of %d tools are there", len(tree.Tools), len(tools))
		}
		if err := checkFiles(tools, tree); err != nil {
			t.Fatal(err)
		}
	}
	tree := Generate("evil", tools)
	told, err := startPython(t, python3(t)).execute(tree)
	if err != nil {
		t.Fatal(err)
	}
	if err := checkTold("evil", tree, told); err != nil {
		t.Fatal(err)
	}
}

// TestModulesAreImportedByEveryPython uses the ones that are on the path.
func TestModulesAreImportedByEveryPython(t *testing.T) {
	python3(t)
	tools := append(hostile()[:12], described()...)
	for _, b := range bombs() {
		if len(b.Input) < 5000 {
			tools = append(tools, b)
		}
	}
	tree := Generate("many", tools)
	for minor := 9; minor <= 14; minor++ {
		program, err := exec.LookPath(fmt.Sprintf("python3.%d", minor))
		if err != nil || exec.Command(program, "-c", "").Run() != nil {
			continue
		}
		t.Run(fmt.Sprint("3.", minor), func(t *testing.T) {
			told, err := startPython(t, program).execute(tree)
			if err == nil {
				err = checkTold("many", tree, told)
			}
			if err != nil {
				t.Error(err)
			}
		})
	}
}

// TestWhatIndexJSDoesIsCallTool has node import it.
func TestWhatIndexJSDoesIsCallTool(t *testing.T) {
	node, err := exec.LookPath("node")
	sandboxtest.Require(t, "node", err == nil, "there is no node on the path")
	tools := append(hostile(), called(strange...)...)
	dir := t.TempDir()
	write := func(path, text string) {
		path = filepath.Join(dir, path)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	tree := Generate("evil", tools)
	for _, f := range tree.Files {
		if f.Path == "index.js" {
			write("index.js", string(f.Data))
		}
	}
	check, err := os.ReadFile("testdata/check.mjs")
	if err != nil {
		t.Fatal(err)
	}
	write("check.mjs", string(check))
	write("package.json", `{"type":"module"}`)
	write("node_modules/servers/package.json", `{"type":"module","exports":"./index.js"}`)
	write("node_modules/servers/index.js", "export const told = [];\nexport const tool = (server, name) => { told.push([server, name]); return () => {}; };\n")
	cmd := exec.CommandContext(t.Context(), node, "check.mjs")
	cmd.Dir = dir
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	var got struct {
		Names []string
		Told  [][2]string
	}
	if err := json.Unmarshal(out, &got); err != nil {
		t.Fatal(err)
	}
	want := [][2]string{}
	for _, n := range tree.Tools {
		want = append(want, [2]string{"evil", n.Tool.Name})
		if !slices.Contains(got.Names, n.JavaScript) {
			t.Errorf("the names are %q, want %q in them", got.Names, n.JavaScript)
		}
		if n.Camel != "" && !slices.Contains(got.Names, n.Camel) {
			t.Errorf("the names are %q, want %q in them", got.Names, n.Camel)
		}
	}
	if !slices.Equal(got.Told, want) {
		t.Errorf("it called tool with %q", got.Told)
	}
}

// strange are names of attack 78.
var strange = []string{
	"get-sum", "get_sum", "get sum", "getSum", "GET_SUM", "import", "class", "None", "none", "delete", "function", "default", "then", "constructor",
	"toString", "__proto__", "__init__", "__getattr__", "__main__", "prototype", "tools", "Tools", "index", "Index", "schemas", "list", "str", "dict", "Any", "TypedDict", "tool", "lazy",
	"", " ", "🎉", "🎊", "天气", "1st", "42", "_", "__", "_private", "a.b", "a/b", "a:b", "../../etc/passwd", `..\x`, "CON", "nul", "com1", "async", "await", "match", "type", "_x_",
	strings.Repeat("x", 5000), strings.Repeat("x", 5001), strings.Repeat("é", 2500), "get_sum_" + hash("get sum")[:8], "yield", "let", "static", "eval", "arguments", "undefined", "NaN", "Object",
	"GetSumArgs", "get_sum_args", "tell", "TellArgs", "ask", "askResult", "Promise", "__debug__", "print", "self", "typing", "servers",
}

func called(names ...string) []bindings.Tool {
	tools := []bindings.Tool{}
	for _, name := range names {
		tools = append(tools, bindings.Tool{Name: name, Input: json.RawMessage(`{"type":"object","properties":{}}`)})
	}
	return tools
}

func TestEveryNameBecomesAnIdentifierOfItsOwn(t *testing.T) {
	tools := called(strange...)
	tree := Generate("names", tools)
	if len(tree.Tools) != len(tools) {
		t.Fatalf("%d of %d are there", len(tree.Tools), len(tools))
	}
	if err := checkFiles(tools, tree); err != nil {
		t.Fatal(err)
	}
	got := map[string]Named{}
	python, script, types := map[string]bool{}, map[string]bool{}, map[string]bool{}
	for _, n := range tree.Tools {
		got[n.Tool.Name] = n
		for name, taken := range map[string]bool{
			n.Python:     python[strings.ToLower(n.Python)],
			n.JavaScript: script[strings.ToLower(n.JavaScript)],
			n.Camel:      script[n.Camel],
		} {
			if taken {
				t.Errorf("%q is called %q, which another tool is called: %+v", n.Tool.Name, name, n)
			}
		}
		python[strings.ToLower(n.Python)], script[strings.ToLower(n.JavaScript)] = true, true
		if n.Camel != "" {
			script[n.Camel] = true
		}
		types[n.JavaScript], types[n.Camel] = true, true
		if types[n.types+"Args"] {
			t.Errorf(`%q has a type that is called as something else is: types[n.types+"Args"] = true, want false`,
				n.Tool.Name)
		} else if types[n.types+"Result"] {
			t.Errorf(`%q has a type that is called as something else is: types[n.types+"Result"] = true, want false`,
				n.Tool.Name)
		}
		types[n.types+"Args"], types[n.types+"Result"] = true, true
		switch {
		case reservedPython[n.Python]:
			t.Errorf("%q is called: reservedPython[n.Python] = true, want false", n.Tool.Name)
		case reservedJavaScript[n.JavaScript]:
			t.Errorf("%q is called: reservedJavaScript[n.JavaScript] = true, want false", n.Tool.Name)
		case reservedJavaScript[n.Camel]:
			t.Errorf("%q is called: reservedJavaScript[n.Camel] = true, want false", n.Tool.Name)
		case !plain(n.Python):
			t.Errorf("%q is called: plain(n.Python) = false, want true", n.Tool.Name)
		case !plain(n.JavaScript):
			t.Errorf("%q is called: plain(n.JavaScript) = false, want true", n.Tool.Name)
		}
	}
	for name, want := range map[string][2]string{
		"get_sum": {"get_sum", "get_sum"}, "import": {"import_", "import_"}, "class": {"class_", "class_"}, "delete": {"delete", "delete_"},
		"then": {"then", "then_"}, "tools": {"tools_", "tools_"}, "list": {"list_", "list"}, "1st": {"tool_1st", "tool_1st"}, "_private": {"private", "private_"},
		"__proto__": {"proto", "proto"}, "a.b": {"a_b_" + hash("a.b")[:8], "a_b_" + hash("a.b")[:8]}, "CON": {"CON_", "CON_"},
	} {
		if n := got[name]; n.Python != want[0] {
			t.Errorf("%q: n.Python = %q, want %q", name, n.Python, want[0])
		} else if n.JavaScript != want[1] {
			t.Errorf("%q: n.JavaScript = %q, want %q", name, n.JavaScript, want[1])
		}
	}
	told, err := startPython(t, python3(t)).execute(tree)
	if err == nil {
		err = checkTold("names", tree, told)
	}
	if err != nil {
		t.Fatal(err)
	}
}

func TestANameIsTheSameWhateverElseThereIs(t *testing.T) {
	alone := Names(called("get sum"))[0].Python
	if alone != "get_sum" {
		t.Fatalf("it is %s", alone)
	}
	of := func(name string, names ...string) string {
		for _, n := range Names(called(names...)) {
			if n.Tool.Name == name {
				return n.Python
			}
		}
		return ""
	}
	switch a, b := of("get sum", "get sum", "get:sum"), of("get:sum", "get sum", "get:sum"); {
	case a == "get_sum":
		t.Errorf("the first of two that come to one is %q, want another name than it has alone", a)
	case b == "get_sum":
		t.Errorf("the second of two that come to one is %q, want another name than the other has alone", b)
	case a == b:
		t.Errorf("two that come to one are both %q, want two names", a)
	}
	if a, b := of("get sum", "get sum", "get:sum"), of("get sum", "x", "get/sum", "get:sum", "get sum"); a != b {
		t.Errorf("it is %s here and %s there", a, b)
	}
}

func TestTheSameToolsGiveTheSameBytes(t *testing.T) {
	tools := append(append(hostile(), bombs()...), called(strange...)...)
	want := Generate("same", tools).Digest()
	for range 3 {
		rand.Shuffle(len(tools), func(i, j int) { tools[i], tools[j] = tools[j], tools[i] })
		if got := Generate("same", tools).Digest(); got != want {
			t.Fatal("in another order they are others")
		}
	}
	if Generate("other", tools).Digest() == want {
		t.Error("another server's are the same")
	}
}

// bombs are schemas of attack 80.
func bombs() []bindings.Tool {
	deep := strings.Repeat(`{"type":"array","items":`, 60) + `{"type":"string"}` + strings.Repeat(`}`, 60)
	deeper := strings.Repeat(`{"items":`, 5000) + `{}` + strings.Repeat(`}`, 5000)
	wide, refs, enum, big := []string{}, []string{}, []string{}, []string{}
	for i := range 3000 {
		wide = append(wide, fmt.Sprintf(`"p%d":{"type":"object","properties":{"q":{"type":"string"}},"description":%q}`, i, strings.Repeat("w", 30)))
		enum = append(enum, fmt.Sprintf(`"value %d"`, i))
	}
	for i := range 150 {
		big = append(big, fmt.Sprintf(`%q:{"type":"string"}`, fmt.Sprint(i)+strings.Repeat("ä", 500)))
		refs = append(refs, fmt.Sprintf(`"r%d":{"anyOf":[{"$ref":"#/$defs/r%d"},{"$ref":"#/$defs/r%d"},{"properties":{"x":{"$ref":"#/$defs/r%d"}}}],"properties":{"y":{"$ref":"#/$defs/r0"}}}`, i, (i+1)%150, (i*7+1)%150, (i+2)%150))
	}
	object := func(properties string) string { return `{"type":"object","properties":{` + properties + `}}` }
	tools := []bindings.Tool{}
	fan := []string{}
	for i := range 6 {
		fan = append(fan, fmt.Sprintf(`"f%d":{"properties":{"a":{"type":"string"},"b":{"$ref":"#/$defs/f%d"}},"anyOf":[%s{}]}`, i, (i+1)%6, strings.Repeat(fmt.Sprintf(`{"$ref":"#/$defs/f%d"},`, (i+1)%6), 15)))
	}
	for name, s := range map[string]string{
		"fan": `{"$ref":"#/$defs/f0","$defs":{` + strings.Join(fan, ",") + `}}`, "itself": `{"$ref":"#"}`, "round": `{"$defs":{"a":{"$ref":"#/$defs/b"},"b":{"$ref":"#/$defs/a"}},"properties":{"a":{"$ref":"#/$defs/a"}}}`,
		"tree":    `{"type":"object","properties":{"node":{"$ref":"#/$defs/node"}},"$defs":{"node":{"type":"object","properties":{"children":{"type":"array","items":{"$ref":"#/$defs/node"}},"parent":{"$ref":"#"}}}}}`,
		"json":    `{"type":"object","properties":{"v":{"$ref":"#/$defs/v"}},"$defs":{"v":{"anyOf":[{"type":"string"},{"$ref":"#/$defs/v"},{"type":"array","items":{"$ref":"#/$defs/v"}},{"type":"object","additionalProperties":{"$ref":"#/$defs/v"}}]}}}`,
		"remote":  object(`"a":{"$ref":"http://169.254.169.254/latest"},"b":{"$ref":"file:///etc/passwd"},"c":{"$ref":"other.json#/a"}`),
		"nowhere": object(`"a":{"$ref":"#/$defs/none"},"b":{"$ref":"#anchor"},"c":{"$ref":7},"d":{"$ref":"#/properties/d"},"e":{"$ref":"#/properties/~0x/%zz"}`),
		"deep":    object(`"a":` + deep), "deeper": object(`"a":` + deeper), "wide": object(strings.Join(wide, ",")), "names": object(strings.Join(big, ",")),
		"refs": `{"type":"object","properties":{"a":{"$ref":"#/$defs/r0"}},"$defs":{` + strings.Join(refs, ",") + `}}`,
		"enum": object(`"a":{"enum":[` + strings.Join(enum, ",") + `]}`), "huge": object(`"a":{"description":"` + strings.Repeat("z", 10<<20) + `"}`),
		"true": `true`, "false": `false`, "null": `null`, "list": `[]`, "number": `7`, "cut": `{"type":`, "twice": `{"type":"object","type":"array"}`,
		"pattern": object(`"a":{"type":"string","pattern":"(a+)+$"},"b":{"patternProperties":{"^(?!x)":true}}`),
		"odd":     `{"type":["object","null"],"properties":[],"required":"a","enum":{}}`, "odder": `{"properties":{"a":{"type":[]},"b":{"enum":[]},"c":{"anyOf":{}},"d":{"items":[]},"e":{"const":{"x":1}},"f":{"type":7}}}`,
	} {
		tools = append(tools, bindings.Tool{Name: name, Input: json.RawMessage(s), Output: json.RawMessage(s)})
	}
	return tools
}

func TestSchemaBombsGiveSmallFiles(t *testing.T) {
	tools := bombs()
	tree := Generate("bombs", tools)
	if err := checkFiles(tools, tree); err != nil {
		t.Fatal(err)
	}
	for _, f := range tree.Files {
		if strings.HasPrefix(f.Path, "schemas.") {
			if len(f.Data) > 4<<20 {
				t.Errorf("%s has %d bytes", f.Path, len(f.Data))
			}
		} else if len(f.Data) > maxFile {
			t.Errorf("%s has %d bytes", f.Path, len(f.Data))
		}
	}
	for _, n := range tree.Tools {
		for _, l := range []Language{Python, TypeScript} {
			if s := n.Signature(l); len(s) > maxSignature+len("…") {
				t.Errorf("a signature: len(s) = %d, want at most %d: %q", len(s), maxSignature+len("…"), s)
			} else if strings.Contains(s, "\n") {
				t.Errorf("a signature: s = %q, want no %q in it", s, "\n")
			}
		}
	}
	told, err := startPython(t, python3(t)).execute(tree)
	if err != nil {
		t.Fatal(err)
	}
	if err := checkTold("bombs", tree, told); err != nil {
		t.Fatal(err)
	}
}

// TestWhatATypeCannotSayIsSaidInWords is about types that are made of themselves, and
// about long enums.
func TestWhatATypeCannotSayIsSaidInWords(t *testing.T) {
	enum := []string{}
	for i := range maxValues + 1 {
		enum = append(enum, fmt.Sprintf(`"v%d"`, i))
	}
	tools := append(bombs(), bindings.Tool{Name: "long", Input: json.RawMessage(`{"type":"object","properties":{"a":{"enum":[` + strings.Join(enum, ",") + `]}}}`)})
	files := map[string]string{}
	for _, f := range Generate("words", tools).Files {
		files[f.Path] = string(f.Data)
	}
	for path, want := range map[string]string{
		"json.ts": "export type JsonV = string | Array<JsonV> | { [name: string]: JsonV };", "json.py": `JsonV: TypeAlias = "str | list[JsonV] | dict[str, JsonV]"`,
		"round.py": `RoundA: TypeAlias = "Any"`, "tree.py": "    children: list[TreeNode]\n    parent: TreeArgs",
		"long.py": `(one of "v0", "v1",`, "long.ts": "  a?: string;", "remote.py": "def remote(a: Any = ..., b: Any = ..., c: Any = ...)",
	} {
		if !strings.Contains(files[path], want) {
			t.Errorf("%s has no %s:\n%s", path, want, files[path])
		}
	}
}

// described are tools as servers have them; the golden files show what they become.
func described() []bindings.Tool {
	return []bindings.Tool{
		{Name: "get-sum", Title: "Sum", Description: "Adds two numbers.", Input: json.RawMessage(`{"type":"object","properties":{"a":{"type":"number","description":"First number"},"b":{"type":"number"}},"required":["a","b"]}`)},
		{Name: "find_places", Description: "Finds places near a point.\n\nGives the nearest first.", Input: json.RawMessage(`{"$schema":"http://json-schema.org/draft-07/schema#","type":"object","properties":{
			"limit":{"type":"integer","default":10,"description":"How many"},"near":{"type":"array","items":[{"type":"number"},{"type":"number"}],"description":"Latitude and longitude"},
			"kind":{"enum":["cafe","park"]},"from":{"type":["string","null"]},"open now":{"type":"boolean"},
			"filter":{"$ref":"#/definitions/Filter"},"labels":{"type":"object","additionalProperties":{"type":"string"}}},"required":["near"],
			"definitions":{"Filter":{"type":"object","description":"A condition, or several","properties":{"field":{"type":"string"},"any":{"type":"array","items":{"$ref":"#/definitions/Filter"}}},"required":["field"]}}}`),
			Output: json.RawMessage(`{"type":"object","properties":{"places":{"type":"array","items":{"type":"object","properties":{"name":{"type":"string","description":"As on the map"},"class":{"type":"string"},"rating":{"type":"number"}},"required":["name"]}},"next":{"anyOf":[{"type":"string"},{"type":"null"}]}},"required":["places"]}`)},
		{Name: "query", Description: "Runs a query.", Input: json.RawMessage(`{"type":"object"}`), Output: json.RawMessage(`{"x-learned":true,"type":"array","items":{"type":"object","properties":{"id":{"type":"integer"}},"required":["id"]}}`)},
		{Name: "delete", Input: json.RawMessage(`{"type":"object","properties":{"value":{"$ref":"#/$defs/Json"}},"additionalProperties":true,"$defs":{"Json":{"anyOf":[{"type":"string"},{"type":"number"},{"type":"array","items":{"$ref":"#/$defs/Json"}}]}}}`)},
	}
}

func TestGoldenFiles(t *testing.T) {
	tree := Generate("every-thing", described())
	if err := checkFiles(described(), tree); err != nil {
		t.Fatal(err)
	}
	dir := filepath.Join("testdata", "golden")
	if *update {
		if err := os.RemoveAll(dir); err != nil {
			t.Fatal(err)
		}
		if err := os.MkdirAll(dir, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	for _, f := range tree.Files {
		path := filepath.Join(dir, f.Path+".golden")
		if *update {
			if err := os.WriteFile(path, f.Data, 0o644); err != nil {
				t.Fatal(err)
			}
		}
		if want, err := os.ReadFile(path); err != nil {
			t.Errorf("reading the golden file of %s: got error %v, want none", f.Path, err)
		} else if string(want) != string(f.Data) {
			t.Errorf("%s differs from its golden file; renew it with -update and read the difference: got\n%s\nwant\n%s",
				f.Path, f.Data, want)
		}
	}
	if there, err := os.ReadDir(dir); err != nil {
		t.Errorf("got error %v, want none", err)
	} else if len(there) != len(tree.Files) {
		t.Errorf("there are %d golden files, want %d", len(there), len(tree.Files))
	}
}

func TestSignaturesAndImportsAreOneLine(t *testing.T) {
	tools := Names(described())
	got := []string{}
	for _, n := range tools {
		got = append(got, n.Signature(Python), n.Signature(TypeScript), n.Import("every-thing", Python), n.Import("every-thing", TypeScript))
	}
	want := []string{
		`delete(value: DeleteJson = ..., **more: Any) -> Any`,
		`delete_(args?: { value?: DeleteJson; [name: string]: any }): Promise<any>`,
		`from servers.every_thing.tools import delete`,
		`import { delete_ } from "servers/every_thing"`,
		`find_places(near: list[float], limit: int = ..., kind: Literal["cafe", "park"] = ..., from_: str | None = ..., open_now: bool = ..., filter: FindPlacesFilter = ..., labels: dict[str, str] = ...) -> FindPlacesResult`,
		`find_places(args: { near: [number, number]; limit?: number; kind?: "cafe" | "park"; from?: string | null; "open now"?: boolean; filter?: FindPlacesFilter; labels?: { [name: string]: string } }): Promise<FindPlacesResult>`,
		`from servers.every_thing.tools import find_places`,
		`import { find_places } from "servers/every_thing"`,
		`get_sum(a: float, b: float) -> Any`,
		`get_sum(args: { a: number; b: number }): Promise<any>`,
		`from servers.every_thing.tools import get_sum`,
		`import { get_sum } from "servers/every_thing"`,
		`query(**arguments: Any) -> list[QueryResultItem]`,
		`query(args?: { [name: string]: any }): Promise<Array<QueryResultItem>>`,
		`from servers.every_thing.tools import query`,
		`import { query } from "servers/every_thing"`,
	}
	if !slices.Equal(got, want) {
		t.Errorf("got\n%s", strings.Join(got, "\n"))
	}
}

func TestPackagesOfServers(t *testing.T) {
	for server, want := range map[string]string{"git-hub": "git_hub", "a--b": "a__b", "class": "class_", "tool": "tool_", "lazy": "lazy_", "3d": "server_3d", "_x": "_x", "__x__": "x", "": "server_" + hash("")[:8], "a/b": "a_b"} {
		if got := Package(server); got != want {
			t.Errorf("%q is %s, not %s", server, got, want)
		}
	}
}

// FuzzGenerate holds checkFiles against whatever a server may send, and where there
// is a Python what it says of it.
func FuzzGenerate(f *testing.F) {
	for i, n := range hostile() {
		if i%3 > 0 || len(n.Name) > 100 {
			continue
		}
		f.Add(n.Name, n.Description, string(n.Input), string(n.Output))
	}
	for _, n := range append(bombs(), described()...) {
		if len(n.Input) < 4000 {
			f.Add(n.Name, n.Description, string(n.Input), string(n.Output))
		}
	}
	var p *interpreter
	if program, err := exec.LookPath("python3"); err == nil {
		p = startPython(f, program)
	}
	f.Fuzz(func(t *testing.T, name, description, input, output string) {
		tools := []bindings.Tool{
			{Name: name, Title: description, Description: description, Input: json.RawMessage(input), Output: json.RawMessage(output)},
			{Name: name + "x", Description: input}, {Name: description, Input: json.RawMessage(output)}, {Name: strings.ToUpper(name)},
		}
		tree := Generate("fuzz", tools)
		if err := checkFiles(tools, tree); err != nil {
			t.Fatal(err)
		}
		if p == nil {
			return
		}
		told, err := p.execute(tree)
		if err == nil {
			err = checkTold("fuzz", tree, told)
		}
		if err != nil {
			t.Fatal(err)
		}
	})
}

func BenchmarkGenerateFiveThousandTools(b *testing.B) {
	tools := []bindings.Tool{}
	for i := range 1250 {
		for _, t := range described() {
			t.Name = fmt.Sprintf("%s_%d", t.Name, i)
			tools = append(tools, t)
		}
	}
	for b.Loop() {
		Generate("many", tools)
	}
}

func TestOnlyTheFilesThatDifferAreMadeAgain(t *testing.T) {
	plain := []bindings.Tool{
		{Name: "get-weather", Description: "Tells it.", Input: json.RawMessage(`{"type":"object","properties":{"city":{"type":"string"}}}`)},
		{Name: "getWeather", Description: "The same."},
		{Name: "set"},
	}
	taught := slices.Clone(plain)
	taught[0].Output = schema.Learn(nil, json.RawMessage(`{"degrees":1,"wind":{"from":"N"}}`))
	taught[2].Output = schema.Learn(nil, json.RawMessage(`"a"`))
	files := map[string]string{}
	for _, f := range Generate("party", plain).Files {
		files[f.Path] = string(f.Data)
	}
	differing := Differing("party", taught, []string{"get-weather", "set"})
	for _, f := range differing {
		files[f.Path] = string(f.Data)
	}
	all := Generate("party", taught).Files
	for _, f := range all {
		if files[f.Path] != string(f.Data) {
			t.Errorf("%s is not what it should be", f.Path)
		}
	}
	if len(files) != len(all) {
		t.Errorf("len(files) = %d, want %d", len(files), len(all))
	} else if len(differing) != 5 {
		t.Errorf("len(differing) = %d, want 5", len(differing))
	}
	if len(Version()) != 64 {
		t.Errorf("the version is %q", Version())
	}
}
