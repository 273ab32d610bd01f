// A toy shop of the x402 standard, version 2, that needs Node alone: it sells GET /weather for 0.01.
import http from "node:http";

const it = process.env, sold = new Set();
const encoded = (value) => Buffer.from(JSON.stringify(value)).toString("base64");
const accepts = {
  scheme: "exact", network: it.X402SIM_NETWORK, amount: "10000", asset: it.X402SIM_ASSET,
  payTo: it.X402SIM_PAY_TO, maxTimeoutSeconds: 300,
  extra: { name: it.X402SIM_ASSET_NAME, version: it.X402SIM_ASSET_VERSION },
};

async function settled(paymentPayload) {
  if (encoded(paymentPayload.accepted) !== encoded(accepts)) return {};
  const body = JSON.stringify({ x402Version: 2, paymentPayload, paymentRequirements: accepts });
  const headers = { "Content-Type": "application/json" };
  const post = async (what) =>
    (await fetch(`${it.FACILITATOR_URL}/${what}`, { method: "POST", headers, body })).json();
  return (await post("verify")).isValid ? post("settle") : {};
}

async function serve(request, answer) {
  const url = `http://${request.headers.host}${request.url}`;
  const say = (status, value, headers = {}) => {
    answer.writeHead(status, { "Content-Type": "application/json", "Cache-Control": "no-store", ...headers });
    answer.end(JSON.stringify(value));
  };
  if (request.url !== "/weather" || request.method !== "GET") return say(404, {});
  const paid = request.headers["payment-signature"];
  const offer = { x402Version: 2, error: "Payment Required", resource: { url }, accepts: [accepts] };
  const refuse = () => say(402, {}, { "PAYMENT-REQUIRED": encoded(offer) });
  if (paid === undefined || sold.has(paid)) return refuse();
  sold.add(paid);
  const receipt = await settled(JSON.parse(Buffer.from(paid, "base64")));
  if (!("success" in receipt)) return refuse(); // its defect: a refusal has the field, too
  return say(200, { weather: "sunny", sold: sold.size }, { "PAYMENT-RESPONSE": encoded(receipt) });
}

http.createServer((request, answer) => serve(request, answer).catch((error) => {
  console.error(error);
  answer.writeHead(502).end();
})).listen(it.PORT, "127.0.0.1");
