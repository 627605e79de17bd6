package tools

import (
	"strings"
	"testing"
)

// TestToolsAreFoundHoweverTheyAreSpelled imports a server and skills in all the ways that
// the documents of paddock, of Mayflower Sandbox and of code execution with MCP have, and
// in those that people would expect after them. What is not there is answered by what is.
func TestToolsAreFoundHoweverTheyAreSpelled(t *testing.T) {
	inEach(t, []setting{{"stdio", "wasm"}, {"stdio", "linux"}}, func(*testing.T) options { return options{} }, func(t *testing.T, m *model) {
		m.bind(t, "google-drive", newTestServer(t).wiki().url)
		t.Run("Python", func(t *testing.T) { spelledInPython(t, m) })
		t.Run("JavaScript", func(t *testing.T) { spelledInJavaScript(t, m) })
		t.Run("files of the workspace", func(t *testing.T) { spelledInFiles(t, m) })
	})
}

// hints runs a program that fails and has to say that, as its error or what to do about it.
func (m *model) hints(t *testing.T, language, code, want string) {
	t.Helper()
	e := m.run(t, language, code)
	switch {
	case e.Success:
		t.Errorf("e.Success = true, want false; %s\nsays %+v, want %q; stdout %q",
			code, e.Error, want, e.Stdout)
	case e.Error == nil:
		t.Errorf("%s: e.Error is nil, want a value: %q, %q", code, want, e.Stdout)
	case !strings.Contains(e.Error.Message+e.Error.Hint, want):
		t.Errorf("%s: e.Error.Message + e.Error.Hint = %q, want %q in it",
			code, e.Error.Message+e.Error.Hint, want)
	}
}

func spelledInPython(t *testing.T, m *model) {
	const wiki = ".read_wiki_structure(repoName='a/b')[:5])"
	for _, code := range []string{
		"import servers\nprint(servers.google_drive" + wiki, "import servers\nprint(servers.google_drive.tools" + wiki,
		"import servers.google_drive as g\nprint(g" + wiki, "import servers.google_drive.tools as g\nprint(g" + wiki,
		"from servers import google_drive\nprint(google_drive" + wiki, "from servers import google_drive\nprint(google_drive.tools" + wiki,
		"from servers.google_drive import tools\nprint(tools" + wiki,
		"from importlib import import_module\nprint(import_module('servers.google_drive')" + wiki,
		"from servers.google_drive import *\nprint(read_wiki_structure(repoName='a/b')[:5])",
		"from servers.google_drive.tools import *\nprint((await read_wiki_structure.aio(repoName='a/b'))[:5])",
	} {
		m.prints(t, "python", code, "Avail\n")
	}
	m.prints(t, "python", "names = {}\nexec('from servers.google_drive import *', names)\nprint(*sorted(n for n in names if n[:2] != '__'))", "ask_question read_wiki_contents read_wiki_structure\n")
	m.prints(t, "python", "import skills\nprint(dir(skills), skills.documents.name)", "['data', 'documents', 'files'] documents\n")
	m.hints(t, "python", "import servers; servers.nothing", "no server 'nothing' is bound; there are google_drive")
	m.hints(t, "python", "import servers.nothing", "no server 'nothing' is bound; there are google_drive")
	m.hints(t, "python", "from servers import nothing", "is bound; there are google_drive")
	m.hints(t, "python", "import skills; skills.nothing", "no skill 'nothing' is installed; there are data, documents, files")
	m.prints(t, "python", "import openpyxl, pypdf, reportlab\nbook = openpyxl.Workbook(); book.active['A1'] = 5; book.save('a.xlsx')\n"+
		"from reportlab.pdfgen import canvas\nc = canvas.Canvas('a.pdf'); c.drawString(100, 700, 'Hello'); c.save()\n"+
		"print(openpyxl.load_workbook('a.xlsx').active['A1'].value, pypdf.PdfReader('a.pdf').pages[0].extract_text().strip())\n"+
		"from skills.documents import pdf, to_text\nprint(to_text('a.pdf').strip())", "5 Hello\nHello\n")
}

