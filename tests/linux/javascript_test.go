package linux

import "testing"

func TestNodeDoesRealWork(t *testing.T) {
	c := connect(t, "linux")
	runAll(t, c, "javascript", []program{
		{name: "imports", code: "import fs from 'node:fs';\nimport { join } from 'path';\nfs.writeFileSync('a.txt', 'hi');\nconst text = fs.readFileSync(join('/workspace', 'a.txt'), 'utf8');\ntext", result: "'hi'", files: "a.txt"},
		{name: "await at the top level", code: "const later = await new Promise(done => setTimeout(() => done(21), 10));\nlater * 2", result: "42"},
		{name: "what was declared is there", code: "[text, later]", result: "[ 'hi', 21 ]"},
		{name: "workers", code: "import { Worker } from 'node:worker_threads';\nconst worker = new Worker('require(\"worker_threads\").parentPort.postMessage(6 * 7)', { eval: true });\nawait new Promise((done, fail) => { worker.on('message', done); worker.on('error', fail); })", result: "42"},
		{name: "programs", code: "const { execSync } = require('child_process');\nexecSync('uname -s').toString()", result: "'Linux\\n'"},
		{name: "node's modules", code: "require('crypto').createHash('sha256').update('a').digest('hex').slice(0, 8) + require('zlib').gzipSync('aaaa').length", result: "'ca97811224'"},
		{name: "a module of the workspace", code: "require('fs').writeFileSync('mine.mjs', 'export const x = 5');\nconst { x } = await import('./mine.mjs');\nx", result: "5", files: "mine.mjs"},
		{name: "no network", code: "await fetch('http://example.com')", exit: 1, error: "TypeError: fetch failed", hint: "no network"},
		{name: "a server of its own", code: "const server = require('http').createServer((q, r) => r.setHeader('connection', 'close').end('served'));\nawait new Promise(done => server.listen(0, '127.0.0.1', done));\nconst said = await (await fetch(`http://127.0.0.1:${server.address().port}`)).text();\nserver.close();\nsaid", result: "'served'"},
		{name: "a module that is not there", code: "require('left-pad')", exit: 1, error: "Cannot find module 'left-pad'", hint: "not installed in this image"},
		{name: "an error's line", code: "function f() {\n  throw new TypeError('bad')\n}\nf()", exit: 1, error: "TypeError: bad", stderr: "~at f (<cell 11>:2:9)"},
		{name: "a rejection", code: "await Promise.reject(new RangeError('later'))", exit: 1, error: "RangeError: later"},
		{name: "console", code: "console.log({ a: 1, b: [1, { c: 2 }] });\nconsole.error('e')", stdout: "{ a: 1, b: [ 1, { c: 2 } ] }\n", stderr: "e\n"},
		{name: "a page", code: "display({ mime: 'text/html', data: '<i>x</i>' })", blocks: "resource text/html"},
		{name: "bytes that nobody can show", code: "display({ mime: 'application/pdf', data: new Uint8Array([37, 80, 255]) })", files: ".paddock/15-1.pdf"},
		{name: "a long text", code: "'y'.repeat(50_000)", result: "~yy'… (49900 more characters)", files: ".paddock/16-1.txt"},
		{name: "a long list", code: "new Array(1e6).fill(7)", result: "~... 999900 more items"},
		{name: "no input", code: "const lines = require('readline').createInterface({ input: process.stdin });\nfor await (const line of lines) console.log(line);\n'end'", result: "'end'"},
		{name: "exit", code: "process.exit(4)", exit: 4},
	})
	runAll(t, c, "typescript", []program{
		{name: "types", code: "interface Point { x: number }\nenum Kind { A, B }\nconst p: Point = { x: 3 };\nconst same = <T,>(v: T): T => v;\nsame(p.x) + Kind.B", result: "4"},
		{name: "an error's line", code: "interface A {\n  b: string\n}\n\nthrow new Error('here' as string)", exit: 1, error: "Error: here", stderr: "~:5:"},
	})
}
