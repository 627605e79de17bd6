// The Node.js kernel: runs programs in this process's own global scope, the
// world, whose variables stay. Called once, as it starts: requests come over
// descriptor 4, what a program asks for while it runs goes over 5, and calls of the
// host over 6. Node gives none of them to the program's children.
//
// This text is evaluated in a context of its own: a program that changes JSON or
// an array's methods changes its own world only. What is taken from there is
// taken at once.
(require, process, world, importModule) => {
"use strict";
const fs = require("fs"), net = require("net"), path = require("path"), url = require("url"), util = require("util"), vm = require("vm");
const nodeModule = require("module"), { Readable, Writable } = require("stream");
const acorn = require("internal/deps/acorn/acorn/dist/acorn");
const { timerListMap: waiting, kRefed: holds } = require("internal/timers");

const { apply, ownKeys, getOwnPropertyDescriptor, getPrototypeOf } = Reflect;
const { parse, stringify: rawStringify } = JSON;
const { isArray } = Array;
const { inspect } = util;
const { readSync, writeSync, readFileSync, readdirSync } = fs;
const { Buffer, clearTimeout, clearImmediate } = world;
const { from: bufferFrom, alloc, concat } = Buffer;
const { then } = world.Promise.prototype;
const WorldError = world.Error;
const tick = process._tickCallback;
const RESULT = 16384, MESSAGE = 4096, TRACE = 16384, VARIABLES = 200, NAME = 256, TYPE = 100, PREVIEW = 120, IMPORTS = 200, DISPLAY = 32 << 20, BEGINNING = 1000, MODULE = 8 << 20;

const cut = (text, limit) => text.length <= limit ? text : `${text.slice(0, limit)}… (${text.length - limit} more characters)`;
const brief = (text, limit) => text.length > limit ? text.slice(0, limit - 1) + "…" : text;

// stringify asks nothing of what a program put on a prototype.
function stringify(value) {
  if (typeof value !== "object" || value === null) return rawStringify(value) ?? "null";
  const list = isArray(value), keys = ownKeys(value);
  let text = "";
  for (let i = 0; i < keys.length; i++) {
    const key = keys[i];
    if (list ? key === "length" : value[key] === undefined) continue;
    text += (text && ",") + (list ? "" : rawStringify(key) + ":") + stringify(value[key]);
  }
  return list ? `[${text}]` : `{${text}}`;
}

// ── the connection ──────────────────────────────────────────────────────────

const frame = (kind, number, body) => {
  const head = alloc(9);
  head.writeUInt8(kind.charCodeAt(0), 0);
  head.writeUInt32LE(number, 1);
  head.writeUInt32LE(body.length, 5);
  return concat([head, body]);
};

function exactly(fd, n) {
  const to = alloc(n);
  for (let at = 0; at < n;) {
    let got;
    try {
      got = readSync(fd, to, at, n - at, null);
    } catch (error) {
      if (error.code === "EINTR") continue;
      throw error;
    }
    if (got === 0) throw new Error("the sandbox is gone");
    at += got;
  }
  return to;
}

const STOP = "i".charCodeAt(0), LEAVE = "s".charCodeAt(0), REQUEST = "q".charCodeAt(0); // the kinds of frames, see channel_linux.go
let messages = 0;

// call sends the agent a message and gives its reply.
function call(head, data) {
  const number = ++messages >>> 0;
  const body = concat([bufferFrom(stringify(head) + "\n"), data ?? alloc(0)]);
  const whole = frame("m", number, body);
  for (let at = 0; at < whole.length;) at += writeSync(5, whole, at, whole.length - at);
  for (;;) {
    const got = exactly(5, 9);
    const reply = exactly(5, got.readUInt32LE(5));
    if (got.readUInt32LE(1) === number) return reply;
  }
}

const socket = new net.Socket({ fd: 4, readable: true, writable: true });
let received = alloc(0);
socket.on("data", (piece) => {
  received = received.length ? concat([received, piece]) : piece;
  while (received.length >= 9) {
    const length = received.readUInt32LE(5);
    if (received.length < 9 + length) return;
    const number = received.readUInt32LE(1), body = received.subarray(9, 9 + length);
    const kind = received[0];
    received = received.subarray(9 + length);
    if (kind === STOP) stop(number);
    else handle(number, body);
  }
});
const still = new Int32Array(new SharedArrayBuffer(4)); // nobody wakes who waits for it

// writeFrame writes to a descriptor that does not block.
function writeFrame(fd, whole) {
  for (let at = 0; at < whole.length;) {
    try {
      at += writeSync(fd, whole, at, whole.length - at);
    } catch (error) {
      if (error.code !== "EAGAIN") throw error;
      Atomics.wait(still, 0, 0, 1); // the agent is reading
    }
  }
}

// Calls are answered while the program waits; they keep its run from ending.
const calling = new net.Socket({ fd: 6, readable: true, writable: true });
calling.unref();
let calls = 0, answers = alloc(0);
const servers = makeServers(world, {
  begin: (text) => {
    calls = (calls % 0xffffffff) + 1;
    writeFrame(6, frame("c", calls, bufferFrom(text))); // not by the stream: an interrupt in its midst would break it
    return calls;
  },
  bytesOf: (text) => new world.Uint8Array(bufferFrom(text, "base64")), readFile: readFileSync, namesIn: readdirSync,
  changed: (waits) => waits ? calling.ref() : calling.unref(),
});
calling.on("data", (piece) => {
  answers = answers.length ? concat([answers, piece]) : piece;
  while (answers.length >= 9) {
    const length = answers.readUInt32LE(5);
    if (answers.length < 9 + length) return;
    const number = answers.readUInt32LE(1), body = answers.subarray(9, 9 + length), kind = answers[0];
    answers = answers.subarray(9 + length);
    if (kind === LEAVE) {
      setTimeout_(look, 1, number).unref();
      continue;
    }
    servers.arrived(number, length ? world.JSON.parse(body.toString("utf8")) : undefined);
  }
});
calling.on("error", () => {});

// look leaves the program of a request where it does nothing but wait for calls and for
// time, else it looks again.
const LOOK_AGAIN = 20; // ms
function look(number) {
  if (!state.running || state.inside || number !== state.number) return;
  if (servers.waits() && isIdle()) park();
  else setTimeout_(look, LOOK_AGAIN, number).unref();
}

const isIdle = () => [...workers].every((w) => w.threadId === -1) && activeRequests().length === 0
  && activeHandles().every((handle) => handle === calling || handle === socket)
  && !activeResources().includes("Immediate");

// park holds the process, so that no timer of the program's fires, until the agent says
// how it goes on.
function park() {
  writeFrame(4, frame("a", state.number, bufferFrom(`{"status":"waiting"}`)));
  for (;;) {
    const head = exactly(5, 9), body = exactly(5, head.readUInt32LE(5)), number = head.readUInt32LE(1);
    if (head[0] !== REQUEST) continue; // a reply that nobody waits for
    const { op } = parse(body.toString("utf8"));
    if (op === "resume" || op === "interrupt") {
      state.number = number;
      writeFrame(4, frame("b", number, alloc(0)));
      if (op === "interrupt") ended(interruption);
      return;
    }
    writeFrame(4, frame("a", number, bufferFrom(stringify(op === "inspect" ? inspection() : { status: "ok" }))));
  }
}

// Without the connection there is nothing to do.
const lost = () => kill(process.pid, "SIGKILL");
const kill = process.kill.bind(process);
socket.on("close", lost);
socket.on("error", lost);
const really = process.reallyExit.bind(process);

// ── programs ────────────────────────────────────────────────────────────────

const state = { number: 0, cell: 0, label: "<cell>", running: false, inside: false, lines: 0, exiting: undefined, value: undefined, settled: false };
const maps = new Map(); // of programs that were translated, by their names
const imports = new Set();
const hidden = Object.create(null); // the names that are not the program's
const foreign = Object.create(null); // those that stand for what was imported
const rewrite = makeRewrite(acorn);

const note = (name) => { if (imports.size < IMPORTS) imports.add(brief(String(name), IMPORTS)); };

// translate takes the types out of TypeScript in a file.
function translate(text, file) {
  if (text.length > MODULE) throw new world.SyntaxError(`TypeScript in ${file}: it is too large`);
  const { code, map, error } = parse(call({ op: "typescript", name: file }, bufferFrom(text)).toString("utf8"));
  if (error) throw new world.SyntaxError(`TypeScript in ${file}${error.line ? `, line ${error.line}` : ""}: ${error.message}`);
  maps.set(file, map);
  if (maps.size > 200) maps.delete(maps.keys().next().value);
  return code;
}

const { load, require_ } = makeModules({ require, process, world, importModule, acorn, servers, translate, note });

// awaken gives what draws random numbers seeds of its own, for this process may be a
// copy of another one. OpenSSL's generators cannot be seeded from here; but how much
// is drawn from one at a time changes all that it gives after that.
async function awaken(seed) {
  const { randomFill, randomFillSync, randomUUID, randomInt, generatePrimeSync } = require("crypto");
  const amounts = new Uint16Array(bufferFrom(seed, "hex")); // one for each byte of the seed
  for (const n of amounts) randomFillSync(alloc(16 * n + 1));
  for (const n of amounts) generatePrimeSync(64 + n); // from the generator for keys
  await Promise.all(Array.from(amounts, (n) => new Promise((done) => randomFill(alloc(16 * n + 1), done)))); // from those of other threads
  for (let i = 0; i < 128; i++) randomUUID(); // what was drawn ahead
  for (let i = 0; i < 1024; i++) randomInt(2);
  const pool = new Uint32Array(1024);
  let left = 0;
  const random = () => {
    if (left === 0) left = randomFillSync(pool).length;
    left -= 2;
    return ((pool[left] >>> 5) * 67108864 + (pool[left + 1] >>> 6)) / 9007199254740992;
  };
  Object.defineProperty(world.Math, "random", { value: random, writable: true, configurable: true });
}

function handle(number, body) {
  const request = parse(body.toString("utf8"));
  if (request.op === "inspect") return answer(number, inspection());
  if (request.op === "awaken") return awaken(request.seed).then(() => answer(number, { status: "ok" }));
  if (request.op === "settle") return setImmediate_(() => answer(number, { status: "ok" })); // after what has come on other connections
  if (request.op !== "exec") return answer(number, { status: "ok" });
  state.number = number;
  state.cell++;
  state.label = request.name && request.name !== "<cell>" ? request.name : `<cell ${state.cell}>`;
  if (request.map) maps.set(state.label, request.map);
  else maps.delete(state.label);
  if (maps.size > 200) maps.delete(maps.keys().next().value);
  process.argv = ["node", state.label.startsWith("<cell") ? "" : state.label, ...(request.args ?? [])];
  process.exitCode = undefined;
  Object.assign(state, { request, running: true, exiting: undefined, value: undefined, settled: false, begun: false });
  stdin.renew();
  socket.unref(); // the program has ended when nothing else is left
  for (;;) {
    state.inside = true;
    let failed, error;
    try {
      vm.runInThisContext("this['paddock run']()", { breakOnSigint: true, filename: "paddock" });
    } catch (e) {
      failed = true;
      error = e;
    }
    state.inside = false;
    let interrupted = failed && error?.code === "ERR_SCRIPT_EXECUTION_INTERRUPTED";
    if (interrupted && !state.begun && !meant()) continue; // it was meant for an earlier program
    if (!failed && goesOn() && meant()) {
      interrupted = failed = true;
      error = interruption;
    }
    if (interrupted && state.exiting === undefined) settle();
    if (failed) ended(error, interrupted);
    return;
  }
}

// goesOn tells whether something of the program is still to come.
const goesOn = () => !state.settled || timers.size > 0 || activeHandles().length > 0;

// settle takes in what is left of an interrupt: one that comes as vm returns is lost,
// and node's thread for interrupts stops the next program instead of this one.
function settle() {
  try {
    vm.runInThisContext("this['paddock run']()", { breakOnSigint: true, filename: "paddock" });
  } catch { /* it was left */ }
}
// meant asks the agent whether it is this run that was interrupted.
const meant = () => call({ op: "interrupted" }).length === 3;

// compiled throws the mistake, where there is one, in place of what the engine says.
function compiled(code, mistake, options) {
  try {
    return new vm.Script(code, options);
  } catch (error) {
    throw mistake ?? error;
  }
}

// run is called where it can be interrupted, once for each program: it evaluates the program, and what
// of it is ready to go on.
function run(request) {
  writeSync(4, frame("b", state.number, alloc(0)));
  const { code, waits, before = 0, bound = [], mistake } = rewrite(request.code, state.label);
  for (const name of bound) foreign[name] = true;
  state.lines = request.code.split("\n").length;
  const script = compiled(code, mistake, { filename: state.label, columnOffset: -before, importModuleDynamically: (name, _, attributes) => load(name, attributes) });
  state.begun = true;
  const value = script.runInThisContext({ displayErrors: false });
  if (waits) {
    apply(then, value, [(v) => { state.settled = true; state.value = v?.value; }, (e) => { state.settled = true; if (state.running) ended(e); }]);
  } else {
    state.settled = true;
    state.value = value;
  }
  tick();
}

process.on("beforeExit", () => {
  if (!state.running) return;
  if (!state.settled) return ended(new Error("the program waits for something that can never happen: nothing is scheduled that could wake it"));
  const code = process.exitCode, outcome = { status: "done", exit_code: typeof code === "number" ? code & 255 : 0 };
  const { value } = state;
  if (value !== undefined) {
    try {
      outcome.result = wholeText(value) ?? cut(shown(value), RESULT);
    } catch (e) {
      return ended(e);
    }
  }
  finish(outcome);
});

// wholeText has a text that is too long for a result shown whole, as a document,
// where that can be, and gives what is said of it.
function wholeText(value) {
  if (typeof value !== "string" || value.length <= RESULT) return undefined;
  const whole = value.length <= DISPLAY, n = whole ? BEGINNING / 10 : BEGINNING;
  if (whole) display({ mime: "text/plain", data: value });
  return `${shown(value.slice(0, n))}… (${value.length - n} more characters)`;
}

// ended finishes a run that failed, or was told to end; interrupted: in the midst of
// what it did at first.
function ended(error, interrupted) {
  if (!state.running) return;
  abandon(interrupted);
  if (state.exiting !== undefined) return finish({ status: "done", exit_code: state.exiting & 255 });
  if (error?.code === "ERR_SCRIPT_EXECUTION_INTERRUPTED" || error === interruption) {
    try {
      writeAll(2, "Interrupted: the program was interrupted\n");
    } catch { /* it closed the descriptor */ }
    return finish({ status: "done", exit_code: 130, error: { type: "Interrupted", message: "the program was interrupted", kind: "interrupted", line: 0 } });
  }
  let found;
  try {
    found = describe(error);
  } catch {
    found = plainly(error);
  }
  try {
    writeAll(2, found.traceback);
  } catch { /* it closed the descriptor */ }
  finish({ status: "done", exit_code: 1, error: found });
}

function writeAll(fd, data) {
  const bytes = typeof data === "string" ? bufferFrom(data) : data;
  for (let at = 0; at < bytes.length;) at += writeSync(fd, bytes, at);
}

function finish(outcome) {
  state.running = false;
  state.value = undefined;
  servers.forget();
  answer(state.number, outcome);
}

function answer(number, outcome) {
  socket.ref();
  socket.write(frame("a", number, bufferFrom(stringify(outcome))));
}

// ── errors ──────────────────────────────────────────────────────────────────

const isError = (value) => util.types.isNativeError(value) || value instanceof WorldError;
const nameOf = (error) => isError(error) ? String(error.name || "Error") : "Error";
const messageOf = (error) => cut(isError(error) ? String(error.message) : `uncaught ${inspect(error)}`, MESSAGE);

// original leads a position in translated code back to the code that was written.
function original(line) {
  return line.replace(/(?<=\(|at )([^()]+):(\d+):(\d+)(?=\)?$)/, (text, name, row, column) => {
    let map = maps.get(name);
    if (map === undefined) return text;
    if (typeof map === "string") maps.set(name, map = new nodeModule.SourceMap(parse(map)));
    const found = map.findEntry(Number(row) - 1, Number(column) - 1);
    return found.originalLine === undefined ? text : `${name}:${found.originalLine + 1}:${found.originalColumn + 1}`;
  });
}

// around tells of a frame that is none of the program's lines, but what waits for them.
function around(line) {
  const at = line.lastIndexOf(state.label + ":");
  return at >= 0 && parseInt(line.slice(at + state.label.length + 1), 10) > state.lines;
}

function frames(error) {
  const stack = isError(error) ? String(error.stack ?? "") : "";
  return stack.split("\n").filter((line) => /^\s+at /.test(line) && !/[( ](?:node:|evalmachine|paddock|\[eval|internal\/)|<anonymous>\)?$|\(native\)/.test(line) && !around(line)).map((line) => original(line.replace(/(file:\/\/[^?]*)\?[\d.]+(?=:\d)/, (_, at) => url.fileURLToPath(at)).replace(/file:\/\/[^:)]*/, (at) => url.fileURLToPath(at))));
}

function describe(error) {
  const all = frames(error), label = state.label;
  let line = 0;
  for (const f of all) {
    const at = f.indexOf(label + ":");
    if (at >= 0) {
      line = parseInt(f.slice(at + label.length + 1), 10) || 0;
      break;
    }
  }
  const found = { type: nameOf(error), message: messageOf(error), line };
  if (!line && isError(error)) { // what does not compile: the stack begins with where
    const first = String(error.stack).split("\n")[0], at = first.lastIndexOf(label + ":");
    if (at >= 0) found.line = parseInt(original(`at ${first}:1`).slice(at + 3 + label.length + 1), 10) || 0;
  }
  const hint = found.type === "SyntaxError" && hintOfReturn(found.message) || hintOf(error);
  if (hint) found.hint = hint;
  if (error?.code === "ENOSPC" || error?.code === "EDQUOT" || error?.code === "EFBIG") found.kind = "space";
  found.traceback = textOf(error, all);
  return found;
}

function textOf(error, all) {
  let text = [isError(error) ? `${nameOf(error)}: ${messageOf(error)}` : messageOf(error), ...all].join("\n") + "\n";
  if (isError(error) && error.cause !== undefined) text += `caused by ${textOf(error.cause, frames(error.cause))}`;
  return cut(text, TRACE);
}

// hintOfModule says what to do about a module that was not found.
function hintOfModule(message) {
  const [, name, from] = /^Cannot find (?:module|package) '([^']*)'(?: imported from (.*))?/.exec(message) ?? [];
  if (name === "servers" && from !== undefined) return "what Node loads by itself, which is packages, CommonJS and threads, can import no servers: give it their functions as arguments";
  const near = name?.startsWith(process.cwd() + "/") ? name.slice(process.cwd().length + 1) : name ?? "";
  return servers.hintOf(near) ?? "it is not installed in this image; npm install puts it into the workspace, where there is a network";
}

