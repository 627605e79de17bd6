// What kind of value something is, told without asking the program.
const MAX_STRING = 10000;

const brand = (method) => (o) => {
  try {
    method(o);
    return true;
  } catch {
    return false;
  }
};
const getter = (prototype, name) => {
  const { get } = Object.getOwnPropertyDescriptor(prototype, name);
  return (o) => get.call(o);
};
const view = Object.getPrototypeOf(Uint8Array.prototype);
const isMap = brand(getter(Map.prototype, "size"));
const isSet = brand(getter(Set.prototype, "size"));
const isBuffer = brand(getter(ArrayBuffer.prototype, "byteLength"));
const isDate = brand((o) => Date.prototype.getTime.call(o));
const isRegExp = (o) => o !== RegExp.prototype && o instanceof RegExp;
const kindOfView = getter(view, Symbol.toStringTag);

// With quick, what has lost its prototype may be taken for an object: asking it
// what it is without that costs an exception each time.
export function classOf(o, quick = false) {
  const is = (type, brand) => (!quick || o instanceof type) && brand(o);
  if (typeof o === "function") return "Function";
  if (Array.isArray(o)) return "Array";
  if (quick && Object.getPrototypeOf(o) === Object.prototype) return taggedClass(o);
  if (ArrayBuffer.isView(o)) return kindOfView(o) === undefined ? "DataView" : "TypedArray";
  if (o instanceof Error) return "Error";
  if (is(Map, isMap)) return "Map";
  if (is(Set, isSet)) return "Set";
  if (is(Date, isDate)) return "Date";
  if (isRegExp(o)) return "RegExp";
  if (is(ArrayBuffer, isBuffer)) return "ArrayBuffer";
  if (o instanceof Promise) return "Promise";
  if (o instanceof WeakMap) return "WeakMap";
  if (o instanceof WeakSet) return "WeakSet";
  if (o instanceof WeakRef) return "WeakRef";
  if (o instanceof Number || o instanceof String || o instanceof Boolean || o instanceof Symbol || o instanceof BigInt) return "Boxed";
  return taggedClass(o);
}

function taggedClass(o) {
  const tag = Object.prototype.toString.call(o);
  if (tag === "[object Object]") return "Object";
  if (tag === "[object Arguments]") return "Arguments";
  return / Iterator\]$/.test(tag) ? "Iterator" : "Object";
}

// constructorName is the name of the class that made o: null when it has no
// prototype at all.
export function constructorName(o) {
  for (let p = o; p !== null && p !== undefined; p = Object.getPrototypeOf(p)) {
    const d = Object.getOwnPropertyDescriptor(p, "constructor");
    if (d && typeof d.value === "function" && d.value.name && isInstance(o, d.value)) return d.value.name;
  }
  return null;
}

const isInstance = (o, f) => {
  for (let p = Object.getPrototypeOf(o); p !== null; p = Object.getPrototypeOf(p)) if (p === f.prototype) return true;
  return false;
};

// typedTag is what an object says it is, where that is not its class's name.
export function typedTag(o, name) {
  let tag;
  try {
    tag = o[Symbol.toStringTag];
  } catch { /* the program's own getter */ }
  return typeof tag !== "string" || tag === "" || tag === name || /Function$/.test(tag) ? "" : ` [${tag}]`;
}

const escapes = { __proto__: null, "\n": "\\n", "\r": "\\r", "\t": "\\t", "\b": "\\b", "\f": "\\f", "\v": "\\v", "\\": "\\\\" };

export function quote(text) {
  const more = text.length > MAX_STRING ? `... ${text.length - MAX_STRING} more character${text.length - MAX_STRING > 1 ? "s" : ""}` : "";
  if (more) text = text.slice(0, MAX_STRING);
  const mark = !text.includes("'") ? "'" : !text.includes('"') ? '"' : !text.includes("`") && !text.includes("${") ? "`" : "'";
  // eslint-disable-next-line no-control-regex
  const body = text.replace(/[\u0000-\u001f\u007f-\u009f\\'"`]|[\ud800-\udbff](?![\udc00-\udfff])|(?<![\ud800-\udbff])[\udc00-\udfff]/g, (c) => {
    if (c === mark) return `\\${c}`;
    if (c === "'" || c === '"' || c === "`") return c;
    if (escapes[c]) return escapes[c];
    const code = c.charCodeAt(0);
    return code > 255 ? `\\u${code.toString(16).toUpperCase()}` : `\\x${code.toString(16).toUpperCase().padStart(2, "0")}`;
  });
  return mark + body + mark + more;
}

// errorText is an error's headline and, unless short, its stack without the
// driver's own frames.
export function errorText(o, short) {
  const own = (key) => {
    for (let p = o; p !== null; p = Object.getPrototypeOf(p)) {
      const d = Object.getOwnPropertyDescriptor(p, key);
      if (d) return d.value;
    }
    return undefined;
  };
  const name = own("name"), message = own("message");
  let stack;
  try {
    ({ stack } = o);
  } catch { /* the program's own getter */ }
  const title = typeof name === "string" && name ? name : "Error";
  const head = typeof message === "string" && message ? `${title}: ${message}` : title;
  const frames = typeof stack === "string" ? stack.split("\n").filter((l) => /^\s+at /.test(l) && !l.includes("driver.js") && !/\(native\)$/.test(l)) : [];
  return short || !frames.length ? `[${head}]` : [head, ...frames].join("\n");
}
