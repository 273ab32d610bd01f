// A shop with three paid pages, as the guide of @x402/express or @x402/hono builds one: `node server.mjs express|hono`.
// The environment has PORT, FACILITATOR_URL, X402SIM_PAY_TO and X402SIM_NETWORK (CAIP-2). Each page that a handler
// makes has a number of its own.
import { HTTPFacilitatorClient } from "@x402/core/server";
import { ExactEvmScheme } from "@x402/evm/exact/server";

const { FACILITATOR_URL, PORT, X402SIM_NETWORK: network, X402SIM_PAY_TO: payTo } = process.env;
const prices = { "GET /weather": "$0.01", "GET /forecast": "$0.02", "POST /report": "$0.03" };
const offer = (price) => ({ accepts: { scheme: "exact", price, network, payTo }, description: "goods" });
const routes = Object.fromEntries(Object.entries(prices).map(([page, price]) => [page, offer(price)]));

let number = 0;
const page = (words) => ({ ...words, number: ++number });
const report = ({ title }) => {
  if (title === "fail") throw new Error("no report");
  return page({ title });
};

function paid({ paymentMiddleware, x402ResourceServer }) {
  const client = new HTTPFacilitatorClient({ url: FACILITATOR_URL });
  return paymentMiddleware(routes, new x402ResourceServer(client).register(network, new ExactEvmScheme()));
}

if (process.argv[2] === "express") {
  const { default: express } = await import("express");
  const app = express();
  app.use(paid(await import("@x402/express")));
  app.use(express.json());
  app.get("/weather", (_, answer) => answer.json(page({ weather: "sunny" })));
  app.get("/forecast", (request, answer) => answer.json(page({ city: request.query.city })));
  app.post("/report", (request, answer) => answer.json(report(request.body)));
  app.listen(Number(PORT), "127.0.0.1");
} else {
  const [{ serve }, { Hono }] = [await import("@hono/node-server"), await import("hono")];
  const app = new Hono();
  app.use(paid(await import("@x402/hono")));
  app.get("/weather", (context) => context.json(page({ weather: "sunny" })));
  app.get("/forecast", (context) => context.json(page({ city: context.req.query("city") })));
  app.post("/report", async (context) => context.json(report(await context.req.json())));
  serve({ fetch: app.fetch, port: Number(PORT), hostname: "127.0.0.1" });
}
