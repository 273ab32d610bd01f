// A payer for the judge of payers: `node pay.mjs faremeter|dexter`, with the clients of others as their guides say.
import { wrapFetch } from "@dexterai/x402/client";
import { wrap } from "@faremeter/fetch";
import { exact } from "@faremeter/payment-evm";
import { createLocalWallet } from "@faremeter/wallet-evm";
import { paying, withFetch } from "../paying.mjs";

// It has no cap of its own: the choice among payers is what it offers for one.
const affordable = (cap) => async (payers) =>
  payers.find(({ requirements }) => BigInt(requirements.amount) <= BigInt(cap));

async function faremeter({ private_key, max_amount_base_units }) {
  const wallet = await createLocalWallet({ id: 84532, name: "Base Sepolia" }, private_key);
  return withFetch(wrap(fetch, { handlers: [exact.createPaymentHandler(wallet)], payerChooser: affordable(max_amount_base_units) }));
}

// It asks before it signs: the task's network and token are looked at there.
const dexter = ({ private_key, rpc_url, network, asset, max_amount_base_units }) =>
  withFetch(
    wrapFetch(fetch, {
      evmPrivateKey: private_key,
      rpcUrls: { [network]: rpc_url },
      maxAmountAtomic: max_amount_base_units,
      onPaymentRequired: (offer) =>
        offer.scheme === "exact" && offer.network === network && offer.asset.toLowerCase() === asset.toLowerCase(),
    }),
  );

paying({ faremeter, dexter }[process.argv[2]]);
