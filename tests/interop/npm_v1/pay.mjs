// A payer for the judge of payers: `node pay.mjs fetch|axios`, with x402-fetch or x402-axios as their guides say.
import axios from "axios";
import { createWalletClient, http } from "viem";
import { privateKeyToAccount } from "viem/accounts";
import { baseSepolia } from "viem/chains";
import { withPaymentInterceptor } from "x402-axios";
import { wrapFetchWithPayment } from "x402-fetch";
import { paying, withAxios, withFetch } from "../paying.mjs";

const wallet = (task) =>
  createWalletClient({
    account: privateKeyToAccount(task.private_key),
    transport: http(task.rpc_url),
    chain: baseSepolia,
  });
// The choice among offers is what these packages let a caller bound: the task's network, token and cap.
const fitting = (task) => (offers) => {
  const cap = BigInt(task.max_amount_base_units);
  const fits = ({ scheme, network, asset, maxAmountRequired }) =>
    scheme === "exact" &&
    network === task.network_name &&
    asset.toLowerCase() === task.asset.toLowerCase() &&
    BigInt(maxAmountRequired) <= cap;
  const found = offers.find(fits);
  if (!found) throw new Error("no offer fits the task");
  return found;
};
const clients = {
  fetch: (task) =>
    withFetch(wrapFetchWithPayment(fetch, wallet(task), BigInt(task.max_amount_base_units), fitting(task))),
  axios: (task) => withAxios(withPaymentInterceptor(axios.create(), wallet(task), fitting(task))),
};
paying(clients[process.argv[2]]);