const UNREACHABLE = new Set(["EAI_AGAIN", "ENOTFOUND", "ENETUNREACH", "EHOSTUNREACH"]);

function hintOf(error) {
  if (error?.code === "MODULE_NOT_FOUND" || error?.code === "ERR_MODULE_NOT_FOUND") return hintOfModule(String(error.message));
  if (error?.code === "ENOSPC" || error?.code === "EDQUOT" || error?.code === "EFBIG") return "the disk limit is reached; remove files that are not needed";
  for (let e = error, n = 0; isError(e) && n < 10; e = e.cause, n++) {
    if (UNREACHABLE.has(e.code) && process.env.HTTP_PROXY) return "only HTTP leaves this sandbox, through the proxy that HTTP_PROXY names: use fetch, http or https without settings of their own; names are not resolved here";
    if (UNREACHABLE.has(e.code)) return "there is no network in this sandbox; only what listens in it can be reached, on 127.0.0.1; who runs the server can allow hosts (network.allow, PADDOCK_NET_ALLOW)";
  }
  return "";
}

// plainly is describe for a program that changed the language so far that
// describe fails.
function plainly(error) {
  const field = (name) => {
    for (let o = error; typeof o === "object" && o !== null; o = getPrototypeOf(o)) {
      const d = getOwnPropertyDescriptor(o, name);
      if (d) return typeof d.value === "string" ? d.value : undefined;
    }
    return undefined;
  };
  const type = field("name") ?? "Error", message = field("message") ?? "";
  return { type, message, line: 0, traceback: `${type}: ${message}\n` };
}

