// Sells GET /weather with a standard middleware of x402 version 2; prints its URL.
// It reads {"server": "express" or "hono", "facilitator", "payTo", "network", "price"} from a file.
import { readFileSync } from "node:fs";
import { serve } from "@hono/node-server";
import { HTTPFacilitatorClient } from "@x402/core/server";
import { ExactEvmScheme } from "@x402/evm/exact/server";
import * as forExpress from "@x402/express";
import * as forHono from "@x402/hono";
import express from "express";
import { Hono } from "hono";

const { server, facilitator, payTo, network, price } = JSON.parse(readFileSync(process.argv[2], "utf8"));
const routes = {
  "GET /weather": { accepts: { scheme: "exact", price, network, payTo }, description: "Weather" },
};
const weather = { weather: "sunny" };
const says = (port) => console.log(`http://127.0.0.1:${port}`);

function resources(module) {
  const client = new HTTPFacilitatorClient({ url: facilitator });
  return new module.x402ResourceServer(client).register(network, new ExactEvmScheme());
}

function withExpress() {
  const app = express();
  app.use(forExpress.paymentMiddleware(routes, resources(forExpress)));
  app.get("/weather", (_, answer) => answer.json(weather));
  const listening = app.listen(0, "127.0.0.1", () => says(listening.address().port));
}

function withHono() {
  const app = new Hono();
  app.use(forHono.paymentMiddleware(routes, resources(forHono)));
  app.get("/weather", (context) => context.json(weather));
  serve({ fetch: app.fetch, port: 0, hostname: "127.0.0.1" }, ({ port }) => says(port));
}

({ express: withExpress, hono: withHono })[server]();
