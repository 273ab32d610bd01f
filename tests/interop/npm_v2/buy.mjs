// Asks for a URL with a standard client of x402 version 2, which pays; prints the answer as JSON.
// It reads {"client": "fetch" or "axios", "url", "key", "network", "body", "anyAsset", "names", "loses"}
// from stdin. With "names", fetch names its payment by the extension payment-identifier; with "loses"
// the first answer to it is lost, and it is sent again as it is.
import { readFileSync } from "node:fs";
import { wrapAxiosWithPaymentFromConfig } from "@x402/axios";
import { ExactEvmScheme } from "@x402/evm";
import { appendPaymentIdentifierToExtensions } from "@x402/extensions/payment-identifier";
import { wrapFetchWithPayment, x402Client } from "@x402/fetch";
import axios from "axios";
import { privateKeyToAccount } from "viem/accounts";

const { client, url, key, network, body, anyAsset, names, loses } = JSON.parse(readFileSync(0, "utf8"));
const config = {
  schemes: [{ network, client: new ExactEvmScheme(privateKeyToAccount(key)) }],
  ...(anyAsset ? { spendControls: false } : {}),
};
const method = body ? "POST" : "GET";

async function losing(request) {
  if (request.headers.has("payment-signature")) await (await fetch(request.clone())).text();
  return fetch(request);
}

async function withFetch() {
  const payer = x402Client.fromConfig(config);
  if (names)
    payer.onBeforePaymentCreation(async ({ paymentRequired }) => {
      appendPaymentIdentifierToExtensions(paymentRequired.extensions);
    });
  const pay = wrapFetchWithPayment(loses ? losing : fetch, payer);
  const sent = body
    ? { method, headers: { "Content-Type": "application/json" }, body: JSON.stringify(body) }
    : { method };
  const answer = await pay(url, sent);
  return {
    status: answer.status,
    body: await answer.json(),
    headers: Object.fromEntries(answer.headers),
  };
}

async function withAxios() {
  const pay = wrapAxiosWithPaymentFromConfig(axios.create(), config);
  const answer = await pay.request({ url, method, data: body });
  return { status: answer.status, body: answer.data, headers: { ...answer.headers } };
}

console.log(JSON.stringify(await { fetch: withFetch, axios: withAxios }[client]()));
