// console: log, info and debug on standard output, the rest on standard error.
import { format, inspect } from "./inspect.js";

export function makeConsole(host) {
  let indent = "";
  const counts = new Map(), begun = new Map();
  const write = (fd, text) => host.print(fd, (indent ? text.split("\n").map((l) => indent + l).join("\n") : text) + "\n");
  const out = (...args) => write(1, format(...args));
  const err = (...args) => write(2, format(...args));
  const elapsed = (label) => {
    const ms = host.now() - (begun.get(label) ?? host.now());
    return ms < 1000 ? `${ms.toFixed(3)}ms` : `${(ms / 1000).toFixed(3)}s`;
  };
  const group = (...args) => { if (args.length) out(...args); indent += "  "; };
  return {
    log: out, info: out, debug: out, warn: err, error: err,
    trace: (...args) => err(["Trace", format(...args)].filter(Boolean).join(": ")),
    dir: (value, options) => write(1, inspect(value, options)),
    table: (rows, columns) => write(1, table(rows, columns)),
    assert: (ok, ...args) => { if (!ok) err(["Assertion failed", ...(args.length ? [format(...args)] : [])].join(": ")); },
    count: (label = "default") => { counts.set(label, (counts.get(label) ?? 0) + 1); out(`${label}: ${counts.get(label)}`); },
    countReset: (label = "default") => { counts.delete(label); },
    time: (label = "default") => { begun.set(label, host.now()); },
    timeLog: (label = "default", ...args) => out(`${label}: ${elapsed(label)}`, ...args),
    timeEnd: (label = "default") => { out(`${label}: ${elapsed(label)}`); begun.delete(label); },
    group, groupCollapsed: group,
    groupEnd: () => { indent = indent.slice(2); },
  };
}

function table(rows, columns) {
  if (typeof rows !== "object" || rows === null) return inspect(rows);
  const entries = rows instanceof Map ? [...rows] : Array.isArray(rows) ? rows.map((r, i) => [i, r]) : Object.entries(rows);
  const names = new Set(columns ?? []);
  let values = false;
  for (const [, row] of entries) {
    if (typeof row === "object" && row !== null) { if (!columns) for (const k of Object.keys(row)) names.add(k); } else values = true;
  }
  const head = ["(index)", ...names, ...(values ? ["Values"] : [])];
  const cell = (v) => v === undefined ? "" : inspect(v, { depth: 0, compact: true });
  const lines = entries.map(([key, row]) => [String(key), ...[...names].map((n) => typeof row === "object" && row !== null && n in row ? cell(row[n]) : ""),
    ...(values ? [typeof row === "object" && row !== null ? "" : cell(row)] : [])]);
  const widths = head.map((h, i) => Math.max(h.length, ...lines.map((l) => l[i].length)) + 2);
  const bar = (l, m, r) => l + widths.map((w) => "─".repeat(w)).join(m) + r;
  const line = (cells) => "│" + cells.map((c, i) => ` ${c.padEnd(widths[i] - 1)}`).join("│") + "│";
  return [bar("┌", "┬", "┐"), line(head), bar("├", "┼", "┤"), ...lines.map(line), bar("└", "┴", "┘")].join("\n");
}
