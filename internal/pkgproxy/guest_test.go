package pkgproxy_test

import (
	"archive/zip"
	"bytes"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"paddock/internal/pkgproxy"
	"paddock/internal/sandbox/sandboxtest"
)

// guest is a session of the built paddock.
type guest struct {
	t       *testing.T
	binary  string
	state   string
	session string
}

func newGuest(t *testing.T) *guest {
	t.Helper()
	g := &guest{t: t, binary: os.Getenv("PADDOCK_BIN"), state: t.TempDir()}
	sandboxtest.Require(t, "wasm", g.binary != "", "the built paddock is not named (PADDOCK_BIN)")
	_, stderr := g.run("", nil, "--keep", "-c", "0")
	g.session = regexp.MustCompile(`s-[a-z0-9]+`).FindString(stderr)
	return g
}

// run runs a program in the session.
func (g *guest) run(program string, stdin []byte, args ...string) (stdout, stderr string) {
	g.t.Helper()
	if program != "" {
		args = append([]string{"--session", g.session}, append(args, "-")...)
	}
	cmd := exec.CommandContext(g.t.Context(), g.binary, append([]string{"run", "--timeout", "4m"}, args...)...)
	cmd.Env = append(cmd.Environ(), "PADDOCK_STATE_DIR="+g.state, "PADDOCK_CACHE_DIR="+sandboxtest.PreparedCache(g.t))
	if program != "" {
		at := filepath.Join(g.t.TempDir(), "program.py")
		if strings.HasPrefix(program, "import ") && strings.Contains(program, " from ") {
			at = strings.TrimSuffix(at, ".py") + ".mjs"
		}
		if err := os.WriteFile(at, []byte(program), 0o600); err != nil {
			g.t.Fatal(err)
		}
		cmd.Args[len(cmd.Args)-1] = at
	}
	var out, errs strings.Builder
	cmd.Stdin, cmd.Stdout, cmd.Stderr = bytes.NewReader(stdin), &out, &errs
	if err := cmd.Run(); err != nil {
		g.t.Fatalf("%v: %s\n%s", err, out.String(), errs.String())
	}
	return out.String(), errs.String()
}

