// The assert module.
import { inspect } from "./inspect.js";

class AssertionError extends Error {
  constructor({ message, actual, expected, operator }) {
    super(message ?? `${inspect(actual)} ${operator} ${inspect(expected)}`);
    Object.assign(this, { code: "ERR_ASSERTION", actual, expected, operator });
  }
  get name() { return "AssertionError"; }
}

function equal(a, b, strict = true, seen = []) {
  if (strict ? Object.is(a, b) : a == b || Object.is(a, b)) return true;
  if (typeof a !== "object" || typeof b !== "object" || a === null || b === null) return false;
  if (strict && Object.getPrototypeOf(a) !== Object.getPrototypeOf(b)) return false;
  if (seen.some(([x, y]) => x === a && y === b)) return true;
  seen = [...seen, [a, b]];
  if (a instanceof Date) return a.getTime() === b.getTime();
  if (a instanceof RegExp) return String(a) === String(b);
  if (a instanceof Error && (a.message !== b.message || a.name !== b.name)) return false;
  if (a instanceof Map) return a.size === b.size && [...a].every(([k, v]) => b.has(k) && equal(v, b.get(k), strict, seen));
  if (a instanceof Set) return a.size === b.size && [...a].every((v) => b.has(v) || [...b].some((w) => equal(v, w, strict, seen)));
  if (Array.isArray(a) !== Array.isArray(b)) return false;
  const keys = Object.keys(a);
  return keys.length === Object.keys(b).length && keys.every((k) => Object.hasOwn(b, k) && equal(a[k], b[k], strict, seen));
}

export function makeAssert() {
  const check = (ok, message, actual, expected, operator) => {
    if (ok) return;
    if (message instanceof Error) throw message;
    throw new AssertionError({ message, actual, expected, operator });
  };
  const matches = (error, expected) => {
    if (expected === undefined) return true;
    if (expected instanceof RegExp) return expected.test(String(error?.message ?? error));
    if (typeof expected === "function") return expected.prototype !== undefined && error instanceof expected || expected.prototype === undefined && expected(error) === true;
    return Object.keys(expected).every((k) => expected[k] instanceof RegExp ? expected[k].test(error[k]) : equal(error[k], expected[k]));
  };
  const thrown = (error, expected, message) => check(matches(error, expected), typeof expected === "string" ? expected : message ?? `unexpected error: ${inspect(error)}`, error, expected, "throws");
  const assert = (ok, message) => check(ok, message, ok, true, "==");
  return Object.assign(assert, {
    AssertionError, ok: assert, strict: assert,
    equal: (a, b, m) => check(a == b || Object.is(a, b), m, a, b, "=="),
    notEqual: (a, b, m) => check(a != b, m, a, b, "!="),
    strictEqual: (a, b, m) => check(Object.is(a, b), m, a, b, "==="),
    notStrictEqual: (a, b, m) => check(!Object.is(a, b), m, a, b, "!=="),
    deepEqual: (a, b, m) => check(equal(a, b, false), m, a, b, "deepEqual"),
    deepStrictEqual: (a, b, m) => check(equal(a, b), m, a, b, "deepStrictEqual"),
    notDeepStrictEqual: (a, b, m) => check(!equal(a, b), m, a, b, "notDeepStrictEqual"),
    match: (text, pattern, m) => check(pattern.test(text), m, text, pattern, "match"),
    fail: (m) => check(false, m ?? "Failed"),
    throws(f, expected, message) {
      try { f(); } catch (error) { return thrown(error, expected, message); }
      check(false, message ?? "Missing expected exception");
    },
    async rejects(p, expected, message) {
      try { await (typeof p === "function" ? p() : p); } catch (error) { return thrown(error, expected, message); }
      check(false, message ?? "Missing expected rejection");
    },
  });
}
makeAssert.equal = equal;