// ── what a program finds ────────────────────────────────────────────────────

const shown = (value) => inspect(value, { depth: 2, maxArrayLength: 100, maxStringLength: 10000, breakLength: 80 });

function inspection() {
  const variables = [];
  for (const name of Object.getOwnPropertyNames(world)) {
    if (variables.length >= VARIABLES) break;
    if (hidden[name] || foreign[name]) continue;
    const { value } = getOwnPropertyDescriptor(world, name);
    if (value === undefined || value === nodeModule) continue; // node itself gives it to what it evaluates
    let preview = "…";
    try {
      preview = inspect(value, { depth: 1, compact: true, breakLength: Infinity, customInspect: false, getters: false, showProxy: true, maxArrayLength: 20, maxStringLength: PREVIEW });
    } catch { /* it is broken */ }
    const type = value === null ? "null" : typeof value !== "object" ? typeof value : kindOf(value);
    variables.push({ name: brief(name, NAME), type: brief(type, TYPE), preview: preview.slice(0, PREVIEW) });
  }
  return { status: "ok", variables, imports: [...imports].sort() };
}

function kindOf(value) {
  if (util.types.isProxy(value)) return "Proxy";
  for (let p = getPrototypeOf(value); p !== null; p = getPrototypeOf(p)) {
    const d = getOwnPropertyDescriptor(p, "constructor");
    if (typeof d?.value === "function") {
      const n = getOwnPropertyDescriptor(d.value, "name")?.value;
      return typeof n === "string" && n ? n : "object";
    }
  }
  return "object";
}

