// The npm packages that were installed for the session: packs of modules, and where each
// lies in the tree (internal/packages: pack.go, builds.go). Modules of both kinds are
// functions here, as CommonJS is, so that a package is there once, whoever asks for it and
// however.
import { posix } from "path-browserify";
import { isNodes, makeAbsent } from "./absent.js";
import { makeResolver } from "./resolve.js";

export const INSTALLED = "/workspace/.paddock/node_modules";
const TREE = `${INSTALLED}/.tree.json`, PACKS = `${INSTALLED}/.packs`;
const HEAD = 16; // digits of a pack's header's length
const IMPORT = ["node", "import", "module-sync", "default"], REQUIRE = ["node", "require", "module-sync", "default"];
const slot = Symbol.for("paddock.packages");
const MOST_NAMES = 5000;

export function makePackages(scope, { fs, host, get, has, util, urls }) {
  const absent = makeAbsent(util, fs);
  const packs = new Map(); // by name: the header, and where what follows it begins
  const modules = new Map(); // by pack and file
  const spaces = new Map(); // what importing a module gives
  const manifests = new Map();
  let tree = { packages: {} }, treeIs;

  const readAt = (file, offset, size) => {
    const fd = fs.openSync(file), bytes = new Uint8Array(size);
    try {
      for (let at = 0; at < size;) {
        const n = fs.readSync(fd, bytes, at, size - at, offset + at);
        if (n === 0) throw new Error(`${file} is cut short: install the packages again`);
        at += n;
      }
    } finally {
      fs.closeSync(fd);
    }
    return host.decode(bytes);
  };

  // refresh sees what was installed meanwhile.
  const refresh = () => {
    const info = fs.statSync(TREE, { throwIfNoEntry: false });
    const is = info && `${info.mtimeMs} ${info.size} ${info.ino}`;
    if (is === treeIs) return;
    manifests.clear();
    tree = info ? JSON.parse(fs.readFileSync(TREE, "utf8")) : { packages: {} };
    treeIs = is;
  };

  const packOf = (name) => {
    let pack = packs.get(name);
    if (!pack) {
      const file = `${PACKS}/${name}`, size = parseInt(readAt(file, 0, HEAD), 16);
      pack = { name, file, body: HEAD + size, files: JSON.parse(readAt(file, HEAD, size)).files };
      packs.set(name, pack);
    }
    return pack;
  };

  // locate finds the pack that a path lies in: that of the innermost package.
  const locate = (path) => {
    if (!path.startsWith(`${INSTALLED}/`)) return undefined;
    const inner = path.slice(INSTALLED.length + 1);
    for (let at = inner; at !== "."; at = posix.dirname(at)) {
      if (Object.hasOwn(tree.packages, at)) return { pack: packOf(tree.packages[at]), name: inner.slice(at.length + 1) };
    }
    return undefined;
  };
  const fileAt = (path) => {
    const at = locate(path);
    if (!at || !Object.hasOwn(at.pack.files, at.name)) return undefined;
    const [offset, size, kind] = at.pack.files[at.name];
    return { path, pack: at.pack, offset, size, kind, key: `${at.pack.name}:${path}` };
  };
  const textOf = (file) => readAt(file.pack.file, file.pack.body + file.offset, file.size);
  const manifest = (dir) => {
    if (!manifests.has(dir)) {
      const file = fileAt(`${dir}/package.json`);
      let read;
      try { read = file && JSON.parse(textOf(file)); } catch { /* it has none then */ }
      manifests.set(dir, typeof read === "object" && read !== null ? read : undefined);
    }
    return manifests.get(dir);
  };
  const resolve = makeResolver(INSTALLED, { isFile: (path) => fileAt(path) !== undefined, manifest });

  const missing = (name, from) => Object.assign(new Error(`could not load module '${name}'${from.startsWith(INSTALLED) ? `, which ${posix.relative(INSTALLED, from)} asks for` : ""}`), { code: "MODULE_NOT_FOUND" });

  // find gives what a name stands for in a module of the folder from: a built-in's name, or
  // a file.
  const find = (specifier, from, conditions) => {
    const plain = specifier.replace(/^node:/, "");
    if (has(plain)) return { builtin: get(plain) };
    if (specifier.startsWith("file://")) specifier = urls.fileURLToPath(specifier);
    const path = plain === specifier ? resolve(specifier, from, conditions) : undefined;
    if (path !== undefined) return { file: fileAt(path) };
    if (isNodes(plain) || plain !== specifier) return { builtin: absent(plain), gone: true };
    return undefined;
  };

  const metaOf = (path) => {
    const url = urls.pathToFileURL(path).href;
    return { url, filename: path, dirname: posix.dirname(path), resolve: (name) => {
      const found = find(String(name), posix.dirname(path), IMPORT);
      return found?.file ? urls.pathToFileURL(found.file.path).href : `node:${name}`;
    } };
  };

  const requireFrom = (dir) => {
    const require = (specifier) => {
      const found = find(String(specifier), dir, REQUIRE);
      if (!found) throw missing(specifier, dir);
      if (found.file?.kind === "a") throw waits(found.file, specifier);
      return found.file ? load(found.file).exports : found.builtin;
    };
    require.resolve = (specifier) => {
      const found = find(String(specifier), dir, REQUIRE);
      if (!found) throw missing(specifier, dir);
      return found.file?.path ?? specifier;
    };
    require.cache = {};
    require.extensions = {};
    return require;
  };

  // importFrom is what `import` statements of a module have become.
  const importFrom = (dir) => (specifier) => {
    const found = find(specifier, dir, IMPORT);
    if (!found) throw missing(specifier, dir);
    return space(found);
  };

  // load runs a module, once, and gives it: what it exports is there as far as it has come.
  const load = (file) => {
    let module = modules.get(file.key);
    if (module) {
      if (module.kind === "a") throw waits(file);
      return module;
    }
    const dir = posix.dirname(file.path);
    module = { exports: {}, id: file.path, filename: file.path, path: dir, loaded: false, children: [], paths: [], parent: null };
    Object.defineProperty(module, "kind", { value: file.kind });
    switch (file.kind) {
      case "a": throw waits(file);
      case "n": throw Object.assign(new Error(`${posix.relative(INSTALLED, file.path)} is compiled for another machine, and does not work with isolation "wasm"; with isolation "linux" it does`), { code: "ERR_DLOPEN_FAILED" });
      case "x": throw new SyntaxError(`${posix.relative(INSTALLED, file.path)}: ${textOf(file).replace(/^SyntaxError: /, "")}`);
      case "f": throw Object.assign(new Error(`${posix.relative(INSTALLED, file.path)} is no module`), { code: "ERR_UNKNOWN_FILE_EXTENSION" });
      case "j": module.exports = JSON.parse(textOf(file)); break;
    }
    modules.set(file.key, module);
    if (file.kind === "j") return module;
    try {
      const isModule = file.kind === "m";
      // An ES module may have names of its own that are parameters in CommonJS.
      const text = textOf(file);
      const run = host.compile(file.path, isModule ? `(function (exports, require, module, __paddock_meta) {return (function () {${text}\n})()})`
        : `(function (exports, require, module, __filename, __dirname) {${text}\n})`);
      const require = isModule ? importFrom(dir) : requireFrom(dir);
      module.require = require;
      if (isModule) run(module.exports, require, module, metaOf(file.path));
      else run.call(module.exports, module.exports, require, module, file.path, dir);
      if (isModule) {
        Object.defineProperty(module, "space", { value: module.exports });
        if (Object.hasOwn(module.exports, "module.exports")) module.exports = module.exports["module.exports"];
      }
    } catch (error) {
      modules.delete(file.key);
      throw error;
    }
    module.loaded = true;
    return module;
  };
  const waits = (file, name = posix.relative(INSTALLED, file.path)) => {
    return Object.assign(new Error(`${name} can be imported, and not required: await import(${JSON.stringify(name)})`), { code: "ERR_REQUIRE_ASYNC_MODULE" });
  };

  // space is what importing something gives: of an ES module what it exports; of CommonJS
  // and built-ins the whole as default, and its parts by their names, as they are when they
  // are asked for.
  const space = ({ file, builtin, gone }) => {
    if (gone) return builtin; // it has whatever it is asked for
    const module = file && load(file);
    if (module?.kind === "m") return module.space ?? module.exports;
    const key = file ? module : builtin;
    let all = spaces.get(key);
    if (!all) {
      all = Object.defineProperty({ __proto__: null }, "__esModule", { value: true });
      Object.defineProperty(all, "default", { get: file ? () => module.exports : () => builtin, enumerable: true });
      spaces.set(key, all);
    }
    const exports = file ? module.exports : builtin;
    if (typeof exports === "object" && exports !== null || typeof exports === "function") {
      for (const name of Object.keys(exports).slice(0, MOST_NAMES)) {
        if (name !== "default" && !Object.hasOwn(all, name)) Object.defineProperty(all, name, { get: () => (file ? module.exports : builtin)[name], enumerable: true });
      }
    }
    return all;
  };

  // What the engine asks for. A name that it knows a module by is a path, and what changes
  // with the pack.
  const failures = [];
  const named = (file) => `${file.path}?${file.pack.name.slice(-16)}`;
  const failed = (error) => {
    failures.push(error);
    return `throw globalThis[Symbol.for("paddock.packages")].failed(${failures.length - 1});`;
  };
  Object.defineProperty(scope, slot, { value: {
    failed: (n) => failures[n],
    space: (path) => spaceAt(path),
  } });
  const spaceAt = (path) => {
    const from = space({ file: fileAt(path) }), all = { __proto__: null };
    for (const name of Object.keys(from)) {
      try { all[name] = from[name]; } catch { all[name] = undefined; } // a getter of the package's
    }
    return all;
  };
  const identifier = /^[A-Za-z_$][\w$]*$/;
  const nameOf = (specifier, base) => {
    refresh();
    const inside = base.startsWith(`${INSTALLED}/`);
    if (!inside && (/^[./#]/.test(specifier) || specifier.startsWith("node:"))) return "";
    const found = find(specifier, inside ? posix.dirname(base) : INSTALLED, IMPORT);
    if (found?.file) return named(found.file);
    if (!inside || !found) return "";
    const plain = specifier.replace(/^node:/, "");
    return has(plain) ? plain : `paddock:absent/${plain}`;
  };
  return {
    // nameFor gives the engine's name of what a module asks for; empty: it is none of the
    // packages'.
    nameFor(specifier, base) {
      try {
        return nameOf(specifier, base);
      } catch (error) {
        failures.push(error);
        return `paddock:failed/${failures.length - 1}`;
      }
    },
    // sourceFor is a module for the engine that exports what one of a package has. Only what
    // runs knows that of CommonJS, so it has run then.
    sourceFor(name) {
      try {
        if (name.startsWith("paddock:failed/")) throw failures[name.slice("paddock:failed/".length)];
        if (name.startsWith("paddock:")) throw new Error(`Node's module "${name.slice("paddock:absent/".length)}" is not there with isolation "wasm"; with isolation "linux" it is`);
        refresh();
        const file = fileAt(name);
        if (!file) throw missing(name, "");
        if (file.kind === "a") return textOf(file);
        const all = spaceAt(file.path), names = Object.keys(all).filter((n) => identifier.test(n) && n !== "default");
        return `const m = globalThis[Symbol.for("paddock.packages")].space(${JSON.stringify(file.path)});\n` +
          ("default" in all ? "export default m.default;\n" : "") + names.map((n, i) => `const x${i} = m.${n}; export { x${i} as ${n} };`).join("\n");
      } catch (error) {
        return failed(error);
      }
    },
    // required gives what require gives in the program; undefined: there is no such package.
    required(specifier, dir) {
      refresh();
      const at = dir?.startsWith(INSTALLED) ? dir : INSTALLED;
      const found = find(specifier, at, REQUIRE);
      if (found?.file?.kind === "a") throw waits(found.file, specifier);
      return found?.file ? { exports: load(found.file).exports } : at === dir && found ? { exports: found.builtin } : undefined;
    },
    requireFrom: (dir) => { refresh(); return requireFrom(dir); },
  };
}
