// The fs module: synchronous, with promises, and with callbacks, all of it on
// the host's one file call.
import { Buffer } from "buffer";
import { posix } from "path-browserify";
import { addDescriptors } from "./fsopen.js";
import { view } from "./host.js";

const MESSAGES = {
  ENOENT: "no such file or directory", EEXIST: "file already exists", EISDIR: "illegal operation on a directory", ENOTDIR: "not a directory",
  ENOTEMPTY: "directory not empty", EPERM: "operation not permitted", EACCES: "permission denied", EROFS: "read-only file system",
  ENOSPC: "no space left on device", EINVAL: "invalid argument", ELOOP: "too many symbolic links", EXDEV: "cross-device link not permitted",
};

class Stats {
  constructor(info) {
    Object.assign(this, { size: info.size, ino: Number(info.ino), nlink: info.nlink, mode: info.kind === "folder" ? 0o40755 : info.kind === "link" ? 0o120777 : 0o100644,
      uid: 0, gid: 0, dev: 0, blksize: 4096, blocks: Math.ceil(info.size / 512) });
    for (const t of ["atime", "mtime", "ctime"]) {
      this[`${t}Ms`] = Number(info[t]) / 1e6;
      this[t] = new Date(this[`${t}Ms`]);
    }
    this.birthtime = this.ctime;
    this.birthtimeMs = this.ctimeMs;
    Object.defineProperty(this, "kind", { value: info.kind });
  }
  isFile() { return this.kind === "file"; }
  isDirectory() { return this.kind === "folder"; }
  isSymbolicLink() { return this.kind === "link"; }
  isFIFO() { return false; }
  isSocket() { return false; }
}

class Dirent {
  constructor(name, kind, parentPath) {
    Object.assign(this, { name, parentPath, path: parentPath });
    Object.defineProperty(this, "kind", { value: kind });
  }
}
for (const is of ["isFile", "isDirectory", "isSymbolicLink"]) Dirent.prototype[is] = Stats.prototype[is];

const encodingOf = (options) => typeof options === "string" ? options : options?.encoding ?? null;
const isText = (encoding) => encoding === "utf8" || encoding === "utf-8";

