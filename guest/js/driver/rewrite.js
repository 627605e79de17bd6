// What a cell's code needs before it is evaluated as a global script: its
// declarations must be there in the next cell, may be made again there, and
// imports must work. Positions stay as they are, line by line.
import { parse } from "acorn";

const interesting = /\b(?:const|let|class|import|export)\b/;

// rewrite gives the code to evaluate. Code that cannot be parsed stays as it is: the
// engine then says what is wrong.
export function rewrite(code) {
  try {
    return interesting.test(code) ? rewritten(code) : code;
  } catch { // it is for the engine to say what is wrong
    return code;
  }
}

function rewritten(code) {
  let tree;
  try {
    tree = parse(code, { ecmaVersion: "latest", sourceType: "module", allowAwaitOutsideFunction: true, allowHashBang: true });
  } catch { // perhaps it is sloppy code, which no module can be
    tree = parse(code, { ecmaVersion: "latest", sourceType: "script", allowAwaitOutsideFunction: true, allowHashBang: true });
  }
  const edits = [];
  for (const node of tree.body) edit(node, code, edits);
  let text = "", at = 0;
  for (const [start, end, replacement] of edits) {
    text += code.slice(at, start) + replacement + lines(code.slice(start, end), replacement);
    at = end;
  }
  return text + code.slice(at);
}

// lines gives back the line breaks that a replacement lost.
function lines(old, replacement) {
  return "\n".repeat(Math.max(0, old.split("\n").length - replacement.split("\n").length));
}

function edit(node, code, edits) {
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
  const from = `await import(${node.source.raw})`;
  const names = [];
  let whole;
  for (const s of node.specifiers) {
    if (s.type === "ImportNamespaceSpecifier") whole = s.local.name;
    else if (s.type === "ImportDefaultSpecifier") names.push(`default: ${s.local.name}`);
    else names.push(`${s.imported.name ?? s.imported.raw}: ${s.local.name}`);
  }
  if (whole) return `var ${whole} = ${from}${names.length ? `, {${names.join(", ")}} = ${whole}` : ""};`;
  return names.length ? `var {${names.join(", ")}} = ${from};` : `${from};`;
}
