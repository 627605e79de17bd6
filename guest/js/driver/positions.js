// Positions in code that the host has translated, led back to the code that was
// written.
import { LEAST_UPPER_BOUND, TraceMap, originalPositionFor } from "@jridgewell/trace-mapping";

const MOST = 200; // maps that are kept: the newest

const maps = { __proto__: null }; // by the name of what was translated; text until it is needed
const names = [];
let next = 0;

// translated remembers the source map of the code called name.
export function translated(name, map) {
  if (!(name in maps)) {
    if (names[next] !== undefined) delete maps[names[next]];
    names[next] = name;
    next = (next + 1) % MOST;
  }
  maps[name] = map;
}

// untranslated forgets it: name is code as it was written.
export function untranslated(name) {
  delete maps[name];
}

const position = /(?<=\(|at )([^()]+):(\d+):(\d+)(?=\)?$)/;

// original leads the position at the end of a stack's line back.
export function original(line) {
  return line.replace(position, (text, name, row, column) => {
    if (!(name in maps)) return text;
    if (typeof maps[name] === "string") maps[name] = new TraceMap(maps[name]);
    const at = { line: Number(row), column: Number(column) - 1 };
    let found = originalPositionFor(maps[name], at);
    if (found.line === null) found = originalPositionFor(maps[name], { ...at, bias: LEAST_UPPER_BOUND });
    return found.line === null ? text : `${name}:${found.line}:${found.column + 1}`;
  });
}
