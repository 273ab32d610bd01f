// A shop with three paid pages, as the guide of its middleware builds one: `node server.mjs PACKAGE`, @x402/express,
// @x402/hono, or x402-express or x402-hono of version 1. The environment has PORT, FACILITATOR_URL, X402SIM_PAY_TO,
// X402SIM_NETWORK (CAIP-2) and X402SIM_NETWORK_NAME. Each page that a handler makes has a number of its own.
const { FACILITATOR_URL: url, PORT, X402SIM_NETWORK: network, X402SIM_PAY_TO: payTo } = process.env;
const prices = { "GET /weather": "$0.01", "GET /forecast": "$0.02", "POST /report": "$0.03" };
const routes = (offer) => Object.fromEntries(Object.entries(prices).map(([page, price]) => [page, offer(price)]));

let number = 0;
const page = (words) => ({ ...words, number: ++number });
const report = ({ title }) => {
  if (title === "fail") throw new Error("no report");
  return page({ title });
};

const name = process.argv[2];
const { paymentMiddleware, x402ResourceServer } = await import(name);
async function paid() {
  if (!name.startsWith("@"))
    return paymentMiddleware(payTo, routes((price) => ({ price, network: process.env.X402SIM_NETWORK_NAME })), { url });
  const { HTTPFacilitatorClient } = await import("@x402/core/server");
  const { ExactEvmScheme } = await import("@x402/evm/exact/server");
  const server = new x402ResourceServer(new HTTPFacilitatorClient({ url })).register(network, new ExactEvmScheme());
  return paymentMiddleware(
    routes((price) => ({ accepts: { scheme: "exact", price, network, payTo }, description: "goods" })),
    server,
  );
}

if (name.endsWith("express")) {
  const { default: express } = await import("express");
  const app = express();
  app.use(await paid());
  app.use(express.json());
  app.get("/weather", (_, answer) => answer.json(page({ weather: "sunny" })));
  app.get("/forecast", (request, answer) => answer.json(page({ city: request.query.city })));
  app.post("/report", (request, answer) => answer.json(report(request.body)));
  app.listen(Number(PORT), "127.0.0.1");
} else {
  const [{ serve }, { Hono }] = [await import("@hono/node-server"), await import("hono")];
  const app = new Hono();
  app.use(await paid());
  app.get("/weather", (context) => context.json(page({ weather: "sunny" })));
  app.get("/forecast", (context) => context.json(page({ city: context.req.query("city") })));
  app.post("/report", async (context) => context.json(report(await context.req.json())));
  serve({ fetch: app.fetch, port: Number(PORT), hostname: "127.0.0.1" });
}
