// The part of the fs module that works on open files: descriptors, and streams
// on top of them.
import { Buffer } from "buffer";
import EventEmitter from "events";
import { view } from "./host.js";

const FLAGS = { r: "r", "r+": "rw", w: "wct", "w+": "rwct", a: "wac", "a+": "rwac", wx: "wctx", "wx+": "rwctx", ax: "wacx", "ax+": "rwacx" };
const HIGH = 64 << 10; // bytes that a stream reads at once

const bytesOf = (data, encoding) => typeof data === "string" ? Buffer.from(data, encoding) : new Uint8Array(data.buffer ?? data, data.byteOffset ?? 0, data.byteLength);

// addDescriptors gives fs its functions on descriptors; ask(syscall, call,
// path, more, payload) asks the host.
export function addDescriptors(fs, host, ask) {
  const on = (syscall, call, fd, more, payload) => ask(syscall, call, undefined, { ...more, fd }, payload);
  Object.assign(fs, {
    openSync(path, flags = "r") {
      if (!FLAGS[flags]) throw Object.assign(new TypeError(`The argument 'flags' is invalid. Received '${flags}'`), { code: "ERR_INVALID_ARG_VALUE" });
      return Number(ask("open", "open", path, { flags: FLAGS[flags] }));
    },
    closeSync(fd) { on("close", "close", fd); },
    readSync(fd, buffer, offset = 0, length, position = null) {
      if (typeof offset === "object" && offset !== null) ({ offset = 0, length, position = null } = offset);
      const target = bytesOf(buffer);
      const size = Math.min(length ?? target.length - offset, target.length - offset);
      const data = on("read", "fread", fd, { raw: true, size, offset: position === null ? -1 : Number(position) });
      target.set(data, offset);
      return data.length;
    },
    writeSync(fd, data, ...rest) {
      const text = typeof data === "string";
      const [offset, length, position] = text ? [0, undefined, rest[0] ?? null] : [rest[0] ?? 0, rest[1], rest[2] ?? null];
      const bytes = bytesOf(data, text ? rest[1] : undefined).subarray(offset, length === undefined ? undefined : offset + length);
      if (fd === 1 || fd === 2) {
        host.print(fd, new TextDecoder().decode(bytes));
        return bytes.length;
      }
      return Number(on("write", "fwrite", fd, { offset: position === null ? -1 : Number(position) }, view(bytes)));
    },
    fstatSync(fd) {
      const size = Number(on("fstat", "fsize", fd));
      return { size, isFile: () => true, isDirectory: () => false, isSymbolicLink: () => false };
    },
    ftruncateSync(fd, size = 0) { on("ftruncate", "ftruncate", fd, { size }); },
    fsyncSync() {},
    createReadStream: (path, options) => new ReadStream(fs, path, options),
    createWriteStream: (path, options) => new WriteStream(fs, path, options),
  });
}

const optionsOf = (options) => typeof options === "string" ? { encoding: options } : options ?? {};

// ReadStream reads a file piece by piece, when somebody listens to "data" or
// iterates over it.
class ReadStream extends EventEmitter {
  #options;
  constructor(fs, path, options) {
    super();
    this.path = path;
    this.#options = { fs, highWaterMark: HIGH, start: 0, end: Infinity, ...optionsOf(options) };
    this.on("newListener", (name) => { if (name === "data") queueMicrotask(() => this.#flow()); });
  }
  setEncoding(encoding) { this.#options.encoding = encoding; return this; }
  async *[Symbol.asyncIterator]() {
    const { fs, encoding, highWaterMark, start, end } = this.#options;
    const decoder = encoding && /^utf-?8$/i.test(encoding) ? new TextDecoder() : undefined;
    const fd = fs.openSync(this.path, "r");
    try {
      for (let at = start; at <= end; ) {
        const piece = Buffer.alloc(Math.min(highWaterMark, end - at + 1));
        const n = fs.readSync(fd, piece, 0, piece.length, at);
        if (n === 0) break;
        at += n;
        const data = piece.subarray(0, n);
        yield decoder ? decoder.decode(data, { stream: true }) : encoding ? data.toString(encoding) : data;
      }
    } finally {
      fs.closeSync(fd);
    }
  }
  async #flow() {
    try {
      for await (const piece of this) this.emit("data", piece);
      this.emit("end");
      this.emit("close");
    } catch (error) {
      this.emit("error", error);
    }
  }
  pipe(to) {
    this.on("data", (piece) => to.write(piece));
    this.on("end", () => { if (to !== globalThis.process.stdout && to !== globalThis.process.stderr) to.end(); });
    return to;
  }
}

// WriteStream writes at once; its events come afterwards, as from any stream.
class WriteStream extends EventEmitter {
  #fs;
  #fd;
  bytesWritten = 0;
  constructor(fs, path, options) {
    super();
    this.#fs = fs;
    this.path = path;
    const { flags = "w" } = optionsOf(options);
    try {
      this.#fd = fs.openSync(path, flags);
      queueMicrotask(() => this.emit("open", this.#fd));
    } catch (error) {
      queueMicrotask(() => this.emit("error", error));
    }
  }
  write(data, encoding, callback = encoding) {
    if (this.#fd === undefined) return false;
    const bytes = bytesOf(data, typeof encoding === "string" ? encoding : undefined);
    for (let at = 0; at < bytes.length; ) at += this.#fs.writeSync(this.#fd, bytes, at);
    this.bytesWritten += bytes.length;
    if (typeof callback === "function") queueMicrotask(callback);
    return true;
  }
  end(data, encoding, callback = encoding) {
    if (typeof data === "function") [data, callback] = [undefined, data];
    if (data !== undefined && data !== null) this.write(data, encoding);
    if (this.#fd !== undefined) this.#fs.closeSync(this.#fd);
    this.#fd = undefined;
    queueMicrotask(() => {
      if (typeof callback === "function") callback();
      this.emit("finish");
      this.emit("close");
    });
    return this;
  }
}
