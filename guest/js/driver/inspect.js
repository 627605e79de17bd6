// Values as text, in the form that Node's console has made usual.
const MAX_ITEMS = 100;
const MAX_STRING = 10000;
const WIDTH = 72;

const identifier = /^[A-Za-z_$][\w$]*$/;

export function quote(text) {
  const cutText = text.length > MAX_STRING ? text.slice(0, MAX_STRING) : text;
  const more = text.length > MAX_STRING ? `... ${text.length - MAX_STRING} more characters` : "";
  const mark = !cutText.includes("'") ? "'" : !cutText.includes('"') ? '"' : !cutText.includes("`") ? "`" : "'";
  let out = mark;
  for (const c of cutText) {
    if (c === mark || c === "\\") out += "\\" + c;
    else if (c === "\n") out += "\\n";
    else if (c === "\r") out += "\\r";
    else if (c === "\t") out += "\\t";
    else if (c < " ") out += `\\x${c.charCodeAt(0).toString(16).padStart(2, "0")}`;
    else out += c;
  }
  return out + mark + more;
}

export function inspect(value, options = {}) {
  try {
    return new Inspector(options).show(value, 0);
  } catch (error) {
    if (error?.name === "InternalError") throw error; // memory, or the stack: the run's own matter
    return "<cannot be shown>";
  }
}

class Inspector {
  constructor({ depth = 2, compact = false } = {}) {
    this.depth = depth ?? Infinity;
    this.compact = compact;
    this.seen = [];
    this.circular = new Set();
  }

  show(value, level) {
    switch (typeof value) {
      case "string": return quote(value);
      case "bigint": return `${value}n`;
      case "symbol": return value.toString();
      case "number": return Object.is(value, -0) ? "-0" : String(value);
      case "function": return this.callable(value, level);
      case "object": return value === null ? "null" : this.object(value, level);
      default: return String(value);
    }
  }

  callable(f, level) {
    const source = Function.prototype.toString.call(f);
    const kind = source.startsWith("class") ? "class" : "Function";
    const name = typeof f.name === "string" && f.name ? f.name : "";
    const text = kind === "class" ? `[class ${name || "(anonymous)"}]` : `[Function${name ? ": " + name : " (anonymous)"}]`;
    const keys = Object.keys(f);
    return keys.length && level <= this.depth ? this.wrap(`${text} {`, keys.map((k) => this.property(f, k, level)), "}", level) : text;
  }

  object(o, level) {
    if (this.seen.includes(o)) {
      this.circular.add(o);
      return "[Circular *1]";
    }
    if (typeof o[inspect.custom] === "function" && !this.compact) {
      const shown = o[inspect.custom](this.depth - level, {}, inspect);
      return typeof shown === "string" ? shown : this.show(shown, level);
    }
    if (level > this.depth) return Array.isArray(o) ? "[Array]" : `[${constructorName(o) || "Object"}]`;
    this.seen.push(o);
    const text = this.body(o, level);
    this.seen.pop();
    return this.circular.has(o) ? `<ref *1> ${text}` : text;
  }

  body(o, level) {
    const name = constructorName(o);
    if (Array.isArray(o)) return this.wrap(name && name !== "Array" ? `${name}(${o.length}) [` : "[", this.items(o, level), "]", level);
    if (o instanceof Error) return this.error(o, level);
    if (o instanceof Date) return Number.isNaN(o.getTime()) ? "Invalid Date" : o.toISOString();
    if (o instanceof RegExp) return RegExp.prototype.toString.call(o);
    if (o instanceof Map) return this.wrap(`Map(${o.size}) {`, this.some(o, ([k, v]) => `${this.show(k, level + 1)} => ${this.show(v, level + 1)}`), "}", level);
    if (o instanceof Set) return this.wrap(`Set(${o.size}) {`, this.some(o, (v) => this.show(v, level + 1)), "}", level);
    if (ArrayBuffer.isView(o) && !(o instanceof DataView)) return this.wrap(`${name}(${o.length}) [`, this.items(o, level), "]", level);
    if (o instanceof ArrayBuffer) return `ArrayBuffer { byteLength: ${o.byteLength} }`;
    if (o instanceof Promise) return "Promise {}";
    if (o instanceof Number || o instanceof String || o instanceof Boolean) return `[${name}: ${this.show(o.valueOf(), level)}]`;
    const parts = this.keys(o).map((k) => this.property(o, k, level));
    const prefix = name === "Object" ? "" : name ? `${name} ` : "[Object: null prototype] ";
    return parts.length ? this.wrap(`${prefix}{`, parts, "}", level) : `${prefix}{}`;
  }

