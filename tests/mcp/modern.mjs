// A server of the TypeScript SDK that speaks the modern era, over HTTP or stdio.
//
//   node modern.mjs PACKAGES http|stdio
//
// Over HTTP it prints its URL.
import { createServer } from "node:http";
import { createRequire } from "node:module";
import { join } from "node:path";
import { pathToFileURL } from "node:url";

const [packages, transport] = process.argv.slice(2);
const resolve = createRequire(join(packages, "package.json")).resolve;
const load = (name) => import(pathToFileURL(resolve(name)).href);
const { McpServer, createMcpHandler, fromJsonSchema } = await load("@modelcontextprotocol/server");

const text = (value) => ({ content: [{ type: "text", text: value }] });

function make() {
  const server = new McpServer({ name: "typescript", version: "1.0.0" });
  const input = { type: "object", properties: { z: { type: "string" }, a: { type: "integer" } }, required: ["z"] };
  const output = { type: "object", properties: { doubled: { type: "string" } }, required: ["doubled"] };
  server.registerTool("echo", { description: "gives it back", inputSchema: fromJsonSchema(input) }, async ({ z }) => text(z));
  server.registerTool("double", { inputSchema: fromJsonSchema(input), outputSchema: fromJsonSchema(output), annotations: { readOnlyHint: true } }, async ({ z }) => ({
    ...text(z + z),
    structuredContent: { doubled: z + z },
  }));
  server.registerTool("fail", { inputSchema: fromJsonSchema({ type: "object" }) }, async () => {
    throw new Error("it did not work");
  });
  return server;
}

if (transport === "stdio") {
  const { serveStdio } = await load("@modelcontextprotocol/server/stdio");
  serveStdio(make);
} else {
  const { toNodeHandler } = await load("@modelcontextprotocol/node");
  const server = createServer(toNodeHandler(createMcpHandler(make, { legacy: "reject" })));
  server.listen(0, "127.0.0.1", () => console.log(`http://127.0.0.1:${server.address().port}/mcp`));
}
