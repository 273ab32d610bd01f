// Asks for a URL with a standard client of x402 version 1, which pays; prints the answer as JSON.
// It reads {"client": "fetch" or "axios", "url", "key", "body"} from stdin.
import { readFileSync } from "node:fs";
import axios from "axios";
import { createWalletClient, http } from "viem";
import { privateKeyToAccount } from "viem/accounts";
import { baseSepolia } from "viem/chains";
import { withPaymentInterceptor } from "x402-axios";
import { wrapFetchWithPayment } from "x402-fetch";

const { client, url, key, body } = JSON.parse(readFileSync(0, "utf8"));
const account = privateKeyToAccount(key);
const wallet = createWalletClient({ account, transport: http(), chain: baseSepolia });
const method = body ? "POST" : "GET";

async function withFetch() {
  const pay = wrapFetchWithPayment(fetch, wallet);
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
  const pay = withPaymentInterceptor(axios.create(), wallet);
  const answer = await pay.request({ url, method, data: body });
  return { status: answer.status, body: answer.data, headers: { ...answer.headers } };
}

console.log(JSON.stringify(await { fetch: withFetch, axios: withAxios }[client]()));
