// Values as text, in the form that Node's console has made usual.
import { classOf, constructorName, errorText, quote, typedTag } from "./values.js";
export { constructorName } from "./values.js";

const MAX_ITEMS = 100;
const WIDTH = 76; // of what stands on one line
const NESTED = 3; // how many levels may stand on one line
const GROUPED = 6; // arrays with more items than this are put into columns

const PREVIEW = 120; // characters
const BRIEFLY = { depth: 1, compact: true, limit: PREVIEW };
const MANY = 10000; // items of an array whose other properties are looked at

const identifier = /^[A-Za-z_$][\w$]*$/;
const { propertyIsEnumerable } = Object.prototype;

// inspect gives a value's text. It calls no getter of the program's, but what
// the program offers for the purpose (inspect.custom).
export function inspect(value, options = {}) {
  if (typeof options === "boolean") options = { showHidden: options };
  try {
    return new Inspector(options ?? {}).show(value, 0);
  } catch (error) {
    if (error?.name === "InternalError" || error?.name === "RangeError") throw error; // memory, or the stack: the run's own matter
    return "<cannot be shown>";
  }
}

// preview is the beginning of a value's text, on one line, for as little work
// as that takes: however large the value is, hardly more is looked at.
export function preview(value) {
  const simple = value === null || typeof value !== "object" && typeof value !== "function";
  const text = simple ? brief.show(value, 0) : inspect(value, BRIEFLY);
  return text.length > PREVIEW ? text.slice(0, PREVIEW) : text;
}

inspect.custom = Symbol.for("nodejs.util.inspect.custom");
inspect.defaultOptions = {};

class Inspector {
  constructor({ depth = 2, compact = false, showHidden = false, breakLength = 80, sorted = false, maxArrayLength = MAX_ITEMS, limit = Infinity }) {
    Object.assign(this, { limit, depth: depth ?? Infinity, compact: compact === true, showHidden, width: breakLength - (80 - WIDTH), sorted, most: maxArrayLength ?? Infinity });
    this.seen = [];
    this.circular = new Map();
    this.indent = 0;
    this.inner = 0; // level of the object that was shown last
  }

  show(value, level) {
    switch (typeof value) {
      case "string": return this.text(value, level);
      case "bigint": return `${value}n`;
      case "symbol": return Symbol.prototype.toString.call(value);
      case "number": return Object.is(value, -0) ? "-0" : `${value}`;
      case "object": case "function": return value === null ? "null" : this.object(value, level);
      default: return `${value}`;
    }
  }

  // text breaks a long string in an object at its line breaks.
  text(value, level) {
    if (value.length > this.limit) value = value.slice(0, this.limit);
    if (level > 0 && !this.compact && value.length > 16 && value.length > this.width - this.indent - 4 && value.includes("\n")) {
      return value.split(/(?<=\n)/).map(quote).join(` +\n${" ".repeat(this.indent + 2)}`);
    }
    return quote(value);
  }

  object(o, level) {
    const custom = this.compact ? undefined : o[inspect.custom];
    if (typeof custom === "function" && custom !== inspect) {
      const shown = custom.call(o, this.depth - level, { depth: this.depth - level, stylize: String }, inspect);
      if (shown !== o) return typeof shown === "string" ? shown.replaceAll("\n", `\n${" ".repeat(this.indent)}`) : this.show(shown, level);
    }
    if (this.seen.includes(o)) {
      if (!this.circular.has(o)) this.circular.set(o, this.circular.size + 1);
      return `[Circular *${this.circular.get(o)}]`;
    }
    const form = this.form(o, level);
    const keys = this.keys(o, form);
    const empty = !keys.length && (!form.parts || (o.length ?? o.size) === 0);
    if (level > this.depth && !form.plain && !empty) {
      return Array.isArray(o) ? "[Array]" : `[${constructorName(o) || "Object: null prototype"}]`;
    }
    this.seen.push(o);
    if (!empty) this.inner = level;
    const parts = form.parts ? form.parts() : [];
    const enough = this.enough();
    for (let i = 0; i < keys.length && !enough(parts); i++) parts.push(this.property(o, keys[i], level));
    this.seen.pop();
    let { head } = form;
    const mark = this.circular.get(o);
    if (mark) head = head ? `<ref *${mark}> ${head}` : `<ref *${mark}>`;
    if (form.plain && !parts.length) return head;
    if (!parts.length) return `${head ? head + " " : ""}${form.open}${form.close}`;
    return this.wrap(head, form.open, parts, form.close, level, form.array);
  }

