// Pays `upto` and `exact` with the standard client; prints the answer from each URL.
// It reads {"key", "network", "urls"} from stdin. With "rpc" it reads the chain, and signs what lets
// it do without gas, where a shop offers that.
import { ExactEvmScheme } from "@x402/evm";
import { UptoEvmScheme } from "@x402/evm/upto/client";
import { wrapFetchWithPayment, x402Client } from "@x402/fetch";
import { readFileSync } from "node:fs";
import { privateKeyToAccount } from "viem/accounts";

const told = JSON.parse(readFileSync(0, "utf8"));
const account = privateKeyToAccount(told.key);
const reads = told.rpc ? { rpcUrl: told.rpc } : undefined;
const payer = new x402Client()
  .register(told.network, new UptoEvmScheme(account, reads))
  .register(told.network, new ExactEvmScheme(account, reads));
// Permit2 is preferred where a shop sells by both.
payer.registerPolicy((_, offers) => [
  ...offers.filter((each) => each.extra?.assetTransferMethod),
  ...offers.filter((each) => !each.extra?.assetTransferMethod),
]);
const pays = wrapFetchWithPayment(fetch, payer);
const read = (text) => (text ? JSON.parse(Buffer.from(text, "base64").toString()) : null);
const found = [];
for (const url of told.urls) {
  const answer = await pays(url);
  found.push({
    status: answer.status,
    body: await answer.json(),
    receipt: read(answer.headers.get("payment-response")),
    error: read(answer.headers.get("payment-required"))?.error ?? null,
  });
}
console.log(JSON.stringify(found));
