// A purchase by a client for Node, as its guide says: `node payer.mjs CLIENT`, one of `clients`. X402SIM_TASK_FILE
// names the file of the task. It prints the goods and exits 0, or exits 75, to be started again: no client retries by
// itself.
import { readFileSync } from "node:fs";
import { privateKeyToAccount } from "viem/accounts";

const task = JSON.parse(readFileSync(process.env.X402SIM_TASK_FILE, "utf8"));
const account = privateKeyToAccount(task.private_key);
const cap = task.max_amount_base_units;
const fits = ({ amount, asset, maxAmountRequired, network, scheme }) =>
  scheme === "exact" &&
  [task.network, task.network_name].includes(network) &&
  asset.toLowerCase() === task.asset.toLowerCase() &&
  BigInt(amount ?? maxAmountRequired) <= BigInt(cap);
const found = (offers) => {
  const offer = offers.find(fits);
  if (!offer) throw new Error("no offer fits the task");
  return offer;
};

// Versions without spend controls have policies.
async function config({ x402Client }) {
  const { ExactEvmScheme } = await import("@x402/evm");
  const schemes = [{ network: task.network, client: new ExactEvmScheme(account) }];
  return x402Client.prototype.setSpendControls
    ? { schemes, spendControls: { maxAmountPerPayment: `$${task.max_amount}` } }
    : { schemes, policies: [(_, offers) => offers.filter(fits)] };
}

const byAxios = (client) => async (url, { method, signal }) => {
  const answer = await client.request({ url, method, signal });
  return { ok: true, text: () => JSON.stringify(answer.data) };
};
const clients = {
  async fetch() {
    const sdk = await import("@x402/fetch");
    return sdk.wrapFetchWithPaymentFromConfig(fetch, await config(sdk));
  },
  async axios() {
    const [{ default: axios }, sdk] = [await import("axios"), await import("@x402/axios")];
    return byAxios(sdk.wrapAxiosWithPaymentFromConfig(axios.create(), await config(sdk)));
  },
  async "fetch-v1"() {
    const { wrapFetchWithPayment } = await import("x402-fetch");
    return wrapFetchWithPayment(fetch, account, BigInt(cap), found);
  },
  async "axios-v1"() {
    const [{ default: axios }, { withPaymentInterceptor }] = [await import("axios"), await import("x402-axios")];
    return byAxios(withPaymentInterceptor(axios.create(), account, found));
  },
};
try {
  const pay = await clients[process.argv[2]]();
  const answer = await pay(task.url, { method: task.method, signal: AbortSignal.timeout(9000) });
  console.log(await answer.text());
  process.exit(answer.ok ? 0 : 75);
} catch (error) {
  console.error(String(error));
  process.exit(75);
}