  // form is how a value is framed: what stands before the brackets, the
  // brackets, and what is in them beside its own properties.
  form(o, level) {
    const name = constructorName(o);
    const kind = classOf(o, this.limit < Infinity);
    const tag = typedTag(o, name);
    const titled = (title, size) => `${name === null ? `[${title}${size}: null prototype]` : `${name || title}${size}`}${tag}`;
    const next = (value) => this.within(() => this.show(value, level + 1));
    switch (kind) {
      case "Function": return { head: callable(o, name) + tag, plain: true, open: "{", close: "}" };
      case "Array": return { head: name === "Array" && !tag ? "" : titled("Array", `(${o.length})`), open: "[", close: "]", array: o.length, parts: () => this.items(o, level) };
      case "Error": return { head: this.error(o, level), plain: true, open: "{", close: "}", skip: ["stack", "message"] };
      case "Date": return { head: Number.isNaN(Date.prototype.getTime.call(o)) ? "Invalid Date" : Date.prototype.toISOString.call(o), plain: true, open: "{", close: "}" };
      case "RegExp": return { head: RegExp.prototype.toString.call(o), plain: true, open: "{", close: "}" };
      case "Map": return { head: titled("Map", `(${o.size})`), open: "{", close: "}", parts: () => this.some(Map.prototype.entries.call(o), o.size, ([k, v]) => `${next(k)} => ${next(v)}`) };
      case "Set": return { head: titled("Set", `(${o.size})`), open: "{", close: "}", parts: () => this.some(Set.prototype.values.call(o), o.size, next) };
      case "TypedArray": return { head: titled(name, `(${o.length})`), open: "[", close: "]", array: o.length, parts: () => this.items(o, level) };
      case "ArrayBuffer": return { head: titled("ArrayBuffer", ""), open: "{", close: "}", parts: () => [`[Uint8Contents]: <${bytes(o)}>`, `byteLength: ${o.byteLength}`] };
      case "DataView": return { head: titled("DataView", ""), open: "{", close: "}", parts: () => [`byteLength: ${o.byteLength}`, `byteOffset: ${o.byteOffset}`, `buffer: ${next(o.buffer)}`] };
      case "Promise": return { head: titled("Promise", ""), open: "{", close: "}", parts: () => [this.promise(o, next)] };
      case "WeakMap": case "WeakSet": return { head: titled(kind, ""), open: "{", close: "}", parts: () => ["<items unknown>"] };
      case "WeakRef": return { head: titled(kind, ""), open: "{", close: "}", parts: () => [next(o.deref())] };
      case "Boxed": return { head: `[${name}: ${this.show(o.valueOf(), level)}]`, plain: true, open: "{", close: "}", skip: typeof o.valueOf() === "string" ? Object.keys(String(o)) : [] };
      case "Iterator": return { head: `Object${tag}`, open: "{", close: "}" };
      case "Arguments": return { head: "[Arguments]", open: "[", close: "]", array: o.length, parts: () => this.items(o, level) };
    }
    return { head: name === "Object" && !tag ? "" : name === null ? `[Object: null prototype]${tag}` : `${name}${tag}`, open: "{", close: "}" };
  }

  // enough tells whether the last of the parts made them longer than the limit.
  enough() {
    let length = 0, seen = 0;
    return (parts) => {
      for (; seen < parts.length; seen++) length += parts[seen].length;
      return length > this.limit;
    };
  }

  within(show) {
    this.indent += 2;
    try {
      return show();
    } finally {
      this.indent -= 2;
    }
  }

  promise(o, next) {
    const [state, value] = inspect.promise(o);
    return state === 0 ? "<pending>" : state === 2 ? `<rejected> ${next(value)}` : next(value);
  }

