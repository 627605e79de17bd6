// Node's modules that are not here. What a package imports and never uses costs nothing:
// their parts can be named, extended and asked for, and what is called says where it works.
const NODE = `async_hooks child_process cluster console constants dgram diagnostics_channel dns dns/promises domain http http2 https inspector
inspector/promises net path/win32 punycode querystring repl sea sqlite stream stream/consumers stream/promises stream/web sys test test/reporters tls
trace_events tty util/types v8 vm wasi worker_threads zlib`.split(/\s+/);

export const isNodes = (name) => NODE.includes(name);

const METHODS = "ACL BIND CHECKOUT CONNECT COPY DELETE GET HEAD LINK LOCK M-SEARCH MERGE MKACTIVITY MKCALENDAR MKCOL MOVE NOTIFY OPTIONS PATCH POST PROPFIND PROPPATCH PURGE PUT QUERY REBIND REPORT SEARCH SOURCE SUBSCRIBE TRACE UNBIND UNLINK UNLOCK UNSUBSCRIBE".split(" ");
const STATUS_CODES = {
  100: "Continue", 101: "Switching Protocols", 102: "Processing", 103: "Early Hints", 200: "OK", 201: "Created", 202: "Accepted", 203: "Non-Authoritative Information", 204: "No Content",
  205: "Reset Content", 206: "Partial Content", 207: "Multi-Status", 208: "Already Reported", 226: "IM Used", 300: "Multiple Choices", 301: "Moved Permanently", 302: "Found", 303: "See Other",
  304: "Not Modified", 305: "Use Proxy", 307: "Temporary Redirect", 308: "Permanent Redirect", 400: "Bad Request", 401: "Unauthorized", 402: "Payment Required", 403: "Forbidden", 404: "Not Found",
  405: "Method Not Allowed", 406: "Not Acceptable", 407: "Proxy Authentication Required", 408: "Request Timeout", 409: "Conflict", 410: "Gone", 411: "Length Required", 412: "Precondition Failed",
  413: "Payload Too Large", 414: "URI Too Long", 415: "Unsupported Media Type", 416: "Range Not Satisfiable", 417: "Expectation Failed", 418: "I'm a Teapot", 421: "Misdirected Request",
  422: "Unprocessable Entity", 423: "Locked", 424: "Failed Dependency", 425: "Too Early", 426: "Upgrade Required", 428: "Precondition Required", 429: "Too Many Requests",
  431: "Request Header Fields Too Large", 451: "Unavailable For Legal Reasons", 500: "Internal Server Error", 501: "Not Implemented", 502: "Bad Gateway", 503: "Service Unavailable",
  504: "Gateway Timeout", 505: "HTTP Version Not Supported", 506: "Variant Also Negotiates", 507: "Insufficient Storage", 508: "Loop Detected", 509: "Bandwidth Limit Exceeded",
  510: "Not Extended", 511: "Network Authentication Required",
};

const ipv4 = /^(?:(?:25[0-5]|2[0-4]\d|1?\d?\d)(?:\.(?!$)|$)){4}$/;
const isIP = (text) => ipv4.test(text) ? 4 : /^[\da-f:.]+$/i.test(text) && /:.*:/.test(text) && URL.canParse?.(`http://[${text}]`) ? 6 : 0;

