// A small MCP server: a shop with 200 orders, whose money can be given back.
import { McpServer } from "@modelcontextprotocol/sdk/server/mcp.js";
import { StdioServerTransport } from "@modelcontextprotocol/sdk/server/stdio.js";
import { z } from "zod";

const orders = Array.from({ length: 200 }, (_, n) => ({
  id: n + 1,
  customer: `customer ${(n * 7) % 31}`,
  amount: 10 + ((n * 13) % 90),
  days_late: n % 99 === 98 ? 30 : n % 5,
}));

const server = new McpServer({ name: "shop", version: "1.0.0" });
server.registerTool("list_orders", {
  description: "Lists all orders",
  inputSchema: {},
  outputSchema: { orders: z.array(z.object({ id: z.number(), customer: z.string(), amount: z.number(), days_late: z.number() })) },
  annotations: { readOnlyHint: true },
}, async () => ({ content: [], structuredContent: { orders } }));
server.registerTool("refund", {
  description: "Gives the money of an order back",
  inputSchema: { order: z.number().int().describe("the order's id"), amount: z.number().positive() },
  annotations: { destructiveHint: true },
}, async ({ order, amount }) => ({ content: [{ type: "text", text: `order ${order}: ${amount} given back` }] }));
await server.connect(new StdioServerTransport());
