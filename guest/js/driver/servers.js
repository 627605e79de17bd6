// Tools of other servers as functions: what the files below /servers import. A
// call goes to the host as JSON, which checks it, decides upon it, and answers with
// JSON (guest/README.md).
//
// It is in both JavaScript guests, and so needs nothing but the language: world is
// the program's global scope, begin sends the host a call and gives its number (0:
// there is no room, or nobody to answer), bytesOf decodes base64, readFile reads a
// file of the workspace, and changed is told whether a call is waited for.
export function makeServers(world, { begin, bytesOf, readFile, changed = () => {} }) {
  const { parse, stringify } = JSON;
  const { isView } = ArrayBuffer;
  const { defineProperty } = Object;
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

  // valueOf is what the host answers with, of the world's own classes, or the error.
  const valueOf = (answer, server, tool) => {
    const { error, file: large, binary } = answer ?? NOBODY;
    if (error) throw new ToolError(error.message ?? "", server, tool, error.kind, error.field);
    if (large) return file(large);
    const { value } = answer;
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

  const waits = () => under > 0 || later.length > 0;
  const call = (server, tool, args = {}) => ask({ op: "call", server, tool, arguments: args });

  return {
    // module is what a program imports as "servers".
    module: {
      call, ToolError,
      tool: (server, name) => {
        const f = (args) => call(server, name, args);
        defineProperty(f, "name", { value: name, configurable: true });
        return f;
      },
      search: (query, { limit = 10, detail = "description", server } = {}) => ask({ op: "search", query, limit, detail_level: detail, server }),
    },
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
      changed(false);
    },
  };
}
