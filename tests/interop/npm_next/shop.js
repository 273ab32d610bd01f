// What is sold, and the server of @x402/next that takes the payments; prices as in ../selling.mjs.
import { HTTPFacilitatorClient } from "@x402/core/server";
import { ExactEvmScheme } from "@x402/evm/exact/server";
import { x402ResourceServer } from "@x402/next";

export const facilitator = new HTTPFacilitatorClient({ url: process.env.FACILITATOR_URL });
export const { X402SIM_PAY_TO: payTo, X402SIM_NETWORK: network } = process.env;
let number = 0;

export const server = () =>
  new x402ResourceServer(facilitator).register(network, new ExactEvmScheme());
export const accepts = (price) => ({ accepts: { scheme: "exact", price, network, payTo } });
export const weather = async () => Response.json({ weather: "sunny", number: ++number });
export const forecast = async ({ nextUrl }) =>
  Response.json({ city: nextUrl.searchParams.get("city"), number: ++number });
export const report = async (request) => {
  const { title } = await request.json();
  if (title === "fail") throw new Error("no report");
  return Response.json({ title, number: ++number });
};
