// Node's rules for which file a name stands for, over a tree of packages: what
// nodejs.org/api/esm.html and modules.html call PACKAGE_RESOLVE and require(X). Where a
// name is none by the rules of modules, those of require are tried as well: programs write
// `import utc from "dayjs/plugin/utc"`, as bundlers have it.
import { posix } from "path-browserify";

const fail = (code, message) => { throw Object.assign(new Error(message), { code }); };

// packageName takes a specifier apart: its package, and what is wanted of it.
export function packageName(specifier) {
  const parts = specifier.split("/");
  const name = specifier[0] === "@" ? parts.slice(0, 2).join("/") : parts[0];
  if (!name || name[0] === "." || /[\\%]/.test(name) || specifier[0] === "@" && parts.length < 2) return undefined;
  return { name, sub: `.${specifier.slice(name.length)}` };
}

// target gives what a value of exports or imports stands for; undefined: nothing, null: it
// is forbidden.
function target(dir, value, match, conditions, imports) {
  if (typeof value === "string") {
    const filled = match === undefined ? value : value.replaceAll("*", match);
    if (!value.startsWith("./")) {
      if (!imports || value.startsWith("../") || value.startsWith("/")) fail("ERR_INVALID_PACKAGE_TARGET", `"${value}" is no file of the package in ${dir}`);
      return { bare: filled };
    }
    if (/(?:^|\/|\\)(?:\.\.?|node_modules)(?:\/|\\|$)/.test(filled.slice(2))) fail("ERR_INVALID_PACKAGE_TARGET", `"${filled}" leads out of the package in ${dir}`);
    return { file: posix.join(dir, filled) };
  }
  if (Array.isArray(value)) {
    let last;
    for (const one of value) {
      try {
        last = target(dir, one, match, conditions, imports);
      } catch (error) {
        if (error.code !== "ERR_INVALID_PACKAGE_TARGET") throw error;
        continue;
      }
      if (last) return last;
    }
    return last;
  }
  if (typeof value === "object" && value !== null) {
    for (const key of Object.keys(value)) {
      if (key !== "default" && !conditions.includes(key)) continue;
      const found = target(dir, value[key], match, conditions, imports);
      if (found !== undefined) return found;
    }
    return undefined;
  }
  return value === null ? null : undefined;
}

// better tells which of two patterns counts: the one with the longer beginning.
const better = (a, b) => b.indexOf("*") - a.indexOf("*") || b.length - a.length;

// mapped finds a key of exports or imports, a pattern's included.
function mapped(dir, key, map, conditions, imports) {
  if (Object.hasOwn(map, key) && !key.includes("*")) return target(dir, map[key], undefined, conditions, imports);
  for (const pattern of Object.keys(map).filter((k) => k.split("*").length === 2).sort(better)) {
    const [before, after] = pattern.split("*");
    if (key !== before && key.startsWith(before) && key.endsWith(after) && key.length >= pattern.length) {
      return target(dir, map[pattern], key.slice(before.length, key.length - after.length), conditions, imports);
    }
  }
  // A folder's key with a slash at its end is what patterns were before.
  for (const folder of Object.keys(map).filter((k) => k.endsWith("/") && key.startsWith(k)).sort((a, b) => b.length - a.length)) {
    if (typeof map[folder] === "string") return target(dir, map[folder] + key.slice(folder.length), undefined, conditions, imports);
  }
  return undefined;
}

// makeResolver resolves in a tree: isFile and manifest (the package.json of a folder, read;
// undefined: it has none) say what there is, below root.
export function makeResolver(root, { isFile, manifest }) {
  const asFile = (path) => [path, `${path}.js`, `${path}.json`, `${path}.cjs`, `${path}.mjs`, `${path}.node`].find(isFile);
  const asIndex = (path) => ["js", "json", "node", "cjs", "mjs"].map((end) => `${path}/index.${end}`).find(isFile);
  const asFolder = (path) => {
    const main = manifest(path)?.main;
    return typeof main === "string" && main && (asFile(joined(path, main)) ?? asIndex(joined(path, main))) || asIndex(path);
  };
  const joined = (dir, name) => posix.join(dir, name).replace(/\/+$/, "");
  const asPath = (path) => (path.endsWith("/") ? undefined : asFile(path)) ?? asFolder(path.replace(/\/+$/, ""));

  // scope is the folder of the package that a file belongs to.
  const scope = (dir) => {
    for (let at = dir; at.length > root.length; at = posix.dirname(at)) {
      if (posix.basename(at) === "node_modules") return undefined;
      if (manifest(at)) return at;
    }
    return undefined;
  };

  const exported = (dir, name, sub, conditions) => {
    let map = manifest(dir).exports;
    if (typeof map === "string" || Array.isArray(map) || !Object.keys(map).some((k) => k[0] === ".")) map = { ".": map };
    const found = sub.endsWith("/") && sub !== "./" ? undefined : mapped(dir, sub, map, conditions, false);
    if (!found) {
      const what = sub === "." ? "nothing that can be " + (conditions.includes("import") ? "imported" : "required") : `no "${sub}"`;
      fail("ERR_PACKAGE_PATH_NOT_EXPORTED", `the package ${name} exports ${what}; its exports are ${Object.keys(map).slice(0, 20).join(", ")}`);
    }
    return isFile(found.file) ? found.file : fail("MODULE_NOT_FOUND", `the package ${name} has no file ${found.file.slice(dir.length + 1)}, which its exports name`);
  };

  const inPackage = (specifier, from, conditions) => {
    const parts = packageName(specifier);
    if (!parts) return undefined;
    const { name, sub } = parts;
    const own = scope(from);
    if (own && manifest(own).name === name && manifest(own).exports != null) return exported(own, name, sub, conditions);
    for (let at = from; at.length >= root.length; at = posix.dirname(at)) {
      if (posix.basename(at) === "node_modules" && at !== root) continue;
      const dir = at === root ? `${root}/${name}` : `${at}/node_modules/${name}`;
      const m = manifest(dir);
      if (m?.exports != null) return exported(dir, name, sub, conditions);
      if (m || at === root) {
        const found = sub === "." || sub === "./" ? asFolder(dir) : asPath(`${dir}/${sub.slice(2)}`);
        if (found) return found;
        if (m) fail("MODULE_NOT_FOUND", `could not load module '${specifier}': the package ${name} has ${sub === "." || sub === "./" ? "nothing that can be imported" : `no file "${sub}"`}`);
      }
    }
    return undefined;
  };

  // resolve gives the file that a specifier stands for, in a module of the folder from;
  // undefined: nothing has that name.
  const resolve = (specifier, from, conditions) => {
    if (/^\.{0,2}\//.test(specifier) || specifier === "." || specifier === "..") return asPath(posix.resolve(from, specifier) + (specifier.endsWith("/") ? "/" : ""));
    if (specifier[0] === "#") {
      const own = scope(from);
      const map = own && manifest(own).imports;
      const found = map && mapped(own, specifier, map, conditions, true);
      if (!found) fail("ERR_PACKAGE_IMPORT_NOT_DEFINED", `the package in ${own ?? from} does not define ${specifier}`);
      return found.file ?? resolve(found.bare, own, conditions);
    }
    return inPackage(specifier, from, conditions);
  };
  return resolve;
}
