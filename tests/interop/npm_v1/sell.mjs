// Sells with a standard middleware of x402 version 1, as ../selling.mjs says.
// It is told {"server": "express" or "hono", "facilitator", "payTo", "network", "price"}.
import { serve } from "@hono/node-server";
import express from "express";
import { Hono } from "hono";
import { paymentMiddleware as forExpress } from "x402-express";
import { paymentMiddleware as forHono } from "x402-hono";
import { prices, told, withExpress, withHono } from "../selling.mjs";

const { server, facilitator, payTo, network, name = network } = told;
const routes = Object.fromEntries(
  Object.entries(prices).map(([page, price]) => [page, { price, network: name }]),
);
const sale = [payTo, routes, { url: facilitator }];
if (server === "express") withExpress(express, forExpress(...sale));
else withHono(new Hono(), forHono(...sale), serve);
