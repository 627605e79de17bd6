// Which tools of paddock OpenAI's Agents SDK can convert to its strict mode, as one JSON
// object: {NAME: true or false}.
//
//   node strict.mjs PACKAGES BINARY
import { createRequire } from "node:module";
import { join } from "node:path";
import { pathToFileURL } from "node:url";

const [packages, command] = process.argv.slice(2);
const resolve = createRequire(join(packages, "package.json")).resolve;
const { getAllMcpTools, MCPServerStdio } = await import(pathToFileURL(resolve("@openai/agents")).href);
const env = Object.fromEntries(Object.entries(process.env).filter(([name]) => name.startsWith("PADDOCK_") || ["PATH", "HOME"].includes(name)));
const server = new MCPServerStdio({ name: "paddock", command, args: ["mcp"], env });
await server.connect();
const tools = await getAllMcpTools({ mcpServers: [server], convertSchemasToStrict: true });
console.log(JSON.stringify(Object.fromEntries(tools.map((t) => [t.name, t.strict]))));
await server.close();
