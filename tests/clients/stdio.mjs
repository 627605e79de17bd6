// The official TypeScript SDK as a client of the built binary, over stdio:
// the documented examples of the systems that paddock unites.
//
//   node stdio.mjs PADDOCK STATE_DIR CLIENTS_DIR
import { createRequire } from "node:module";
import { join } from "node:path";
import { pathToFileURL } from "node:url";
import assert from "node:assert/strict";

const [binary, state, clients] = process.argv.slice(2);
const require = createRequire(join(clients, "package.json"));
const load = (name) => import(pathToFileURL(require.resolve(name)).href);
const { Client } = await load("@modelcontextprotocol/sdk/client/index.js");
const { StdioClientTransport } = await load("@modelcontextprotocol/sdk/client/stdio.js");

const client = new Client({ name: "paddock-tests", version: "1.0.0" });
await client.connect(new StdioClientTransport({
  command: binary, args: ["mcp"], stderr: "inherit", env: { ...process.env, PADDOCK_STATE_DIR: state },
}));

let count = 0;
async function check(name, run) {
  try {
    await run();
    count++;
  } catch (error) {
    console.error(`FAIL ${name}:`, error);
    process.exitCode = 1;
  }
}

async function execute(code, language = "python", more = {}) {
  const result = await client.callTool({ name: "execute_code", arguments: { code, language, ...more } });
  assert.ok(!result.isError, JSON.stringify(result));
  return result.structuredContent;
}

await check("the tools are listed with schemas and annotations", async () => {
  const { tools } = await client.listTools();
  const names = tools.map((tool) => tool.name);
  for (const name of ["execute_code", "list_runtimes", "create_session", "destroy_session", "cancel_execution",
    "get_workspace_info", "reset_workspace", "read_file", "write_file", "edit_file", "list_files", "search_files"]) {
    assert.ok(names.includes(name), `${name} is missing in ${names}`);
  }
  assert.ok(!names.includes("install_package"));
  for (const tool of tools) {
    assert.ok(tool.title && tool.description && tool.annotations && tool.inputSchema && tool.outputSchema, tool.name);
  }
});

await check("variables are there in the next call", async () => {
  await execute("x = 42");
  assert.equal((await execute("print(x * 2)")).stdout, "84\n");
  await execute("data = [1, 2, 3]");
  assert.equal((await execute("print(sum(data))")).stdout, "6\n");
});

await check("JavaScript keeps const and let, and TypeScript is translated", async () => {
  await execute("const a = 20; let b = 1", "javascript");
  assert.equal((await execute("console.log(a + b + 21)", "javascript")).stdout, "42\n");
  assert.equal((await execute("const c: number = a * 2; console.log(c)", "typescript")).stdout, "40\n");
});

await check("files written in one call are read in the next, by either language", async () => {
  await execute("open('/app/data.txt', 'w').write('hello')");
  assert.equal((await execute("print(open('/workspace/data.txt').read())")).stdout, "hello\n");
  assert.equal((await execute("import fs from 'fs'; console.log(fs.readFileSync('data.txt', 'utf8'))", "javascript")).stdout, "hello\n");
  const read = await client.callTool({ name: "read_file", arguments: { path: "data.txt" } });
  assert.match(JSON.stringify(read), /hello/);
});

await check("an error is a result and loses nothing", async () => {
  const result = await execute("y = 7\nraise ValueError('no')");
  assert.equal(result.success, false);
  assert.equal(result.error.type, "ValueError");
  assert.equal(result.error.line, 2);
  assert.equal((await execute("x + y")).result, "49");
});

await check("a loop without end is stopped at its limit, and its state is kept", async () => {
  const result = await execute("while True: pass", "python", { timeout: 1 });
  assert.equal(result.stopped_by, "timeout");
  assert.equal((await execute("x")).result, "42");
});

await check("sessions share nothing", async () => {
  const made = await client.callTool({ name: "create_session", arguments: { language: "python" } });
  const session_id = made.structuredContent.session_id;
  const result = await execute("x", "python", { session_id });
  assert.equal(result.error.type, "NameError");
  const gone = await client.callTool({ name: "destroy_session", arguments: { session_id } });
  assert.equal(gone.structuredContent.destroyed, true);
});

await check("a picture comes back as a picture", async () => {
  const png = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg==";
  const result = await client.callTool({ name: "execute_code", arguments: { language: "python", code:
    `import base64\nclass P:\n  def _repr_png_(self): return base64.b64decode("${png}")\nP()` } });
  const image = result.content.find((block) => block.type === "image");
  assert.equal(image?.mimeType, "image/png");
  assert.equal(image.data, png);
});

await check("a cancelled request stops the program", async () => {
  const abort = new AbortController();
  const call = client.callTool({ name: "execute_code", arguments: { language: "python", code: "import time\nz = 1\ntime.sleep(60)" } },
    undefined, { signal: abort.signal });
  setTimeout(() => abort.abort(), 300);
  await assert.rejects(call);
  assert.equal((await execute("z")).result, "1");
});

await client.close();
console.log(`${count} passed, ${process.exitCode ? 1 : 0} failed`);
