// A client of the official SDK calls a tool over streamable HTTP, unpaid and paid; prints both results.
// It reads {"url", "key", "tool", "arguments"} from stdin.
import { Client } from "@modelcontextprotocol/sdk/client/index.js";
import { StreamableHTTPClientTransport } from "@modelcontextprotocol/sdk/client/streamableHttp.js";
import { x402Client } from "@x402/core/client";
import { ExactEvmScheme } from "@x402/evm";
import { privateKeyToAccount } from "viem/accounts";
import { told } from "../buying.mjs";

const client = new Client({ name: "agent", version: "1" });
await client.connect(new StreamableHTTPClientTransport(new URL(told.url)));
const { tools } = await client.listTools();
const call = { name: told.tool, arguments: told.arguments };
const unpaid = await client.callTool(call);
const payer = new x402Client().register("eip155:*", new ExactEvmScheme(privateKeyToAccount(told.key)));
const payment = await payer.createPaymentPayload(unpaid.structuredContent);
const paid = await client.callTool({ ...call, _meta: { "x402/payment": payment } });
await client.close();
console.log(JSON.stringify({ tools: tools.map((tool) => tool.name), unpaid, paid }));
