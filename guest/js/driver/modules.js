// The modules that a program can import or require without a file.
import bufferModule from "buffer";
import EventEmitter from "events";
import { posix } from "path-browserify";
import { makeAssert } from "./assert.js";
import { makeCryptoModule } from "./crypto.js";
import { makeFS } from "./fs.js";
import { format, inspect } from "./inspect.js";
import { INSTALLED, makePackages } from "./packages.js";
import { safeMap } from "./primordials.js";
import { makeReadline } from "./readline.js";
import { makeStreams } from "./streams.js";

const builtins = new Map();
const own = safeMap(); // the modules themselves
const slot = Symbol.for("paddock.builtin");

// installModules makes them, with what other parts have, and gives them.
export function installModules(scope, host, process, timers, servers) {
  const fs = makeFS(host, process);
  const sleep = (ms, value) => new Promise((resolve) => { timers.set(() => resolve(value), ms); });
  const path = Object.assign(posix, { posix });
  const events = Object.assign(EventEmitter, { EventEmitter, once: (emitter, name) => new Promise((resolve, reject) => {
    emitter.once(name, (...args) => resolve(args));
    if (name !== "error") emitter.once("error", reject);
  }) });
  bufferModule.constants ??= { MAX_LENGTH: bufferModule.kMaxLength, MAX_STRING_LENGTH: (1 << 29) - 24 };
  // The bundler may have called them otherwise.
  for (const [f, name] of [[EventEmitter, "EventEmitter"], [scope.Buffer, "Buffer"], [scope.URL, "URL"], [scope.URLSearchParams, "URLSearchParams"]]) {
    Object.defineProperty(f, "name", { value: name, configurable: true });
  }
  const assert = makeAssert();
  const readline = makeReadline();
  const all = {
    fs, "fs/promises": fs.promises, path, "path/posix": path, events, assert, "assert/strict": assert, buffer: bufferModule, process,
    util: makeUtil(), url: { URL: scope.URL, URLSearchParams: scope.URLSearchParams, fileURLToPath: (u) => decodeURIComponent(new scope.URL(u).pathname), pathToFileURL: (p) => new scope.URL(`file://${posix.resolve(process.cwd(), p)}`) },
    os: { EOL: "\n", platform: () => "wasi", type: () => "paddock", arch: () => "wasm32", release: () => "", hostname: () => "sandbox", tmpdir: () => "/tmp", homedir: () => process.env.HOME ?? "/workspace", cpus: () => [], totalmem: () => 0, freemem: () => 0 },
    timers: { setTimeout: scope.setTimeout, setInterval: scope.setInterval, setImmediate: scope.setImmediate, clearTimeout: scope.clearTimeout, clearInterval: scope.clearInterval },
    "timers/promises": { setTimeout: sleep, setImmediate: (value) => sleep(0, value), scheduler: { wait: sleep } },
    perf_hooks: { performance: scope.performance }, crypto: makeCryptoModule(host, scope.crypto),
    ...makeStreams(scope, process), servers: servers.module, readline, "readline/promises": readline.promises, string_decoder: { StringDecoder }, module: { builtinModules: [], createRequire: (from) => required.createRequire(from) },
  };
  for (const [name, module] of Object.entries(all)) {
    builtins.set(name, module);
    own.set(module, true);
  }
  const get = (name) => {
    process.noteImport(name);
    return builtins.get(name);
  };
  Object.defineProperty(scope, slot, { value: get });
  all.module.builtinModules.push(...builtins.keys());
  packages = makePackages(scope, { fs, host, get, has: (name) => builtins.has(name), util: all.util, urls: all.url });
  const required = makeRequire(fs, process, get, servers, packages, all.url);
  Object.defineProperty(scope, "require", { value: required.require, writable: true, configurable: true });
  return all;
}

// isBuiltin tells whether a value is one of the modules.
export function isBuiltin(value) {
  return (typeof value === "object" || typeof value === "function") && own.get(value) === true;
}

let packages; // what makePackages gives

// moduleNameOf is the engine's name of a package's module that a module asks for; empty: it
// is none.
export const moduleNameOf = (name, base) => packages.nameFor(name, base);

// builtinSource is a module for the engine that exports what a built-in has, or a package's
// module.
export function builtinSource(name) {
  if (name.startsWith("paddock:") || name.startsWith(`${INSTALLED}/`)) return packages.sourceFor(name);
  const module = builtins.get(name);
  if (!module) return "";
  const names = Object.keys(module).filter((k) => /^[A-Za-z_$][\w$]*$/.test(k) && k !== "default");
  return `const m = globalThis[Symbol.for("paddock.builtin")](${JSON.stringify(name)});\nexport default m;\n` +
    names.map((n) => `const x_${n} = m.${n}; export { x_${n} as ${n} };`).join("\n");
}

