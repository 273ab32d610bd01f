// Asks for a URL with a standard client of x402 version 2, which pays; prints the answer as JSON.
// It reads {"client": "fetch" or "axios", "url", "key", "network", "body", "anyAsset", "names", "loses"}
// from stdin. With "names", fetch names its payment by the extension payment-identifier; with "loses"
// the first answer to it is lost, and it is sent again as it is.
import { wrapAxiosWithPaymentFromConfig } from "@x402/axios";
import { ExactEvmScheme } from "@x402/evm";
import { appendPaymentIdentifierToExtensions } from "@x402/extensions/payment-identifier";
import { wrapFetchWithPayment, x402Client } from "@x402/fetch";
import axios from "axios";
import { privateKeyToAccount } from "viem/accounts";
import { told, withAxios, withFetch } from "../buying.mjs";

const config = {
  schemes: [{ network: told.network, client: new ExactEvmScheme(privateKeyToAccount(told.key)) }],
  ...(told.anyAsset ? { spendControls: false } : {}),
};

async function losing(request) {
  if (request.headers.has("payment-signature")) await (await fetch(request.clone())).text();
  return fetch(request);
}

if (told.client === "fetch") {
  const payer = x402Client.fromConfig(config);
  if (told.names)
    payer.onBeforePaymentCreation(async ({ paymentRequired }) => {
      appendPaymentIdentifierToExtensions(paymentRequired.extensions);
    });
  await withFetch(wrapFetchWithPayment(told.loses ? losing : fetch, payer));
} else {
  await withAxios(wrapAxiosWithPaymentFromConfig(axios.create(), config));
}
