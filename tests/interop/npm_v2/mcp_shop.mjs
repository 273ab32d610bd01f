// An MCP server on the official Node SDK, over streamable HTTP with sessions, whose tools are paid for with care.
// It takes its settings as a judge gives them. A payment is claimed, with what it is for, before anything is asked
// about it; what became of it is kept, and what is not known is asked again.
import { randomUUID } from "node:crypto";
import { Server } from "@modelcontextprotocol/sdk/server/index.js";
import { StreamableHTTPServerTransport } from "@modelcontextprotocol/sdk/server/streamableHttp.js";
import { CallToolRequestSchema, isInitializeRequest, ListToolsRequestSchema } from "@modelcontextprotocol/sdk/types.js";
import express from "express";

const { env } = process;
const prices = { forecast: "20000", weather: "10000" };
const kept = new Map();
let number = 0;

const offer = (tool) => ({
  scheme: "exact",
  network: env.X402SIM_NETWORK,
  amount: prices[tool],
  asset: env.X402SIM_ASSET,
  payTo: env.X402SIM_PAY_TO,
  maxTimeoutSeconds: 60,
  extra: { name: env.X402SIM_ASSET_NAME, version: env.X402SIM_ASSET_VERSION },
});

function asks(tool, error, receipt) {
  const required = { x402Version: 2, error, resource: { url: `mcp://tool/${tool}` }, accepts: [offer(tool)] };
  const content = [{ type: "text", text: JSON.stringify(required) }];
  const meta = receipt ? { _meta: { "x402/payment-response": receipt } } : {};
  return { isError: true, structuredContent: required, content, ...meta };
}

// an error that says nothing of the payment
const says = (text) => ({ isError: true, content: [{ type: "text", text }] });

// the payer and its nonce: two payers may have drawn the same
function nonceIn(payment) {
  const { from, nonce } = payment?.payload?.authorization ?? {};
  const areTexts = typeof from === "string" && typeof nonce === "string";
  return areTexts && payment.x402Version === 2 ? `${from} ${nonce}`.toLowerCase() : undefined;
}

// what the facilitator says; empty if that is nothing certain
async function told(path, payment, tool) {
  const body = JSON.stringify({ x402Version: 2, paymentPayload: payment, paymentRequirements: offer(tool) });
  try {
    const headers = { "Content-Type": "application/json" };
    const signal = AbortSignal.timeout(5000);
    const answer = await fetch(env.FACILITATOR_URL + path, { method: "POST", headers, body, signal, redirect: "error" });
    const said = answer.status === 200 ? await answer.json() : {};
    return said !== null && typeof said === "object" ? said : {};
  } catch {
    return {};
  }
}

const sorted = (value) => JSON.stringify(Object.entries(value).sort());
const isSame = (one, other) =>
  one !== null && typeof one === "object" && sorted({ ...one, extra: sorted(one.extra ?? {}) }) === sorted({ ...other, extra: sorted(other.extra) });

async function call(tool, given, payment) {
  if (payment === undefined || payment === null) return asks(tool, "payment is required");
  const nonce = nonceIn(payment);
  if (nonce === undefined) return asks(tool, "invalid_payload");
  if (!isSame(payment.accepted, offer(tool))) return asks(tool, "invalid_payment_requirements");
  const what = tool + sorted(given) + JSON.stringify(payment);
  const before = kept.get(nonce);
  if (before && before.what !== what) return asks(tool, "it was paid for something else");
  if (before?.state === "done") return before.result;
  if (before?.state === "working") return says("it is being worked on");
  const own = { what, state: "working" };
  kept.set(nonce, own);
  if (!before) {
    const verified = await told("/verify", payment, tool);
    if (verified.isValid !== true) {
      kept.delete(nonce);
      return verified.invalidReason ? asks(tool, verified.invalidReason) : says("the facilitator is not there: try again");
    }
  }
  const settled = await told("/settle", payment, tool);
  if (settled.success === true && settled.transaction) {
    const place = { number: ++number, city: given.city ?? null, weather: "sunny" };
    const content = [{ type: "text", text: JSON.stringify(place) }];
    own.result = { structuredContent: place, content, _meta: { "x402/payment-response": settled } };
    own.state = "done";
    return own.result;
  }
  // what was not known may have been paid, whatever the next settle says: "used", for example
  if (!before && settled.success === false && settled.errorReason && !settled.transaction) {
    kept.delete(nonce);
    return asks(tool, settled.errorReason, settled);
  }
  own.state = "unknown";
  return says("it is not known whether it was paid: send the same payment again");
}

function weather() {
  const server = new Server({ name: "weather", version: "1" }, { capabilities: { tools: {} } });
  const inputSchema = { type: "object", properties: { city: { type: "string" } } };
  const tools = Object.keys(prices).map((name) => ({ name, description: "The weather, for a price", inputSchema }));
  server.setRequestHandler(ListToolsRequestSchema, () => ({ tools }));
  server.setRequestHandler(CallToolRequestSchema, ({ params }) =>
    call(params.name, params.arguments ?? {}, params._meta?.["x402/payment"]),
  );
  return server;
}

const sessions = new Map();
const app = express().use(express.json());
app.post("/mcp", async (request, response) => {
  let transport = sessions.get(request.headers["mcp-session-id"]);
  if (!transport && isInitializeRequest(request.body)) {
    transport = new StreamableHTTPServerTransport({
      sessionIdGenerator: randomUUID,
      onsessioninitialized: (id) => sessions.set(id, transport),
    });
    await weather().connect(transport);
  }
  if (!transport) return response.status(404).json({ error: "no session" });
  await transport.handleRequest(request, response, request.body);
});
app.listen(Number(env.PORT), "127.0.0.1");
