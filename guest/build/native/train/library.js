// Training: the built-in objects, text, and promises.
const letters = "abcdefghijklmnopqrstuvwxyz";
let state = 20250104;
const random = () => (state = (Math.imul(state, 1664525) + 1013904223) >>> 0) / 4294967296;
const pick = (from) => from[Math.floor(random() * from.length)];
const names = Array.from({ length: 1200 }, () => Array.from({ length: 2 + Math.floor(random() * 8) }, () => pick(letters)).join(""));
const prose = names.map((name, i) => name[0].toUpperCase() + name.slice(1) + (i % 11 ? "" : ".")).join(" ");

function arrays() {
  const rows = names.map((name, i) => ({ id: i, name, group: name[0], price: i * 0.75, tags: [name.slice(0, 2), name.slice(-2)] }));
  const groups = rows.reduce((all, row) => ({ ...all, [row.group]: [...(all[row.group] ?? []), row.id] }), {});
  const sums = Object.entries(groups).map(([key, ids]) => [key, ids.reduce((a, b) => a + b, 0)]).sort(([, a], [, b]) => b - a);
  const cheap = rows.filter(({ price }) => price < 300).map(({ name, tags: [first, ...rest] }) => `${name}:${first}:${rest.length}`);
  const queue = [];
  for (const row of rows) { queue.push(row); if (row.id % 3 === 0) queue.shift(); if (row.id % 50 === 0) queue.splice(2, 3, row); }
  return [sums, cheap.join(), rows.some((r) => r.id > 1000), rows.every((r) => r.name), rows.find((r) => r.id === 700), rows.findIndex((r) => r.name === "zz"),
    rows.flatMap((r) => r.tags), names.includes("abc"), names.indexOf(names[600]), [...names].reverse(), names.concat(letters.split("")), structuredCloneOf(rows.slice(0, 100)), Object.groupBy?.(names, (n) => n.length)];
}
const structuredCloneOf = (value) => JSON.parse(JSON.stringify(value));

function collections() {
  const counts = new Map(), seen = new Set(), weak = new WeakMap();
  for (const c of prose) counts.set(c, (counts.get(c) ?? 0) + 1);
  for (const name of names) { seen.add(name.slice(0, 2)); if (name.length > 6) seen.delete(name.slice(0, 2)); }
  const keys = names.map((name) => ({ name }));
  keys.forEach((key, i) => weak.set(key, i));
  const table = {};
  for (const name of names) table[name] = (table[name] || 0) + name.length;
  for (const name of names.slice(0, 300)) delete table[name];
  const graph = new Map(names.slice(0, 300).map((name, i) => [i, [i * 7 % 300, i * 11 % 300, (i + 1) % 300]])), distance = new Map([[0, 0]]), waiting = [0];
  while (waiting.length) { const at = waiting.shift(); for (const to of graph.get(at)) if (!distance.has(to)) { distance.set(to, distance.get(at) + 1); waiting.push(to); } }
  return [[...counts].sort(([, a], [, b]) => b - a).slice(0, 5), seen.size, keys.map((k) => weak.get(k)), Object.keys(table).length, Object.values(table).reduce((a, b) => a + b), Math.max(...distance.values()), "x" in table, Object.hasOwn(table, "y")];
}

function text() {
  const out = [];
  for (const [i, name] of names.entries()) {
    out.push(i % 2 ? name.toUpperCase() : [...name].reverse().join(""));
    if (name.startsWith("a") || name.endsWith("e") || name.includes("th")) out.push(name.padStart(12, "*").padEnd(16).trim());
    out.push(`${name}-${String(i).padStart(5, "0")}-${(i / 3).toFixed(2)}`, name + i, name.charCodeAt(0).toString(16), name.at(-1).repeat(3));
  }
  let built = "";
  for (const c of prose.slice(0, 4000)) built += String.fromCharCode((c.charCodeAt(0) + 1) % 128);
  const joined = out.join(","), foreign = "Größe naïve Ελλάδα 日本語 🙂 ".repeat(60);
  return [joined.split(",").length, joined.indexOf("zzz"), joined.lastIndexOf("a"), built.length, foreign.normalize("NFD").length, [...foreign].length, encodeURIComponent(foreign), decodeURIComponent(encodeURIComponent(names[3])), foreign.toLowerCase(), joined.replaceAll("a", "xx"), joined.slice(-40), parseInt("ff", 16), parseFloat("3.14abc"), Number("12"), (1234.5).toString(2), (0.1 + 0.2).toPrecision(3)];
}

