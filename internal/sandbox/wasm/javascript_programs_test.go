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
	"streams, zlib and channels": {
		{Code: `import { Readable, Transform } from "stream";
const up = new Transform({ transform(c, _, done) { done(null, String(c).toUpperCase()); } });
let out = "";
for await (const c of Readable.from(["a", "b"]).pipe(up)) out += c;
out`, Result: "'AB'"},
		{Code: `import { pipeline } from "node:stream/promises"; import zlib, { gzipSync } from "zlib";
const packed = gzipSync("hello ".repeat(100)), chunks = [];
await pipeline(Readable.from([packed]), zlib.createGunzip(), async function* (s) { for await (const c of s) chunks.push(c); });
[packed.length < 60, Buffer.concat(chunks).length]`, Result: "[ true, 600 ]"},
		{Code: `await new Promise((r) => zlib.deflate("abc", (e, b) => r(zlib.inflateSync(b).toString())))`, Result: "'abc'"},
		{Code: `const later = zlib.createZstdDecompress.bind(null, { params: {} }); typeof later`, Result: "'function'"},
		{Code: `zlib.brotliDecompressSync("x")`, Fails: `Error: Node's "zlib.brotliDecompress" …`, Line: 1},
		{Code: `zlib.gunzipSync("nonsense")`, Fails: "Error: …", Line: 1},
		{Code: `import dc from "diagnostics_channel"; const told = []; dc.channel("x").subscribe((m, n) => told.push(m + n)); dc.channel("x").publish("!"); dc.tracingChannel("t").traceSync(() => told)`, Result: "[ '!x' ]"},
		{Code: `const S = require("stream"); [new S() instanceof require("events"), typeof S.Duplex, S === S.Stream]`, Result: "[ true, 'function', true ]"},
		{Code: `let again = ""; for await (const c of Readable.from(["c"])) again += c; again`, Result: "'c'"},
	},
	"numbers as a locale writes them": {
		{Code: "[(1234567.891).toLocaleString(), (1234.5).toLocaleString('en-GB', { minimumFractionDigits: 2 }), 12345n.toLocaleString('en'), (1e21).toLocaleString(), Infinity.toLocaleString()].join(' ')", Result: "'1,234,567.891 1,234.50 12,345 1,000,000,000,000,000,000,000 ∞'"},
		{Code: "[(1234.5).toLocaleString('en-US', { style: 'currency', currency: 'USD' }), (-1234.567).toLocaleString(undefined, { style: 'currency', currency: 'JPY' }), (0.256).toLocaleString('en', { style: 'percent' })].join(' ')", Result: "'$1,234.50 -¥1,235 26%'"},
		{Code: "(1234.5).toLocaleString('de-DE')", Fails: "RangeError: the locale de-DE is not supported here…", Line: 1, Hint: "Linux sandbox"},
		{Code: "(1234).toLocaleString('en', { notation: 'compact' })", Fails: "RangeError: the option notation: compact is not supported here…", Line: 1},
		{Code: "[1234.5, 1].toLocaleString('de')", Fails: "RangeError: the locale de …", Line: 1},
		{Code: "new Uint32Array([12345]).toLocaleString('de')", Fails: "RangeError: the locale de …", Line: 1},
		{Code: "(1).toLocaleString('e')", Fails: "RangeError: Incorrect locale information provided: e", Line: 1},
		{Code: "Intl.NumberFormat('de')", Fails: "ReferenceError: Intl is not defined", Line: 1, Hint: "Linux sandbox"},
		{Code: "[[1234.5, null, 2].toLocaleString(), Number.prototype.toLocaleString.length]", Result: "[ '1,234.5,,2', 0 ]"},
	},
	"dates as a locale writes them": {
		{Code: "const d = new Date(Date.UTC(2025, 0, 2, 15, 4, 5)); [d.toLocaleString(), d.toLocaleDateString('en-US'), d.toLocaleTimeString('en', { timeZone: 'UTC' })].join(' | ')", Result: "'1/2/2025, 3:04:05 PM | 1/2/2025 | 3:04:05 PM'"},
		{Code: "[d.toLocaleDateString('en-US', { weekday: 'long', year: 'numeric', month: 'long', day: 'numeric' }), d.toLocaleDateString('en-US', { month: 'short', day: '2-digit' }), d.toLocaleTimeString('en-US', { hour: '2-digit', minute: '2-digit' })].join(' | ')", Result: "'Thursday, January 2, 2025 | Jan 02 | 03:04 PM'"},
		{Code: "d.toLocaleDateString('de-DE')", Fails: "RangeError: the locale de-DE …", Line: 1},
		{Code: "d.toLocaleTimeString('en-US', { timeZone: 'Asia/Tokyo' })", Fails: "RangeError: the option timeZone: Asia/Tokyo …", Line: 1},
		{Code: "d.toLocaleString('en', { dateStyle: 'full' })", Fails: "RangeError: the option dateStyle: full …", Line: 1},
		{Code: "new Date(NaN).toLocaleString()", Result: "'Invalid Date'"},
	},
	"texts as a locale compares them": {
		{Code: "['Zoe', 'äh', 'ah', 'Ah', 'b', '_x', '1'].sort((a, b) => a.localeCompare(b)).join(' ')", Result: "'_x 1 ah Ah äh b Zoe'"},
		{Code: "['a10', 'a9'].sort((a, b) => a.localeCompare(b, 'de', { numeric: true })).join(' ') + 'résumé'.localeCompare('RESUME', 'fr', { sensitivity: 'base' })", Result: "'a9 a100'"},
		{Code: "'z'.localeCompare('ä', 'sv')", Fails: "RangeError: the locale sv …", Line: 1},
		{Code: "'i'.toLocaleUpperCase('tr')", Fails: "RangeError: the locale tr …", Line: 1},
		{Code: "'straße'.toLocaleUpperCase('de')", Result: "'STRASSE'"},
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
