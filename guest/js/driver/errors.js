// What is said about an error that a program did not catch.
import { hintOfReturn } from "./edits.js";
import { constructorName, inspect } from "./inspect.js";
import { original } from "./positions.js";

const { getOwnPropertyDescriptor, getPrototypeOf } = Reflect;

const MESSAGE_LIMIT = 4096;
const TRACE_LIMIT = 16384;

const NOT_HERE = {
  XMLHttpRequest: "fetch is what reaches the network here", WebSocket: "only HTTP leaves this sandbox; fetch reads an answer as it is streamed",
  Intl: "there is no Intl here; toLocaleString formats numbers and dates in English, and Node in a Linux sandbox has all locales",
  Worker: "there are no threads in this sandbox; promises work", document: "there is no browser here", window: "there is no browser here; use globalThis",
};

const cut = (text, limit) => text.length <= limit ? text : `${text.slice(0, limit)}… (${text.length - limit} more characters)`;

const isError = (value) => typeof value === "object" && value !== null && value instanceof Error;

function nameOf(error) {
  try {
    return isError(error) ? String(error.name || "Error") : "Error";
  } catch {
    return "Error";
  }
}

function messageOf(error) {
  try {
    return cut(isError(error) ? String(error.message) : `uncaught ${inspect(error)}`, MESSAGE_LIMIT);
  } catch {
    return "(its text cannot be shown)";
  }
}

// frames are the lines of a stack that lie in the program.
function frames(error) {
  let stack = "";
  try {
    stack = isError(error) ? String(error.stack ?? "") : "";
  } catch {
    return [];
  }
  const lines = stack.split("\n")
    .filter((line) => /^\s+at /.test(line) && !line.includes("driver.js") && !line.includes("(native)"))
    .map((line) => original(line.replace(/\?\d+(?=:\d)/, "")));
  // A class of errors is in the stack of each that it makes; where it was
  // thrown counts.
  const maker = `at ${constructorName(error)} (`;
  while (lines.length > 1 && lines[0].trim().startsWith(maker)) lines.shift();
  return lines;
}

function lineOf(error, label) {
  for (const line of frames(error)) {
    const at = line.indexOf(label + ":");
    if (at >= 0) return parseInt(line.slice(at + label.length + 1), 10) || 0;
  }
  return 0;
}

export function textOf(error, label) {
  const first = isError(error) ? `${nameOf(error)}: ${messageOf(error)}` : messageOf(error);
  let text = [first, ...frames(error)].join("\n") + "\n";
  try {
    if (isError(error) && error.cause !== undefined) text += `caused by ${textOf(error.cause, label)}`;
  } catch { /* the program's own getter */ }
  return cut(text, TRACE_LIMIT);
}

// plainly is describe for a program that changed the language so far that
// describe fails: it uses nothing that can be changed.
export function plainly(error) {
  const field = (name) => {
    for (let o = error; typeof o === "object" && o !== null; o = getPrototypeOf(o)) {
      const d = getOwnPropertyDescriptor(o, name);
      if (d) return typeof d.value === "string" ? d.value : undefined;
    }
    return undefined;
  };
  const type = field("name") ?? "Error", message = field("message") ?? "";
  return { type, message, line: 0, traceback: `${type}: ${message}\n` };
}

export function describe(error, label, provided) {
  const found = { type: nameOf(error), message: messageOf(error), line: lineOf(error, label) };
  if (found.type === "Interrupted") found.kind = "interrupted";
  if (found.type === "InternalError" && found.message === "out of memory") {
    found.kind = "memory";
    found.hint = "the interpreter's memory is limited; free what is not needed, or work in pieces";
  }
  if (error?.code === "ENOSPC") {
    found.kind = "space";
    found.hint = "the disk limit is reached; remove files that are not needed";
  }
  if (found.type === "SyntaxError") found.hint = hintOfReturn(found.message) || undefined;
  if (found.type === "RangeError" && /has no Intl/.test(found.message)) found.hint = "format it by hand, or run the program in a Linux sandbox, whose Node has all locales";
  const undefinedName = /^(?:'?)(\w+)'? is not defined$/.exec(found.message)?.[1];
  if (undefinedName && NOT_HERE[undefinedName]) found.hint = NOT_HERE[undefinedName];
  const missing = /could not load module '([^']*)'/.exec(found.message)?.[1];
  if (missing?.startsWith("TypeScript in ")) { // it is what the host says of a file
    found.type = "SyntaxError";
    found.message = missing;
  } else if (missing !== undefined) found.hint = provided(missing.replace("/workspace/", "")) ?? `there is no module ${missing} here; fs, path, url, util, events, buffer, assert, os, timers/promises and files of the workspace can be imported`;
  if (error?.code === "ENOENT" && typeof error.path === "string" && error.path[0] === "/" && !/^\/(workspace|app|tmp)\b/.test(error.path)) {
    found.hint = "a program's files lie in /workspace";
  }
  return found;
}