function notFound(name, importable) {
  if (!importable) return Object.assign(new Error(`could not load module '${name}'`), { code: "MODULE_NOT_FOUND" });
  return Object.assign(new Error(`${name} can be imported, and not required: await import(${JSON.stringify(name)})`), { code: "ERR_REQUIRE_ASYNC_MODULE" });
}

// makeRequire makes the program's require. Where no pack has a package, it may be of an
// installation by an earlier paddock, which made NAME/index.cjs of it.
function makeRequire(fs, process, get, servers, packages, urls) {
  const cache = new Map();
  const from = (dir) => {
    const require = (name) => {
      name = String(name).replace(/^node:/, "");
      if (builtins.has(name)) return get(name);
      const provided = servers.required(name);
      if (provided !== undefined) return provided;
      const bare = !/^[./]/.test(name);
      if (bare) {
        const found = packages.required(name);
        if (found) return found.exports;
      }
      const installed = bare || dir?.startsWith(`${INSTALLED}/`);
      const base = bare ? `${INSTALLED}/${name}` : posix.resolve(dir ?? process.cwd(), name);
      const all = installed ? [`${base}/index.cjs`, `${base}.cjs`, base.replace(/\.js$/, ".cjs")] : [base, `${base}.js`, `${base}.cjs`, `${base}.json`, `${base}/index.js`];
      const file = all.find((f) => fs.existsSync(f) && fs.statSync(f).isFile());
      if (!file) throw notFound(name, installed && [`${base}/index.js`, `${base}.js`].some((f) => fs.existsSync(f)));
      const version = fs.statSync(file).mtimeMs;
      const known = cache.get(file);
      if (known?.version === version) return known.module.exports;
      const module = { exports: {}, id: file, filename: file };
      cache.set(file, { version, module });
      const text = fs.readFileSync(file, "utf8");
      if (file.endsWith(".json")) return module.exports = JSON.parse(text);
      new Function("exports", "require", "module", "__filename", "__dirname", text)(module.exports, from(posix.dirname(file)), module, file, posix.dirname(file));
      return module.exports;
    };
    return require;
  };
  const createRequire = (at) => {
    const file = String(at).startsWith("file:") ? urls.fileURLToPath(at) : String(at);
    const dir = file.endsWith("/") ? posix.resolve(file) : posix.dirname(posix.resolve(process.cwd(), file));
    return dir.startsWith(INSTALLED) ? packages.requireFrom(dir) : from(dir);
  };
  return { require: from(), createRequire };
}

// StringDecoder puts together characters that were cut apart.
class StringDecoder {
  #decoder;
  constructor(encoding = "utf8") { this.#decoder = new globalThis.TextDecoder(encoding); }
  write(bytes) { return this.#decoder.decode(bytes, { stream: true }); }
  end(bytes) { return this.#decoder.decode(bytes ?? new Uint8Array(0)); }
}

function makeUtil() {
  const is = (type) => (v) => v instanceof type;
  return {
    inspect, format,
    promisify: (f) => (...args) => new Promise((resolve, reject) => f(...args, (error, value) => error ? reject(error) : resolve(value))),
    callbackify: (f) => (...args) => { const callback = args.pop(); f(...args).then((v) => callback(null, v), callback); },
    inherits: (child, parent) => Object.setPrototypeOf(child.prototype, parent.prototype),
    deprecate: (f) => f, debuglog: () => Object.assign(() => {}, { enabled: false }), debug: () => Object.assign(() => {}, { enabled: false }),
    styleText: (_, text) => String(text), stripVTControlCharacters: (text) => String(text).replace(/\u001b\[[0-?]*[ -\/]*[@-~]/g, ""), isDeepStrictEqual: (a, b) => makeAssert.equal(a, b),
    TextEncoder: globalThis.TextEncoder, TextDecoder: globalThis.TextDecoder,
    types: { isDate: is(Date), isRegExp: is(RegExp), isMap: is(Map), isSet: is(Set), isPromise: is(Promise), isArrayBuffer: is(ArrayBuffer), isAnyArrayBuffer: is(ArrayBuffer), isUint8Array: is(Uint8Array), isDataView: is(DataView), isArrayBufferView: ArrayBuffer.isView, isProxy: () => false,
      isAsyncFunction: (v) => Object.prototype.toString.call(v) === "[object AsyncFunction]", isGeneratorFunction: (v) => Object.prototype.toString.call(v) === "[object GeneratorFunction]", isWeakMap: is(WeakMap), isWeakSet: is(WeakSet), isSharedArrayBuffer: () => false, isExternal: () => false,
      isBoxedPrimitive: (v) => [Number, String, Boolean, BigInt, Symbol].some((type) => v instanceof type), isNativeError: is(Error), isTypedArray: (v) => ArrayBuffer.isView(v) && !(v instanceof DataView) },
  };
}
