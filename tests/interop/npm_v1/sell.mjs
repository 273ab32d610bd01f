// Sells GET /weather with a standard middleware of x402 version 1; prints its URL.
// It reads {"server": "express" or "hono", "facilitator", "payTo", "network", "price"} from a file.
import { readFileSync } from "node:fs";
import { serve } from "@hono/node-server";
import express from "express";
import { Hono } from "hono";
import { paymentMiddleware as forExpress } from "x402-express";
import { paymentMiddleware as forHono } from "x402-hono";

const { server, facilitator, payTo, network, price } = JSON.parse(readFileSync(process.argv[2], "utf8"));
const routes = { "/weather": { price, network } };
const weather = { weather: "sunny" };
const says = (port) => console.log(`http://127.0.0.1:${port}`);

function withExpress() {
  const app = express();
  app.use(forExpress(payTo, routes, { url: facilitator }));
  app.get("/weather", (_, answer) => answer.json(weather));
  const listening = app.listen(0, "127.0.0.1", () => says(listening.address().port));
}

function withHono() {
  const app = new Hono();
  app.use(forHono(payTo, routes, { url: facilitator }));
  app.get("/weather", (context) => context.json(weather));
  serve({ fetch: app.fetch, port: 0, hostname: "127.0.0.1" }, ({ port }) => says(port));
}

({ express: withExpress, hono: withHono })[server]();
