// Gets or posts to a URL with a client of somebody else, which pays; prints the answer as JSON.
// It reads {"client": "faremeter" or "dexter", "url", "key", "rpc", "body"} from stdin.
import { readFileSync } from "node:fs";
import { wrapFetch } from "@dexterai/x402/client";
import { wrap } from "@faremeter/fetch";
import { exact } from "@faremeter/payment-evm";
import { createLocalWallet } from "@faremeter/wallet-evm";

const { client, url, key, rpc, body } = JSON.parse(readFileSync(0, "utf8"));

async function faremeter() {
  const wallet = await createLocalWallet({ id: 84532, name: "Base Sepolia" }, key);
  return wrap(fetch, { handlers: [exact.createPaymentHandler(wallet)] });
}

async function dexter() {
  return wrapFetch(fetch, { evmPrivateKey: key, rpcUrls: { "eip155:84532": rpc } });
}

const pay = await { faremeter, dexter }[client]();
const sent = body
  ? { method: "POST", headers: { "Content-Type": "application/json" }, body: JSON.stringify(body) }
  : {};
const answer = await pay(url, sent);
const headers = Object.fromEntries(answer.headers);
console.log(JSON.stringify({ status: answer.status, body: await answer.json(), headers }));
