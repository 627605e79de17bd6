// Tools of other servers as functions: what the files below /servers import. A
// call goes to the host as JSON, which checks it, decides upon it, and answers with
// JSON (guest/README.md).
//
// It is in both JavaScript guests, and so needs nothing but the language: world is
// the program's global scope, begin sends the host a call and gives its number (0:
// there is no room, or nobody to answer), bytesOf decodes base64, readFile reads a
// file of the workspace, namesIn lists a folder, and changed is told whether a call is
// waited for.
export function makeServers(world, { begin, bytesOf, readFile, namesIn, changed = () => {} }) {
  const { parse, stringify } = JSON;
  const { isView } = ArrayBuffer;
  const { defineProperty, keys: keysOf } = Object;
  const { ownKeys, getOwnPropertyDescriptor, has } = Reflect;
  const { Error: WorldError, Promise: WorldPromise } = world;
  const AT_ONCE = 64;
  const waiting = new Map(), later = [];
  const { get, set, delete: remove, clear } = Map.prototype;
  const { apply } = Reflect;
  let under = 0; // how many calls are under way
  const NOBODY = { error: { kind: "unavailable", message: "nothing answers calls of tools here" } };

  // ToolError is what a tool, its server or paddock says about a call that failed.
  // kind is "tool" when the tool itself said so, else invalid, denied, not_found,
  // exhausted, timeout, cancelled, unavailable, or unknown, when nobody can tell
  // whether the tool did something.
  class ToolError extends WorldError {
    constructor(message, server = "", tool = "", kind = "tool", field = "") {
      super(message);
      this.server = server;
      this.tool = tool;
      this.kind = kind;
      if (field) this.field = field;
    }
  }
  defineProperty(ToolError.prototype, "name", { value: "ToolError", configurable: true, writable: true });

  // plain is what a value that JSON does not know is sent as.
  const plain = (_, value) => {
    if (typeof value === "bigint") throw new world.TypeError("a BigInt cannot be sent to a tool; make it a number or a text");
    if (isView(value)) return base64(new Uint8Array(value.buffer, value.byteOffset, value.byteLength));
    if (value instanceof ArrayBuffer || value instanceof world.ArrayBuffer) return base64(new Uint8Array(value));
    if (value instanceof world.Map) return world.Object.fromEntries(value);
    if (value instanceof world.Set) return world.Array.from(value);
    return value;
  };

  const DIGITS = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  const base64 = (bytes) => {
    let text = "";
    for (let i = 0; i < bytes.length; i += 3) {
      const n = (bytes[i] << 16) | ((bytes[i + 1] ?? 0) << 8) | (bytes[i + 2] ?? 0);
      text += DIGITS[n >> 18] + DIGITS[(n >> 12) & 63] + (i + 1 < bytes.length ? DIGITS[(n >> 6) & 63] : "=") + (i + 2 < bytes.length ? DIGITS[n & 63] : "=");
    }
    return text;
  };

  const blob = (value) => {
    if (typeof value !== "object" || value === null || typeof value.base64 !== "string") return value;
    const bytes = bytesOf(value.base64);
    defineProperty(bytes, "mime", { value: value.mime ?? "", enumerable: false });
    return bytes;
  };

  const file = ({ path, size = 0, mime = "", preview = "" }) => ({
    path, size, mime, preview,
    bytes: () => readFile(path), text: () => readFile(path, "utf8"), json: () => world.JSON.parse(readFile(path, "utf8")),
  });

  // parsed is the object or array that a text has as JSON, whose text is kept beside it,
  // unless it has a member of that name.
  const parsed = (text) => {
    let value;
    try {
      value = world.JSON.parse(text);
    } catch {
      return text;
    }
    if (!getOwnPropertyDescriptor(value, "text")) defineProperty(value, "text", { value: text, enumerable: false, configurable: true, writable: true });
    return value;
  };

  // valueOf is what the host answers with, of the world's own classes, or the error.
  const valueOf = (answer, server, tool) => {
    const { error, file: large, binary, parse: isJSON } = answer ?? NOBODY;
    if (error) throw new ToolError(error.message ?? "", server, tool, error.kind, error.field);
    if (large) return file(large);
    const { value } = answer;
    if (isJSON) return parsed(value);
    if (!binary) return value;
    if (!world.Array.isArray(value)) return blob(value);
    for (let i = 0; i < value.length; i++) value[i] = blob(value[i]);
    return value;
  };

  const send = () => {
    while (later.length > 0 && under < AT_ONCE) {
      const call = later[0], number = begin(call.text);
      if (number === 0 && under > 0) return; // there will be room
      later.shift();
      if (number === 0) {
        settle(call, undefined);
        continue;
      }
      under++;
      apply(set, waiting, [number, call]);
    }
  };

  const settle = (call, answer) => {
    if (call.plain) return call.resolve(answer);
    try {
      call.resolve(valueOf(answer, call.server, call.tool));
    } catch (error) {
      call.reject(error);
    }
  };

  const ask = (message) => new WorldPromise((resolve, reject) => {
    later[later.length] = { text: stringify(message, plain), server: message.server, tool: message.tool, resolve, reject };
    send();
    changed(waits());
  });

  // sendPlain sends what is no call of a tool; the promise is of what the host says.
  const sendPlain = (text) => new WorldPromise((resolve) => {
    later[later.length] = { text, plain: true, resolve };
    send();
    changed(waits());
  });

  const waits = () => under > 0 || later.length > 0;
  const call = (server, tool, args = {}) => ask({ op: "call", server, tool, arguments: args });

  const base = {
    __proto__: null, call, ToolError,
    tool: (server, name) => {
      const f = (args) => call(server, name, args);
      defineProperty(f, "name", { value: name, configurable: true });
      return f;
    },
    search: (query, { limit = 10, detail = "description", server } = {}) => ask({ op: "search", query, limit, detail_level: detail, server }),
  };

  // What anything is asked for, and has or has not.
  const QUIET = new Set(["then", "toJSON", "default", "inspect", "constructor", "toString", "valueOf", "__esModule", "$$typeof", "nodeType", "asymmetricMatch"]);

  // lazily is an object that fill brings up to date before it is looked at; other is
  // asked for a name that it has not.
  const lazily = (object, fill, other) => new Proxy(object, {
    get: (_, name) => {
      if (object === all && has(base, name)) return base[name];
      fill();
      return has(object, name) || typeof name !== "string" || QUIET.has(name) ? object[name] : other(name);
    },
    has: (_, name) => (fill(), has(object, name)),
    ownKeys: () => (fill(), ownKeys(object)),
    getOwnPropertyDescriptor: (_, name) => (fill(), getOwnPropertyDescriptor(object, name)),
  });
  const few = (names) => names.slice(0, 20).join(", ") + (names.length > 20 ? ` and ${names.length - 20} more` : "");

  // bound are the servers there are, by the names of their packages.
  const bound = () => {
    try {
      return namesIn("/servers").filter((name) => /^[A-Za-z_]\w*$/.test(name)).sort();
    } catch {
      return [];
    }
  };
  const packageOf = (name) => name.replace(/\W/g, "_");
  const notBound = (name) => {
    const names = bound();
    return `no server ${stringify(name)} is bound; ${names.length ? `there are ${few(names)}` : "none is"}`;
  };
  const throwNew = (kind, message) => { throw new kind(message); };

  // A line of a server's index.js, as it was written for it.
  const FUNCTION = /^export const (\S+) = tool\("((?:[^"\\]|\\.)*)", "((?:[^"\\]|\\.)*)"\);$|^export \{ (\S+) as (\S+) \};$|^export \* from "((?:[^"\\]|\\.)*)";$/gm;
  const unescaped = (text) => text.replace(/\\(?:n|x(..)|u\{([0-9a-f]+)\}|u(....)|(.))/g, (_, x, u, v, plain) =>
    plain ?? (x ?? u ?? v ? String.fromCodePoint(parseInt(x ?? u ?? v, 16)) : "\n"));

  // namespaces are the servers as objects with their tools, each read when it is first used
  // in a run.
  const namespaces = new Map(), read = new Set();
  const namespace = (name) => {
    if (namespaces.has(name)) return namespaces.get(name);
    const tools = { __proto__: null };
    const fill = () => {
      if (read.has(name)) return;
      for (const old of keysOf(tools)) delete tools[old];
      let text;
      try {
        text = readFile(`/servers/${name}/index.js`, "utf8");
      } catch {
        throwNew(world.TypeError, notBound(name));
      }
      for (const [, as, server, tool, known, also, why] of text.matchAll(FUNCTION)) {
        if (why !== undefined) throwNew(WorldError, unescaped(why));
        tools[also ?? as] = also === undefined ? base.tool(unescaped(server), unescaped(tool)) : tools[known];
      }
      read.add(name);
    };
    const made = lazily(tools, fill, (tool) => throwNew(world.TypeError, `the server ${name} has no tool ${stringify(tool)}; it has ${few(keysOf(tools))}`));
    namespaces.set(name, made);
    return made;
  };

  // all has the servers that are bound as well, by their names.
  const all = { __proto__: null, ...base };
  const provide = () => {
    const names = bound();
    for (const name of keysOf(all)) if (!has(base, name) && !names.includes(name)) delete all[name];
    for (const name of names) if (!has(base, name)) all[name] = namespace(name);
  };
  const module = lazily(all, provide, (name) => {
    const known = packageOf(name);
    return has(all, known) ? all[known] : throwNew(world.TypeError, notBound(name));
  });

  return {
    // module is what a program imports as "servers".
    module,
    // required gives what require("servers/name") is; undefined: it is no server's name.
    required: (path) => {
      const name = /^servers\/([^/]+)$/.exec(path)?.[1];
      if (name === undefined) return undefined;
      return bound().includes(packageOf(name)) ? namespace(packageOf(name)) : throwNew(world.TypeError, notBound(name));
    },
    // hintOf says what there is in place of a module that is not there; undefined: it is
    // none of these.
    hintOf: (path) => {
      const name = /^(?:\.{0,2}\/)*servers\/([^/?]+)/.exec(path)?.[1];
      if (name !== undefined) {
        const server = packageOf(name);
        if (!bound().includes(server)) return notBound(name);
        return `the server's tools are imported from "servers/${server}"; it has ${few(keysOf(namespace(server)))}`;
      }
      if (!/^(?:\.{0,2}\/)*skills(?:\/|$)/.test(path)) return undefined;
      let there = [];
      try {
        there = namesIn("/skills").filter((file) => file.endsWith(".js")).map((file) => file.slice(0, -3)).sort();
      } catch { /* there are none */ }
      return `a skill is imported by its name, from "skills/NAME"; ${there.length ? `there are ${few(there)}` : "none is installed"}`;
    },
    sendPlain,
    // waits tells whether a call is waited for.
    waits,
    // arrived takes an answer, of the world's own classes; undefined: nothing answers.
    arrived: (number, answer) => {
      const one = apply(get, waiting, [number]);
      if (one === undefined) return;
      under--;
      apply(remove, waiting, [number]);
      settle(one, answer);
      send();
      changed(waits());
    },
    // forget gives up what waits, when its run is over.
    forget: () => {
      apply(clear, waiting, []);
      later.length = under = 0;
      read.clear();
      changed(false);
    },
  };
}
