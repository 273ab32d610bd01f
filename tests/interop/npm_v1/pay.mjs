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
const clients = {
  fetch: (task) => withFetch(wrapFetchWithPayment(fetch, wallet(task), BigInt(task.max_amount_base_units))),
  axios: (task) => withAxios(withPaymentInterceptor(axios.create(), wallet(task))),
};
paying(clients[process.argv[2]]);
