// The first facilitator of x402, of the npm package `x402`, behind express: version 1 only. What the library throws is a
// 400, and a line of the log. Transactions are sent in turn: viem asks the node for the nonce of each, and of two at once
// only one would be taken.
// Its environment says where: PORT, RPC_URL, X402SIM_PRIVATE_KEY and X402SIM_NETWORK_NAME.
import express from "express";
import { createWalletClient, http, publicActions } from "viem";
import { privateKeyToAccount } from "viem/accounts";
import { baseSepolia } from "viem/chains";
import { settle, verify } from "x402/facilitator";
import { PaymentPayloadSchema, PaymentRequirementsSchema } from "x402/types";

const { PORT, RPC_URL, X402SIM_PRIVATE_KEY, X402SIM_NETWORK_NAME } = process.env;
const account = privateKeyToAccount(X402SIM_PRIVATE_KEY);
let last = Promise.resolve();
const inTurn = (send) => (args) => (last = last.then(() => send(args), () => send(args)));
const client = createWalletClient({ account, chain: baseSepolia, transport: http(RPC_URL) })
  .extend(publicActions)
  .extend(({ writeContract }) => ({ writeContract: inTurn(writeContract) }));

const app = express();
app.use(express.json());
for (const [name, act] of Object.entries({ verify, settle }))
  app.post(`/${name}`, async (request, response) => {
    try {
      const wanted = PaymentRequirementsSchema.parse(request.body.paymentRequirements);
      const payment = PaymentPayloadSchema.parse(request.body.paymentPayload);
      response.json(await act(client, payment, wanted));
    } catch (wrong) {
      const error = String(wrong).replace(/\s+/g, " ");
      console.error(`${name}: ${error}`);
      response.status(400).json({ error });
    }
  });
app.get("/supported", (_, response) =>
  response.json({ kinds: [{ x402Version: 1, scheme: "exact", network: X402SIM_NETWORK_NAME }] }),
);
app.listen(Number(PORT), "127.0.0.1");
