// The driver of the JavaScript guest: answers the host's requests
// (guest/README.md). The host evaluates this once, when the image is captured,
// and calls what it gives with its door; what comes back is the driver.
//
// What the driver needs of the language it takes at that time: a program that
// changes JSON or Promise or an array's methods changes its own world only.
import { describe, plainly, textOf } from "./errors.js";
import { installGlobals } from "./globals.js";
import { constructorName, inspect, preview } from "./inspect.js";
import { builtinSource, installModules, isBuiltin, moduleNameOf } from "./modules.js";
import { translated, untranslated } from "./positions.js";
import { rewrite } from "./rewrite.js";
import { makeTimers } from "./timers.js";
import { Buffer } from "buffer";
import { makeFetch } from "./fetch.js";
import { makeHost } from "./host.js";
import { apply, parse, safeMap, stringify } from "./primordials.js";
import { installRandom } from "./random.js";
import { makeServers } from "./servers.js";

const promiseThen = Promise.prototype.then;
const { getOwnPropertyNames, getOwnPropertyDescriptor } = Object;
const RESULT_LIMIT = 16384;
const DISPLAY_LIMIT = 15 << 20, BEGINNING = 1000;

// What an inspection tells at most (package wire has the same numbers).
const VARIABLES = 200, NAME_LIMIT = 256, TYPE_LIMIT = 100;

const { slice, startsWith, trim } = String.prototype;
const { concat } = Array.prototype;
const cut = (text, limit) => apply(slice, text, [0, limit]);

const brief = (text, limit) => text.length > limit ? cut(text, limit - 1) + "…" : text;

// typeName is what a variable is: its class, or the language's own word.
function typeName(value) {
  if (typeof value !== "object") return typeof value;
  if (value === null) return "null";
  const name = constructorName(value);
  return typeof name === "string" ? name : "object";
}

// compiles is false for an error by which the engine refused the code called label.
function compiles(error, label) {
  const { stack } = error instanceof SyntaxError ? error : {};
  return typeof stack !== "string" || !apply(startsWith, apply(trim, stack, []), [`at ${label}:`]);
}