export function makeFS(host, process) {
  const full = (path) => {
    if (path instanceof URL) path = decodeURIComponent(path.pathname);
    if (path instanceof Uint8Array) path = new TextDecoder().decode(path);
    if (typeof path !== "string") throw Object.assign(new TypeError("The \"path\" argument must be of type string"), { code: "ERR_INVALID_ARG_TYPE" });
    return posix.resolve(process.cwd(), path);
  };

  const ask = (syscall, call, path, more, payload) => {
    try {
      return (more?.raw ? host.bytes : host.ask)({ op: "fs", call, path: path === undefined ? "" : full(path), ...more }, payload);
    } catch (error) {
      if (!error.code || error.constructor.name !== "HostError") throw error;
      throw Object.assign(new Error(`${error.code}: ${MESSAGES[error.code] ?? "the operation failed"}, ${syscall}${path === undefined ? "" : ` '${path}'`}`),
        { code: error.code, syscall, errno: -1, ...(path !== undefined && { path: String(path) }) });
    }
  };

  const fs = {
    constants: { F_OK: 0, R_OK: 4, W_OK: 2, X_OK: 1 },
    readFileSync(path, options) {
      const encoding = encodingOf(options);
      if (path === 0 || path === "/dev/stdin") return decode(host.stdin(), encoding);
      return isText(encoding) ? ask("open", "read", path) : decode(ask("open", "read", path, { raw: true }), encoding);
    },
    writeFileSync(path, data, options) {
      const flag = options?.flag ?? "w";
      if (path === 1 || path === 2) return host.print(path, String(data));
      const text = typeof data === "string" && (isText(encodingOf(options)) || encodingOf(options) === null);
      const bytes = text ? data : typeof data === "string" ? Buffer.from(data, encodingOf(options)) : ArrayBuffer.isView(data) || data instanceof ArrayBuffer ? view(data) : String(data);
      ask("open", "write", path, { append: flag[0] === "a", create: flag.includes("x") }, bytes);
    },
    appendFileSync(path, data, options) { fs.writeFileSync(path, data, { ...(typeof options === "string" ? { encoding: options } : options), flag: "a" }); },
    existsSync(path) {
      try { ask("access", "stat", path, { follow: true }); return true; } catch { return false; }
    },
    accessSync(path) { ask("access", "stat", path, { follow: true }); },
    statSync(path, options) { return stat("stat", path, true, options); },
    lstatSync(path, options) { return stat("lstat", path, false, options); },
    readdirSync(path, options) {
      const entries = JSON.parse(ask("scandir", "readdir", path)).map((e) => new Dirent(e.name, e.kind, String(path))).sort((a, b) => a.name < b.name ? -1 : 1);
      const all = [];
      for (const e of entries) {
        all.push(options?.withFileTypes ? e : e.name);
        if (options?.recursive && e.isDirectory()) {
          for (const inner of fs.readdirSync(posix.join(String(path), e.name), options)) all.push(options.withFileTypes ? inner : posix.join(e.name, inner));
        }
      }
      return all;
    },
    mkdirSync(path, options) {
      if (!options?.recursive) { ask("mkdir", "mkdir", path); return undefined; }
      let first;
      const parts = full(path).split("/");
      for (let i = 2; i <= parts.length; i++) {
        const dir = parts.slice(0, i).join("/");
        if (fs.existsSync(dir)) { if (!fs.statSync(dir).isDirectory()) ask("mkdir", "mkdir", dir); continue; }
        ask("mkdir", "mkdir", dir);
        first ??= dir;
      }
      return first;
    },
    mkdtempSync(prefix) {
      const dir = prefix + Array.from(host.random(6), (b) => "abcdefghijklmnopqrstuvwxyz0123456789"[b % 36]).join("");
      fs.mkdirSync(dir);
      return dir;
    },
    unlinkSync(path) { ask("unlink", "unlink", path); },
    rmdirSync(path, options) { options?.recursive ? fs.rmSync(path, { recursive: true }) : ask("rmdir", "rmdir", path); },
    rmSync(path, { recursive = false, force = false } = {}) {
      if (force && !fs.lstatSync(path, { throwIfNoEntry: false })) return;
      if (!fs.lstatSync(path).isDirectory()) return fs.unlinkSync(path);
      if (!recursive) throw Object.assign(new Error(`Path is a directory: rm returned EISDIR (is a directory) ${path}`), { code: "ERR_FS_EISDIR", path });
      for (const name of fs.readdirSync(path)) fs.rmSync(posix.join(String(path), name), { recursive });
      ask("rmdir", "rmdir", path);
    },
    renameSync(from, to) { ask("rename", "rename", from, { to: full(to) }); },
    copyFileSync(from, to) { fs.writeFileSync(to, fs.readFileSync(from)); },
    cpSync(from, to, options) {
      if (!fs.statSync(from).isDirectory()) return fs.copyFileSync(from, to);
      if (!options?.recursive) throw Object.assign(new Error(`${from} is a directory`), { code: "ERR_FS_EISDIR" });
      fs.mkdirSync(to, { recursive: true });
      for (const name of fs.readdirSync(from)) fs.cpSync(posix.join(from, name), posix.join(to, name), options);
    },
    symlinkSync(target, path) { ask("symlink", "symlink", path, { to: String(target) }); },
    readlinkSync(path) { return ask("readlink", "readlink", path); },
    realpathSync(path) {
      const parts = full(path).split("/").filter(Boolean);
      let at = "/";
      for (let hops = 0; parts.length; ) {
        const next = posix.join(at, parts.shift());
        if (!fs.lstatSync(next).isSymbolicLink()) { at = next; continue; }
        if (++hops > 40) throw Object.assign(new Error(`ELOOP: too many symbolic links, realpath '${path}'`), { code: "ELOOP" });
        const target = fs.readlinkSync(next);
        parts.unshift(...target.split("/").filter(Boolean));
        if (target[0] === "/") at = "/";
      }
      return at;
    },
    truncateSync(path, size = 0) { ask("truncate", "truncate", path, { size }); },
    utimesSync(path, atime, mtime) { ask("utime", "utimes", path, { atime: ms(atime), mtime: ms(mtime) }); },
    chmodSync(path) { fs.accessSync(path); },
  };
  const ms = (t) => t instanceof Date ? t.getTime() : Number(t) * 1000;
  const decode = (bytes, encoding) => {
    if (isText(encoding)) return host.decode(bytes);
    const buffer = Buffer.from(bytes.buffer, bytes.byteOffset, bytes.byteLength);
    return encoding ? buffer.toString(encoding) : buffer;
  };
  const stat = (syscall, path, follow, options) => {
    try {
      return new Stats(JSON.parse(ask(syscall, "stat", path, { follow })));
    } catch (error) {
      if (options?.throwIfNoEntry === false && error.code === "ENOENT") return undefined;
      throw error;
    }
  };

  addDescriptors(fs, host, ask);
  fs.promises = { constants: fs.constants };
  for (const name of Object.keys(fs)) {
    if (!name.endsWith("Sync")) continue;
    const sync = fs[name], plain = name.slice(0, -4);
    fs.promises[plain] = async (...args) => sync(...args);
    if (plain === "exists") continue;
    fs[plain] = (...args) => {
      const callback = args.pop();
      if (typeof callback !== "function") throw Object.assign(new TypeError("The \"cb\" argument must be of type function"), { code: "ERR_INVALID_ARG_TYPE" });
      fs.promises[plain](...args).then((value) => callback(null, value), callback);
    };
  }
  delete fs.promises.exists;
  return fs;
}
