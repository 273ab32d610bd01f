// A tool of an MCP server is called unpaid, paid, and with the same payment again; prints the answers.
// It reads {"facilitator", "payTo", "key"} from stdin.
import { serve } from "@hono/node-server";
import { StreamableHTTPClientTransport } from "@modelcontextprotocol/sdk/client/streamableHttp.js";
import { experimental_createMCPClient } from "ai";
import { privateKeyToAccount } from "viem/accounts";
import { withPayment } from "x402-mcp/client";
import { createPaidMcpHandler } from "x402-mcp/server";
import { z } from "zod";
import { told } from "../buying.mjs";

const { facilitator, payTo, key } = told;
const network = "base-sepolia";
const sells = (server) =>
  server.paidTool("weather", "The weather", { price: "$0.01" }, { city: z.string() }, {}, ({ city }) => ({
    content: [{ type: "text", text: `${city}: sunny` }],
  }));
const shop = createPaidMcpHandler(sells, {}, { recipient: payTo, network, facilitator: { url: facilitator } });
const port = await new Promise((done) =>
  serve({ fetch: shop, port: 0, hostname: "127.0.0.1" }, ({ port }) => done(port)),
);

const transport = new StreamableHTTPClientTransport(new URL(`http://127.0.0.1:${port}/mcp`));
const plain = await experimental_createMCPClient({ transport });
const client = await withPayment(plain, { account: privateKeyToAccount(key), network });
const { weather, generatePaymentAuthorization } = await client.tools();
const options = { toolCallId: "1", messages: [] };
const city = "Oslo";
const unpaid = await weather.execute({ city }, options);
const paymentRequirements = JSON.parse(unpaid.content[0].text).accepts[0];
const signed = await generatePaymentAuthorization.execute({ paymentRequirements }, options);
const paid = await weather.execute({ city, ...signed }, options);
const again = await weather.execute({ city, ...signed }, options);
console.log(JSON.stringify({ unpaid, paid, again }));
process.exit(0);
