// What programs import in a Linux box. Packages and CommonJS are Node's to load. Modules of
// the workspace, in JavaScript or TypeScript, and what is provided below /servers and
// /skills are loaded here: whatever Node's version is, they may import servers, and are read
// again when they were changed, or what they import. Stands between rewrite.js and
// driver.js in one text.
const makeModules = (parts) => {
"use strict";
const { require, process, world, importModule, acorn, servers, translate, note } = parts;
const fs = require("fs"), path = require("path"), url = require("url"), vm = require("vm"), nodeModule = require("module");
const { defaultResolve } = require("internal/modules/esm/resolve");
const { readFileSync, statSync } = fs;
const { parse } = JSON;
const { apply } = Reflect;

const isFile = (name) => {
  try {
    return statSync(name).isFile();
  } catch { // also where what should be its folder is a file
    return false;
  }
};

// ── which file a name is ────────────────────────────────────────────────────

// provided gives the file of a module such as servers/github, or ./servers/github where
// the workspace has none; undefined: there is none.
function provided(name) {
  const [, folder, first, rest = ""] = /^(?:\.{0,2}\/)*(servers|skills)\/([^/]+)(\/.+)?$/.exec(name) ?? [];
  if (folder === undefined) return undefined;
  for (const one of [first, first.replace(/\W/g, "_")]) {
    const file = ["/index.js", "", ".js", ".ts"].map((end) => path.join("/", folder, one + rest + end)).find(isFile);
    if (file !== undefined) return file;
  }
}

// ENDS are what the name of a file may lack, as programs in TypeScript write it.
const ENDS = ["", ".ts", ".mts", ".js", ".mjs", ".json", "/index.ts", "/index.js", "/index.mjs"];
const TYPED = { ".js": ".ts", ".mjs": ".mts" };

// fileOf gives the file that a name in a module of a folder means; undefined: it is
// Node's to find.
function fileOf(name, folder) {
  if (!/^(?:\.{0,2}\/|file:)/.test(name)) return provided(name);
  const file = name.startsWith("file:") ? url.fileURLToPath(name) : path.resolve(folder, name);
  const end = path.extname(file), all = ENDS.map((more) => file + more);
  if (end in TYPED) all.splice(1, 0, file.slice(0, -end.length) + TYPED[end]);
  return all.find(isFile) ?? provided(name) ?? file;
}

// isOurs tells whether a file is a module that is loaded here.
function isOurs(file) {
  const end = path.extname(file);
  if (file.includes("/node_modules/")) return false;
  if (end === ".mjs" || end === ".ts" || end === ".mts") return isFile(file);
  if (end !== ".js" || !isFile(file)) return false;
  if (/^\/(?:servers|skills)\//.test(file)) return true;
  const type = packageType(path.dirname(file));
  return type === undefined ? hasModuleSyntax(readFileSync(file, "utf8")) : type === "module";
}

// packageType is what the nearest package.json says of .js files; undefined: nothing.
function packageType(folder) {
  for (let at = folder; ; at = path.dirname(at)) {
    const file = path.join(at, "package.json");
    if (isFile(file)) {
      try {
        return parse(readFileSync(file, "utf8")).type;
      } catch {
        return undefined;
      }
    }
    if (at === path.dirname(at)) return undefined;
  }
}

function hasModuleSyntax(text) {
  if (!/\b(?:import|export)\b/.test(text)) return false;
  try {
    return acorn.parse(text, { ecmaVersion: "latest", sourceType: "module", allowHashBang: true }).body.some((node) => /^(?:Import|Export)/.test(node.type));
  } catch {
    return false; // it is for Node to say what is wrong
  }
}

// ── modules that are loaded here ────────────────────────────────────────────

// A unit is a file: its code, as JavaScript; the module that was last made of it; and
// what it names, each a file that is loaded here as well, or something else.
const units = new Map();

// unitOf gives a file's unit as the file is now; fresh: it is another one than before.
function unitOf(file) {
  const version = statSync(file).mtimeMs, known = units.get(file);
  const ours = (needs) => new Map([...needs].map((name) => {
    const target = fileOf(name, path.dirname(file));
    return [name, target !== undefined && isOurs(target) ? target : undefined];
  }));
  if (known?.version === version && known.module.status !== "errored") {
    const needs = ours(known.needs.keys());
    if ([...needs].every(([name, target]) => known.needs.get(name) === target)) return { unit: known, fresh: false };
    return { unit: { ...known, needs }, fresh: true };
  }
  const unit = { file, version, code: codeOf(file) };
  unit.module = moduleOf(unit);
  unit.needs = ours(unit.module.dependencySpecifiers);
  return { unit, fresh: true, made: true };
}

function codeOf(file) {
  const text = readFileSync(file, "utf8");
  return /\.m?ts$/.test(file) ? translate(text, file) : text.replace(/^#!.*/, "");
}

function moduleOf({ file, code }) {
  const folder = path.dirname(file);
  try {
    return new vm.SourceTextModule(code, {
      identifier: file,
      importModuleDynamically: (name, _, attributes) => load(name, attributes, folder),
      initializeImportMeta: (meta) => Object.assign(meta, {
        url: url.pathToFileURL(file).href, filename: file, dirname: folder,
        resolve: (name) => found(name, folder),
      }),
    });
  } catch (error) {
    const line = /:(\d+)\n/.exec(String(error?.stack))?.[1];
    if (line !== undefined) error.message += ` (${file}, line ${line})`;
    throw error;
  }
}

// graph gives the units that a file is made of, and remembers them. Those that depend on
// one that is another now are made anew.
function graph(root) {
  const all = new Map(), fresh = new Set(), made = new Set();
  for (const files = [root]; files.length > 0;) {
    const file = files.pop();
    if (all.has(file)) continue;
    const one = unitOf(file);
    all.set(file, one.unit);
    if (one.fresh) fresh.add(file);
    if (one.made) made.add(file);
    for (const target of one.unit.needs.values()) if (target !== undefined) files.push(target);
  }
  for (let before = -1; before !== fresh.size;) {
    before = fresh.size;
    for (const [file, unit] of all) if ([...unit.needs.values()].some((target) => fresh.has(target))) fresh.add(file);
  }
  for (const file of fresh) {
    const unit = all.get(file);
    if (!made.has(file)) all.set(file, { ...unit, module: moduleOf(unit), evaluated: undefined });
    units.set(file, all.get(file));
  }
  return all;
}

const synthetic = (name, values) => new vm.SyntheticModule(Object.keys(values), function () {
  for (const key of Object.keys(values)) this.setExport(key, values[key]);
}, { identifier: name });

let linking = Promise.resolve(); // one after the other: they have modules in common

async function namespaceOf(file) {
  const all = graph(file), unit = all.get(file), others = new Map();
  try {
    for (const each of all.values()) {
      for (const [name, target] of each.needs) {
        const key = `${each.file}\n${name}`;
        if (target === undefined && each.module.status === "unlinked") others.set(key, synthetic(name, await load(name, undefined, path.dirname(each.file))));
      }
    }
    const link = () => unit.module.status === "unlinked" ? unit.module.link((name, from) => {
      const target = all.get(from.identifier).needs.get(name);
      return target === undefined ? others.get(`${from.identifier}\n${name}`) : all.get(target).module;
    }) : undefined;
    await (linking = linking.then(link, link));
  } catch (error) {
    for (const [name, { module }] of all) if (/link/.test(module.status) && module.status !== "linked") units.delete(name);
    throw error;
  }
  await evaluated(unit);
  return unit.module.namespace;
}

// evaluated waits until a unit's module has been evaluated, whoever began with it.
const evaluating = new Set();
async function evaluated(unit) {
  if (unit.evaluated === undefined && unit.module.status === "evaluating") await Promise.allSettled([...evaluating]);
  if (unit.evaluated === undefined) {
    const run = unit.evaluated = unit.module.evaluate();
    evaluating.add(run);
    run.then(() => evaluating.delete(run), () => evaluating.delete(run));
  }
  await unit.evaluated;
}

// ── import and require ──────────────────────────────────────────────────────

// load is import() from a folder: the program's is where it is.
async function load(name, attributes, folder = process.cwd()) {
  if (name === "servers") {
    note(name);
    return evaluatedAtOnce(synthetic(name, { ...servers.module, default: servers.module }));
  }
  if (/^(?:servers|skills)\//.test(name)) note(name);
  const file = fileOf(name, folder);
  if (file === undefined) return foreign(name, attributes, folder);
  if (isOurs(file)) return namespaceOf(file);
  if (file.endsWith(".json") && isFile(file)) return evaluatedAtOnce(synthetic(file, { default: world.JSON.parse(readFileSync(file, "utf8")) }));
  const at = url.pathToFileURL(file);
  if (isFile(file)) at.search = `?${statSync(file).mtimeMs}`; // a file that was changed is read again
  return importModule(at.href);
}

async function evaluatedAtOnce(module) {
  await module.link(() => {});
  await module.evaluate();
  return module.namespace;
}

// foreign imports what is Node's to find.
async function foreign(name, attributes, folder) {
  const options = attributes && Object.keys(attributes).length ? { with: attributes } : undefined;
  if (nodeModule.isBuiltin(name)) {
    note(name.replace(/^node:/, ""));
    return importModule(name);
  }
  const at = found(name, folder);
  if (at.startsWith("file:") && isOurs(url.fileURLToPath(at))) return namespaceOf(url.fileURLToPath(at)); // the workspace's own package
  return importModule(at, options);
}

// found gives the URL that a name means in a module of a folder.
function found(name, folder) {
  const file = fileOf(name, folder);
  if (file !== undefined) return url.pathToFileURL(file).href;
  try {
    return defaultResolve(name, { parentURL: url.pathToFileURL(path.join(folder, "x")).href }).url;
  } catch (error) {
    if (error?.code !== "ERR_MODULE_NOT_FOUND") throw error;
    return url.pathToFileURL(nodeModule.createRequire(path.join(folder, "x")).resolve(name)).href; // packages that lie elsewhere
  }
}

const versions = new Map();

function require_(name) {
  const require = nodeModule.createRequire(path.join(process.cwd(), "x"));
  if (name === "servers" || /^servers\//.test(name) || nodeModule.isBuiltin(name)) note(name.replace(/^node:/, ""));
  else if (/^[./]/.test(name)) {
    const file = require.resolve(name), version = statSync(file).mtimeMs;
    if (versions.has(file) && versions.get(file) !== version) delete require.cache[file];
    versions.set(file, version);
  }
  return require(name);
}

// What CommonJS requires: servers, and TypeScript where Node does not know it.
const { _load: loadByNode, _extensions: extensions } = nodeModule;
nodeModule._load = function (name) {
  if (name === "servers") return servers.module;
  return (typeof name === "string" ? servers.required(name) : undefined) ?? apply(loadByNode, this, arguments);
};
extensions[".ts"] ??= (module, file) => module._compile(translate(readFileSync(file, "utf8"), file), file);

return { load, require_ };
};
