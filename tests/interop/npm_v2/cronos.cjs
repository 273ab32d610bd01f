// Buys a quote with the published Cronos client, in two steps; prints the answers as JSON.
// It reads {"base", "key", "order"} from stdin.
const { readFileSync } = require("node:fs");
const { CronosNetwork, Facilitator } = require("@crypto.com/facilitator-client");
const { JsonRpcProvider, Wallet } = require("ethers");

const { base, key, order } = JSON.parse(readFileSync(0, "utf8"));

async function ask(path, body, headers = {}) {
  const sent = { "Content-Type": "application/json", ...headers };
  return fetch(base + path, { method: "POST", headers: sent, body: JSON.stringify(body) });
}

async function main() {
  const facilitator = new Facilitator({ network: CronosNetwork.CronosTestnet });
  facilitator.baseUrl = `${base}/facilitator`;
  const provider = new JsonRpcProvider(`${base}/rpc`);
  const asked = await (await ask("/api/perp/quote", order)).json();
  const { paymentId, paymentRequirements } = asked;
  const paymentHeader = await facilitator.generatePaymentHeader({
    to: paymentRequirements.payTo,
    value: paymentRequirements.maxAmountRequired,
    signer: new Wallet(key, provider),
  });
  const supported = await facilitator.getSupported();
  const request = facilitator.buildVerifyRequest(paymentHeader, paymentRequirements);
  const verified = await facilitator.verifyPayment(request);
  const body = { paymentId, paymentHeader, paymentRequirements };
  const receipt = await (await ask("/api/pay", body)).json();
  const again = await facilitator.settlePayment(request);
  const served = await ask("/api/perp/quote", order, { "X-Payment-Id": paymentId });
  const status = served.status;
  console.log(JSON.stringify({ supported, verified, receipt, again, status, quote: await served.json() }));
  provider.destroy();
}

main();
