// Blob, File and FormData, as far as requests need them.
import { decodeUTF8, encodeUTF8 } from "./text.js";

const bytesOfPart = (part) => {
  if (part instanceof BlobOf) return part.bytesNow();
  if (part instanceof ArrayBuffer) return new Uint8Array(part.slice(0));
  if (ArrayBuffer.isView(part)) return new Uint8Array(part.buffer, part.byteOffset, part.byteLength).slice();
  return encodeUTF8(String(part));
};

// joined is all the pieces in one.
export const joined = (pieces) => {
  if (pieces.length === 1) return pieces[0];
  const all = new Uint8Array(pieces.reduce((n, p) => n + p.length, 0));
  let at = 0;
  for (const p of pieces) {
    all.set(p, at);
    at += p.length;
  }
  return all;
};

export class BlobOf {
  #bytes;
  #type;
  constructor(parts = [], { type = "" } = {}) {
    if (typeof parts !== "object" || parts === null || !(Symbol.iterator in parts)) throw new TypeError("The blob's parts must be a sequence");
    this.#bytes = joined([...parts].map(bytesOfPart));
    this.#type = /^[\x20-\x7e]*$/.test(type) ? String(type).toLowerCase() : "";
  }
  get size() { return this.#bytes.length; }
  get type() { return this.#type; }
  bytesNow() { return this.#bytes; }
  async bytes() { return this.#bytes.slice(); }
  async arrayBuffer() { return this.#bytes.slice().buffer; }
  async text() { return decodeUTF8(this.#bytes); }
  slice(start = 0, end = this.size, type = "") { return new BlobOf([this.#bytes.slice(start, end)], { type }); }
  stream() {
    const bytes = this.#bytes;
    return new ReadableStream({ start(c) { if (bytes.length) c.enqueue(bytes.slice()); c.close(); } });
  }
}
Object.defineProperty(BlobOf, "name", { value: "Blob" });
Object.defineProperty(BlobOf.prototype, "bytesNow", { enumerable: false });

export class FileOf extends BlobOf {
  constructor(parts, name, options = {}) {
    super(parts, options);
    this.name = String(name);
    this.lastModified = Number(options.lastModified ?? Date.now());
  }
}
Object.defineProperty(FileOf, "name", { value: "File" });

const escaped = (name) => name.replace(/\r\n|\r|\n/g, "%0D%0A").replace(/"/g, "%22");

export class FormDataOf {
  #all = [];
  static #entry(name, value, filename) {
    if (!(value instanceof BlobOf)) return [String(name), String(value)];
    if (!(value instanceof FileOf) || filename !== undefined) value = new FileOf([value], filename ?? value.name ?? "blob", { type: value.type });
    return [String(name), value];
  }
  append(name, value, filename) { this.#all.push(FormDataOf.#entry(name, value, filename)); }
  set(name, value, filename) {
    const entry = FormDataOf.#entry(name, value, filename), at = this.#all.findIndex(([n]) => n === entry[0]);
    this.#all = this.#all.filter(([n], k) => n !== entry[0] || k === at);
    if (at < 0) this.#all.push(entry);
    else this.#all[at] = entry;
  }
  delete(name) { this.#all = this.#all.filter(([n]) => n !== String(name)); }
  get(name) { return this.#all.find(([n]) => n === String(name))?.[1] ?? null; }
  getAll(name) { return this.#all.filter(([n]) => n === String(name)).map(([, v]) => v); }
  has(name) { return this.#all.some(([n]) => n === String(name)); }
  forEach(f, self) { for (const [n, v] of this.#all) f.call(self, v, n, this); }
  *entries() { yield* this.#all.map((e) => [...e]); }
  *keys() { for (const [n] of this.#all) yield n; }
  *values() { for (const [, v] of this.#all) yield v; }
  [Symbol.iterator]() { return this.entries(); }
}
Object.defineProperty(FormDataOf, "name", { value: "FormData" });

// multipart is a form as the body of a request, and its type.
export function multipart(form) {
  const boundary = `----paddock${Array.from({ length: 24 }, () => Math.floor(Math.random() * 36).toString(36)).join("")}`, pieces = [];
  for (const [name, value] of form) {
    let head = `--${boundary}\r\nContent-Disposition: form-data; name="${escaped(name)}"`;
    if (typeof value === "string") {
      pieces.push(encodeUTF8(`${head}\r\n\r\n${value.replace(/\r\n|\r|\n/g, "\r\n")}\r\n`));
      continue;
    }
    head += `; filename="${escaped(value.name)}"\r\nContent-Type: ${value.type || "application/octet-stream"}\r\n\r\n`;
    pieces.push(encodeUTF8(head), value.bytesNow(), encodeUTF8("\r\n"));
  }
  pieces.push(encodeUTF8(`--${boundary}--\r\n`));
  return { bytes: joined(pieces), type: `multipart/form-data; boundary=${boundary}` };
}

// formOf reads a form that a body holds.
export function formOf(bytes, type) {
  const form = new FormDataOf();
  if (/^application\/x-www-form-urlencoded/i.test(type)) {
    for (const [name, value] of new URLSearchParams(decodeUTF8(bytes))) form.append(name, value);
    return form;
  }
  const boundary = /^multipart\/form-data;.*boundary="?([^";]+)"?/i.exec(type)?.[1];
  if (!boundary) throw new TypeError("The body is no form");
  const text = Array.from(bytes, (b) => String.fromCharCode(b)).join(""); // a character for each byte
  for (const part of `\r\n${text}`.split(`\r\n--${boundary}`).slice(1, -1)) {
    const at = part.indexOf("\r\n\r\n"), head = part.slice(0, at), body = Uint8Array.from(part.slice(at + 4), (c) => c.charCodeAt(0));
    const field = (name) => new RegExp(`[;\\s]${name}="([^"]*)"`, "i").exec(head)?.[1]?.replace(/%22/g, '"').replace(/%0D%0A/g, "\r\n");
    const utf8 = (s) => decodeUTF8(Uint8Array.from(s, (c) => c.charCodeAt(0)));
    const name = utf8(field("name") ?? ""), filename = field("filename");
    if (filename === undefined) form.append(name, decodeUTF8(body));
    else form.append(name, new FileOf([body], utf8(filename), { type: /content-type:\s*([^\r\n]+)/i.exec(head)?.[1] ?? "" }));
  }
  return form;
}
