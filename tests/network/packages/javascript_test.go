package packages

import (
	"slices"
	"strings"
	"testing"
	"time"

	"paddock/internal/pkgproxy/pkgproxytest"
	"paddock/tests/paddocktest"
)

func TestNPMPackagesInWebAssembly(t *testing.T) {
	paddocktest.Require(t, "wasm")
	r := pkgproxytest.NewRegistry(t).WithReal()
	for _, v := range []string{"1.0.0", "1.5.0", "2.0.0"} {
		r.Add(`{"name":"newer","version":"`+v+`"}`, pkgproxytest.File{Name: "package/index.js", Text: "exports.version = '" + v + "'"})
	}
	h := open(t, t.TempDir(), nil, r)
	id := h.create("javascript", "wasm")
	h.prints(id, "javascript", "globalThis.mine = 41; try { await import('zod') } catch (e) { console.log('none') }", "none")
	h.hints(id, "javascript", "import 'zod'", "; install_package installs packages")
	switch got := h.install(id, "zod\najv ajv-formats").names(); {
	case !strings.Contains(got, "zod@"):
		t.Errorf(`it installs: got = %q, want "zod@" in it`, got)
	case !strings.Contains(got, "ajv@"):
		t.Errorf(`it installs: got = %q, want "ajv@" in it`, got)
	case !strings.Contains(got, "fast-uri@"):
		t.Errorf(`it installs: got = %q, want "fast-uri@" in it`, got)
	}
	h.prints(id, "javascript", `import { z } from "zod"; import Ajv from "ajv"; import addFormats from "ajv-formats";
const ajv = new (Ajv.default ?? Ajv)(); (addFormats.default ?? addFormats)(ajv);
console.log(z.object({ a: z.number() }).safeParse({ a: 1 }).success, ajv.compile({ type: "string", format: "email" })("a@b.c"), mine + 1)`, "true true 42")
	h.prints(id, "javascript", `const { z } = require("zod"), Ajv = require("ajv"); console.log(z.string().parse("required"), typeof (Ajv.default ?? Ajv))`, "required function")
	h.prints(id, "typescript", `import { z } from "zod"; const s: z.ZodString = z.string(); console.log(s.parse("typed"))`, "typed")
	if i := h.install(id, "zod"); !i.AlreadySatisfied {
		t.Errorf("the second time: i.AlreadySatisfied = false, want true: %+v", i)
	} else if len(i.Installed) != 0 {
		t.Errorf("the second time: len(i.Installed) = %d, want none: %+v", len(i.Installed), i.Installed)
	}
	packages, files := h.info(id)
	if !slices.ContainsFunc(packages, func(p string) bool { return strings.HasPrefix(p, "zod ") }) {
		t.Errorf("there are the packages %q, want zod among them", packages)
	}
	if len(files) != 0 {
		t.Errorf("there are the files %q, want none", files)
	}
	if got := h.install(id, "newer@1.0.0").names(); got != "newer@1.0.0" {
		t.Errorf("it installs %s", got)
	}
	if got := h.install(id, "--upgrade newer@^1").names(); got != "newer@1.5.0" {
		t.Errorf("it upgrades to %s", got)
	}
	var forked struct{ Forks []string }
	h.must("fork_session", map[string]any{"session_id": id}, &forked)
	h.prints(forked.Forks[0], "javascript", `import { version } from "newer"; import { z } from "zod"; console.log(version, typeof z.string)`, "1.5.0 function")
	python := h.create("python", "wasm")
	if got := h.install(python, "npm:newer@2").names(); got != "newer@2.0.0" {
		t.Errorf("it installs %s", got)
	}
	h.prints(python, "javascript", `console.log((await import("newer")).version)`, "2.0.0")
}

