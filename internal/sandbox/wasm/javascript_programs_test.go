package wasm_test

import "paddock/internal/sandbox"

// javascriptPrograms are those that show what is special here.
var javascriptPrograms = map[string][]cell{
	"imports of TypeScript": {
		{Code: "const fs = require('fs'); fs.writeFileSync('t.ts', 'export const t: number = 3')"},
		{Code: "(await import('./t.ts')).t", Result: "3"},
	},
	"modules that are not there": {
		{Code: "import _ from 'lodash'", Fails: "…", Hint: "fs, "},
		{Code: "require('lodash')", Fails: "…", Hint: "fs, ", Line: 1},
		{Code: "await import('./nothing.js')", Fails: "…"},
		{Code: "require('child_process')", Fails: "…", Line: 1},
		{Code: "\nnew WebSocket('ws://x')", Fails: "ReferenceError: WebSocket is not defined", Line: 2, Hint: "only HTTP"},
		{Code: "await fetch('http://x')", Fails: "TypeError: fetch failed: this session has no network"},
	},
	"files that are not there": {
		{Code: "require('fs').readFileSync('/etc/passwd')", Fails: "Error: ENOENT: …", Line: 1, Hint: "/workspace"},
	},
	"the platform": {
		{Code: "require('os').platform() + process.platform", Result: "'wasiwasi'"},
	},
	"lines of a list": {
		{Code: "const { createInterface } = require('readline'); const lines = []; for await (const l of createInterface({input: ['a\\nb', 'c\\n', 'd']})) lines.push(l); lines", Result: "[ 'a', 'bc', 'd' ]"},
	},
	"an index of every array": {
		{Code: "Object.defineProperty(Array.prototype, '0', { get() { return 1 }, configurable: true }); undefined"},
		{Code: "delete Array.prototype[0]; [5]", Result: "[ 5 ]"},
	},
	"memory": {
		{Code: "const all = []; for (;;) all.push(new Array(4e5).fill({}))", Fails: "…", Line: 1, Cause: sandbox.OutOfMemory}, // what the last one did not get is room to go on
		{Code: "all.length > 10", Result: "true"},
		{Code: "all.length = 0; 1 + 1", Result: "2"},
		{Code: "'x'.repeat(2 ** 30)", Fails: "…", Line: 1},
		{Code: "JSON.parse('['.repeat(1e6))", Fails: "…", Line: 1},
		{Code: "/(a+)+$/.test('a'.repeat(25)); 1", Result: "1"},
	},
	"modules in TypeScript": {
		{Code: "require('fs').writeFileSync('lib.ts', 'export type T = number;\\n\\nexport function half(n: T): T {\\n  if (n % 2) throw new RangeError(/odd/.source);\\n  return n / 2;\\n}\\n')"},
		{Language: "typescript", Code: "import { half } from './lib.ts';\nhalf(4)", Result: "2"},
		{Language: "typescript", Code: "half(3)", Fails: "RangeError: odd", Line: 1, Err: "at half (/workspace/lib.ts:4:"},
	},
}
