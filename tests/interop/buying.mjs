// What stdin tells; and how the clients in npm_*/buy.mjs ask for the URL in it, with a POST if there is a
// body. Both print the answer as JSON.
import { readFileSync } from "node:fs";

export const told = JSON.parse(readFileSync(0, "utf8"));
const { url, body } = told;
const method = body ? "POST" : "GET";

export async function withFetch(pay) {
  const headers = { "Content-Type": "application/json" };
  const answer = await pay(url, body ? { method, headers, body: JSON.stringify(body) } : { method });
  say(answer.status, await answer.json(), Object.fromEntries(answer.headers));
}

export async function withAxios(pay) {
  const answer = await pay.request({ url, method, data: body });
  say(answer.status, answer.data, { ...answer.headers });
}

function say(status, body, headers) {
  console.log(JSON.stringify({ status, body, headers }));
}