export default function install(call) {
  const host = makeHost(call);
  const timers = makeTimers(() => host.now());
  const seedRandom = installRandom(Math);
  const state = { cell: 0, label: "<cell>", status: "idle", value: undefined, error: undefined, mistake: undefined, exit: 0, rejected: safeMap() };
  const process = installGlobals(globalThis, host, timers, (code) => {
    state.exit = code;
    host.exit();
    for (;;); // until the engine is told to stop
  });
  const servers = makeServers(globalThis, {
    begin: host.begin, bytesOf: (text) => new Uint8Array(Buffer.from(text, "base64")), readFile: (...args) => modules.fs.readFileSync(...args), namesIn: (folder) => modules.fs.readdirSync(folder),
  });
  Object.defineProperty(globalThis, "fetch", { value: makeFetch(servers.sendPlain), writable: true, configurable: true });
  const modules = installModules(globalThis, host, process, timers, servers);

  const before = { __proto__: null }; // what is not the program's
  for (const name of getOwnPropertyNames(globalThis)) before[name] = true;

  const done = (outcome) => {
    timers.clear();
    servers.forget();
    process.forget();
    state.status = "idle";
    outcome.status = "done";
    return stringify(outcome);
  };

  const fail = (error) => {
    let found;
    try {
      found = describe(error, state.label, servers.hintOf);
      found.traceback = textOf(error, state.label);
    } catch { // the program broke what describing needs
      found = plainly(error);
    }
    host.print(2, found.traceback);
    return done({ exit_code: found.kind === "interrupted" ? 130 : 1, error: found });
  };

  const poll = () => {
    if (state.status === "failed") return fail(state.error);
    const lost = state.rejected.values();
    if (lost.length > 0) {
      state.rejected.clear();
      return fail(lost[0]);
    }
    if (timers.fire(servers.waits())) {
      process.ticks();
      return '"again"';
    }
    const wait = timers.next(servers.waits());
    if (wait !== undefined) return stringify({ status: "waiting", timeout: wait / 1000 });
    if (servers.waits()) return '{"status":"waiting"}';
    if (state.status === "pending") {
      return fail(new Error("the program waits for something that can never happen: nothing is scheduled that could wake it"));
    }
    const value = state.value, code = process.exitCode;
    state.value = undefined;
    const outcome = { exit_code: typeof code === "number" ? code & 255 : 0 };
    if (value === undefined) return done(outcome);
    if (typeof value === "string" && value.length > RESULT_LIMIT) {
      // It goes whole, as a document, where it can.
      const whole = value.length <= DISPLAY_LIMIT, n = whole ? BEGINNING / 10 : BEGINNING;
      if (whole) host.display("text/plain", value);
      outcome.result = `${inspect(cut(value, n))}… (${value.length - n} more characters)`;
      return done(outcome);
    }
    outcome.result = inspect(value);
    const more = outcome.result.length - RESULT_LIMIT;
    if (more > 0) outcome.result = `${cut(outcome.result, RESULT_LIMIT)}… (${more} more characters)`;
    return done(outcome);
  };

  // withBytes is the answer of a reply; its value gets the bytes that lie behind it, if the
  // reply says how many. Undefined: they got lost.
  const withBytes = (reply) => {
    const number = reply[0], answer = reply[1], size = reply[2];
    if (size === undefined) return answer;
    const bytes = host.bytes({ op: "bytes", reply: number });
    if (typeof answer?.value === "object" && answer.value !== null) answer.value.bytes = bytes;
    return bytes.length === size ? answer : undefined;
  };

  const requests = {
    start(request) {
      seedRandom(request.seed);
      process.env = { ...request.env };
      process.chdir(request.cwd || "/");
      return stringify({ status: "ok" });
    },
    // awaken is for a copy of an earlier interpreter, or of another: it draws
    // numbers of its own, and what waited in the other one does not go on here.
    awaken(request) {
      seedRandom(request.seed);
      timers.clear();
      servers.forget();
      process.forget();
      state.rejected.clear();
      state.status = "idle";
      state.value = state.error = undefined;
      return stringify({ status: "ok" });
    },
    exec(request) {
      state.cell++;
      const named = request.name && request.name !== "<cell>";
      state.label = named ? request.name : `<cell ${state.cell}>`;
      if (request.map) translated(state.label, request.map);
      else untranslated(state.label);
      process.exitCode = undefined;
      timers.clear(); // of one that was left waiting
      servers.forget();
      process.forget();
      process.argv = apply(concat, ["node", named ? request.name : ""], [request.args || []]);
      state.status = "pending";
      state.rejected.clear();
      const { code, mistake } = rewrite(request.code, state.label);
      state.mistake = mistake;
      return stringify({ code, name: state.label });
    },
    // resume takes in what came while the program waited; a poll follows.
    resume(request) {
      const { replies } = request;
      if (state.status === "idle") return fail(new Error("there is no program that waits"));
      if (!replies) return '"ok"';
      for (let i = 0; i < replies.length; i++) servers.arrived(replies[i][0], withBytes(replies[i]) ?? undefined);
      return '"ok"';
    },
    poll,
    translated(request) {
      translated(request.name, request.map);
      return stringify({ status: "ok" });
    },
    module: (request) => stringify(moduleNameOf(request.name, request.base)),
    builtin: (request) => stringify(builtinSource(request.name)),
    interrupt: () => fail(Object.assign(new Error("the program was interrupted"), { name: "Interrupted" })),
    exited: () => done({ exit_code: state.exit & 255 }),
    inspect() {
      const variables = [];
      const names = getOwnPropertyNames(globalThis);
      for (let i = 0; i < names.length && variables.length < VARIABLES; i++) {
        if (before[names[i]]) continue;
        const { value } = getOwnPropertyDescriptor(globalThis, names[i]);
        if (value === undefined || isBuiltin(value)) continue;
        variables[variables.length] = { name: brief(names[i], NAME_LIMIT), type: brief(typeName(value), TYPE_LIMIT), preview: preview(value) };
      }
      return stringify({ status: "ok", variables, imports: process.imported() });
    },
  };

  return function driver(what, value, reason) {
    switch (what) {
      case "handle": {
        const request = parse(value);
        return requests[request.op](request);
      }
      case "settle":
        apply(promiseThen, value, [
          (settled) => { if (state.status === "pending") { state.status = "settled"; state.value = settled?.value; } },
          (error) => { if (state.status === "pending") { state.status = "failed"; state.error = error; } },
        ]);
        process.ticks();
        return "";
      case "threw":
        state.status = "failed";
        state.error = state.mistake && !compiles(value, state.label) ? state.mistake : value;
        return "";
      case "rejected":
        state.rejected.set(value, reason);
        return "";
      case "handled":
        state.rejected.delete(value);
        return "";
    }
    return "";
  };
}