  error(o, level) {
    const stack = typeof o.stack === "string" ? o.stack.split("\n").filter((l) => /^\s+at /.test(l) && !l.includes("driver.js") && !l.includes("(native)")) : [];
    const head = `${o.name}: ${o.message}`;
    const keys = Object.keys(o).filter((k) => k !== "stack" && k !== "message");
    let text = this.compact || level > 0 ? `[${head}]` : [head, ...stack].join("\n");
    if (keys.length) text += ` ${this.wrap("{", keys.map((k) => this.property(o, k, level)), "}", level)}`;
    if (o.cause !== undefined && level === 0) text += `\n  [cause]: ${this.show(o.cause, level + 1)}`;
    return text;
  }

  keys(o) {
    return [...Object.keys(o), ...Object.getOwnPropertySymbols(o).filter((s) => Object.prototype.propertyIsEnumerable.call(o, s))];
  }

  property(o, key, level) {
    const d = Object.getOwnPropertyDescriptor(o, key);
    const name = typeof key === "symbol" ? `[${key.toString()}]` : identifier.test(key) ? key : quote(key);
    if (d && (d.get || d.set)) return `${name}: [${[d.get && "Getter", d.set && "Setter"].filter(Boolean).join("/")}]`;
    return `${name}: ${this.show(d ? d.value : o[key], level + 1)}`;
  }

  items(list, level) {
    const out = [];
    let holes = 0;
    const flush = () => { if (holes) { out.push(`<${holes} empty item${holes > 1 ? "s" : ""}>`); holes = 0; } };
    for (let i = 0; i < list.length && out.length < MAX_ITEMS; i++) {
      if (i in list) { flush(); out.push(this.show(list[i], level + 1)); } else holes++;
    }
    flush();
    if (list.length > MAX_ITEMS) out.push(`... ${list.length - MAX_ITEMS} more item${list.length - MAX_ITEMS > 1 ? "s" : ""}`);
    if (Array.isArray(list)) for (const k of Object.keys(list)) if (!/^\d+$/.test(k)) out.push(this.property(list, k, level));
    return out;
  }

  some(collection, show) {
    const out = [];
    for (const x of collection) {
      if (out.length === MAX_ITEMS) {
        out.push(`... ${collection.size - MAX_ITEMS} more items`);
        break;
      }
      out.push(show(x));
    }
    return out;
  }

  wrap(open, parts, close, level) {
    if (!parts.length) return open + close;
    const length = parts.reduce((n, p) => n + p.length + 2, open.length);
    if (this.compact || length <= WIDTH && !parts.some((p) => p.includes("\n"))) return `${open} ${parts.join(", ")} ${close}`;
    const indent = "  ".repeat(level + 1);
    if (open.endsWith("[") && parts.length > 6 && parts.every((p) => p.length <= 6)) return this.grid(open, parts, close, level);
    return `${open}\n${parts.map((p) => indent + p).join(",\n")}\n${"  ".repeat(level)}${close}`;
  }

  // grid puts many short items into columns.
  grid(open, parts, close, level) {
    const width = Math.max(...parts.map((p) => p.length)) + 2;
    const columns = Math.min(Math.max(1, Math.floor(WIDTH / width)), 16);
    const rows = [];
    for (let i = 0; i < parts.length; i += columns) {
      rows.push("  ".repeat(level + 1) + parts.slice(i, i + columns).map((p, k) => (i + k < parts.length - 1 ? p + "," : p).padStart(width - 1)).join(" ").trimEnd());
    }
    return `${open}\n${rows.join("\n")}\n${"  ".repeat(level)}${close}`;
  }
}

inspect.custom = Symbol.for("nodejs.util.inspect.custom");

function constructorName(o) {
  for (let p = o; p; p = Object.getPrototypeOf(p)) {
    const d = Object.getOwnPropertyDescriptor(p, "constructor");
    if (d && typeof d.value === "function" && d.value.name) return d.value.name;
  }
  return "";
}

// format is console.log's: a format string if there is one, then the rest.
export function format(...args) {
  let out = "", next = 0;
  if (typeof args[0] === "string") {
    next = 1;
    out = args[0].replace(/%[sdifjoOc%]/g, (spec) => {
      if (spec === "%%") return "%";
      if (next >= args.length) return spec;
      const value = args[next++];
      switch (spec) {
        case "%s": return typeof value === "string" ? value : typeof value === "object" && value !== null ? inspect(value, { depth: 0 }) : String(value);
        case "%d": return typeof value === "bigint" ? `${value}n` : String(Number(value));
        case "%i": return String(Number.parseInt(value, 10));
        case "%f": return String(Number.parseFloat(value));
        case "%j": try { return JSON.stringify(value); } catch { return "[Circular]"; }
        case "%c": return "";
        default: return inspect(value, { depth: 4 });
      }
    });
  }
  const rest = args.slice(next).map((a) => typeof a === "string" ? a : inspect(a));
  return (next ? [out, ...rest] : rest).join(" ");
}
