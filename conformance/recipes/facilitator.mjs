// The official facilitator of x402 for Node, behind express much as its repository's basic example has it: of what the
// library throws, the example makes a 500, this program a 400 and a line of the log, so that the library is judged.
// Transactions are sent in turn: viem asks the node for the nonce of each, and of two at once only one would be taken.
// Its environment says where: PORT, RPC_URL, X402SIM_PRIVATE_KEY and X402SIM_NETWORK (CAIP-2).
import { x402Facilitator } from "@x402/core/facilitator";
import { toFacilitatorEvmSigner } from "@x402/evm";
import { ExactEvmScheme } from "@x402/evm/exact/facilitator";
import express from "express";
import { createWalletClient, http, publicActions } from "viem";
import { privateKeyToAccount } from "viem/accounts";
import { baseSepolia } from "viem/chains";

const { PORT, RPC_URL, X402SIM_PRIVATE_KEY, X402SIM_NETWORK } = process.env;
const account = privateKeyToAccount(X402SIM_PRIVATE_KEY);
let last = Promise.resolve();
const inTurn = (send) => (args) => (last = last.then(() => send(args), () => send(args)));
const client = createWalletClient({ account, chain: baseSepolia, transport: http(RPC_URL) }).extend(publicActions);
const signer = toFacilitatorEvmSigner({
  address: account.address,
  getCode: (args) => client.getCode(args),
  readContract: (args) => client.readContract({ ...args, args: args.args ?? [] }),
  verifyTypedData: (args) => client.verifyTypedData(args),
  writeContract: inTurn((args) => client.writeContract({ ...args, args: args.args ?? [] })),
  sendTransaction: inTurn((args) => client.sendTransaction(args)),
  waitForTransactionReceipt: (args) => client.waitForTransactionReceipt(args),
});
const facilitator = new x402Facilitator();
facilitator.register(X402SIM_NETWORK, new ExactEvmScheme(signer, { deployERC4337WithEIP6492: true }));
const upto = await import("@x402/evm/upto/facilitator").catch(() => null); // older versions have no such scheme
if (upto) facilitator.register(X402SIM_NETWORK, new upto.UptoEvmScheme(signer));

const app = express();
app.use(express.json());
for (const name of ["verify", "settle"])
  app.post(`/${name}`, async (request, response) => {
    try {
      const { paymentPayload, paymentRequirements } = request.body;
      if (!paymentPayload || !paymentRequirements)
        return response.status(400).json({ error: "Missing paymentPayload or paymentRequirements" });
      return response.json(await facilitator[name](paymentPayload, paymentRequirements));
    } catch (wrong) {
      console.error(`${name}: ${String(wrong).replace(/\s+/g, " ")}`);
      return response.status(400).json({ error: wrong instanceof Error ? wrong.message : "Unknown error" });
    }
  });
app.get("/supported", (_, response) => response.json(facilitator.getSupported()));
app.listen(Number(PORT), "127.0.0.1");