  error(o, level) {
    let text = errorText(o, this.compact);
    const cause = Object.getOwnPropertyDescriptor(o, "cause");
    const errors = Object.getOwnPropertyDescriptor(o, "errors");
    const more = [];
    if (cause && !cause.enumerable) more.push(`[cause]: ${this.within(() => this.show(cause.value, level + 1))}`);
    if (errors && !errors.enumerable && level < this.depth) more.push(`[errors]: ${this.within(() => this.show(errors.value, level + 1))}`);
    if (this.indent) text = text.replaceAll("\n", `\n${" ".repeat(this.indent)}`);
    const pad = " ".repeat(this.indent);
    return more.length && !this.compact ? `${text} {\n${more.map((m) => `${pad}  ${m}`).join(",\n")}\n${pad}}` : text;
  }

  keys(o, form) {
    if (form.array > Math.min(MANY, this.limit)) return [];
    let keys = this.showHidden ? Object.getOwnPropertyNames(o) : Object.keys(o);
    if (keys.length > this.limit) keys.length = this.limit;
    if (form.array !== undefined) keys = keys.filter((k) => !/^(?:0|[1-9]\d*)$/.test(k));
    if (form.skip) keys = keys.filter((k) => !form.skip.includes(k));
    if (this.sorted) keys.sort();
    return [...keys, ...Object.getOwnPropertySymbols(o).filter((s) => this.showHidden || propertyIsEnumerable.call(o, s))];
  }

  property(o, key, level) {
    const d = Object.getOwnPropertyDescriptor(o, key) ?? { value: o[key], enumerable: true };
    let name = typeof key === "symbol" ? `[${Symbol.prototype.toString.call(key)}]` : key === "__proto__" ? "['__proto__']" : identifier.test(key) ? key : quote(key);
    if (!d.enumerable && typeof key !== "symbol") name = `[${key}]`;
    if (d.get || d.set) return `${name}: [${[d.get && "Getter", d.set && "Setter"].filter(Boolean).join("/")}]`;
    return `${name}: ${this.within(() => this.show(d.value, level + 1))}`;
  }

  items(list, level) {
    const out = [];
    let i = 0;
    const enough = this.enough();
    for (; i < list.length && out.length < this.most && !enough(out); i++) {
      if (i in list) {
        out.push(this.within(() => this.show(list[i], level + 1)));
        continue;
      }
      let holes = 1;
      while (i + 1 < list.length && !(i + 1 in list)) { i++; holes++; }
      out.push(`<${holes} empty item${holes > 1 ? "s" : ""}>`);
    }
    if (i < list.length) out.push(`... ${list.length - i} more item${list.length - i > 1 ? "s" : ""}`);
    return out;
  }

  some(iterator, size, show) {
    const out = [], enough = this.enough();
    for (const x of iterator) {
      if (out.length >= this.most || enough(out)) {
        out.push(`... ${size - out.length} more item${size - out.length > 1 ? "s" : ""}`);
        break;
      }
      out.push(show(x));
    }
    return out;
  }

  // wrap puts the parts on one line where they fit, and else each on its own.
  wrap(head, open, parts, close, level, array) {
    const start = head ? `${head} ${open}` : open;
    if (this.compact) return `${start} ${parts.join(", ")} ${close}`;
    let lines = parts;
    if (array !== undefined && parts.length > GROUPED) lines = columns(parts, array > this.most);
    if (lines === parts && this.inner - level < NESTED) {
      const length = parts.reduce((n, p) => n + p.length + 1, parts.length + this.indent + start.length + 6);
      if (length <= this.width && !parts.some((p) => p.includes("\n"))) return `${start} ${parts.join(", ")} ${close}`;
    }
    const pad = " ".repeat(this.indent);
    return `${start}\n${pad}  ${lines.join(`,\n${pad}  `)}\n${pad}${close}`;
  }
}

const brief = new Inspector(BRIEFLY);

