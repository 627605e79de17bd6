// Math.random for an interpreter that began as a copy: the generator that was
// captured with the image would give every copy the same numbers.
// xoshiro128** (Blackman and Vigna), seeded by the host.
import { apply } from "./primordials.js";

const { imul } = Math;
const { slice } = String.prototype;
const digits = parseInt;

// installRandom puts a Math.random there, and gives what seeds it: with 64 hex
// digits, and as often as the interpreter becomes another copy. A function that
// the program has put in its place stays.
export function installRandom(math) {
  const s = new Uint32Array(4);
  const rotate = (x, k) => (x << k) | (x >>> (32 - k));
  const next = () => {
    const result = imul(rotate(imul(s[1], 5), 7), 9) >>> 0;
    const t = s[1] << 9;
    s[2] ^= s[0];
    s[3] ^= s[1];
    s[1] ^= s[2];
    s[0] ^= s[3];
    s[2] ^= t;
    s[3] = rotate(s[3], 11);
    return result;
  };
  const random = () => ((next() >>> 5) * 67108864 + (next() >>> 6)) / 9007199254740992;
  Object.defineProperty(math, "random", { value: random, writable: true, configurable: true });
  const word = (seed, i) => digits(apply(slice, seed, [8 * i, 8 * i + 8]), 16);
  return (seed) => {
    for (let i = 0; i < 4; i++) s[i] = (word(seed, i) ^ word(seed, i + 4)) || 0x9e3779b9;
  };
}
