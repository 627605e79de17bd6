// An agent: it asks a model, makes the calls that the model wants with paddock's tools, and
// gives their results back, until the model has an answer.
import { Client } from "@modelcontextprotocol/sdk/client/index.js";
import { StdioClientTransport } from "@modelcontextprotocol/sdk/client/stdio.js";
import { ask, type Call, type Message } from "./model.ts";

const client = new Client({ name: "example-agent", version: "1.0.0" });
await client.connect(new StdioClientTransport({
  command: "paddock",
  args: ["mcp"],
  stderr: "inherit",
  env: process.env as Record<string, string>, // paddock gets it; programs do not
}));
const { tools } = await client.listTools();

/** call makes a call, and returns what the model shall read of its result. */
async function call({ name, arguments: args }: Call): Promise<string> {
  console.log("→", name, JSON.stringify(args));
  const result = await client.callTool({ name, arguments: args });
  const blocks = result.content as { type: string; text?: string }[];
  const text = blocks.map((block) => block.text ?? `(${block.type})`).join("\n");
  console.log("←", text.trim().split("\n").at(-1));
  return text;
}

const messages: Message[] = [{ role: "user", content: process.argv[2] ?? "What is the median of 12, 7, 19 and 4?" }];
const most = 10; // turns, should the model not come to an end
for (let turn = 0; turn < most; turn++) {
  const reply = await ask(messages, tools);
  messages.push(reply);
  if (reply.calls.length === 0) {
    console.log(reply.content);
    break;
  }
  for (const one of reply.calls) {
    messages.push({ role: "tool", id: one.id, content: await call(one) });
  }
}
await client.close();
