//go:build linux

package agent_test

import (
	"time"

	"paddock/internal/sandbox"
)

// javascriptPrograms are those that show what is special of Node.
var javascriptPrograms = map[string][]cell{
	"a world without its names": {
		{Code: "for (const name of Object.getOwnPropertyNames(globalThis)) try { delete globalThis[name] } catch {}; 1", Result: "1"},
		{Code: "1 + 1", Result: "2"},
		{Code: "throw 3", Fails: "Error: uncaught 3"},
	},
	"imports": {
		{Code: "import fs from 'fs';\nimport { join, sep as s } from 'node:path';\nimport * as os from 'os';\nfs.writeFileSync('m.mjs', 'export const v = 1; export default 2'); [join('a', 'b'), s, os.EOL]", Result: `[ 'a/b', '/', '\n' ]`},
		{Code: "import two, { v } from './m.mjs'; [two, v]", Result: "[ 2, 1 ]"},
		{Code: "await new Promise((r) => setTimeout(r, 20)); fs.writeFileSync('m.mjs', 'export const v = 10; export default 20')"},
		{Code: "import two, { v } from './m.mjs'; [two, v]", Result: "[ 20, 10 ]"},
		{Code: "fs.writeFileSync('d.json', '{\"k\": [1]}'); require('./d.json').k[0] + require('node:path').basename('/x/y')", Result: "'1y'"},
		{Code: "import data from './d.json'; data.k", Result: "[ 1 ]"},
		{Code: "fs.writeFileSync('c.cjs', 'exports.q = 1'); require('./c.cjs').q", Result: "1"},
		{Code: "await new Promise((r) => setTimeout(r, 20)); fs.writeFileSync('c.cjs', 'exports.q = 2'); require('./c.cjs').q", Result: "2"},
		{Code: "fs.writeFileSync('boom.mjs', '\\n\\nnull.x')"},
		{Code: "\nawait import('./boom.mjs')", Fails: "TypeError: …", Err: "/workspace/boom.mjs:3"},
		{Code: "import _ from 'lodash'", Fails: "Error: …", Hint: "not installed"},
		{Code: "require('lodash')", Fails: "Error: …", Hint: "not installed", Line: 1},
		{Code: "typeof require('child_process').spawnSync", Result: "'function'"},
	},
	"errors": {
		{Code: "const y = 1;\n\nthrow new TypeError('on purpose');", Fails: "TypeError: on purpose", Line: 3, Err: "TypeError: on purpose\n    at <cell 1>:3:7\n"},
		{Code: "throw new Error('outer', { cause: new Error('inner') })", Fails: "Error: outer", Line: 1, Err: "caused by Error: inner"},
		{Code: "require('fs').readFileSync('/gone')", Fails: "Error: ENOENT: …", Line: 1},
	},
	"timers": {
		{Code: "await require('util').promisify(setTimeout)(1, 'w')", Result: "'w'"},
	},
	"ending": {
		{Code: "process.kill(process.pid, 'SIGKILL'); for (;;);", Exit: 1, Cause: sandbox.Crashed, State: sandbox.Fresh, Fails: "Crash: …"},
		{Code: "1 + 1", Result: "2"},
	},
	"interrupts": {
		{Code: "let i = 0; console.log('on'); for (;;) i++", Out: "on", Told: true, Wall: 100 * time.Millisecond, Cause: sandbox.TimedOut, Fails: "Interrupted: …"},
		{Code: "require('child_process').execSync('sleep 3600')", Wall: 300 * time.Millisecond, Cause: sandbox.TimedOut, Fails: "…"},
		{Code: "i > 0", Result: "true"},
	},
	"what an ended program leaves holds up no other": {
		{Code: "await require('timers/promises').setTimeout(3600000); console.log('never')", Wall: 300 * time.Millisecond, Cause: sandbox.TimedOut, Fails: "Interrupted: …"},
		{Code: "await new Promise((r) => setTimeout(r, 20)); 1", Result: "1"},
		{Code: "await require('util').promisify(setTimeout)(1000); console.log('never')", Wall: 10 * time.Millisecond, Cause: sandbox.TimedOut, Fails: "Interrupted: …"},
		{Code: "await new Promise((r) => setTimeout(r, 1100)); 2", Result: "2"},
		{Code: "const server = require('http').createServer((q, r) => r.end('served')).listen(0, () => console.log('on'))", Out: "on", Told: true, Wall: 100 * time.Millisecond, Cause: sandbox.TimedOut, Fails: "Interrupted: …"},
		{Code: "3", Result: "3"},
		{Code: "server.listening", Result: "true"},
		{Code: "const child = require('child_process').spawn('sleep', ['3600']); throw 1", Fails: "Error: uncaught 1"},
		{Code: "5", Result: "5"},
		{Code: "new (require('worker_threads').Worker)('for (;;);', { eval: true })", Wall: 300 * time.Millisecond, Cause: sandbox.TimedOut, Fails: "Interrupted: …"},
		{Code: "8", Result: "8"},
		{Code: "new (require('worker_threads').Worker)('setInterval(() => {}, 10)', { eval: true }); throw 9", Fails: "Error: uncaught 9"},
		{Code: "await new Promise((r) => new (require('worker_threads').Worker)('require(`worker_threads`).parentPort.postMessage(10)', { eval: true }).on('message', r))", Result: "10"},
		{Code: "for await (const t of require('timers/promises').setInterval(5)) 1", Wall: 300 * time.Millisecond, Cause: sandbox.TimedOut, Fails: "Interrupted: …"},
		{Code: "6", Result: "6"},
		{Code: "for (;;) setTimeout(() => console.log('never'), 3600000 * Math.random())", Wall: 300 * time.Millisecond, Cause: sandbox.TimedOut, Fails: "Interrupted: …"},
		{Code: "await new Promise((r) => setTimeout(r, 5)); 7", Result: "7"},
	},
	"the world": {
		{Code: "require('child_process').execSync('echo child').toString()", Result: `'child\n'`},
		{Code: "require('child_process').spawnSync('sh', ['-c', 'ls -l /proc/self/fd | grep -c socket'], { stdio: ['ignore', 'pipe', 'inherit'] }).stdout.toString()", Result: `'0\n'`},
		{Code: "await (await import('node:dns')).promises.lookup('localhost').then(() => 1, () => 1)", Result: "1"},
		{Code: "const http = require('http'); const s = http.createServer((q, r) => r.end('served')).listen(0); const got = await fetch(`http://127.0.0.1:${s.address().port}/`).then((r) => r.text()).catch((e) => e.cause?.code); s.close(); s.closeAllConnections?.(); typeof got", Result: "'string'"},
	},
}