// present are the parts of those modules that say something without doing it. Packages ask
// for them while they are loaded.
function present(util, fs) {
  class AsyncResource {
    runInAsyncScope(f, self, ...args) { return f.apply(self, args); }
    emitDestroy() { return this; }
    asyncId() { return 0; }
    triggerAsyncId() { return 0; }
    bind(f) { return f.bind(this); }
    static bind(f) { return f; }
  }
  class AsyncLocalStorage { // what is outside of run sees no store, here as in Node
    getStore() { return undefined; }
    disable() {}
    exit(f, ...args) { return f(...args); }
    static bind(f) { return f; }
    run() { throw unavailable("async_hooks", "AsyncLocalStorage.run"); }
    enterWith() { throw unavailable("async_hooks", "AsyncLocalStorage.enterWith"); }
    static snapshot() { return (f, ...args) => f(...args); }
  }
  const nobody = (name) => ({ name, hasSubscribers: false, publish() {}, subscribe() {}, unsubscribe() { return false; }, bindStore() {}, unbindStore() { return false; }, runStores: (_, f, self, ...args) => f.apply(self, args) });
  const tracing = (name) => ({ hasSubscribers: false, subscribe() {}, unsubscribe() { return false; }, traceSync: (f, _, self, ...args) => f.apply(self, args), tracePromise: (f, _, self, ...args) => f.apply(self, args), traceCallback: (f, __, _, self, ...args) => f.apply(self, args),
    ...Object.fromEntries(["start", "end", "asyncStart", "asyncEnd", "error"].map((part) => [part, nobody(`tracing:${name}:${part}`)])) });
  const invalid = (code, text) => { throw Object.assign(new TypeError(text), { code }); };
  const http = {
    METHODS, STATUS_CODES, maxHeaderSize: 16384,
    validateHeaderName: (name) => /^[\w!#$%&'*+.^`|~-]+$/.test(name) || invalid("ERR_INVALID_HTTP_TOKEN", `Header name must be a valid HTTP token ["${name}"]`),
    validateHeaderValue: (name, value) => !/[^\t\x20-\x7e\x80-\xff]/.test(value) || invalid("ERR_INVALID_CHAR", `Invalid character in header content ["${name}"]`),
  };
  return {
    http, https: {}, http2: { constants: {} }, constants: { ...fs.constants }, tty: { isatty: () => false }, net: { isIP, isIPv4: (t) => isIP(t) === 4, isIPv6: (t) => isIP(t) === 6 },
    worker_threads: { isMainThread: true, threadId: 0, parentPort: null, workerData: null, markAsUncloneable() {}, markAsUntransferable() {} }, cluster: { isMaster: true, isPrimary: true, isWorker: false },
    async_hooks: { AsyncResource, AsyncLocalStorage, executionAsyncId: () => 0, triggerAsyncId: () => 0 }, "util/types": util.types, console: globalThis.console,
    v8: { getHeapStatistics: () => ({ heap_size_limit: 0, used_heap_size: 0, total_heap_size: 0 }), setFlagsFromString() {} },
    diagnostics_channel: { channel: nobody, tracingChannel: tracing, hasSubscribers: () => false, subscribe() {}, unsubscribe() { return false; } }, domain: { active: null }, sys: util, inspector: { url: () => undefined },
    querystring: {
      parse: (text) => { const all = { __proto__: null }; for (const [k, v] of new URLSearchParams(String(text))) all[k] = k in all ? [].concat(all[k], v) : v; return all; },
      stringify: (values) => Object.entries(values ?? {}).flatMap(([k, v]) => [].concat(v).map((one) => `${encodeURIComponent(k)}=${encodeURIComponent(one ?? "")}`)).join("&"),
      escape: encodeURIComponent, unescape: decodeURIComponent,
    },
  };
}

const unavailable = (module, path) => Object.assign(new Error(path === module ? `Node's module "${module}" is not there with isolation "wasm"; with isolation "linux" it is`
  : `Node's ${path} is not there with isolation "wasm"; with isolation "linux" it is`), { code: "ERR_FEATURE_UNAVAILABLE_ON_PLATFORM" });

// makeAbsent gives a module of Node's that is not here.
export function makeAbsent(util, fs) {
  const made = new Map();
  let has;
  const part = (module, path, own) => {
    const fail = () => { throw unavailable(module, path); };
    const parts = new Map();
    const target = function () {};
    const get = (_, key) => {
      if (own && Object.hasOwn(own, key)) return own[key];
      if (own && key === "__esModule") return true; // so that what is imported of it is asked of it
      if (own && key === "default") return made.get(module);
      if (key === "prototype") return target.prototype;
      if (key === "then" || key === "__esModule" || key === "toJSON" || typeof key === "symbol") return Reflect.get(target, key);
      if (key in Function.prototype) return Function.prototype[key];
      if (!parts.has(key)) parts.set(key, part(module, `${path}.${key}`));
      return parts.get(key);
    };
    const set = (_, key, value) => { parts.set(key, value); return true; };
    // What copies a module's parts has them by its prototype.
    const bearer = new Proxy({ __proto__: null }, { get, set, has: () => true });
    return new Proxy(target, { get, set, has: () => true, apply: fail, construct: fail, getPrototypeOf: () => bearer });
  };
  return (module) => {
    if (!made.has(module)) {
      has ??= present(util, fs);
      made.set(module, part(module, module, has[module] ?? {}));
    }
    return made.get(module);
  };
}
