// process, as far as a program without an operating system has one.
import { Buffer } from "buffer";
import { posix } from "path-browserify";
import { view } from "./host.js";
import { apply } from "./primordials.js";

const { slice } = Array.prototype;
const { slice: cut } = String.prototype;
const IMPORTS = 200; // how many are told, of so many characters

export function makeProcess(host, exit) {
  let cwd = "/";
  const imports = new Set();
  const stream = (fd) => ({ fd, isTTY: false, writable: true, columns: 80, write: (text, ...rest) => {
    host.print(fd, typeof text === "string" ? text : view(text));
    rest.find((f) => typeof f === "function")?.();
    return true;
  } });
  // What nextTick was given runs before the promises that are ready: the driver
  // asks for it after each piece of the program.
  let waiting = [], running = false;
  const soon = queueMicrotask;
  const ticks = () => {
    running = true;
    while (waiting.length > 0) {
      const now = waiting;
      waiting = [];
      for (let i = 0; i < now.length; i++) {
        try {
          apply(now[i].callback, undefined, now[i].args);
        } catch (error) {
          for (let k = 0; k < waiting.length; k++) now[now.length] = waiting[k];
          waiting = apply(slice, now, [i + 1]);
          running = false;
          throw error;
        }
      }
    }
    running = false;
  };
  // What a program that has ended left waiting is forgotten, also where it was
  // stopped in the middle of it.
  const forget = () => { waiting = []; running = false; };
  const note = (name) => {
    if (imports.size < IMPORTS) imports.add(name.length > IMPORTS ? `${apply(cut, name, [0, IMPORTS - 1])}…` : `${name}`);
  };
  // The version of Node is that whose modules and rules these are: packages ask for it.
  const process = {
    argv: ["node", ""], argv0: "node", execArgv: [], env: {}, exitCode: undefined, pid: 1, ppid: 0, title: "paddock",
    platform: "wasi", arch: "wasm32", version: "v22.0.0", versions: { node: "22.0.0", quickjs: "quickjs-ng" }, release: { name: "quickjs-ng" },
    stdout: stream(1), stderr: stream(2), stdin: { fd: 0, isTTY: false, async *[Symbol.asyncIterator]() { yield Buffer.from(host.stdin()); } },
    cwd: () => cwd,
    chdir: (to) => {
      to = posix.resolve(cwd, String(to));
      try {
        host.ask({ op: "fs", call: "readdir", path: to });
      } catch ({ code }) {
        throw Object.assign(new Error(`${code}: ${code === "ENOENT" ? "no such file or directory" : "the folder cannot be entered"}, chdir '${to}'`), { code, syscall: "chdir", path: to });
      }
      cwd = to;
    },
    exit: (code) => exit(Number(code ?? process.exitCode ?? 0) | 0),
    hrtime: Object.assign((since) => {
      const ns = BigInt(Math.round(host.now() * 1e6)) - (since ? BigInt(since[0]) * 1000000000n + BigInt(since[1]) : 0n);
      return [Number(ns / 1000000000n), Number(ns % 1000000000n)];
    }, { bigint: () => BigInt(Math.round(host.now() * 1e6)) }),
    uptime: () => host.now() / 1000,
    nextTick: (callback, ...args) => {
      if (typeof callback !== "function") throw Object.assign(new TypeError("The \"callback\" argument must be of type function"), { code: "ERR_INVALID_ARG_TYPE" });
      waiting[waiting.length] = { callback, args };
      if (waiting.length === 1 && !running) soon(ticks);
    },
    memoryUsage: () => ({ rss: 0, heapTotal: 0, heapUsed: 0, external: 0, arrayBuffers: 0 }),
    emitWarning: (warning) => host.print(2, `Warning: ${warning?.message ?? warning}\n`),
    on: () => process, once: () => process, off: () => process, emit: () => false,
  };
  Object.defineProperty(process, "ticks", { value: ticks });
  Object.defineProperty(process, "forget", { value: forget });
  Object.defineProperty(process, "imported", { value: () => [...imports].sort() });
  Object.defineProperty(process, "noteImport", { value: note });
  return process;
}
