// What npm's packages lean on beside files: stream, zlib and diagnostics_channel.
import { Buffer } from "buffer";
import { deflate, deflateRaw, gzip, inflate, inflateRaw, ungzip } from "pako";
import tick from "process/";
import { Stream } from "readable-stream";

// makeStreams gives the modules. What waits for a turn of the loop goes by the driver's
// own process, which forgets it at the end of a run.
export function makeStreams(scope, process) {
  tick.nextTick = (callback, ...args) => process.nextTick(callback, ...args);
  const { promises } = Stream;
  const web = {};
  for (const name of ["ReadableStream", "WritableStream", "TransformStream", "ByteLengthQueuingStrategy", "CountQueuingStrategy", "TextEncoder", "TextDecoder"]) web[name] = scope[name];
  return { stream: Stream, "stream/promises": promises, "stream/web": web, zlib: makeZlib(process), diagnostics_channel: makeChannels() };
}

const bytesOf = (data) => typeof data === "string" ? Buffer.from(data) : data instanceof ArrayBuffer ? new Uint8Array(data) : new Uint8Array(data.buffer, data.byteOffset, data.byteLength);

function makeZlib(process) {
  const pick = ({ level, windowBits, memLevel, strategy, dictionary } = {}) => Object.fromEntries(Object.entries({ level, windowBits, memLevel, strategy, dictionary: dictionary && bytesOf(dictionary) }).filter(([, v]) => v !== undefined));
  const transforms = {
    gzip: [gzip], gunzip: [ungzip], deflate: [deflate], inflate: [inflate], deflateRaw: [deflateRaw], inflateRaw: [inflateRaw], unzip: [ungzip],
  };
  const zlib = { constants: { Z_NO_COMPRESSION: 0, Z_BEST_SPEED: 1, Z_BEST_COMPRESSION: 9, Z_DEFAULT_COMPRESSION: -1, Z_DEFAULT_STRATEGY: 0, Z_NO_FLUSH: 0, Z_SYNC_FLUSH: 2, Z_FULL_FLUSH: 3, Z_FINISH: 4 } };
  for (const [name, [transform]] of Object.entries(transforms)) {
    const sync = zlib[`${name}Sync`] = (data, options) => {
      try {
        return Buffer.from(transform(bytesOf(data), pick(options)));
      } catch (error) {
        throw Object.assign(new Error(String(error?.message ?? error)), { code: "Z_DATA_ERROR", errno: -3 });
      }
    };
    zlib[name] = (data, options, callback = options) => {
      process.nextTick(() => {
        let out;
        try {
          out = sync(data, typeof options === "function" ? {} : options);
        } catch (error) {
          return callback(error);
        }
        callback(null, out);
      });
    };
    const title = name[0].toUpperCase() + name.slice(1);
    zlib[`create${title}`] = (options) => {
      const pieces = [];
      return new Stream.Transform({
        transform(piece, _, done) { pieces.push(Buffer.from(piece)); done(); },
        flush(done) {
          try {
            done(null, sync(Buffer.concat(pieces), options));
          } catch (error) {
            done(error);
          }
        },
      });
    };
  }
  for (const name of ["brotliCompress", "brotliDecompress", "zstdCompress", "zstdDecompress"]) { // named by packages when they are loaded
    const absent = () => { throw new Error(`Node's "zlib.${name}" is not there with isolation "wasm"; with isolation "linux" it is`); };
    zlib[name] = (...args) => absent(...args);
    zlib[`${name}Sync`] = (...args) => absent(...args);
    zlib[`create${name[0].toUpperCase()}${name.slice(1)}`] = (...args) => absent(...args);
  }
  return zlib;
}

// makeChannels is diagnostics_channel: whoever publishes calls who has subscribed.
function makeChannels() {
  class Channel {
    #subscribers = [];
    constructor(name) { this.name = name; }
    get hasSubscribers() { return this.#subscribers.length > 0; }
    subscribe(f) { this.#subscribers = [...this.#subscribers, f]; }
    unsubscribe(f) {
      const i = this.#subscribers.indexOf(f);
      if (i >= 0) this.#subscribers = this.#subscribers.toSpliced(i, 1);
      return i >= 0;
    }
    publish(message) { for (const f of this.#subscribers) f(message, this.name); }
    runStores(message, f, that, ...args) { this.publish(message); return Reflect.apply(f, that, args); }
  }
  const channels = new Map();
  const channel = (name) => {
    if (!channels.has(name)) channels.set(name, new Channel(name));
    return channels.get(name);
  };
  const tracingChannel = (name) => {
    const parts = {};
    for (const part of ["start", "end", "asyncStart", "asyncEnd", "error"]) parts[part] = typeof name === "string" ? channel(`tracing:${name}:${part}`) : name[part];
    const traced = (f, context, that, args) => {
      parts.start.publish(context);
      try {
        return context.result = Reflect.apply(f, that, args);
      } catch (error) {
        context.error = error;
        parts.error.publish(context);
        throw error;
      } finally {
        parts.end.publish(context);
      }
    };
    return {
      ...parts,
      get hasSubscribers() { return Object.values(parts).some((c) => c.hasSubscribers); },
      subscribe(to) { for (const part in parts) if (to[part]) parts[part].subscribe(to[part]); },
      unsubscribe(from) { for (const part in parts) if (from[part]) parts[part].unsubscribe(from[part]); },
      traceSync: (f, context = {}, that, ...args) => traced(f, context, that, args),
      async tracePromise(f, context = {}, that, ...args) {
        try {
          return context.result = await traced(f, context, that, args);
        } catch (error) {
          if (context.error !== error) { context.error = error; parts.error.publish(context); }
          throw error;
        } finally {
          parts.asyncStart.publish(context);
          parts.asyncEnd.publish(context);
        }
      },
    };
  };
  return {
    Channel, channel, tracingChannel, hasSubscribers: (name) => channel(name).hasSubscribers,
    subscribe: (name, f) => channel(name).subscribe(f), unsubscribe: (name, f) => channel(name).unsubscribe(f),
  };
}
