// What a program needs before it is evaluated as a script in the global scope.
// Stands before driver.js in one text. Positions stay as they are, line by line.
const makeRewrite = (acorn) => {
"use strict";
const { isArray } = Array;
const interesting = /\b(?:const|let|class|import|export|await|for)\b/;

// rewrite gives the code to evaluate as a script in the global scope: what it
// declares is there in the next one, and may be declared again; imports work. A
// program that waits becomes a function, whose declarations go outside.
function rewrite(code) {
  if (!interesting.test(code)) return { code };
  let tree;
  const options = { ecmaVersion: "latest", allowAwaitOutsideFunction: true, allowHashBang: true };
  try {
    tree = acorn.parse(code, { ...options, sourceType: "module" });
  } catch {
    try { // perhaps it is sloppy code, which no module can be
      tree = acorn.parse(code, { ...options, sourceType: "script" });
    } catch {
      return { code }; // it is for the engine to say what is wrong
    }
  }
  const edits = [];
  for (const node of tree.body) edit(node, code, edits);
  const waits = tree.body.some(hasAwait);
  if (!waits) return { code: edited(code, edits) };
  const names = [];
  for (const node of tree.body) hoist(node, code, edits, names);
  const last = tree.body.at(-1);
  if (last?.type === "ExpressionStatement") {
    edits.push([last.start, last.start, "return { value: ("], [last.expression.end, last.end, ") }; "]);
  }
  const bound = tree.body.flatMap((node) => node.type === "ImportDeclaration" ? node.specifiers.map((s) => s.local.name) : []);
  const before = `${names.length ? `var ${[...new Set(names)].join(", ")}; ` : ""}(async () => { `;
  return { code: `${before}${edited(code, edits)}\n})()`, waits: true, before: before.length, bound };
}

function edited(code, edits) {
  edits.sort((a, b) => a[0] - b[0] || a[1] - b[1]);
  let text = "", at = 0;
  for (const [start, end, replacement] of edits) {
    const old = code.slice(start, end);
    text += code.slice(at, start) + replacement + "\n".repeat(Math.max(0, old.split("\n").length - replacement.split("\n").length));
    at = end;
  }
  return text + code.slice(at);
}

function edit(node, code, edits) {
  switch (node.type) {
    case "VariableDeclaration":
      if (node.kind === "const" || node.kind === "let") {
        edits.push([node.start, node.start + node.kind.length, "var".padEnd(node.kind.length)]);
        for (const d of node.declarations) if (!d.init) edits.push([d.end, d.end, " = undefined"]);
      }
      return;
    case "ClassDeclaration":
      edits.push([node.start, node.start, `var ${node.id.name} = `], [node.end, node.end, ";"]);
      return;
    case "ImportDeclaration":
      edits.push([node.start, node.end, imported(node)]);
      return;
    case "ExportNamedDeclaration":
      if (!node.declaration) edits.push([node.start, node.end, ";"]);
      else {
        edits.push([node.start, node.declaration.start, ""]);
        edit(node.declaration, code, edits);
      }
      return;
    case "ExportDefaultDeclaration":
      if (/^(?:Function|Class)Declaration$/.test(node.declaration.type) && node.declaration.id) {
        edits.push([node.start, node.declaration.start, ""]);
        edit(node.declaration, code, edits);
      } else edits.push([node.start, node.declaration.start, "("], [node.declaration.end, node.declaration.end, ")"]);
      return;
    case "ExportAllDeclaration":
      edits.push([node.start, node.end, `await import(${node.source.raw});`]);
  }
}

// imported is a static import as a dynamic one.
function imported(node) {
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

// hasAwait tells whether code waits where it stands, outside of any function.
function hasAwait(node) {
  if (typeof node !== "object" || node === null) return false;
  if (isArray(node)) return node.some(hasAwait);
  if (/Function|^(?:MethodDefinition|PropertyDefinition|StaticBlock)$/.test(node.type ?? "") && node.type !== "ExportDefaultDeclaration") return false;
  if (node.type === "AwaitExpression" || node.type === "ImportDeclaration" || node.type === "ExportAllDeclaration" || node.type === "ForOfStatement" && node.await) return true;
  for (const key in node) if (key !== "type" && typeof node[key] === "object" && hasAwait(node[key])) return true;
  return false;
}

// hoist makes assignments of what a program that waits declares, so that the
// names can stand outside of the function that it becomes.
function hoist(node, code, edits, names) {
  switch (node.type) {
    case "ImportDeclaration": {
      const at = edits.find((e) => e[0] === node.start && e[1] === node.end);
      for (const s of node.specifiers) names.push(s.local.name);
      at[2] = at[2].replace(/^var (.*);$/s, (_, rest) => ` (${rest}); `.replace(/, \{(.*)\} = (\w+)\)/s, ", {$1} = $2)"));
      return;
    }
    case "ExportNamedDeclaration":
    case "ExportDefaultDeclaration":
      if (node.declaration) hoist(node.declaration, code, edits, names);
      return;
    case "ClassDeclaration": {
      const at = edits.find((e) => e[0] === node.start && e[2].startsWith("var "));
      if (at) at[2] = `${node.id.name} = `;
      names.push(node.id.name);
      return;
    }
    case "FunctionDeclaration":
      names.push(node.id.name);
      edits.push([node.start, node.start, `${node.id.name} = `], [node.end, node.end, ";"]);
      return;
    case "VariableDeclaration":
      variables(node, edits, names, ");");
      return;
    default:
      vars(node, edits, names);
  }
}

// variables turns a declaration into an expression that assigns.
function variables(node, edits, names, end) {
  const at = edits.find((e) => e[0] === node.start && e[2].startsWith("var"));
  if (at) at[2] = "(".padStart(node.kind.length);
  else edits.push([node.start, node.start + 3, "  ("]);
  for (const d of node.declarations) {
    bound(d.id, names);
    if (!d.init && node.kind === "var") edits.push([d.start, d.end, "0"]);
  }
  edits.push([node.declarations.at(-1).end, node.end, end]);
}

// vars finds the declarations with var in the blocks of a program.
function vars(node, edits, names) {
  if (typeof node !== "object" || node === null) return;
  if (isArray(node)) {
    for (const n of node) vars(n, edits, names);
    return;
  }
  if (/Function|Class/.test(node.type ?? "")) return;
  if (/^For(?:In|Of)Statement$/.test(node.type) && node.left.type === "VariableDeclaration" && node.left.kind === "var") {
    bound(node.left.declarations[0].id, names);
    edits.push([node.left.start, node.left.start + 3, "   "]);
    vars(node.body, edits, names);
    return;
  }
  if (node.type === "VariableDeclaration") {
    if (node.kind === "var") variables(node, edits, names, ");");
    return;
  }
  if (node.type === "ForStatement" && node.init?.type === "VariableDeclaration" && node.init.kind === "var") {
    variables(node.init, edits, names, ")");
    vars(node.body, edits, names);
    return;
  }
  for (const key in node) if (key !== "type" && typeof node[key] === "object") vars(node[key], edits, names);
}

// bound are the names that a pattern binds.
function bound(pattern, names) {
  switch (pattern?.type) {
    case "Identifier": names.push(pattern.name); return;
    case "ObjectPattern": for (const p of pattern.properties) bound(p.value ?? p.argument, names); return;
    case "ArrayPattern": for (const p of pattern.elements) bound(p, names); return;
    case "AssignmentPattern": bound(pattern.left, names); return;
    case "RestElement": bound(pattern.argument, names);
  }
}

return rewrite;
};
