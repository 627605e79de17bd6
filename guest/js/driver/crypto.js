// The crypto module, as far as hashes and random bytes go.
import { Buffer } from "buffer";

export function makeCryptoModule(host, web) {
  const random = (n) => {
    const out = Buffer.alloc(n);
    for (let at = 0; at < n; at += 65536) out.set(host.random(Math.min(65536, n - at)), at);
    return out;
  };
  // A digest collects what it is given: the host computes it at the end.
  class Hash {
    #name;
    #key;
    #pieces = [];
    constructor(name, key) {
      this.#name = name;
      this.#key = key;
      host.hash(name, new Uint8Array(0)); // an unknown name fails here
    }
    update(data, encoding) {
      this.#pieces.push(typeof data === "string" ? Buffer.from(data, encoding) : Buffer.from(data.buffer ?? data, data.byteOffset ?? 0, data.byteLength));
      return this;
    }
    digest(encoding) {
      const out = Buffer.from(host.hash(this.#name, Buffer.concat(this.#pieces), this.#key));
      return encoding && encoding !== "buffer" ? out.toString(encoding) : out;
    }
  }
  const made = (make) => {
    try {
      return make();
    } catch (error) {
      throw error.code === "EINVAL" ? Object.assign(new Error("Digest method not supported"), { code: "ERR_CRYPTO_INVALID_DIGEST" }) : error;
    }
  };
  const randomInt = (low, high) => {
    if (high === undefined) [low, high] = [0, low];
    const span = high - low;
    if (!Number.isSafeInteger(span) || span <= 0 || span > 2 ** 48) throw new RangeError("The range of randomInt must hold 1 to 2**48 whole numbers");
    for (const most = Math.floor(2 ** 48 / span) * span; ; ) {
      const n = random(6).readUIntBE(0, 6);
      if (n < most) return low + n % span;
    }
  };
  return {
    webcrypto: web, getRandomValues: web.getRandomValues, randomUUID: web.randomUUID, randomBytes: random, randomInt,
    randomFillSync: (target) => { target.set(random(target.length)); return target; },
    createHash: (name) => made(() => new Hash(name)),
    createHmac: (name, key) => made(() => new Hash(name, typeof key === "string" ? Buffer.from(key) : key)),
    hash: (name, data, encoding = "hex") => made(() => new Hash(name)).update(data).digest(encoding),
    getHashes: () => ["md5", "sha1", "sha224", "sha256", "sha384", "sha512"],
    timingSafeEqual: (a, b) => a.length === b.length && a.reduce((d, x, i) => d | x ^ b[i], 0) === 0,
  };
}
