// The same handlers once more, behind a proxy of @x402/next in place of its wrapper.
import { paymentProxy } from "@x402/next";
import { accepts, server } from "./shop.js";

const routes = {
  "GET /proxied/weather": accepts("$0.01"),
  "GET /proxied/forecast": accepts("$0.02"),
  "POST /proxied/report": accepts("$0.03"),
};
export const proxy = paymentProxy(routes, server());
export const config = { matcher: ["/proxied/:path*"] };
