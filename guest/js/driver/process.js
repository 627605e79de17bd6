// process, as far as a program without an operating system has one.
import { posix } from "path-browserify";

export function makeProcess(host, exit) {
  let cwd = "/";
  const imports = new Set();
  const stream = (fd) => ({ fd, isTTY: false, writable: true, columns: 80, write: (text, ...rest) => {
    host.print(fd, typeof text === "string" ? text : new TextDecoder().decode(text));
    rest.find((f) => typeof f === "function")?.();
    return true;
  } });
  const process = {
    argv: ["node", ""], argv0: "node", execArgv: [], env: {}, exitCode: undefined, pid: 1, ppid: 0, title: "paddock",
    platform: "wasi", arch: "wasm32", version: "v0.0.0-quickjs-ng", versions: { quickjs: "quickjs-ng" }, release: { name: "quickjs-ng" },
    stdout: stream(1), stderr: stream(2), stdin: { fd: 0, isTTY: false, async *[Symbol.asyncIterator]() { yield host.stdin(true); } },
    cwd: () => cwd,
    chdir: (to) => { cwd = posix.resolve(cwd, String(to)); },
    exit: (code) => exit(Number(code ?? process.exitCode ?? 0) | 0),
    hrtime: Object.assign((since) => {
      const ns = BigInt(Math.round(host.now() * 1e6)) - (since ? BigInt(since[0]) * 1000000000n + BigInt(since[1]) : 0n);
      return [Number(ns / 1000000000n), Number(ns % 1000000000n)];
    }, { bigint: () => BigInt(Math.round(host.now() * 1e6)) }),
    uptime: () => host.now() / 1000,
    nextTick: (callback, ...args) => { queueMicrotask(() => callback(...args)); },
    memoryUsage: () => ({ rss: 0, heapTotal: 0, heapUsed: 0, external: 0, arrayBuffers: 0 }),
    emitWarning: (warning) => host.print(2, `Warning: ${warning?.message ?? warning}\n`),
    on: () => process, once: () => process, off: () => process, emit: () => false,
  };
  Object.defineProperty(process, "imported", { value: () => [...imports].sort() });
  Object.defineProperty(process, "noteImport", { value: (name) => imports.add(name) });
  return process;
}
