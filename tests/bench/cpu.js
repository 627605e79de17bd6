// Ten CPU-bound programs; prints the best of three of each, in milliseconds.
// The same file runs in the guest and on the host's own Node.
const programs = {
  bodies() {
    const p = [[0, 0], [1, 0], [0, 2]], v = [[0, 0], [0, 0.6], [0.4, 0]];
    for (let n = 0; n < 9000; n++) {
      for (let i = 0; i < 3; i++) for (let k = 0; k < 3; k++) if (i !== k) {
        const dx = p[k][0] - p[i][0], dy = p[k][1] - p[i][1], f = 0.001 / (dx * dx + dy * dy + 0.01) ** 1.5;
        v[i][0] += dx * f; v[i][1] += dy * f;
      }
      for (let i = 0; i < 3; i++) { p[i][0] += v[i][0] * 0.001; p[i][1] += v[i][1] * 0.001; }
    }
  },
  queens() {
    const place = (row, columns, up, down) => {
      if (row === 8) return 1;
      let n = 0;
      for (let c = 0; c < 8; c++) if (!((columns | up | down) >> c & 1)) n += place(row + 1, columns | 1 << c, (up | 1 << c) << 1, (down | 1 << c) >> 1);
      return n;
    };
    if (place(0, 0, 0, 0) !== 92) throw new Error("queens");
  },
  documents() {
    const data = Array.from({ length: 200 }, (_, i) => ({ id: i, name: `item ${i}`, tags: ["red", "green"], price: i * 1.25, sold: null }));
    for (let n = 0; n < 60; n++) if (JSON.parse(JSON.stringify(data))[7].id !== 7) throw new Error("documents");
  },
  patterns() {
    const text = "On 2026-11-21 ann@example.org wrote to bob@example.net about invoice 4711. ".repeat(120);
    for (let n = 0; n < 10; n++) {
      text.match(/[\w.]+@[\w.]+/g);
      text.replace(/(\d{4})-(\d\d)-(\d\d)/g, "$3.$2.$1");
      text.replace(/\b([a-z]+)\s+([a-z]+)\b/g, "$2 $1");
    }
  },
  words() {
    const counts = new Map();
    for (let i = 0; i < 90000; i++) {
      const key = "word" + i * 7 % 3001;
      counts.set(key, (counts.get(key) ?? 0) + key.toUpperCase().length);
    }
    if ([...counts.keys()].sort().length !== 3001) throw new Error("words");
  },
  objects() {
    class Money { constructor(cents) { this.cents = cents; } add(other) { return new Money(this.cents + other.cents); } }
    let total = new Money(0);
    const one = new Money(1);
    for (let i = 0; i < 120000; i++) total = total.add(one);
    if (total.cents !== 120000) throw new Error("objects");
  },
  recursion() {
    const fib = (n) => n < 2 ? n : fib(n - 1) + fib(n - 2);
    if (fib(22) !== 17711) throw new Error("recursion");
  },
  sorting() {
    let state = 1;
    const numbers = [];
    for (let i = 0; i < 40000; i++) { state = (Math.imul(state, 1103515245) + 12345) & 0x7fffffff; numbers.push(state); }
    numbers.sort((a, b) => b - a);
  },
  integers() {
    let a = 0n, b = 1n;
    for (let i = 0; i < 12000; i++) [a, b] = [b, a + b];
    if (String(3n ** 6000n).length !== 2863 || a * b % 1000003n < 0n) throw new Error("integers");
  },
  hashing() {
    let h = 2166136261;
    for (let i = 0; i < 1300000; i++) h = Math.imul(h ^ i & 255, 16777619);
    if (h === 0) throw new Error("hashing");
  },
};
for (const [name, program] of Object.entries(programs)) {
  let best = Infinity;
  for (let n = 0; n < 3; n++) {
    const begin = performance.now();
    program();
    best = Math.min(best, performance.now() - begin);
  }
  console.log(name, best.toFixed(3));
}
