// Pays `upto`, and `exact` by Permit2, with the standard client; prints the answer from each URL.
// It reads {"key", "network", "urls"} from stdin.
import { ExactEvmScheme } from "@x402/evm";
import { UptoEvmScheme } from "@x402/evm/upto/client";
import { wrapFetchWithPayment, x402Client } from "@x402/fetch";
import { readFileSync } from "node:fs";
import { privateKeyToAccount } from "viem/accounts";

const told = JSON.parse(readFileSync(0, "utf8"));
const account = privateKeyToAccount(told.key);
const payer = new x402Client()
  .register(told.network, new UptoEvmScheme(account))
  .register(told.network, new ExactEvmScheme(account));
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