// exit ends the program and not the process: where the engine can be told to
// stop, at once; in what it does later, by an error that says so.
const interruption = new Error("interrupted"), exiting = new Error("process.exit");
process.exit = process.reallyExit = (code) => {
  if (!state.running) return really(code ?? 0);
  state.exiting = Number(code ?? process.exitCode ?? 0) | 0;
  if (state.inside) {
    process.kill(process.pid, "SIGINT");
    for (;;);
  }
  ended(exiting);
  throw exiting;
};
// A signal may be one of an earlier run: the agent knows. A program that waits is asked
// before there is any.
process.on("SIGINT", () => { if (state.running && !state.inside && meant()) ended(interruption); });
function stop(number) {
  if (state.running && !state.inside && number === state.number) ended(interruption);
}
process.on("uncaughtException", (error) => { if (error !== exiting) ended(error); });
process.on("unhandledRejection", (error) => { if (error !== exiting) ended(error); });

// Timers that a program leaves when it fails or is ended do nothing more, and what
// else it leaves holds up no later program. An interrupt that came while node was
// making a timer may have left one that nobody was given, a list of them at which
// node does not look, or one that is counted and not there.
const timers = new Map();
const { _getActiveHandles: activeHandles, _getActiveRequests: activeRequests, getActiveResourcesInfo: activeResources } = process;
function abandon(interrupted) {
  for (const t of timers.keys()) t.cancel();
  timers.clear();
  for (const after in waiting) {
    const list = waiting[after];
    for (let t = list._idlePrev, next; t && t !== list; t = next) {
      next = t._idlePrev;
      if (t[holds]) clearTimeout(t);
    }
    if (list.priorityQueuePosition === null) delete waiting[after];
  }
  const resources = activeResources(), handles = activeHandles();
  for (let i = 0; interrupted && i < resources.length; i++) if (resources[i] === "Timeout") uncount();
  for (let i = 0; i < handles.length; i++) {
    try {
      if (handles[i] !== socket) handles[i].unref?.();
    } catch { /* the program made it so */ }
  }
  for (const w of workers) dismiss(w);
  workers.clear();
}