// Attacks 13, 23 and 87.
func TestHostileNPMPackages(t *testing.T) {
	paddocktest.Require(t, "wasm")
	r := pkgproxytest.NewRegistry(t)
	index := pkgproxytest.File{Name: "package/index.js", Text: "exports.fine = true"}
	r.Add(`{"name":"climber","version":"1.0.0"}`, index, pkgproxytest.File{Name: "package/../../../../up.js", Text: "x"})
	r.Add(`{"name":"linker","version":"1.0.0"}`, pkgproxytest.File{Name: "package/index.js", Kind: '2', Link: "/etc/passwd"})
	r.Add(`{"name":"runner","version":"1.0.0","scripts":{"postinstall":"touch /tmp/owned"}}`, index)
	r.Add(`{"name":"reader","version":"1.0.0"}`, pkgproxytest.File{Name: "package/index.js", Text: `exports.text = require("fs").readFileSync("/etc/passwd", "utf8")`})
	r.Add(`{"name":"includer","version":"1.0.0"}`, pkgproxytest.File{Name: "package/index.js", Text: `exports.text = require("../../../../../../etc/passwd")`})
	r.Add(`{"name":"foreign","version":"1.0.0","dependencies":{"a":"git+ssh://git@127.0.0.1/a.git"}}`, index)
	r.Add(`{"name":"local","version":"1.0.0","dependencies":{"a":"file:../../etc"}}`, index)
	r.Add(`{"name":"forged","version":"1.0.0"}`, index)
	r.Files["/files/forged-1.0.0.tgz"] = pkgproxytest.Tarball(t, pkgproxytest.File{Name: "package/index.js", Text: "evil"})
	r.Add(`{"name":"young","version":"1.0.0"}`, index)
	r.Times["young@1.0.0"] = time.Now().Add(-time.Hour).Format(time.RFC3339)
	r.Add(`{"name":"zob","version":"1.0.0"}`, index)
	h := open(t, t.TempDir(), nil, r, "PADDOCK_PACKAGES_NPM_COOLDOWN_DAYS=7", "PADDOCK_PACKAGES_NPM_ALLOW=climber,linker,runner,reader,includer,foreign,local,forged,young,nowhere")
	id := h.create("javascript", "wasm")
	for _, test := range []struct{ what, code, word string }{
		{"climber", "denied", ""}, {"linker", "denied", ""}, {"foreign", "denied", ""}, {"local", "denied", ""}, {"forged", "denied", ""},
		{"young", "not_found", "cooldown_days"}, {"zob", "denied", "packages.npm.allow"}, {"nowhere", "not_found", ""}, {"runner@9", "not_found", ""},
		{"git+https://127.0.0.1/a.git", "denied", ""}, {"../a", "denied", ""}, {"--registry=http://127.0.0.1 runner", "denied", ""}, {"fs", "conflict", "import"},
	} {
		var i installation
		failed := h.call("install_package", map[string]any{"session_id": id, "package_name": test.what}, &i)
		if failed == nil {
			t.Errorf("%s is installed: %+v", test.what, i)
			continue
		}
		switch {
		case test.code != "" && failed.Code != test.code:
			t.Errorf("%s: failed.Code = %q, want %q: %+v", test.what, failed.Code, test.code, *failed)
		case !strings.Contains(failed.Message+failed.Hint, test.word):
			t.Errorf("%s: failed.Message + failed.Hint = %q, want %q in it",
				test.what, failed.Message+failed.Hint, test.word)
		case failed.Code == "internal":
			t.Errorf(`%s: failed.Code = %q, want other than "internal"`, test.what, failed.Code)
		}
	}
	if packages, files := h.info(id); len(packages) != 0 {
		t.Errorf("there are the packages: len(packages) = %d, want none: %q", len(packages), packages)
	} else if len(files) != 0 {
		t.Errorf("there are the packages: len(files) = %d, want none: %q", len(files), files)
	}
	if i := h.install(id, "runner"); len(i.Notes) != 1 {
		t.Errorf("len(i.Notes) = %d, want 1: %q", len(i.Notes), i.Notes)
	} else if !strings.Contains(i.Notes[0], "were not run") {
		t.Errorf(`i.Notes[0] = %q, want "were not run" in it`, i.Notes[0])
	}
	h.install(id, "reader includer")
	h.prints(id, "javascript", `for (const name of ["reader", "includer"]) { let said = "refused"; try { said = String((await import(name)).text) } catch {} console.log(said) }
console.log((await import("runner")).fine)`, "refused\nrefused\ntrue")
	h.prints(id, "javascript", `import fs from "fs"; console.log(fs.existsSync("/tmp/owned"))`, "false")
}
