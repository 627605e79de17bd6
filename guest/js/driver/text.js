// TextEncoder and TextDecoder: UTF-8, and for reading UTF-16 and Latin-1.
import { Buffer } from "buffer";

let door; // to the host, which knows UTF-8

export const useHost = (host) => { door = host; };

export const encodeUTF8 = (text) => door.encode(text);
export const decodeUTF8 = (bytes) => bytes.length ? door.decode(bytes) : "";

export class encodeText {
  get encoding() { return "utf-8"; }
  encode(text = "") { return door.encode(String(text)); }
  encodeInto(text, target) {
    let read = 0, written = 0;
    for (const c of String(text)) {
      const bytes = Buffer.from(c, "utf8");
      if (written + bytes.length > target.length) break;
      target.set(bytes, written);
      written += bytes.length;
      read += c.length;
    }
    return { read, written };
  }
}
Object.defineProperty(encodeText, "name", { value: "TextEncoder" });

const encodings = { "utf-8": "utf-8", utf8: "utf-8", "unicode-1-1-utf-8": "utf-8", "utf-16le": "utf-16le", "utf-16": "utf-16le", latin1: "windows-1252", "iso-8859-1": "windows-1252", ascii: "windows-1252", "us-ascii": "windows-1252", "windows-1252": "windows-1252" };

export class decodeText {
  #rest = new Uint8Array(0);
  #started = false;
  constructor(label = "utf-8", { fatal = false, ignoreBOM = false } = {}) {
    const encoding = encodings[String(label).trim().toLowerCase()];
    if (!encoding) throw new RangeError(`The encoding '${label}' is not supported`);
    Object.assign(this, { encoding, fatal, ignoreBOM });
  }
  decode(input = new Uint8Array(0), { stream = false } = {}) {
    const view = input instanceof ArrayBuffer ? new Uint8Array(input) : new Uint8Array(input.buffer, input.byteOffset, input.byteLength);
    let bytes = new Uint8Array(this.#rest.length + view.length);
    bytes.set(this.#rest);
    bytes.set(view, this.#rest.length);
    let end = bytes.length;
    if (stream) end = this.encoding === "utf-8" ? whole(bytes) : this.encoding === "utf-16le" ? end & ~1 : end;
    this.#rest = bytes.slice(end);
    bytes = bytes.subarray(0, end);
    let text;
    if (this.encoding === "windows-1252") text = Buffer.from(bytes).toString("latin1");
    else if (this.encoding === "utf-16le") text = Buffer.from(bytes).toString("utf16le");
    else {
      text = door.decode(bytes);
      if (this.fatal && text.includes("\ufffd") && !same(door.encode(text), bytes)) throw new TypeError("The encoded data was not valid for encoding utf-8");
    }
    if (!this.#started && !this.ignoreBOM && text[0] === "\ufeff") text = text.slice(1);
    this.#started = stream;
    return text;
  }
}
Object.defineProperty(decodeText, "name", { value: "TextDecoder" });

const same = (a, b) => a.length === b.length && a.every((x, i) => x === b[i]);

// whole is how many bytes end with a whole character.
function whole(bytes) {
  for (let back = 1; back <= Math.min(3, bytes.length); back++) {
    const b = bytes[bytes.length - back];
    if (b >= 0xc0) return back < (b >= 0xf0 ? 4 : b >= 0xe0 ? 3 : 2) ? bytes.length - back : bytes.length;
    if (b < 0x80) break;
  }
  return bytes.length;
}
