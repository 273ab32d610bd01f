// A purchase by the official client for Node: `node payer.mjs fetch`. X402SIM_TASK_FILE names the file of the task. It
// prints the goods and exits 0, or exits 75, to be started again: the client does not retry by itself.
import { readFileSync } from "node:fs";
import { ExactEvmScheme } from "@x402/evm";
import { wrapFetchWithPaymentFromConfig, x402Client } from "@x402/fetch";
import { privateKeyToAccount } from "viem/accounts";

const task = JSON.parse(readFileSync(process.env.X402SIM_TASK_FILE, "utf8"));
const fits = (offer) =>
  offer.asset.toLowerCase() === task.asset.toLowerCase() && BigInt(offer.amount) <= BigInt(task.max_amount_base_units);
const cap = x402Client.prototype.setSpendControls
  ? { spendControls: { maxAmountPerPayment: `$${task.max_amount}` } }
  : { policies: [(_, offers) => offers.filter(fits)] }; // versions without spend controls have policies
const pay = wrapFetchWithPaymentFromConfig(fetch, {
  schemes: [{ network: task.network, client: new ExactEvmScheme(privateKeyToAccount(task.private_key)) }],
  ...cap,
});
try {
  const answer = await pay(task.url, { method: task.method, signal: AbortSignal.timeout(9000) });
  console.log(await answer.text());
  process.exit(answer.ok ? 0 : 75);
} catch (error) {
  console.error(String(error));
  process.exit(75);
}
