// Sells with a standard middleware of x402 version 2, as ../selling.mjs says.
// It is told {"server": "express" or "hono", "facilitator", "payTo", "network", "price"}.
import { serve } from "@hono/node-server";
import { HTTPFacilitatorClient } from "@x402/core/server";
import { ExactEvmScheme } from "@x402/evm/exact/server";
import * as forExpress from "@x402/express";
import * as forHono from "@x402/hono";
import express from "express";
import { Hono } from "hono";
import { prices, told, withExpress, withHono } from "../selling.mjs";

const { server, facilitator, payTo, network } = told;
const routes = Object.fromEntries(
  Object.entries(prices).map(([page, price]) => [
    page,
    { accepts: { scheme: "exact", price, network, payTo }, description: page },
  ]),
);

function paid({ paymentMiddleware, x402ResourceServer }) {
  const client = new HTTPFacilitatorClient({ url: facilitator });
  const resources = new x402ResourceServer(client).register(network, new ExactEvmScheme());
  return paymentMiddleware(routes, resources);
}

if (server === "express") withExpress(express, paid(forExpress));
else withHono(new Hono(), paid(forHono), serve);