// workers are the threads that programs started: no handle of node's tells of them.
const workers = new Set();
process.on("worker", (w) => { // it comes a little later
  for (const earlier of workers) if (earlier.threadId === -1) workers.delete(earlier);
  if (state.running) workers.add(w);
  else dismiss(w);
});
function dismiss(worker) {
  try {
    worker.terminate(); // which has node wait for its end
    worker.unref();
  } catch { /* the program made it so */ }
}

// uncount has node count one timer less that it waits for.
function uncount() {
  const t = setTimeout_(() => {}, 1e9).unref();
  t[holds] = true;
  t.unref();
  clearTimeout(t);
}

const { setTimeout: setTimeout_, setImmediate: setImmediate_ } = world;
const track = (make, repeat) => {
  const wrapped = { [make.name]: (callback, ...rest) => {
    if (typeof callback !== "function") return make(callback, ...rest);
    const held = { over: false, timer: undefined, cancel() { this.over = true; clearTimeout(this.timer); clearImmediate(this.timer); } };
    timers.set(held, true); // first, for what follows may be interrupted
    held.timer = make(function (...args) {
      if (!repeat) timers.delete(held);
      if (!held.over) apply(callback, this, args);
    }, ...rest);
    if (timers.size > 100000) timers.delete(timers.keys().next().value);
    return held.timer;
  } }[make.name];
  if (make[util.promisify.custom]) Object.defineProperty(wrapped, util.promisify.custom, { value: make[util.promisify.custom] });
  return wrapped;
};
for (const name of ["setTimeout", "setInterval", "setImmediate"]) {
  const wrapped = track(world[name], name === "setInterval");
  world[name] = require("timers")[name] = wrapped;
}