function patterns() {
  const log = names.slice(0, 500).map((name, i) => `2025-${String(i % 12 + 1).padStart(2, "0")}-07T10:${i % 60}:00 ${["INFO", "WARN", "ERROR"][i % 3]} [${name}] took ${i * 37 % 911}ms path=/api/v${i % 3}/${name}?q=${i}`).join("\n");
  const slow = [...log.matchAll(/^(?<when>[\d\-T:]+) (?<level>[A-Z]+) \[(?<who>\w+)\] took (?<ms>\d+)ms/gm)].filter((m) => m.groups.level !== "INFO").map((m) => [m.groups.who, +m.groups.ms]);
  return [slow.length, log.replace(/(\w+)=(\w+)/g, (_, a, b) => `${b}=${a}`).length, log.split(/[\s/?=&]+/).length, /^[a-z]+$/.test("abc"), log.match(/error|warn/gi).length, log.search(/took 9\d\dms/),
    "x1 = 3.14 * (radius ** 2) + foo_bar(7, 'q')".repeat(20).match(/\s*(?:(\d+\.?\d*)|([A-Za-z_]\w*)|(.))/g).length, log.replace(/\s+/g, " "), prose.replace(/\b\w/g, (c) => c.toLowerCase()), /(a|b)*c/.exec("ab".repeat(40)), "2025-01-02".match(/(?<=-)\d+$/u)];
}

function documents() {
  const tree = { users: names.slice(0, 250).map((name, i) => ({ name, age: i % 90, score: i / 7, tags: [name.slice(0, 2)], active: i % 2 === 0, boss: null, note: 'say "hi"\n\u00e9' })) };
  const compact = JSON.stringify(tree), pretty = JSON.stringify(tree, null, 2);
  try { JSON.parse(compact.slice(0, -3)); } catch (error) { String(error); }
  return [JSON.parse(compact).users.length, JSON.parse(pretty, (k, v) => k === "age" ? v + 1 : v), JSON.stringify(tree, (k, v) => k === "note" ? undefined : v).length];
}

function typed() {
  const data = Uint8Array.from(prose, (c) => c.charCodeAt(0)), view = new DataView(new ArrayBuffer(8000)), floats = new Float64Array(2000);
  for (let i = 0; i < 1000; i++) { view.setUint32(i * 4, i * 2654435761, true); view.setFloat64(4000, i / 3); floats[i] = Math.sin(i) * view.getUint32(i * 4); }
  let sum = 0, crc = 0xffffffff;
  for (const byte of data) { crc ^= byte; for (let k = 0; k < 8; k++) crc = crc & 1 ? crc >>> 1 ^ 0xedb88320 : crc >>> 1; sum = sum * 31 + byte | 0; }
  return [sum, crc >>> 0, floats.map(Math.abs).reduce((a, b) => Math.max(a, b)), data.subarray(5, 50).join(), Array.from(data.slice(0, 500)), new TextDecoder().decode(new TextEncoder().encode(prose)).length];
}

function numbers() {
  let total = 0;
  for (let i = 1; i < 6000; i++) {
    const x = i / 500;
    total += Math.sin(x) * Math.cos(x) + Math.exp(-x) + Math.log(x) + Math.atan2(x, 2) + Math.hypot(x, 1) + Math.sqrt(x) + x ** 1.5 + Math.round(x) - Math.floor(x) + Math.trunc(x) % 3;
    total += Math.min(x, 2) + Math.max(x, 1) + (x > 3 ? 1 : 0) + Number.parseInt(String(i)) + Math.sign(-x) + Math.abs(-i);
  }
  return [total, Array.from({ length: 1500 }, (_, i) => String(i / 7)), Array.from({ length: 500 }, (_, i) => (i / 7).toFixed(3)), Number.isInteger(total), total.toLocaleString()];
}

const dates = () => Array.from({ length: 500 }, (_, i) => {
  const date = new Date(Date.UTC(2025, 0, 31) + i * 86400000);
  return [date.toISOString(), date.getUTCDay(), new Date(date.toISOString()).getTime(), `${date.getFullYear()}-${date.getMonth() + 1}`];
});

const pause = (ms) => new Promise((resolve) => setTimeout(resolve, ms));
async function concurrent() {
  const results = [];
  const worker = async (id) => { for (let i = 0; i < 60; i++) { await null; results.push(id * i); if (i % 30 === 0) await pause(1); } return id; };
  await Promise.all([1, 2, 3, 4, 5].map(worker));
  await Promise.allSettled([Promise.reject(new Error("no")), pause(1), Promise.resolve(3).then((n) => n + 1)]);
  try { await Promise.race([pause(5), Promise.reject(new TypeError("x"))]); } catch (error) { results.push(error.name); }
  async function* stream(n) { for (let i = 0; i < n; i++) { yield i; await null; } }
  for await (const n of stream(150)) results.push(n);
  return results.length;
}

for (let round = 0; round < 3; round++) {
  arrays(); collections(); text(); patterns(); documents(); typed(); numbers(); dates();
  await concurrent();
}
for (let i = 0; i < 30; i++) console.log(i, names[i], [i, "x"], { i }, null);
[1, "the end", new Map([["of", { it: [1] }]])];
