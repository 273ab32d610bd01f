// A payer for the judge of payers: `node pay.mjs mppx`, with mppx as its guide says, which pays version 2.
import { evm, Mppx } from "mppx/client";
import { privateKeyToAccount } from "viem/accounts";
import { paying, withFetch } from "../paying.mjs";

const mppx = (task) => {
  const client = Mppx.create({
    polyfill: false,
    methods: [
      evm.charge({
        account: privateKeyToAccount(task.private_key),
        maxAtomicAmount: task.max_amount_base_units,
        networks: [84532],
        authorization: { name: task.token_name, version: task.token_version },
        currencies: [task.asset],
      }),
    ],
  });
  return withFetch(client.fetch);
};
paying(mppx);