func spelledInJavaScript(t *testing.T, m *model) {
	const wiki = ".read_wiki_structure({ repoName: 'a/b' })).slice(0, 5))"
	for _, code := range []string{
		"import * as servers from 'servers';\nconsole.log((await servers.google_drive" + wiki, "import servers from 'servers';\nconsole.log((await servers.google_drive" + wiki,
		"import servers from 'servers';\nconsole.log((await servers['google-drive']" + wiki, "import { google_drive } from 'servers';\nconsole.log((await google_drive" + wiki,
		"import * as g from 'servers/google_drive';\nconsole.log((await g" + wiki, "import * as g from 'servers/google-drive';\nconsole.log((await g" + wiki,
		"import * as g from './servers/google-drive';\nconsole.log((await g" + wiki, "import * as g from './servers/google_drive/index.ts';\nconsole.log((await g" + wiki,
		"import * as g from '/servers/google_drive';\nconsole.log((await g" + wiki, "import * as g from '/servers/google_drive/index.js';\nconsole.log((await g" + wiki,
		"import * as g from 'servers/google_drive/read_wiki_structure';\nconsole.log((await g" + wiki, "import * as g from '/servers/google_drive/read_wiki_structure.ts';\nconsole.log((await g" + wiki,
		"import g from 'servers/google_drive';\nconsole.log((await g" + wiki, "import g from './servers/google-drive';\nconsole.log((await g" + wiki,
		"import g, { read_wiki_structure as same } from '/servers/google_drive/index.ts';\nif (g.readWikiStructure !== same) throw 1;\nconsole.log((await g" + wiki,
		"const { default: g } = await import('servers/google-drive');\nconsole.log((await g" + wiki,
		"const g = await import('servers/google-drive');\nconsole.log((await g" + wiki, "const { google_drive: g } = await import('servers');\nconsole.log((await g" + wiki,
		"const g = require('servers/google-drive');\nconsole.log((await g" + wiki, "const g = require('servers').google_drive;\nconsole.log((await g" + wiki,
	} {
		m.prints(t, "javascript", code, "Avail\n")
		m.prints(t, "typescript", code, "Avail\n")
	}
	m.prints(t, "javascript", "import servers from 'servers';\nconsole.log(Object.keys(servers.google_drive).includes('readWikiStructure'), 'google_drive' in servers)", "true true\n")
	m.prints(t, "javascript", "import g from 'servers/google_drive';\nconsole.log(Object.keys(g).join(' '), g.default)", "ask_question askQuestion read_wiki_contents readWikiContents read_wiki_structure readWikiStructure undefined\n")
	m.prints(t, "javascript", "import { name } from 'skills/documents';\nconsole.log(name)", "documents\n")
	const there = `no server "nothing" is bound; there are google_drive`
	m.hints(t, "javascript", "import servers from 'servers';\nservers.nothing.x()", there)
	m.hints(t, "javascript", "import * as g from 'servers/nothing'", there)
	m.hints(t, "javascript", "import * as g from './servers/nothing'", there)
	m.hints(t, "javascript", "require('servers/nothing')", there)
	m.hints(t, "javascript", "import { google_drive } from 'servers';\ngoogle_drive.nothing()", `the server google_drive has no tool "nothing"; it has ask_question`)
	m.hints(t, "javascript", "import { documents } from 'skills'", `from "skills/NAME"; there are data, documents, files`)
	m.hints(t, "javascript", "import 'skills/nothing'", `from "skills/NAME"; there are data, documents, files`)
}

// spelledInFiles has modules of the workspace that import servers and each other, in
// JavaScript and TypeScript, whatever Node there is.
func spelledInFiles(t *testing.T, m *model) {
	m.prints(t, "javascript", `
import { mkdirSync, writeFileSync } from "fs";
mkdirSync("skills", { recursive: true });
writeFileSync("skills/wiki.ts", "import * as g from './servers/google-drive';\nenum Length { Short = 5 }\nexport async function wiki(repo: string): Promise<string> {\n  return (await g.read_wiki_structure({ repoName: repo })).slice(0, Length.Short);\n}\n");
writeFileSync("near.mts", "import { wiki } from './skills/wiki';\nexport const near: typeof wiki = (r) => wiki(r);\nexport { far } from './far.js';\n");
writeFileSync("far.ts", "import { near } from './near.mjs';\nimport servers from 'servers';\nexport const far = async (): Promise<string> => (await near('a/b')) + Object.keys(servers).includes('google_drive');\n");
writeFileSync("plain.js", "import { near } from './near.mjs';\nimport { join } from 'path';\nexport default async () => join(await near('a/b'), 'x');\n");
`, "")
	m.prints(t, "typescript", `
import { wiki } from "./skills/wiki";
import { near, far } from "./near.mjs";
import plain from "./plain.js";
console.log(await wiki("a/b"), await near("a/b"), await far(), await plain(), far === (await import("./far")).far);
`, "Avail Avail Availtrue Avail/x true\n")
	m.prints(t, "javascript", `
import { writeFileSync } from "fs";
writeFileSync("broken.ts", "export const a: number =\n  1 +;\n");
writeFileSync("users.ts", "import { a } from './broken';\nexport const b = a;\nexport function fails(): never {\n\n  throw new Error('on purpose')\n}\n");
`, "")
	m.hints(t, "typescript", `import { b } from "./users"`, `broken.ts, line 2: Unexpected ";"`)
	m.prints(t, "typescript", `
import { writeFileSync } from "fs";
writeFileSync("broken.ts", "export const a: number =  1;\n");
const { b } = await import("./users.ts");
console.log(b);
`, "1\n")
	if e := m.run(t, "typescript", "import { fails } from './users';\nfails()"); !strings.Contains(e.Stderr, "/workspace/users.ts:5:") {
		t.Errorf("an error in a file is shown as %s", e.Stderr)
	}
}
