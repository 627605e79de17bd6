// What a program needs before it is evaluated as a script in the global scope.
// Stands between the WebAssembly guest's edits.js and driver.js in one text.
// Positions stay as they are, line by line.
const makeRewrite = (acorn) => {
"use strict";
const { isArray } = Array;
const interesting = /\b(?:const|let|class|import|export|await|for)\b/;

// rewrite gives the code to evaluate as a script in the global scope: what it
// declares is there in the next one, and may be declared again; imports work. A
// program that waits becomes a function, whose declarations go outside. Code that
// cannot be parsed stays as it is: the engine then says what is wrong, or the mistake
// does where the engine cannot know it.
function rewrite(code, label) {
  if (!interesting.test(code)) return { code };
  let tree;
  try {
    tree = parsed(acorn.parse, code);
  } catch (said) {
    return { code, mistake: mistakeOf(said, code, label) };
  }
  const edits = [];
  for (const node of tree.body) edit(node, code, edits);
  if (!tree.body.some(hasAwait)) return { code: edited(code, edits) };
  const names = [];
  for (const node of tree.body) hoist(node, code, edits, names);
  const last = tree.body.at(-1);
  if (last?.type === "ExpressionStatement") {
    edits.push([last.start, last.start, "return { value: ("], [last.expression.end, last.end, ") }; "]);
  }
  const bound = tree.body.flatMap((node) => node.type === "ImportDeclaration" ? node.specifiers.map((s) => s.local.name) : []);
  edits.sort((a, b) => a[0] - b[0] || a[1] - b[1]); // the names' edits came later
  const before = `${names.length ? `var ${[...new Set(names)].join(", ")}; ` : ""}(async () => { `;
  return { code: `${before}${edited(code, edits)}\n})()`, waits: true, before: before.length, bound };
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
