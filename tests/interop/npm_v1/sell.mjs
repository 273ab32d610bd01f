// Sells GET /weather with a standard middleware of x402 version 1; prints its URL.
// It reads {"server": "express" or "hono", "facilitator", "payTo", "network", "price"} from a file.
import { serve } from "@hono/node-server";
import express from "express";
import { Hono } from "hono";
import { paymentMiddleware as forExpress } from "x402-express";
import { paymentMiddleware as forHono } from "x402-hono";
import { told, withExpress, withHono } from "../selling.mjs";

const { server, facilitator, payTo, network, price } = told;
const sale = [payTo, { "/weather": { price, network } }, { url: facilitator }];
if (server === "express") withExpress(express(), forExpress(...sale));
else withHono(new Hono(), forHono(...sale), serve);
