// Says for each 402 of version 2 whether the library's client signs it: "yes", or the error.
import { readFileSync } from "node:fs";
import { x402Client } from "@x402/core/client";
import { ExactEvmScheme } from "@x402/evm";
import { privateKeyToAccount } from "viem/accounts";

const told = JSON.parse(readFileSync(0, "utf8"));
const answers = [];
for (const required of told.required) {
  const client = new x402Client().register("eip155:*", new ExactEvmScheme(privateKeyToAccount(told.key)));
  try {
    await client.createPaymentPayload(required);
    answers.push("yes");
  } catch (error) {
    answers.push(String(error.message));
  }
}
console.log(JSON.stringify(answers));
