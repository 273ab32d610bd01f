// A shop of the standard middleware that sells by EIP-3009, by Permit2, and `upto` for what its handler used.
// It reads a file with {"facilitator", "payTo", "network", "asset", "name", "version"}; prints its URL.
import { HTTPFacilitatorClient } from "@x402/core/server";
import { ExactEvmScheme } from "@x402/evm/exact/server";
import { UptoEvmScheme } from "@x402/evm/upto/server";
import { paymentMiddleware, setSettlementOverrides, x402ResourceServer } from "@x402/express";
import express from "express";
import { readFileSync } from "node:fs";

const told = JSON.parse(readFileSync(process.argv.at(-1), "utf8"));
const { network, payTo, asset, name, version } = told;
const server = new x402ResourceServer(new HTTPFacilitatorClient({ url: told.facilitator }))
  .register(network, new UptoEvmScheme())
  .register(network, new ExactEvmScheme());
const sold = (scheme, extra) => ({
  accepts: { scheme, network, payTo, price: { amount: "20000", asset, extra: { name, version, ...extra } } },
});
const byPermit2 = { assetTransferMethod: "permit2" };
const routes = {
  "GET /eip3009": sold("exact", {}),
  "GET /permit2": sold("exact", byPermit2),
  "GET /upto/*": sold("upto", byPermit2),
};
const app = express();
app.use(paymentMiddleware(routes, server));
app.get("/upto/:used", (request, answer) => {
  setSettlementOverrides(answer, { amount: request.params.used });
  answer.json({ used: request.params.used });
});
for (const way of ["/eip3009", "/permit2"]) app.get(way, (_, answer) => answer.json({ used: "20000" }));
const listening = app.listen(0, "127.0.0.1", () => console.log(`http://127.0.0.1:${listening.address().port}`));
