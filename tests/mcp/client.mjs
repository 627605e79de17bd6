// One of the official TypeScript SDKs as a client of the built binary: what a
// client does, and the documented examples of the systems that paddock unites.
//
//   node client.mjs v1|v2 legacy|modern PACKAGES stdio PADDOCK
//   node client.mjs v1|v2 legacy|modern PACKAGES http URL TOKEN
import { createRequire } from "node:module";
import { join } from "node:path";
import { pathToFileURL } from "node:url";
import assert from "node:assert/strict";

const [version, era, packages, transport, target, token] = process.argv.slice(2);
const resolve = createRequire(join(packages, "package.json")).resolve;
const load = (name) => import(pathToFileURL(resolve(name)).href);

const sdks = {
  async v1() {
    const { Client } = await load("@modelcontextprotocol/sdk/client/index.js");
    return {
      ...(await load("@modelcontextprotocol/sdk/client/stdio.js")),
      ...(await load("@modelcontextprotocol/sdk/client/streamableHttp.js")),
      make: (info) => new Client(info),
      call: (params, options) => client.callTool(params, undefined, options),
    };
  },
  async v2() {
    const all = { ...(await load("@modelcontextprotocol/client")), ...(await load("@modelcontextprotocol/client/stdio")) };
    const mode = era === "modern" ? { pin: "2026-07-28" } : "legacy";
    return {
      ...all,
      make: (info) => new all.Client(info, { versionNegotiation: { mode } }),
      call: (params, options) => client.callTool(params, options),
    };
  },
};
const sdk = await sdks[version]();
const client = sdk.make({ name: "paddock-tests", version: "1.0.0" });
await client.connect(transport === "stdio"
  ? new sdk.StdioClientTransport({ command: target, args: ["mcp"], stderr: "inherit", env: process.env })
  : new sdk.StreamableHTTPClientTransport(new URL(target), { requestInit: { headers: { Authorization: `Bearer ${token}` } } }));

// A modern client over HTTP has no session but the ones that it names.
const named = transport === "http" && era === "modern";
let session;

async function call(name, args, options) {
  const result = await sdk.call({ name, arguments: named && session ? { session_id: session, ...args } : args }, options);
  assert.ok(!result.isError, JSON.stringify(result));
  return result;
}

async function execute(code, language = "python", more = {}, options) {
  const { structuredContent } = await call("execute_code", { code, language, ...more }, options);
  session ??= structuredContent.session_id;
  return structuredContent;
}

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

await check("the tools are listed with schemas and annotations", async () => {
  const { tools } = await client.listTools();
  const names = tools.map((tool) => tool.name);
  for (const name of ["execute_code", "list_runtimes", "create_session", "destroy_session", "cancel_execution",
    "get_workspace_info", "reset_workspace", "read_file", "write_file", "edit_file", "list_files", "search_files", "install_package"]) {
    assert.ok(names.includes(name), `${name} is missing in ${names}`);
  }
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
  assert.match(JSON.stringify(await call("read_file", { path: "data.txt" })), /hello/);
});

await check("a file of the workspace is a resource", async () => {
  const uri = `paddock://sessions/${session}/files/data.txt`;
  const { contents } = await client.readResource({ uri });
  assert.equal(contents[0].text, "hello");
  if (!named) {
    const { resources } = await client.listResources();
    assert.ok(resources.some((resource) => resource.uri === uri), JSON.stringify(resources));
  }
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
  const made = await call("create_session", { language: "python", session_id: undefined });
  const session_id = made.structuredContent.session_id;
  assert.equal((await execute("x", "python", { session_id })).error.type, "NameError");
  assert.equal((await call("destroy_session", { session_id })).structuredContent.destroyed, true);
});

await check("a picture comes back as a picture", async () => {
  const png = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg==";
  const result = await call("execute_code", { language: "python", code:
    `import base64\nclass P:\n  def _repr_png_(self): return base64.b64decode("${png}")\nP()` });
  const image = result.content.find((block) => block.type === "image");
  assert.equal(image?.mimeType, "image/png");
  assert.equal(image.data, png);
});

// The next run of a session cannot begin before the last one has ended.
await check("a run tells of itself, and is stopped when its request is cancelled", async () => {
  const abort = new AbortController();
  let told = "";
  const onprogress = ({ message }) => {
    told += message;
    if (told.includes("begun")) abort.abort();
  };
  await assert.rejects(execute("import time\nprint('begun')\nz = 1\ntime.sleep(60)", "python", {}, { signal: abort.signal, onprogress }));
  assert.match(told, /begun/);
  assert.equal((await execute("z", "python", {}, { timeout: 20_000 })).result, "1");
});

// microsandbox's workflow, where there are Linux sandboxes.
if (process.env.TEST_SANDBOXES) await check("a named sandbox is started, used, measured and stopped", async () => {
  const of = (more) => ({ sandbox: `client-${version}-${era}`, namespace: "default", ...more });
  const sandbox = async (name, args) => {
    const result = await sdk.call({ name, arguments: args });
    assert.ok(!result.isError, JSON.stringify(result));
    return result;
  };
  const { structuredContent: started } = await sandbox("sandbox_start", of({ config: { image: "microsandbox/python", memory: 512, cpus: 1, envs: ["GREETING=hi"] } }));
  assert.deepEqual([started.running, started.image], [true, "microsandbox/python"]);
  await sandbox("sandbox_run_code", of({ language: "python", code: "x = 42" }));
  const { structuredContent: ran, content } = await sandbox("sandbox_run_code", of({ language: "python", code: "import os\nprint(os.environ['GREETING'], x)" }));
  assert.deepEqual([ran.status, ran.output], ["success", [{ stream: "stdout", text: "hi 42" }]]);
  assert.equal(content[0].text, "hi 42");
  const { structuredContent: command } = await sandbox("sandbox_run_command", of({ command: "sh", args: ["-c", "echo text > kept.txt; exit 3"] }));
  assert.deepEqual([command.exit_code, command.success, command.output], [3, false, []]);
  const { structuredContent: measured } = await sandbox("sandbox_get_metrics", { namespace: "default", sandbox: of().sandbox });
  assert.equal(measured.sandboxes[0].running, true);
  assert.equal((await sandbox("sandbox_stop", of())).structuredContent.running, false);
  const refused = await sdk.call({ name: "sandbox_run_command", arguments: of({ command: "ls" }) });
  assert.ok(refused.isError && JSON.stringify(refused).includes("sandbox_start"), JSON.stringify(refused));
  await sandbox("sandbox_start", of());
  assert.equal((await sandbox("sandbox_run_command", of({ command: "cat", args: ["kept.txt"] }))).content[0].text, "text");
  await sandbox("sandbox_stop", of());
  const { messages } = await client.getPrompt({ name: "create_python_sandbox", arguments: { sandbox_name: "mine", namespace: "default" } });
  assert.match(messages[0].content.text, /"mine"/);
});

await client.close();
console.log(`${count} passed, ${process.exitCode ? "some" : 0} failed`);
