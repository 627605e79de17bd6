// The driver of the JavaScript guest: answers the host's requests
// (guest/README.md). The host evaluates this once, when the image is captured,
// and calls what it gives with its door; what comes back is the driver.
//
// What the driver needs of the language it takes at that time: a program that
// changes JSON or Promise or an array's methods changes its own world only.
import { describe, textOf } from "./errors.js";
import { installGlobals } from "./globals.js";
import { inspect } from "./inspect.js";
import { builtinSource, installModules, isBuiltin } from "./modules.js";
import { rewrite } from "./rewrite.js";
import { makeTimers } from "./timers.js";
import { makeHost } from "./host.js";
import { seedRandom } from "./random.js";

const { parse, stringify } = JSON;
const promiseThen = Promise.prototype.then;
const apply = Reflect.apply;
const RESULT_LIMIT = 16384;
const PREVIEW_LIMIT = 120;
const VARIABLES = 200;

export default function install(call) {
  const host = makeHost(call);
  const timers = makeTimers(() => host.now());
  const state = { cell: 0, label: "<cell>", status: "idle", value: undefined, error: undefined, exit: 0, rejected: new Map() };
  const process = installGlobals(globalThis, host, timers, (code) => {
    state.exit = code;
    host.exit();
    for (;;); // until the engine is told to stop
  });
  installModules(globalThis, host, process, timers);

  const before = new Set(Object.getOwnPropertyNames(globalThis)); // what is not the program's

  const done = (outcome) => {
    timers.clear();
    state.status = "idle";
    return stringify({ status: "done", exit_code: 0, ...outcome });
  };

  const fail = (error) => {
    const found = describe(error, state.label);
    found.traceback = textOf(error, state.label);
    host.print(2, found.traceback);
    return done({ exit_code: found.kind === "interrupted" ? 130 : 1, error: found });
  };

  const unhandled = () => {
    for (const reason of state.rejected.values()) return { reason };
    return undefined;
  };

  const poll = () => {
    const lost = unhandled();
    if (lost) {
      state.rejected.clear();
      return fail(lost.reason);
    }
    if (state.status === "failed") return fail(state.error);
    if (timers.fire()) return '"again"';
    const wait = timers.next();
    if (wait !== undefined) return stringify({ status: "waiting", timeout: wait / 1000 });
    if (state.status === "pending") {
      return fail(new Error("the program waits for something that can never happen: nothing is scheduled that could wake it"));
    }
    const value = state.value;
    state.value = undefined;
    if (value === undefined) return done({});
    let text = inspect(value);
    if (text.length > RESULT_LIMIT) text = `${text.slice(0, RESULT_LIMIT)}… (${text.length - RESULT_LIMIT} more characters)`;
    return done({ result: text });
  };

  const requests = {
    start(request) {
      seedRandom(Math, request.seed);
      process.env = { ...request.env };
      process.chdir(request.cwd || "/");
      return stringify({ status: "ok" });
    },
    exec(request) {
      state.cell++;
      const named = request.name && request.name !== "<cell>";
      state.label = named ? request.name : `<cell ${state.cell}>`;
      process.argv = ["node", named ? request.name : "", ...(request.args || [])];
      state.status = "pending";
      state.rejected.clear();
      return stringify({ code: rewrite(request.code), name: state.label });
    },
    poll,
    builtin: (request) => stringify(builtinSource(request.name)),
    interrupt: () => fail(Object.assign(new Error("the program was interrupted"), { name: "Interrupted" })),
    exited: () => done({ exit_code: state.exit & 255 }),
    inspect() {
      const variables = [];
      for (const name of Object.getOwnPropertyNames(globalThis)) {
        if (before.has(name) || variables.length >= VARIABLES) continue;
        const value = Object.getOwnPropertyDescriptor(globalThis, name).value;
        if (value === undefined || isBuiltin(value)) continue;
        const type = value === null ? "null" : typeof value === "object" ? value.constructor?.name || "object" : typeof value;
        variables.push({ name, type: String(type), preview: inspect(value, { depth: 1, compact: true }).slice(0, PREVIEW_LIMIT) });
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
        return "";
      case "threw":
        state.status = "failed";
        state.error = value;
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
