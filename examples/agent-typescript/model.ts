// The model of the agent. This one is a script, so that the example runs without a key.

export type Call = { id: string; name: string; arguments: Record<string, unknown> };
export type Message =
  | { role: "user"; content: string }
  | { role: "assistant"; content: string; calls: Call[] }
  | { role: "tool"; id: string; content: string };
export type Tool = { name: string; description?: string; inputSchema: unknown };

/** ask gives the model the conversation and the tools, and returns what it answers. */
export async function ask(messages: Message[], tools: Tool[]): Promise<Message & { role: "assistant" }> {
  // ---- A real model goes here ----------------------------------------------------------
  // Send messages and tools (name, description, inputSchema) to your model's API with
  // fetch, and return its text as content and its tool calls as calls. Each call has an
  // id, which the message with its result repeats. Nothing else changes.
  return scripted(messages, tools);
  // --------------------------------------------------------------------------------------
}

/** scripted calls a tool three times, the second time with a mistake, and reads the result. */
function scripted(messages: Message[], tools: Tool[]): Message & { role: "assistant" } {
  if (!tools.some((tool) => tool.name === "execute_code")) throw new Error("there is no tool execute_code");
  const turn = messages.filter((message) => message.role === "assistant").length;
  const programs = [
    "import statistics\ndata = [12, 7, 19, 4]",
    "print(statistics.median(dat))",
    "print(statistics.median(data))",
  ];
  if (turn < programs.length) {
    return { role: "assistant", content: "", calls: [{ id: `call-${turn}`, name: "execute_code", arguments: { code: programs[turn] } }] };
  }
  return { role: "assistant", content: `The median is ${messages.at(-1)!.content.trim()}.`, calls: [] };
}
