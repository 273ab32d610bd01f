// Gets or posts to a URL with a client of somebody else, which pays; prints the answer as JSON.
// It reads {"client": "faremeter" or "dexter", "url", "key", "rpc", "body"} from stdin.
import { wrapFetch } from "@dexterai/x402/client";
import { wrap } from "@faremeter/fetch";
import { exact } from "@faremeter/payment-evm";
import { createLocalWallet } from "@faremeter/wallet-evm";
import { told, withFetch } from "../buying.mjs";

const { client, key, rpc } = told;
if (client === "faremeter") {
  const wallet = await createLocalWallet({ id: 84532, name: "Base Sepolia" }, key);
  await withFetch(wrap(fetch, { handlers: [exact.createPaymentHandler(wallet)] }));
} else {
  await withFetch(wrapFetch(fetch, { evmPrivateKey: key, rpcUrls: { "eip155:84532": rpc } }));
}
