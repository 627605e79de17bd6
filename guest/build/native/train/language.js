// Training: the language itself: closures, classes, generators, errors, sorting.
const primes = (limit) => {
  const sieve = new Uint8Array(limit + 1).fill(1), found = [];
  for (let n = 2; n <= limit; n++) {
    if (!sieve[n]) continue;
    found.push(n);
    for (let m = n * n; m <= limit; m += n) sieve[m] = 0;
  }
  return found;
};

const collatz = (limit) => {
  let best = 0;
  for (let start = 1; start < limit; start++) {
    let n = start, steps = 0;
    while (n !== 1) { n = n % 2 === 0 ? n / 2 : 3 * n + 1; steps++; }
    if (steps > best) best = steps;
  }
  return best;
};

const ackermann = (m, n) => m === 0 ? n + 1 : n === 0 ? ackermann(m - 1, 1) : ackermann(m - 1, ackermann(m, n - 1));

class Shape {
  static made = 0;
  #name;
  constructor(name) { this.#name = name; Shape.made++; }
  get name() { return this.#name; }
  area() { return 0; }
  toString() { return `${this.constructor.name} ${this.#name}: ${this.area().toFixed(2)}`; }
}
class Box extends Shape {
  constructor(name, width, height) { super(name); Object.assign(this, { width, height }); }
  area() { return this.width * this.height; }
}
class Disc extends Shape {
  constructor(name, radius = 1) { super(name); this.radius = radius; }
  area() { return Math.PI * this.radius ** 2; }
}

class Vector {
  constructor(x, y) { this.x = x; this.y = y; }
  plus({ x, y }) { return new Vector(this.x + x, this.y + y); }
  times(k) { return new Vector(this.x * k, this.y * k); }
  *[Symbol.iterator]() { yield this.x; yield this.y; }
}

class Tree {
  root = null;
  insert(key, value) {
    const fresh = { key, value, left: null, right: null };
    if (!this.root) { this.root = fresh; return; }
    for (let node = this.root; ;) {
      const side = key < node.key ? "left" : "right";
      if (!node[side]) { node[side] = fresh; return; }
      node = node[side];
    }
  }
  *walk(node = this.root) {
    if (node) { yield* this.walk(node.left); yield node.key; yield* this.walk(node.right); }
  }
}

const mandelbrot = (size) => {
  let inside = 0;
  for (let row = 0; row < size; row++) for (let column = 0; column < size; column++) {
    const cx = column / size * 3 - 2, cy = row / size * 2 - 1;
    let x = 0, y = 0, n = 0;
    while (x * x + y * y < 4 && n < 25) { [x, y] = [x * x - y * y + cx, 2 * x * y + cy]; n++; }
    if (n === 25) inside++;
  }
  return inside;
};

const matrices = (n) => {
  const a = Array.from({ length: n }, (_, i) => Array.from({ length: n }, (_, j) => (i * 7 + j * 3) % 11 + 0.5));
  return a.map((row) => a[0].map((_, j) => row.reduce((sum, x, k) => sum + x * a[k][j], 0)));
};

const life = (size, rounds) => {
  let cells = Array.from({ length: size }, (_, y) => Array.from({ length: size }, (_, x) => (x * y + x) % 3 === 0 ? 1 : 0));
  for (let n = 0; n < rounds; n++) {
    cells = cells.map((row, y) => row.map((cell, x) => {
      let near = 0;
      for (let dy = -1; dy <= 1; dy++) for (let dx = -1; dx <= 1; dx++) if (dx || dy) near += cells[(y + dy + size) % size][(x + dx + size) % size];
      return near === 3 || near === 2 && cell ? 1 : 0;
    }));
  }
  return cells.flat().reduce((a, b) => a + b);
};

const counter = () => { let n = 0; return { up: () => ++n, down: () => --n, get value() { return n; } }; };
const memoize = (f, known = new Map()) => (n) => known.get(n) ?? (known.set(n, f(n)), known.get(n));
const compose = (...fs) => (x) => fs.reduceRight((v, f) => f(v), x);
const curry = (f) => (a) => (b) => f(a, b);

function errors() {
  const seen = {};
  for (let i = 0; i < 4000; i++) {
    try {
      if (i % 3 === 0) throw new RangeError(`no ${i}`);
      if (i % 3 === 1) null.x;
      JSON.parse(i % 2 ? "{" : "[1]");
    } catch (error) {
      seen[error.name] = (seen[error.name] ?? 0) + 1;
      if (error instanceof RangeError) seen.last = error.message;
    } finally {
      seen.rounds = i;
    }
  }
  return seen;
}

function* numbers(n) { for (let i = 0; i < n; i++) { const got = yield i * i; if (got) yield got; } }

function knapsack(items, capacity) {
  const best = new Array(capacity + 1).fill(0);
  for (const [weight, value] of items) for (let room = capacity; room >= weight; room--) best[room] = Math.max(best[room], best[room - weight] + value);
  return best.at(-1);
}

function sorts(scattered) {
  const quick = (part) => {
    if (part.length < 2) return part;
    const [pivot, ...rest] = part;
    return [...quick(rest.filter((x) => x < pivot)), pivot, ...quick(rest.filter((x) => x >= pivot))];
  };
  const bubble = scattered.slice(0, 120);
  for (let i = 0; i < bubble.length; i++) for (let j = 0; j + 1 < bubble.length - i; j++) if (bubble[j] > bubble[j + 1]) [bubble[j], bubble[j + 1]] = [bubble[j + 1], bubble[j]];
  const people = scattered.slice(0, 1500).map((n) => ({ name: `p${n % 100}`, age: n % 90 }));
  people.sort((a, b) => a.age - b.age || a.name.localeCompare(b.name));
  return [quick(scattered.slice(0, 1500)), scattered.toSorted((a, b) => a - b), scattered.map(String).sort(), Float64Array.from(scattered).sort(), people, bubble];
}

function big() {
  let a = 1n, x = 10n ** 60n;
  for (let i = 2n; i < 250n; i++) a *= i;
  const modulus = 2n ** 127n - 1n, n = 2n * 10n ** 120n;
  let base = 3n;
  for (let i = 0; i < 200; i++) base = base * base % modulus;
  for (;;) { const y = (x + n / x) / 2n; if (y >= x) break; x = y; }
  return [String(a).length, base, x, BigInt.asUintN(64, a), a >> 100n, (a & 255n) + (a | 1n), Number(x), BigInt("0x" + "f".repeat(50))];
}

for (let round = 0; round < 3; round++) {
  const scattered = Array.from({ length: 4000 }, (_, i) => i * 7919 % 10007);
  primes(50000); collatz(1200); ackermann(2, 30); mandelbrot(36); matrices(24); life(28, 4); errors(); sorts(scattered); big();
  const shapes = Array.from({ length: 1200 }, (_, i) => i % 3 ? new Box(`b${i}`, i % 9, i % 5) : new Disc(`d${i}`, i % 7));
  shapes.sort((a, b) => a.area() - b.area()).map(String).join("\n");
  let at = new Vector(0, 0);
  for (let i = 0; i < 4000; i++) at = at.plus(new Vector(i, 1).times(0.5));
  const [x, y] = at, tree = new Tree();
  for (const n of scattered.slice(0, 2000)) tree.insert(n, { n });
  [...tree.walk()].length;
  const c = counter();
  for (let i = 0; i < 3000; i++) i % 3 ? c.up() : c.down();
  const fib = memoize((n) => n < 2 ? n : fib(n - 1) + fib(n - 2));
  fib(80); compose((v) => v + 1, (v) => v * 2)(5); [1, 2, 3].map(curry((a, b) => a + b)(2));
  let total = 0;
  for (const n of numbers(4000)) { if (n % 2) continue; total += n; }
  outer: for (let i = 0; i < 300; i++) for (let j = 0; j < 50; j++) { if (i * j > 5000) break outer; if (j > i) continue outer; total += i ^ j | 1 & ~j << 2; }
  for (const key in Object.fromEntries(scattered.slice(0, 500).map((n) => ["k" + n, n]))) total += key.length;
  switch (total % 4) { case 0: total++; break; case 1: case 2: total--; break; default: total = -total; }
  knapsack(Array.from({ length: 50 }, (_, i) => [i % 13 + 1, i * 7 % 31]), 200);
  const watched = new Proxy({ n: 1 }, { get: (t, k) => Reflect.get(t, k) ?? 0, has: () => true });
  for (let i = 0; i < 500; i++) total += watched.n + watched["m" + i % 5];
}
