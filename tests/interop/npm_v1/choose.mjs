// Says for each 402 of version 1 whether the library's client signs it: "yes", or the error.
import { readFileSync } from "node:fs";
import { privateKeyToAccount } from "viem/accounts";
import { wrapFetchWithPayment } from "x402-fetch";

const told = JSON.parse(readFileSync(0, "utf8"));
const answers = [];
for (const required of told.required) {
  let paid = false;
  const shop = async (_, init) => {
    paid = Boolean(init?.headers?.["X-PAYMENT"]);
    return new Response(JSON.stringify(required), { status: paid ? 200 : 402 });
  };
  try {
    await wrapFetchWithPayment(shop, privateKeyToAccount(told.key))("http://shop.example/page");
    answers.push(paid ? "yes" : "it did not pay");
  } catch (error) {
    answers.push(String(error.message));
  }
}
console.log(JSON.stringify(answers));