// Output is written before a call of the program's returns, so that the end of a
// run comes after it.
const output = (fd) => {
  const stream = new Writable();
  stream.write = (chunk, encoding, done) => {
    writeAll(fd, typeof chunk === "string" ? bufferFrom(chunk, typeof encoding === "string" ? encoding : "utf8") : chunk);
    done = typeof encoding === "function" ? encoding : done;
    if (typeof done === "function") process.nextTick(done);
    return true;
  };
  stream.end = stream.destroy = () => stream;
  return Object.assign(stream, { fd, isTTY: false, columns: 80 });
};
for (const [name, fd] of [["stdout", 1], ["stderr", 2]]) {
  Object.defineProperty(process, name, { configurable: true, enumerable: true, writable: true, value: output(fd) });
}

// What a program reads is asked for when it does.
const stdin = {
  rest: alloc(0), ended: false, stream: undefined,
  renew() { this.rest = alloc(0); this.ended = false; this.stream = undefined; },
  more() {
    if (this.rest.length === 0 && !this.ended) {
      this.rest = call({ op: "stdin" });
      this.ended = this.rest.length === 0;
    }
    return this.rest;
  },
  take(n) {
    const piece = this.more().subarray(0, n);
    this.rest = this.rest.subarray(piece.length);
    return piece;
  },
  all() {
    const pieces = [];
    for (let p = this.take(Infinity); p.length > 0; p = this.take(Infinity)) pieces.push(p);
    return concat(pieces);
  },
};
const isInput = (file) => file === 0 || file === "/dev/stdin";
const original_ = { readFileSync: fs.readFileSync, readSync: fs.readSync, createReadStream: fs.createReadStream };
fs.readFileSync = (file, options) => {
  if (!isInput(file)) return original_.readFileSync(file, options);
  const encoding = typeof options === "string" ? options : options?.encoding;
  return encoding ? stdin.all().toString(encoding) : stdin.all();
};
fs.readSync = (fd, buffer, offset, length, ...rest) => {
  if (fd !== 0) return original_.readSync(fd, buffer, offset, length, ...rest);
  if (typeof offset === "object" && offset !== null) ({ offset, length } = offset);
  offset ??= 0;
  length ??= buffer.byteLength - offset;
  const piece = stdin.take(length);
  new Uint8Array(buffer.buffer, buffer.byteOffset, buffer.byteLength).set(piece, offset);
  return piece.length;
};
fs.createReadStream = (file, ...rest) => isInput(file) ? input() : original_.createReadStream(file, ...rest);
nodeModule.syncBuiltinESMExports();
const input = () => {
  const stream = new Readable({ read() { const p = stdin.take(65536); this.push(p.length ? p : null); } });
  return Object.assign(stream, { fd: 0, isTTY: false });
};
Object.defineProperty(process, "stdin", { configurable: true, enumerable: true, get: () => stdin.stream ??= input() });

// display({mime, data}) shows a picture or document; anything else as text.
const display = (...values) => {
  for (const value of values) {
    if (typeof value !== "object" || value === null || typeof value.mime !== "string") {
      world.console.log(value);
      continue;
    }
    const data = typeof value.data === "string" ? bufferFrom(value.data) : bufferFrom(value.data.buffer ?? value.data, value.data.byteOffset, value.data.byteLength);
    if (data.length > DISPLAY || call({ op: "display", mime: value.mime }, data).includes('"error"')) {
      writeAll(2, "(a display is not shown: it is over the limit)\n");
    }
  }
};
const define = (name, value) => Object.defineProperty(world, name, { value, writable: true, configurable: true, enumerable: false });
define("display", display);
define("require", Object.assign(require_, { resolve: (name) => nodeModule.createRequire(path.join(process.cwd(), "x")).resolve(name), cache: require.cache }));
delete world.module;
delete world.exports;
delete world.__filename;
delete world.__dirname;
process.execArgv = [];

// It is found by nothing that a program could take away.
Object.defineProperty(world, "paddock run", { value: () => { if (state.inside) run(state.request); else Atomics.wait(still, 0, 0, 5); } });
for (const name of Object.getOwnPropertyNames(world)) hidden[name] = true;
}