// columns puts the short items of a long array below each other; the parts
// themselves when some of them are long.
function columns(parts, more) {
  const items = more ? parts.slice(0, -1) : parts;
  const lengths = items.map((p) => p.length + 2);
  const longest = Math.max(...lengths);
  const total = lengths.reduce((a, b) => a + b, 0);
  if (longest * 3 >= 80 || !(total / longest > 5 || longest <= 8)) return parts;
  // As wide as a block that looks square, letters being taller than wide.
  const width = Math.max(longest - 3 - Math.sqrt(longest - total / parts.length), 1);
  const count = Math.min(Math.round(Math.sqrt(2.5 * width * parts.length) / width), Math.floor(80 / longest), 12);
  if (count <= 1) return parts;
  const widths = [];
  for (let c = 0; c < count; c++) {
    let width = 0;
    for (let i = c; i < items.length; i += count) width = Math.max(width, lengths[i]);
    widths.push(width);
  }
  const numbers = items.every((p) => /^-?[\d.]+(?:e[+-]\d+)?n?$/.test(p));
  const rows = [];
  for (let i = 0; i < items.length; i += count) {
    const row = items.slice(i, i + count);
    rows.push(row.map((p, c) => {
      const last = c === row.length - 1;
      if (numbers) return p.padStart(widths[c] - 2);
      return last ? p : `${p}, `.padEnd(widths[c]);
    }).join(numbers ? ", " : ""));
  }
  return more ? [...rows, parts.at(-1)] : rows;
}

function callable(f, name) {
  const source = Function.prototype.toString.call(f);
  const own = Object.getOwnPropertyDescriptor(f, "name")?.value;
  const title = typeof own === "string" && own ? own : "";
  if (/^class\b/.test(source)) {
    const parent = Object.getPrototypeOf(f);
    const base = typeof parent === "function" && parent.name ? ` extends ${parent.name}` : parent === null ? " extends null" : "";
    return `[class ${title || "(anonymous)"}${base}]`;
  }
  const kind = /^(?:Async|Generator|AsyncGenerator)Function$/.test(name ?? "") ? name : "Function";
  return `[${kind}${title ? `: ${title}` : " (anonymous)"}]`;
}

function bytes(buffer) {
  const view = new Uint8Array(buffer).subarray(0, 50);
  const text = Array.from(view, (b) => b.toString(16).padStart(2, "0")).join(" ");
  return buffer.byteLength > 50 ? `${text} ... ${buffer.byteLength - 50} more byte${buffer.byteLength > 51 ? "s" : ""}` : text;
}

// format is console.log's: a format string if there is one, then the rest.
export function format(...args) {
  if (typeof args[0] !== "string") return args.map((a) => typeof a === "string" ? a : inspect(a)).join(" ");
  let next = 1;
  const out = args.length === 1 ? args[0] : args[0].replace(/%[sdifjoOc%]/g, (spec) => {
    if (spec === "%%") return "%";
    if (next >= args.length) return spec;
    return formatted(spec, args[next++]);
  });
  return [out, ...args.slice(next).map((a) => typeof a === "string" ? a : inspect(a))].join(" ");
}

function formatted(spec, value) {
  const object = typeof value === "object" && value !== null;
  switch (spec) {
    case "%s":
      if (typeof value === "bigint") return `${value}n`;
      if (object && !(value instanceof Error) && !ownText(value)) return inspect(value, { depth: 0 });
      return Object.is(value, -0) ? "-0" : String(value);
    case "%d": return typeof value === "bigint" ? `${value}n` : object || typeof value === "symbol" ? "NaN" : show(Number(value));
    case "%i": return typeof value === "bigint" ? `${value}n` : object || typeof value === "symbol" ? "NaN" : show(Number.parseInt(value, 10));
    case "%f": return typeof value === "symbol" ? "NaN" : show(Number.parseFloat(value));
    case "%j": try { return JSON.stringify(value); } catch { return "[Circular]"; }
    case "%c": return "";
    case "%o": return inspect(value, { showHidden: true, depth: 4 });
    default: return inspect(value);
  }
}

// ownText tells whether the program says how an object is to be told.
function ownText(o) {
  const { toString } = o;
  return typeof toString === "function" && !Function.prototype.toString.call(toString).includes("[native code]");
}

const show = (n) => Object.is(n, -0) ? "-0" : `${n}`;
