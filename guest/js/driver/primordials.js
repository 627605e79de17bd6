// What the driver needs of the language for its answers, taken before any
// program ran: a program may change every method there is.
const { apply, ownKeys, getOwnPropertyDescriptor } = Reflect;
const { defineProperty } = Object;
const { isArray } = Array;
const { parse, stringify: rawStringify } = JSON;
export { apply, parse };

// stringify is JSON.stringify for the driver's answers: no toJSON that a
// program put on a prototype is asked, nor does anything inherited get in. The
// engine's own goes through objects with arrays that ask Array.prototype, so
// it is given single values only.
export function stringify(value) {
  if (typeof value !== "object" || value === null) return rawStringify(value) ?? "null";
  const list = isArray(value), keys = ownKeys(value);
  let text = "";
  for (let i = 0; i < keys.length; i++) {
    const key = keys[i];
    if (list ? key === "length" : value[key] === undefined) continue;
    text += (text && ",") + (list ? "" : rawStringify(key) + ":") + stringify(value[key]);
  }
  return list ? `[${text}]` : `{${text}}`;
}

// put sets a property without asking any setter.
function put(object, key, value) {
  defineProperty(object, key, { __proto__: null, value, enumerable: true, configurable: true, writable: true });
}

const NativeMap = Map;
const { get, set, delete: remove, clear, forEach } = Map.prototype;
const size = getOwnPropertyDescriptor(Map.prototype, "size").get;

// safeMap is a Map that works whatever a program did to Map.
export function safeMap() {
  const map = new NativeMap();
  return {
    __proto__: null,
    get: (key) => apply(get, map, [key]),
    set: (key, value) => { apply(set, map, [key, value]); },
    delete: (key) => apply(remove, map, [key]),
    clear: () => { apply(clear, map, []); },
    size: () => apply(size, map, []),
    // values is an array, to be gone through by its indices.
    values() {
      const all = [];
      let n = 0;
      apply(forEach, map, [(value) => { put(all, n++, value); }]);
      return all;
    },
  };
}
