// fetch, with Headers, Request and Response. The host makes the requests: what it may
// reach is its affair, it speaks HTTP and TLS, and follows redirects. A body is read in
// pieces, each when the program wants it (guest/README.md, messages "net.…").
import { Buffer } from "buffer";
import { ReadableStream } from "web-streams-polyfill";
import { BlobOf, FileOf, FormDataOf, formOf, joined, multipart } from "./blob.js";
import { stringify } from "./primordials.js";
import { decodeUTF8, encodeUTF8 } from "./text.js";

const AT_ONCE = 256 << 10; // bytes that one message takes
const WHOLE = 1 << 20; // bytes of a body that a request has with it
const NOBODY = { error: { kind: "no_network", message: "this session has no network" } };
const CODES = {
  unknown: "ENOTFOUND", refused: "ECONNREFUSED", unreachable: "EHOSTUNREACH", timeout: "ETIMEDOUT", reset: "ECONNRESET", closed: "ECONNRESET",
  denied: "EACCES", no_network: "ENETUNREACH", exhausted: "ENOBUFS", certificate: "CERT_HAS_EXPIRED_OR_IS_UNTRUSTED", tls: "EPROTO", invalid: "EINVAL",
};

const NAME = /^[!#$%&'*+\-.^_`|~0-9A-Za-z]+$/;

export class HeadersOf {
  #all = new Map(); // names in lower case: lists of values
  constructor(init) {
    if (init === undefined || init === null) return;
    if (typeof init !== "object") throw new TypeError("Headers are made of an object or of pairs");
    const pairs = Symbol.iterator in init ? init : Object.entries(init);
    for (const pair of pairs) {
      const [name, value, ...more] = pair;
      if (value === undefined && Symbol.iterator in init || more.length) throw new TypeError("Headers are made of pairs of a name and a value");
      this.append(name, value);
    }
  }
  static #name(name) {
    if (!NAME.test(name = String(name))) throw new TypeError(`${JSON.stringify(name)} is no header's name`);
    return name.toLowerCase();
  }
  static #value(value) {
    value = String(value).replace(/^[\t\n\r ]+|[\t\n\r ]+$/g, "");
    if (/[\0\r\n]/.test(value)) throw new TypeError("a header's value has no line feeds");
    return value;
  }
  append(name, value) {
    name = HeadersOf.#name(name);
    this.#all.set(name, [...this.#all.get(name) ?? [], HeadersOf.#value(value)]);
  }
  set(name, value) { this.#all.set(HeadersOf.#name(name), [HeadersOf.#value(value)]); }
  get(name) { return this.#all.get(HeadersOf.#name(name))?.join(", ") ?? null; }
  has(name) { return this.#all.has(HeadersOf.#name(name)); }
  delete(name) { this.#all.delete(HeadersOf.#name(name)); }
  getSetCookie() { return [...this.#all.get("set-cookie") ?? []]; }
  forEach(f, self) { for (const [name, value] of this) f.call(self, value, name, this); }
  *entries() {
    for (const name of [...this.#all.keys()].sort()) {
      if (name === "set-cookie") for (const value of this.#all.get(name)) yield [name, value];
      else yield [name, this.get(name)];
    }
  }
  *keys() { for (const [name] of this) yield name; }
  *values() { for (const [, value] of this) yield value; }
  [Symbol.iterator]() { return this.entries(); }
  get [Symbol.toStringTag]() { return "Headers"; }
}
Object.defineProperty(HeadersOf, "name", { value: "Headers" });

// extracted is what a body is made of: bytes or a stream, and the type that it says.
function extracted(body) {
  if (body === undefined || body === null) return { bytes: undefined, type: undefined };
  if (body instanceof ReadableStream) return { stream: body };
  if (body instanceof FormDataOf) return multipart(body);
  if (body instanceof BlobOf) return { bytes: body.bytesNow(), type: body.type || undefined };
  if (body instanceof URLSearchParams) return { bytes: encodeUTF8(body.toString()), type: "application/x-www-form-urlencoded;charset=UTF-8" };
  if (body instanceof ArrayBuffer) return { bytes: new Uint8Array(body.slice(0)) };
  if (ArrayBuffer.isView(body)) return { bytes: new Uint8Array(body.buffer, body.byteOffset, body.byteLength).slice() };
  if (typeof body === "object" && Symbol.asyncIterator in body) return { stream: ReadableStream.from(body) };
  return { bytes: encodeUTF8(String(body)), type: "text/plain;charset=UTF-8" };
}

// Body is what requests and responses have in common.
class Body {
  #bytes;
  #stream;
  #used = false;
  constructor({ bytes, stream } = {}) {
    this.#bytes = bytes;
    this.#stream = stream;
  }
  get body() {
    if (this.#bytes !== undefined && this.#stream === undefined) {
      const bytes = this.#bytes;
      this.#stream = new ReadableStream({ pull(c) { if (bytes.length) c.enqueue(bytes.slice()); c.close(); } }, { highWaterMark: 0 });
      this.#bytes = undefined;
    }
    return this.#stream ?? null;
  }
  get bodyUsed() { return this.#used || Boolean(this.#stream && isDisturbed(this.#stream)); }
  async #all() {
    if (this.bodyUsed || this.#stream?.locked) throw new TypeError("Body is unusable: Body has already been read");
    if (this.#bytes === undefined && !this.#stream) return new Uint8Array(0);
    this.#used = true;
    if (this.#bytes !== undefined) return this.#bytes;
    const pieces = [], reader = this.#stream.getReader();
    for (;;) {
      const { done, value } = await reader.read();
      if (done) return joined(pieces.length ? pieces : [new Uint8Array(0)]);
      pieces.push(bytesOf(value));
    }
  }
  // taken gives what the body is sent from, which is used up then.
  taken() {
    if (this.bodyUsed || this.#stream?.locked) throw new TypeError("Cannot construct a Request with a Request object that has already been used.");
    const took = { bytes: this.#bytes, stream: this.#stream };
    this.#used = took.bytes !== undefined || took.stream !== undefined;
    return took;
  }
  // split gives another body with the same bytes.
  split() {
    if (this.bodyUsed || this.#stream?.locked) throw new TypeError("Body has already been consumed.");
    if (!this.#stream) return { bytes: this.#bytes };
    const [mine, other] = this.#stream.tee();
    this.#stream = mine;
    return { stream: other };
  }
  async bytes() { return (await this.#all()).slice(); }
  async arrayBuffer() { return (await this.#all()).slice().buffer; }
  async text() {
    const text = decodeUTF8(await this.#all());
    return text[0] === "\ufeff" ? text.slice(1) : text;
  }
  async json() { return JSON.parse(await this.text()); }
  async blob() { return new BlobOf([await this.#all()], { type: this.headers.get("content-type") ?? "" }); }
  async formData() { return formOf(await this.#all(), this.headers.get("content-type") ?? ""); }
}
for (const name of ["taken", "split"]) Object.defineProperty(Body.prototype, name, { enumerable: false });

const isDisturbed = (stream) => Boolean(stream._disturbed);

function bytesOf(piece) {
  if (ArrayBuffer.isView(piece)) return new Uint8Array(piece.buffer, piece.byteOffset, piece.byteLength);
  throw new TypeError("the pieces of a body are Uint8Arrays");
}

const METHODS = ["DELETE", "GET", "HEAD", "OPTIONS", "POST", "PUT"];

export class RequestOf extends Body {
  constructor(input, init = {}) {
    const from = input instanceof RequestOf ? input : undefined;
    let method = init.method ?? from?.method ?? "GET";
    if (!NAME.test(method = String(method))) throw new TypeError(`'${method}' is not a valid HTTP method.`);
    if (METHODS.includes(method.toUpperCase())) method = method.toUpperCase();
    if (["CONNECT", "TRACE", "TRACK"].includes(method.toUpperCase())) throw new TypeError(`'${method}' HTTP method is unsupported.`);
    const given = init.body !== undefined && init.body !== null;
    if ((method === "GET" || method === "HEAD") && given) throw new TypeError("Request with GET/HEAD method cannot have body.");
    const url = urlOf(from ? from.url : input);
    const { type, ...body } = given ? extracted(init.body) : from ? from.taken() : {};
    super(body);
    const headers = new HeadersOf(init.headers ?? from?.headers);
    if (type && !headers.has("content-type")) headers.set("content-type", type);
    const redirect = init.redirect ?? from?.redirect ?? "follow";
    if (!["follow", "manual", "error"].includes(redirect)) throw new TypeError(`'${redirect}' is no way to treat redirects`);
    const signal = init.signal === null ? undefined : init.signal ?? from?.signal;
    Object.assign(this, { url, method, headers, redirect, signal: signal ?? new AbortController().signal, cache: "default", credentials: "same-origin", mode: "cors", referrer: "about:client", integrity: "", keepalive: false, duplex: "half" });
    Object.defineProperty(this, "watched", { value: signal !== undefined, enumerable: false });
  }
  clone() {
    const other = new RequestOf(this.url, { method: this.method, headers: this.headers, redirect: this.redirect, signal: this.watched ? this.signal : undefined });
    return Object.setPrototypeOf(new Cloned(other, this.split()), RequestOf.prototype);
  }
}
Object.defineProperty(RequestOf, "name", { value: "Request" });

// Cloned has another's properties, and a body.
class Cloned extends Body {
  constructor(of, body) {
    super(body);
    Object.defineProperties(this, Object.getOwnPropertyDescriptors(of));
  }
}

function urlOf(input) {
  let url;
  try {
    url = new URL(String(input));
  } catch {
    throw new TypeError(`Failed to parse URL from ${String(input).slice(0, 200)}`);
  }
  if (url.username || url.password) throw new TypeError("Request cannot be constructed from a URL that includes credentials");
  return url.href;
}

export class ResponseOf extends Body {
  constructor(body, { status = 200, statusText = "", headers } = {}) {
    if (!Number.isInteger(status) || status < 200 || status > 599) throw new RangeError(`init["status"] must be in the range of 200 to 599, inclusive.`);
    const { type, ...own } = extracted(body);
    if (own.bytes !== undefined || own.stream) if ([204, 205, 304].includes(status)) throw new TypeError(`Response with null body status (${status}) cannot have body`);
    super(own);
    headers = new HeadersOf(headers);
    if (type && !headers.has("content-type")) headers.set("content-type", type);
    Object.assign(this, { status, statusText: String(statusText), headers, url: "", redirected: false, type: "default" });
  }
  get ok() { return this.status >= 200 && this.status < 300; }
  clone() { return Object.setPrototypeOf(new Cloned(this, this.split()), ResponseOf.prototype); }
  static json(data, init = {}) {
    const headers = new HeadersOf(init.headers);
    if (!headers.has("content-type")) headers.set("content-type", "application/json");
    return new ResponseOf(JSON.stringify(data), { ...init, headers });
  }
  static redirect(url, status = 302) {
    if (![301, 302, 303, 307, 308].includes(status)) throw new RangeError(`Invalid status code ${status}`);
    return new ResponseOf(null, { status, headers: { location: urlOf(url) } });
  }
  static error() { return Object.assign(new ResponseOf(), { type: "error", status: 0 }); }
}
Object.defineProperty(ResponseOf, "name", { value: "Response" });

// makeFetch makes it; send gives the host a call, and a promise of what it answers.
export function makeFetch(send) {
  const ask = async (message, payload) => {
    const head = stringify(message);
    const answer = await send(payload === undefined ? head : joined([encodeUTF8(`${head}\n`), payload]));
    const { error, value } = answer ?? NOBODY;
    if (error) throw failed(error);
    return value;
  };
  const failed = ({ kind, message }) => {
    const cause = Object.assign(new Error(message || kind), { code: CODES[kind] ?? "EIO" });
    return new TypeError(`fetch failed: ${message || kind}`, { cause });
  };
  const ignore = () => {};

  // until gives what a promise does, unless the signal ends it before.
  const until = (signal, promise, give) => new Promise((resolve, reject) => {
    const stop = () => { reject(signal.reason); give(); };
    if (signal.aborted) return stop();
    signal.addEventListener("abort", stop, { once: true });
    promise.then(resolve, reject).finally(() => signal.removeEventListener("abort", stop));
  });

  // sent sends a body that does not come with its request.
  const sent = async (stream, { bytes, stream: source }) => {
    let at = 0;
    const write = async (piece) => {
      while (piece.length > 0) {
        const { written } = await ask({ op: "net.write", stream, at }, piece.subarray(0, AT_ONCE));
        at += written;
        piece = piece.subarray(written);
      }
    };
    if (bytes) await write(bytes);
    else {
      const reader = source.getReader();
      for (;;) {
        const { done, value } = await reader.read();
        if (done) break;
        await write(bytesOf(value));
      }
    }
    await ask({ op: "net.shut", stream });
  };

  // streamOf is the body of an answer.
  const streamOf = (number, signal) => {
    let at = 0, open = true;
    const close = () => {
      if (open) ask({ op: "net.close", stream: number }).catch(ignore);
      open = false;
    };
    return new ReadableStream({
      start(controller) {
        signal.addEventListener("abort", () => { if (open) { close(); controller.error(signal.reason); } }, { once: true });
      },
      async pull(controller) {
        let value;
        try {
          value = await ask({ op: "net.read", stream: number, at, max: AT_ONCE });
        } catch (error) {
          if (!open) return;
          open = false;
          throw new TypeError("terminated", { cause: error.cause });
        }
        if (!open) return;
        const piece = value.bytes;
        at += piece.length;
        if (piece.length > 0) return controller.enqueue(piece);
        close();
        controller.close();
      },
      cancel: close,
    }, { highWaterMark: 0 });
  };

  return async function fetch(input, init) {
    const request = new RequestOf(input, init), { signal } = request;
    if (signal.aborted) throw signal.reason;
    const body = request.taken(), more = body.stream !== undefined || body.bytes?.length > WHOLE;
    const headers = [...request.headers];
    for (const [name, value] of [["accept", "*/*"], ["user-agent", "paddock"]]) if (!request.headers.has(name)) headers.push([name, value]);
    const message = { op: "net.fetch", method: request.method, url: request.url, headers, redirect: request.redirect, later: true, more, length: more ? body.bytes?.length ?? -1 : 0 };
    const { stream } = await ask(message, more ? undefined : body.bytes);
    const give = () => { ask({ op: "net.close", stream }).catch(ignore); };
    let lost; // why the body could not be sent, unless the host answers before
    const sending = more ? sent(stream, body).catch((error) => { lost = error; if (body.stream) give(); }) : undefined;
    let head;
    try {
      head = await until(signal, ask({ op: "net.head", stream }), give);
    } catch (error) {
      await sending;
      throw signal.aborted ? signal.reason : lost && body.stream ? lost : error;
    }
    const empty = request.method === "HEAD" || [101, 204, 205, 304].includes(head.status);
    if (empty) give();
    const response = new ResponseOf(empty ? null : streamOf(stream, signal), { headers: head.headers, status: Math.max(head.status, 200), statusText: head.text });
    return Object.assign(response, { url: head.url, redirected: head.redirected, type: "basic" });
  };
}

export { BlobOf, FileOf, FormDataOf };