// put writes files into the workspace.
func (g *guest) put(files map[string][]byte) {
	g.t.Helper()
	var b bytes.Buffer
	w := zip.NewWriter(&b)
	for name, data := range files {
		f, err := w.Create(name)
		if err != nil {
			g.t.Fatal(err)
		}
		if _, err := f.Write(data); err != nil {
			g.t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		g.t.Fatal(err)
	}
	g.run("import io, sys, zipfile\nzipfile.ZipFile(io.BytesIO(sys.stdin.buffer.read())).extractall('/workspace')\n", b.Bytes())
}

// zippedPip is pip as a zip of compiled modules.
func zippedPip(t testing.TB) []byte {
	t.Helper()
	var b bytes.Buffer
	w := zip.NewWriter(&b)
	root := os.DirFS(compiledPip(t))
	err := fs.WalkDir(root, "pip", func(p string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() || strings.HasSuffix(p, ".py") {
			return err
		}
		text, err := fs.ReadFile(root, p)
		if err != nil {
			return err
		}
		f, err := w.Create(p)
		if err == nil {
			_, err = f.Write(text)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// pip runs in the guest: it finds out what is needed, installs, upgrades, and says
// what it has nothing for. A .pth file does nothing.
func TestPipInTheGuest(t *testing.T) {
	g := newGuest(t)
	files := map[string][]byte{"pip.zip": zippedPip(t)}
	for _, w := range real(t) {
		files["wheels/"+w.Name] = w.Data
	}
	evil := wheel(t, "evil", "1.0", "py3-none-any", nil, map[string]string{"evil.py": "", "evil.pth": "import os; os.mkdir('/workspace/owned')\n", "../../../up.py": "x = 1"})
	pth := wheel(t, "pth", "1.0", "py3-none-any", nil, map[string]string{"pth.py": "", "pth.pth": "import os; os.mkdir('/workspace/owned')\n"})
	native := distribution{Name: "native-1.0-cp313-cp313-manylinux_2_17_x86_64.whl", Data: simple(t, "native", "1.0").Data}
	for _, w := range []distribution{simple(t, "newer", "1.0"), evil, pth, native} {
		files["wheels/"+w.Name] = w.Data
	}
	g.put(files)
	pip := func(upgrade bool, wishes ...string) pkgproxy.PythonReport {
		t.Helper()
		in := pkgproxy.PythonInstall{Upgrade: upgrade, Links: "/workspace/wheels", Pip: "/workspace/pip.zip"}
		for _, text := range wishes {
			r, err := pkgproxy.ParseRequirement(text)
			if err != nil {
				t.Fatal(err)
			}
			in.Requirements = append(in.Requirements, r)
		}
		program, err := pkgproxy.Python(in)
		if err != nil {
			t.Fatal(err)
		}
		out, _ := g.run(program, nil)
		report, err := pkgproxy.ReadPythonReport(out)
		if err != nil {
			t.Fatalf("%v: %s", err, out)
		}
		return report
	}
	if r := pip(false, "openpyxl>=3", "newer"); r.Status != 0 {
		t.Fatalf("r.Status: got %v, want 0: %+v", r.Status, r)
	} else if !has(r.Installed, "newer@1.0", "et_xmlfile@2.0.0", "openpyxl@3.1.5") && len(r.Installed) != 3 {
		t.Fatalf("installed: got %+v, want three packages", r)
	}
	out, _ := g.run("import openpyxl, io, newer, sys\nb = openpyxl.Workbook(); b.active['A1'] = 42; f = io.BytesIO(); b.save(f)\nprint(openpyxl.load_workbook(f).active['A1'].value, newer.version, [m for m in sys.modules if m.startswith('pip')])\n", nil)
	if out != "42 1.0 []\n" {
		t.Errorf("it prints %q", out)
	}
	if r := pip(false, "openpyxl"); r.Status != 0 {
		t.Errorf("what is there: r.Status: got %v, want 0: %+v", r.Status, r)
	} else if len(r.Installed) != 0 {
		t.Errorf("what is there: r.Installed: got %v, want none", r.Installed)
	}
	w := simple(t, "newer", "2.0")
	g.put(map[string][]byte{"wheels/" + w.Name: w.Data})
	switch r := pip(true, "newer"); {
	case r.Status != 0:
		t.Errorf("an upgrade: r.Status = %v, want 0: %+v", r.Status, r)
	case !has(r.Installed, "newer@2.0"):
		t.Errorf(`an upgrade: has(r.Installed, "newer@2.0") = false, want true: %+v`, r)
	case !strings.Contains(r.Printed, "Uninstalling newer-1.0"):
		t.Errorf(`an upgrade: r.Printed = %q, want "Uninstalling newer-1.0" in it`, r.Printed)
	}
	for _, name := range []string{"native", "evil"} {
		if r := pip(false, name); r.Status == 0 {
			t.Errorf("%s: %+v", name, r)
		}
	}
	if r := pip(false, "pth"); r.Status != 0 {
		t.Errorf("%+v", r)
	}
	out, _ = g.run("import os, pth\nprint(os.path.exists('/workspace/owned'), os.path.exists('/workspace/up.py'), os.listdir('/tmp'))\n", nil)
	if !strings.HasPrefix(out, "False False") {
		t.Errorf("it prints %q", out)
	}
}

// Modules that were made of real packages work in the guest, those of CommonJS by their
// names as well; and what needs more than the guest has says where it works.
func TestModulesInTheGuest(t *testing.T) {
	g := newGuest(t)
	r := newRegistry(t).WithReal()
	r.Add(`{"name":"streams","version":"1.0.0"}`, file{Name: "package/index.js", Text: `const { Agent } = require("http"), { Transform } = require("stream"); class T extends Agent {} exports.make = () => new T(); exports.one = new Transform() instanceof require("events") ? 1 : 0;`})
	p := npmOf(t, r)
	made, err := p.JavaScript(t.Context(), pkgproxy.ScriptInstall{Wanted: []string{"ajv", "ajv-formats", "zod", "react", "yaml", "qs", "jszip", "mime-types", "nanoid", "iconv-lite", "streams"}})
	if err != nil {
		t.Fatal(err)
	}
	g.put(maps.Clone(made.Files))
	out, _ := g.run(`import Ajv from "ajv";
import addFormats from "ajv-formats";
import { z } from "zod";
import { createElement, version } from "react";
import { parse } from "yaml";
import qs from "qs";
import JSZip from "jszip";
import { lookup } from "mime-types";
import { nanoid } from "nanoid";
const ajv = new (Ajv.default ?? Ajv)();
(addFormats.default ?? addFormats)(ajv);
console.log(ajv.compile({ type: "string", format: "email" })("a@b.c"), z.object({ a: z.number() }).safeParse({ a: 1 }).success, createElement("p").type, parse("a: [1]").a[0], qs.parse("a[b]=1").a.b, lookup("a.png"), nanoid().length);
const zip = new JSZip(); zip.file("a.txt", "hello");
const back = await JSZip.loadAsync(await zip.generateAsync({ type: "uint8array" }));
console.log(await back.file("a.txt").async("string"));
console.log((await import("iconv-lite")).default.encode("é", "latin1").length);
const { one, make } = await import("streams");
try { console.log(one); make(); } catch (e) { console.log(e.message); }
try { await import("nothing"); } catch (e) { console.log(e.message); }
`, nil)
	want := "true true p 1 1 image/png 21\nhello\n1\n1\n"
	switch {
	case !strings.HasPrefix(out, want):
		t.Errorf("out = %q, want prefix %q", out, want)
	case !strings.Contains(out, `with isolation "linux" it is`):
		t.Errorf("out = %q, want %q in it", out, `with isolation "linux" it is`)
	case !strings.Contains(out, "nothing"):
		t.Errorf(`out = %q, want "nothing" in it`, out)
	}
}

// What was imported can be required as well: of CommonJS what Node would give.
func TestModulesAreRequiredInTheGuest(t *testing.T) {
	g := newGuest(t)
	r := newRegistry(t).WithReal()
	r.Add(`{"name":"waits","version":"1.0.0","type":"module"}`, file{Name: "package/index.js", Text: `export const one = await Promise.resolve(1);`})
	r.Add(`{"name":"call.js","version":"1.0.0","main":"main.js"}`, file{Name: "package/main.js", Text: `module.exports = () => require("./more").two; module.exports.also = require("path").basename("a/b");`},
		file{Name: "package/more.js", Text: `exports.two = 2;`})
	made, err := npmOf(t, r).JavaScript(t.Context(), pkgproxy.ScriptInstall{Wanted: []string{"ajv", "ajv-formats", "zod", "react", "qs", "jszip", "mime-types", "waits", "call.js"}})
	if err != nil {
		t.Fatal(err)
	}
	g.put(maps.Clone(made.Files))
	out, _ := g.run(`import { version } from "react";
const Ajv = require("ajv"), addFormats = require("ajv-formats"), { z } = require("zod"), { createElement } = require("react");
const qs = require("qs"), JSZip = require("jszip"), { lookup } = require("mime-types"), call = require("call.js");
const ajv = new (Ajv.default ?? Ajv)();
(addFormats.default ?? addFormats)(ajv);
console.log(ajv.compile({ type: "string", format: "email" })("a@b.c"), z.object({ a: z.number() }).safeParse({ a: 1 }).success, createElement("p").type, qs.parse("a[b]=1").a.b, lookup("a.png"));
console.log(typeof JSZip, call(), call.also, require("call.js/more").two, require("call.js/more.js") === require("call.js/more"), require("call.js") === call, require("react").version === version);
for (const name of ["waits", "nothing", "call.js/nothing"]) try { console.log(require(name)); } catch (e) { console.log(e.message, e.code); }
console.log((await import("waits")).one);
`, nil)
	want := "true true p 1 image/png\nfunction 2 b 2 true true true\n" +
		"waits can be imported, and not required: await import(\"waits\") ERR_REQUIRE_ASYNC_MODULE\ncould not load module 'nothing' MODULE_NOT_FOUND\ncould not load module 'call.js/nothing': the package call.js has no file \"./nothing\" MODULE_NOT_FOUND\n1\n"
	if out != want {
		t.Errorf("it prints\n%s", out)
	}
}

// What a name stands for is what Node says: by exports and their conditions, main before
// module, patterns, imports, a package's own name, and folders; and what a module does not
// export is an error where it is imported, and not undefined.
func TestModulesAreFoundAsNodeDoes(t *testing.T) {
	g := newGuest(t)
	r := newRegistry(t)
	text := func(name, text string) file { return file{Name: "package/" + name, Text: text} }
	r.Add(`{"name":"both","version":"1.0.0","main":"main.js","module":"module.js"}`, text("main.js", `module.exports = { from: "main" }`), text("module.js", `export const from = "module"`), text("lib/deep.js", `exports.deep = 1`), text("lib/folder/index.js", `exports.folder = 1`))
	r.Add(`{"name":"mapped","version":"1.0.0","exports":{".":{"browser":"./browser.js","node":{"import":"./i.mjs","require":"./r.cjs"}},"./f/*":"./files/*.js","./f/private/*":null,"./old/":"./files/","./package.json":"./package.json"},"imports":{"#own":"./files/own.js"}}`,
		text("i.mjs", `export { name as default } from "#own"; export { default as self } from "mapped/f/self"; export const how = "import"`), text("r.cjs", `exports.how = "require"`), text("browser.js", `export const how = "browser"`),
		text("files/own.js", `exports.name = "own"`), text("files/self.js", `module.exports = "self"`), text("files/private/x.js", ``))
	r.Add(`{"name":"common","version":"1.0.0"}`, text("index.js", `#!/usr/bin/env node
Object.defineProperty(exports, "__esModule", { value: true }); const add = (name, value) => { exports[name] = value }; add("late", 2); exports.default = "inner";
exports.load = () => import("./more.mjs"); exports.dir = __dirname; exports.data = () => require("fs").readFileSync(__dirname + "/data.txt", "utf8"); exports.version = require("./package").version`),
		text("more.mjs", `import c, { late } from "common"; import { createRequire } from "module"; const require = createRequire(import.meta.url), __filename = 1; export default [late, typeof c, require("./index").late, __filename].join()`), text("data.txt", "data"))
	r.Add(`{"name":"circle","version":"1.0.0","type":"module"}`, text("index.js", `import { b } from "./b.js"; export const a = () => "a"; export let n = 1; export const all = () => { n++; return a() + b() + n }`), text("b.js", `import { a } from "./index.js"; export const b = () => a() + "b"`))
	r.Add(`{"name":"looks","version":"1.0.0"}`, text("index.js", "module.exports = { text: `\nimport x from \"y\"\nexport default 1\n` }"))
	r.Add(`{"name":"unsaid","version":"1.0.0"}`, text("index.js", "import { deep } from 'both/lib/deep.js'\nexport default deep + 1"))
	r.Add(`{"name":"wants","version":"1.0.0","dependencies":{"both":"1"}}`, text("index.js", `const http = require("http"), { spawn } = require("child_process"); class S extends http.Server {} exports.serve = () => new S(); exports.spawn = () => spawn("x"); exports.native = () => require("./a.node"); exports.fine = http.METHODS.includes("GET") && !require("tty").isatty(1)`), text("a.node", "x"))
	made, err := npmOf(t, r).JavaScript(t.Context(), pkgproxy.ScriptInstall{Wanted: []string{"both", "mapped", "common", "circle", "looks", "unsaid", "wants"}})
	if err != nil {
		t.Fatal(err)
	}
	g.put(maps.Clone(made.Files))
	out, _ := g.run(`import { from } from "both"; import folder from "both/lib/folder"; import { deep } from "both/lib/deep";
import own, { self, how } from "mapped"; import one from "mapped/f/own"; import c, { late, load, data, version } from "common"; import { all } from "circle"; import looks from "looks"; import unsaid from "unsaid";
console.log(from, folder.folder, deep, own, self, how, require("mapped").how, one.name, require("mapped/old/own.js").name, late, c.default, (await load()).default, data(), version, all(), looks.text.length, unsaid);
for (const name of ["mapped/f/private/x", "mapped/i.mjs", "both/nothing"]) try { await import(name); console.log(name) } catch (e) { console.log(e.code, e.message) }
const { serve, spawn, native, fine } = await import("wants"); console.log(fine, require("circle") === require("circle"));
for (const f of [serve, spawn, native]) try { f(); console.log("?") } catch (e) { console.log(e.message) }
`, nil)
	want := `main 1 1 own self import require own own 2 inner 2,object,2,1 data 1.0.0 aab2 36 2
ERR_PACKAGE_PATH_NOT_EXPORTED the package mapped exports no "./f/private/x"; its exports are ., ./f/*, ./f/private/*, ./old/, ./package.json
ERR_PACKAGE_PATH_NOT_EXPORTED the package mapped exports no "./i.mjs"; its exports are ., ./f/*, ./f/private/*, ./old/, ./package.json
MODULE_NOT_FOUND could not load module 'both/nothing': the package both has no file "./nothing"
true true
Node's http.Server is not there with isolation "wasm"; with isolation "linux" it is
Node's child_process.spawn is not there with isolation "wasm"; with isolation "linux" it is
wants/a.node is compiled for another machine, and does not work with isolation "wasm"; with isolation "linux" it does
`
	if out != want {
		t.Errorf("it prints\n%s", out)
	}
	cmd := exec.CommandContext(t.Context(), g.binary, "run", "--session", g.session, "--language", "javascript", "-c", `import { nothing } from "both"; console.log(nothing)`)
	cmd.Env = append(cmd.Environ(), "PADDOCK_STATE_DIR="+g.state, "PADDOCK_CACHE_DIR="+sandboxtest.PreparedCache(t))
	if said, err := cmd.CombinedOutput(); err == nil {
		t.Error("a name that is not exported: got no error, want one")
	} else if !strings.Contains(string(said), "does not provide an export named 'nothing'") {
		t.Errorf("a name that is not exported: got %q, want %q in it",
			string(said), "does not provide an export named 'nothing'")
	}
}

// A package is made into modules once: the second time its file is not asked for.
func TestAPackageIsBuiltOnce(t *testing.T) {
	r := newRegistry(t)
	r.Add(`{"name":"a","version":"1.0.0"}`, index0)
	r.Add(`{"name":"b","version":"1.0.0","dependencies":{"a":"1"}}`, index0)
	dir := t.TempDir()
	p := open(t, pkgproxy.Config{Dir: dir, NPM: pkgproxy.Ecosystem{Indexes: []pkgproxy.Index{{URL: r.Server.URL}}, Allow: []string{"*"}}})
	first, err := p.JavaScript(t.Context(), pkgproxy.ScriptInstall{Wanted: []string{"a"}})
	if err != nil {
		t.Fatal(err)
	}
	kept, err := filepath.Glob(filepath.Join(dir, "files", "*"))
	switch {
	case err != nil:
		t.Fatal(err)
	case len(kept) != 1:
		t.Fatalf("len(kept) = %d, want 1: %+v", len(kept), kept)
	}
	if err := os.Remove(kept[0]); err != nil {
		t.Fatal(err)
	}
	both, err := p.JavaScript(t.Context(), pkgproxy.ScriptInstall{Wanted: []string{"b"}})
	switch {
	case err != nil:
		t.Error(err)
	case r.Count("/files/a-1.0.0.tgz") != 1:
		t.Errorf(`r.Count("/files/a-1.0.0.tgz") = %v, want 1`, r.Count("/files/a-1.0.0.tgz"))
	case !bytes.Equal(packOf(first, "a"), packOf(both, "a")):
		t.Errorf("the packs of a have %d and %d bytes, want the same bytes", len(packOf(first, "a")), len(packOf(both, "a")))
	}
	builds, err := filepath.Glob(filepath.Join(dir, "builds", "*"))
	if err != nil {
		t.Fatal(err)
	}
	if len(builds) != 2 {
		t.Fatalf("len(builds): got %d, want 2: %v", len(builds), builds)
	}
	for _, build := range builds { // one that was changed is made again
		if err := os.WriteFile(build, []byte(strings.Repeat("0", 64)+"changed"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	again, err := p.JavaScript(t.Context(), pkgproxy.ScriptInstall{Wanted: []string{"b"}})
	if err != nil {
		t.Fatalf("a changed build: got error %v, want none", err)
	}
	if !bytes.Equal(packOf(again, "a"), packOf(both, "a")) {
		t.Errorf(`a changed build: packOf(again, "a"): got %q, want %q`, packOf(again, "a"), packOf(both, "a"))
	}
}
