// Math.random for an interpreter that began as a copy: the generator that was
// captured with the image would give every copy the same numbers.
// xoshiro128** (Blackman and Vigna), seeded by the host.
export function seedRandom(math, seed) {
  const s = new Uint32Array(4);
  for (let i = 0; i < 4; i++) s[i] = parseInt(seed.slice(8 * i, 8 * i + 8), 16) || 0x9e3779b9;
  const rotate = (x, k) => (x << k) | (x >>> (32 - k));
  const next = () => {
    const result = Math.imul(rotate(Math.imul(s[1], 5), 7), 9) >>> 0;
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
}
