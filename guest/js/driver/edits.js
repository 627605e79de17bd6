// What a program's declarations and imports become, so that it can be evaluated as
// a script in the global scope. An edit is a piece of the code, by its start and its
// end, and what stands in its place. The kernel in Linux boxes has this text as well,
// with a parser of its own: it may import nothing.

// parsed is the program's tree. It throws what the parser says of code that is none:
// of a module or of a script, whichever it gets further with.
export function parsed(parse, code) {
  const options = { ecmaVersion: "latest", allowAwaitOutsideFunction: true, allowHashBang: true };
  try {
    return parse(code, { ...options, sourceType: "module" });
  } catch (first) {
    try { // perhaps it is sloppy code, which no module can be
      return parse(code, { ...options, sourceType: "script" });
    } catch (second) {
      throw second.pos > first.pos ? second : first;
    }
  }
}

const moduleOnly = /\b(?:import|export|await)\b/;

// mistakeOf makes an error of what the parser said of code that it cannot read, with
// the stack that an engine gives one. It is undefined for code of which the engine can
// say it: only of what belongs into a module, the engine says that it is in no module.
export function mistakeOf(said, code, label) {
  if (!said?.loc || !moduleOnly.test(code)) return undefined;
  const mistake = new SyntaxError(String(said.message).replace(/ \(\d+:\d+\)$/, ""));
  mistake.stack = `SyntaxError: ${mistake.message}\n    at ${label}:${said.loc.line}:${said.loc.column + 1}`;
  return mistake;
}

// hintOfReturn says what to do about a return outside of functions, in any engine's words.
export function hintOfReturn(message) {
  return /return not in a function|Illegal return|'return' outside of function/.test(message) ? "a program's result is the value of its last line: write the expression alone, without return" : "";
}

// edited is the code with the edits made, which are in their order. Lines stay where
// they are.
export function edited(code, edits) {
  let text = "", at = 0;
  for (const [start, end, replacement] of edits) {
    const old = code.slice(start, end);
    text += code.slice(at, start) + replacement + "\n".repeat(Math.max(0, old.split("\n").length - replacement.split("\n").length));
    at = end;
  }
  return text + code.slice(at);
}

// edit adds what a statement of the program's outermost level needs.
export function edit(node, code, edits) {
  switch (node.type) {
    case "VariableDeclaration": // a const of one cell may be declared anew in the next
      if (node.kind === "const" || node.kind === "let") {
        edits.push([node.start, node.start + node.kind.length, "var".padEnd(node.kind.length)]);
        for (const d of node.declarations) if (!d.init) edits.push([d.end, d.end, " = undefined"]);
      }
      return;
    case "ClassDeclaration":
      edits.push([node.start, node.start, `var ${node.id.name} = `], [node.end, node.end, ";"]);
      return;
    case "ImportDeclaration":
      edits.push([node.start, node.end, importOf(node)]);
      return;
    case "ExportNamedDeclaration":
      if (!node.declaration) {
        edits.push([node.start, node.end, ";"]);
        return;
      }
      edits.push([node.start, node.declaration.start, ""]);
      edit(node.declaration, code, edits);
      return;
    case "ExportDefaultDeclaration":
      if (/^(?:Function|Class)Declaration$/.test(node.declaration.type) && node.declaration.id) {
        edits.push([node.start, node.declaration.start, ""]);
        edit(node.declaration, code, edits);
      } else {
        edits.push([node.start, node.declaration.start, "("], [node.declaration.end, node.declaration.end, ")"]);
      }
      return;
    case "ExportAllDeclaration":
      edits.push([node.start, node.end, `await import(${node.source.raw});`]);
  }
}

// importOf is a static import as a dynamic one.
function importOf(node) {
  const names = [], wanted = [];
  let whole;
  for (const s of node.specifiers) {
    if (s.type === "ImportNamespaceSpecifier") whole = s.local.name;
    else {
      const name = s.type === "ImportDefaultSpecifier" ? "default" : s.imported.name ?? s.imported.value;
      wanted.push(name);
      names.push(`${JSON.stringify(name)}: ${s.local.name}`);
    }
  }
  // A static import of what a module does not export is an error; taking it apart is not.
  const from = `${wanted.length ? checked(wanted, node.source.raw) : ""}await import(${node.source.raw})${wanted.length ? ")" : ""}`;
  if (whole) return `var ${whole} = ${from}${names.length ? `, {${names.join(", ")}} = ${whole}` : ""};`;
  return names.length ? `var {${names.join(", ")}} = ${from};` : `${from};`;
}

const checked = (names, module) => `((m) => { for (const n of ${JSON.stringify(names)}) if (!(n in m)) throw new SyntaxError("The requested module '" + ${module} + "' does not provide an export named '" + n + "'" + (n === "default" ? "; import * as name from it" : "default" in m && m.default != null && n in Object(m.default) ? "; import its default, which has it" : "")); return m; })(`;
