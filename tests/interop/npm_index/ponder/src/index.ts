import { ponder } from "ponder:registry";
import { events } from "ponder:schema";

async function keep({ event, context }, name, account, what) {
  const { abi, address } = context.contracts.Token;
  const balance = await context.client.readContract({ abi, address, functionName: "balanceOf", args: [account] });
  const at = { id: event.id, block: Number(event.block.number), index: event.log.logIndex };
  await context.db.insert(events).values({ ...at, name, account, what: String(what), balance: String(balance) });
}

ponder.on("Token:Transfer", (it) => keep(it, "Transfer", it.event.args.to, it.event.args.value));
ponder.on("Token:AuthorizationUsed", (it) =>
  keep(it, "AuthorizationUsed", it.event.args.authorizer, it.event.args.nonce),
);
