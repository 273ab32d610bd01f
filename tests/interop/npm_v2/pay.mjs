// A payer for the judge of payers: `node pay.mjs fetch|axios`, with @x402/fetch or @x402/axios as their guides say.
import { wrapAxiosWithPaymentFromConfig } from "@x402/axios";
import { ExactEvmScheme } from "@x402/evm";
import { UptoEvmScheme } from "@x402/evm/upto/client";
import { wrapFetchWithPaymentFromConfig } from "@x402/fetch";
import axios from "axios";
import { privateKeyToAccount } from "viem/accounts";
import { paying, withAxios, withFetch } from "../paying.mjs";

// @x402/axios has the core of 2.11, without spend controls: a policy is what it offers for a cap.
const affordable = (task) => (_, offers) =>
  offers.filter(
    ({ amount, asset }) =>
      BigInt(amount) <= BigInt(task.max_amount_base_units) && asset.toLowerCase() === task.asset.toLowerCase(),
  );
const config = (task) => ({
  schemes: [ExactEvmScheme, UptoEvmScheme].map((scheme) => ({
    network: task.network,
    client: new scheme(privateKeyToAccount(task.private_key)),
  })),
  spendControls: { maxAmountPerPayment: `$${task.max_amount}` },
});
const byPolicy = (task) => ({ ...config(task), policies: [affordable(task)] });
const clients = {
  fetch: (task) => withFetch(wrapFetchWithPaymentFromConfig(fetch, config(task))),
  axios: (task) => withAxios(wrapAxiosWithPaymentFromConfig(axios.create(), byPolicy(task))),
};
paying(clients[process.argv[2]]);
