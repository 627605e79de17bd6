// What a program finds in the global scope beside the language itself.
import { Buffer } from "buffer";
import structuredCloneOf from "core-js-pure/actual/structured-clone";
import URLOf from "core-js-pure/actual/url";
import URLSearchParamsOf from "core-js-pure/actual/url-search-params";
import atobOf from "core-js-pure/actual/atob";
import btoaOf from "core-js-pure/actual/btoa";
import { inspect } from "./inspect.js";
import { makeConsole } from "./console.js";
import { decodeText, encodeText, useHost } from "./text.js";
import { AbortControllerOf, AbortSignalOf, EventOf, EventTargetOf } from "./events.js";
import { installLocale } from "./locale.js";
import { makeProcess } from "./process.js";
import { BlobOf, FileOf, FormDataOf, HeadersOf, RequestOf, ResponseOf } from "./fetch.js";
import { ByteLengthQueuingStrategy, CountQueuingStrategy, ReadableStream, TransformStream, WritableStream } from "web-streams-polyfill";

export function installGlobals(scope, host, timers, exit) {
  const define = (name, value) => Object.defineProperty(scope, name, { value, writable: true, configurable: true, enumerable: false });
  inspect.promise = host.promise;
  useHost(host);
  installLocale();
  completeCallSites();
  const process = makeProcess(host, exit);
  define("process", process);
  define("console", makeConsole(host));
  define("global", scope);
  define("Buffer", Buffer);
  define("setTimeout", timers.set);
  define("setInterval", timers.repeat);
  define("setImmediate", (callback, ...args) => timers.set(callback, 0, ...args));
  for (const name of ["clearTimeout", "clearInterval", "clearImmediate"]) define(name, timers.remove);
  if (!scope.queueMicrotask) define("queueMicrotask", (callback) => { Promise.resolve().then(callback); });
  define("structuredClone", structuredCloneOf);
  define("URL", URLOf);
  define("URLSearchParams", URLSearchParamsOf);
  define("atob", atobOf);
  define("btoa", btoaOf);
  define("TextEncoder", encodeText);
  define("TextDecoder", decodeText);
  define("Event", EventOf);
  // There are no threads, so nobody makes one; who asks whether something is one is answered.
  define("MessagePort", class MessagePort { constructor() { throw new TypeError("Illegal constructor"); } });
  define("CustomEvent", class CustomEvent extends EventOf {
    constructor(type, options) {
      super(type, options);
      Object.defineProperty(this, "detail", { value: options?.detail ?? null, enumerable: true });
    }
  });
  define("EventTarget", EventTargetOf);
  define("AbortController", AbortControllerOf);
  define("AbortSignal", AbortSignalOf);
  const web = { Blob: BlobOf, File: FileOf, FormData: FormDataOf, Headers: HeadersOf, Request: RequestOf, Response: ResponseOf };
  for (const [name, type] of Object.entries({ ...web, ByteLengthQueuingStrategy, CountQueuingStrategy, ReadableStream, TransformStream, WritableStream })) define(name, type);
  define("crypto", makeCrypto(host));
  const began = { at: undefined };
  define("performance", { now: () => { began.at ??= host.now(); return host.now() - began.at; }, get timeOrigin() { return Date.now() - this.now(); } });
  define("display", makeDisplay(host, scope));
  return process;
}

// completeCallSites gives the engine's records of a stack what Node's have besides.
function completeCallSites() {
  const before = Error.prepareStackTrace;
  let site;
  Error.prepareStackTrace = (_, sites) => { site = sites[0]; return ""; };
  const read = new Error("").stack;
  Error.prepareStackTrace = before;
  const prototype = site && read !== undefined && Object.getPrototypeOf(site);
  if (!prototype) return;
  const no = () => false, none = () => null;
  for (const [name, value] of Object.entries({ isEval: no, isConstructor: no, isToplevel: () => true, isAsync: no, isPromiseAll: no, getThis: () => undefined, getTypeName: none, getMethodName: none, getEvalOrigin: () => undefined, getFunction: () => undefined, getPromiseIndex: none, getScriptNameOrSourceURL() { return this.getFileName(); } })) {
    if (!(name in prototype)) Object.defineProperty(prototype, name, { value, writable: true, configurable: true });
  }
}

function makeCrypto(host) {
  const getRandomValues = (array) => {
    if (!ArrayBuffer.isView(array) || array instanceof Float32Array || array instanceof Float64Array) throw new TypeError("getRandomValues needs an integer typed array");
    if (array.byteLength > 65536) throw new RangeError("getRandomValues gives at most 65536 bytes at once");
    new Uint8Array(array.buffer, array.byteOffset, array.byteLength).set(host.random(array.byteLength));
    return array;
  };
  const randomUUID = () => {
    const b = getRandomValues(new Uint8Array(16));
    b[6] = b[6] & 15 | 64;
    b[8] = b[8] & 63 | 128;
    const hex = Array.from(b, (x) => x.toString(16).padStart(2, "0")).join("");
    return `${hex.slice(0, 8)}-${hex.slice(8, 12)}-${hex.slice(12, 16)}-${hex.slice(16, 20)}-${hex.slice(20)}`;
  };
  return { getRandomValues, randomUUID };
}

// display({mime, data}) shows a picture or document; anything else as text.
function makeDisplay(host, scope) {
  return (...values) => {
    for (const value of values) {
      if (typeof value !== "object" || value === null || typeof value.mime !== "string") {
        scope.console.log(value);
        continue;
      }
      const answer = host.display(value.mime, value.data);
      if (answer.error) host.print(2, `(a display is not shown: ${answer.error})\n`);
    }
  };
}
