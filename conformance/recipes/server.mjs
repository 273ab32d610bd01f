// A shop with three paid pages, as the guide of its middleware builds one: `node server.mjs PACKAGE`, @x402/express,
// @x402/hono or @x402/next, or x402-express, x402-hono or x402-next of version 1. The environment has PORT,
// FACILITATOR_URL, X402SIM_PAY_TO, X402SIM_NETWORK (CAIP-2) and X402SIM_NETWORK_NAME. Each page that a handler makes has a
// number of its own. Handlers for Next.js, wrapped by the package, are called by the server of Hono: no build is needed.
import { createRequire } from "node:module";

const { FACILITATOR_URL: url, PORT, X402SIM_NETWORK: network, X402SIM_PAY_TO: payTo } = process.env;
const prices = { "GET /weather": "$0.01", "GET /forecast": "$0.02", "POST /report": "$0.03" };

let number = 0;
const page = (words) => ({ ...words, number: ++number });
const report = ({ title }) => {
  if (title === "fail") throw new Error("no report");
  return page({ title });
};

const name = process.argv[2];
const isFirst = !name.startsWith("@");
// the guides of version 1 name a path, of any method; those of version 2 name the method, too
const route = (page) => (isFirst ? page.split(" ")[1] : page);
const routes = (offer) => Object.fromEntries(Object.entries(prices).map(([page, price]) => [route(page), offer(price)]));
const require = createRequire(import.meta.url);
const sdk = name.endsWith("next") ? require(name) : await import(name); // Node finds next/server by require alone
const ofFirst = (price) => ({ price, network: process.env.X402SIM_NETWORK_NAME });
const offer = (price) => ({ accepts: { scheme: "exact", price, network, payTo }, description: "goods" });
async function resources() {
  const { HTTPFacilitatorClient } = await import("@x402/core/server");
  const { ExactEvmScheme } = await import("@x402/evm/exact/server");
  return new sdk.x402ResourceServer(new HTTPFacilitatorClient({ url })).register(network, new ExactEvmScheme());
}
const paid = async () =>
  isFirst
    ? sdk.paymentMiddleware(payTo, routes(ofFirst), { url })
    : sdk.paymentMiddleware(routes(offer), await resources());

if (name.endsWith("express")) {
  const { default: express } = await import("express");
  const app = express();
  app.use(await paid());
  app.use(express.json());
  app.get("/weather", (_, answer) => answer.json(page({ weather: "sunny" })));
  app.get("/forecast", (request, answer) => answer.json(page({ city: request.query.city })));
  app.post("/report", (request, answer) => answer.json(report(request.body)));
  app.listen(Number(PORT), "127.0.0.1");
} else if (name.endsWith("next")) {
  const [{ serve }, { NextRequest }] = [await import("@hono/node-server"), require("next/server")];
  const server = isFirst ? null : await resources();
  const sold = (price, handler) =>
    isFirst ? sdk.withX402(handler, payTo, ofFirst(price), { url }) : sdk.withX402(handler, offer(price), server);
  const handlers = {
    "GET /weather": async () => Response.json(page({ weather: "sunny" })),
    "GET /forecast": async ({ nextUrl }) => Response.json(page({ city: nextUrl.searchParams.get("city") })),
    "POST /report": async (request) => Response.json(report(await request.json())),
  };
  const wrapped = Object.entries(handlers).map(([page, handler]) => [page, sold(prices[page], handler)]);
  const pages = new Map(wrapped);
  const fetch = async (request) => {
    const { url, method: sent, headers, body } = request;
    const asked = new NextRequest(url, { method: sent, headers, body, duplex: "half" });
    const method = sent === "HEAD" ? "GET" : sent; // Next.js answers HEAD by the handler of GET
    const handler = pages.get(`${method} ${asked.nextUrl.pathname}`);
    return handler ? handler(asked) : new Response(null, { status: 404 });
  };
  serve({ fetch, port: Number(PORT), hostname: "127.0.0.1" });
} else {
  const [{ serve }, { Hono }] = [await import("@hono/node-server"), await import("hono")];
  const app = new Hono();
  app.use(await paid());
  app.get("/weather", (context) => context.json(page({ weather: "sunny" })));
  app.get("/forecast", (context) => context.json(page({ city: context.req.query("city") })));
  app.post("/report", async (context) => context.json(report(await context.req.json())));
  serve({ fetch: app.fetch, port: Number(PORT), hostname: "127.0.0.1" });
}
