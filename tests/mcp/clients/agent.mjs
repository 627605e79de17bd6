// An agent of a library, with a model that is a script: it calls tools in turn, and
// what the library shows it of each result is printed as one JSON line.
//
//   node agent.mjs LIBRARY PACKAGES http URL TOKEN
//   node agent.mjs LIBRARY PACKAGES stdio BINARY
//
// The calls are read from stdin: a list of {name, arguments, giveUp}, giveUp being the
// milliseconds after which the agent's run is aborted.
import { createRequire } from "node:module";
import { join } from "node:path";
import { readFileSync } from "node:fs";
import { pathToFileURL } from "node:url";

const [library, packages, transport, target, token] = process.argv.slice(2);
const resolve = createRequire(join(packages, "package.json")).resolve;
const load = (name) => import(pathToFileURL(resolve(name)).href);
const calls = JSON.parse(readFileSync(0, "utf8"));
const headers = { Authorization: `Bearer ${token}` };
const env = Object.fromEntries(Object.entries(process.env).filter(([name]) => name.startsWith("PADDOCK_") || ["PATH", "HOME"].includes(name)));
const stdio = { command: target, args: ["mcp"], env };

// A model of the AI SDK's interface, in the version that a library takes: it calls the
// tool that `next` holds, and is done when it sees the result.
function scripted(specificationVersion, next, seen) {
  const usage = { inputTokens: { total: 1, noCache: 1, cacheRead: 0, cacheWrite: 0 }, outputTokens: { total: 1, text: 1, reasoning: 0 } };
  const answer = ({ prompt, tools }) => {
    const last = prompt.at(-1);
    if (last.role === "tool") {
      seen(last.content.map((part) => part.output));
      return { content: [{ type: "text", text: "done" }], finishReason: { unified: "stop", raw: "stop" } };
    }
    const { name, arguments: input } = next();
    const tool = tools.find((t) => t.name === name || t.name.endsWith("_" + name));
    return { content: [{ type: "tool-call", toolCallId: "1", toolName: tool.name, input: JSON.stringify(input) }], finishReason: { unified: "tool-calls", raw: "tool_calls" } };
  };
  return {
    specificationVersion, provider: "script", modelId: "script", supportedUrls: {},
    doGenerate: async (options) => ({ ...answer(options), usage, warnings: [] }),
    doStream: async (options) => {
      const { content, finishReason } = answer(options);
      const parts = [{ type: "stream-start", warnings: [] }];
      for (const c of content) {
        if (c.type === "text") parts.push({ type: "text-start", id: "t" }, { type: "text-delta", id: "t", delta: c.text }, { type: "text-end", id: "t" });
        else parts.push(c);
      }
      parts.push({ type: "finish", finishReason, usage });
      return { stream: ReadableStream.from(parts) };
    },
  };
}

// Each library: connect gives a function that makes one run of an agent with a call, and
// what ends the connection.
const libraries = {
  async "AI SDK"() {
    const { createMCPClient } = await load("@ai-sdk/mcp");
    const { generateText, isStepCount } = await load("ai");
    const { Experimental_StdioMCPTransport: Stdio, StdioMCPTransport } = await load("@ai-sdk/mcp/mcp-stdio");
    const client = await createMCPClient({
      transport: transport === "http" ? { type: "http", url: target, headers } : new (StdioMCPTransport ?? Stdio)(stdio),
    });
    const tools = await client.tools();
    return {
      version: "@ai-sdk/mcp",
      async run(call, seen, abortSignal) {
        await generateText({ model: scripted("v4", () => call, seen), tools, stopWhen: isStepCount(3), prompt: "go", abortSignal, maxRetries: 0 });
      },
      close: () => client.close(),
    };
  },
  async "OpenAI Agents SDK"() {
    const { Agent, Runner, MCPServerStdio, MCPServerStreamableHttp, setTracingDisabled } = await load("@openai/agents");
    setTracingDisabled(true);
    const server = transport === "http"
      ? new MCPServerStreamableHttp({ name: "paddock", url: target, requestInit: { headers } })
      : new MCPServerStdio({ name: "paddock", ...stdio });
    await server.connect();
    return {
      version: "@openai/agents",
      async run(call, seen, signal) {
        const model = {
          async getResponse({ input }) {
            const last = input.at(-1);
            const usage = { inputTokens: 1, outputTokens: 1, totalTokens: 2, inputTokensDetails: [], outputTokensDetails: [], add() {} };
            if (last.type === "function_call_result") {
              seen([last.output]);
              return { usage, output: [{ type: "message", role: "assistant", status: "completed", content: [{ type: "output_text", text: "done" }] }] };
            }
            return { usage, output: [{ type: "function_call", callId: "1", name: call.name, arguments: JSON.stringify(call.arguments), status: "completed" }] };
          },
        };
        const agent = new Agent({ name: "agent", model, mcpServers: [server] });
        await new Runner({ tracingDisabled: true }).run(agent, "go", { signal });
      },
      close: () => server.close(),
    };
  },
  async "Mastra"() {
    const { MCPClient } = await load("@mastra/mcp");
    const { Agent } = await load("@mastra/core/agent");
    const client = new MCPClient({
      id: "test",
      servers: { paddock: transport === "http" ? { url: new URL(target), requestInit: { headers } } : stdio },
    });
    const tools = await (client.listTools ?? client.getTools).call(client);
    return {
      version: "@mastra/mcp",
      async run(call, seen, abortSignal) {
        const agent = new Agent({ id: "agent", name: "agent", instructions: "go", model: scripted("v3", () => call, seen), tools });
        await agent.generate("go", { abortSignal, maxSteps: 3 });
      },
      close: () => client.disconnect(),
    };
  },
};

// The SDK itself, in both eras: what it gives a program is what its model is shown.
for (const [name, mode] of [["TypeScript SDK v2, 2025-11-25", "legacy"], ["TypeScript SDK v2, 2026-07-28", { pin: "2026-07-28" }]]) {
  libraries[name] = async () => {
    const { Client, StreamableHTTPClientTransport } = await load("@modelcontextprotocol/client");
    const { StdioClientTransport } = await load("@modelcontextprotocol/client/stdio");
    const client = new Client({ name: "test", version: "1" }, { versionNegotiation: { mode } });
    await client.connect(transport === "http" ? new StreamableHTTPClientTransport(new URL(target), { requestInit: { headers } }) : new StdioClientTransport(stdio));
    return {
      version: "@modelcontextprotocol/client",
      async run(call, seen, signal) { seen([await client.callTool({ name: call.name, arguments: call.arguments }, { signal })]); },
      close: () => client.close(),
    };
  };
}

const { version, run, close } = await libraries[library]();
const manifest = JSON.parse(readFileSync(join(packages, "node_modules", version, "package.json"), "utf8"));
console.log(JSON.stringify({ package: version, version: manifest.version }));
for (const call of calls) {
  let outputs = [];
  let error;
  const signal = call.giveUp ? AbortSignal.timeout(call.giveUp) : undefined;
  try {
    await run(call, (o) => { outputs = outputs.concat(o); }, signal);
  } catch (e) {
    error = `${e?.name}: ${e?.message}`;
  }
  console.log(JSON.stringify({ outputs, error }));
  if (call.giveUp) await new Promise((done) => setTimeout(done, 2000)); // a model thinks longer
}
await Promise.race([close(), new Promise((done) => setTimeout(done, 5000))]);
process.exit(0);
