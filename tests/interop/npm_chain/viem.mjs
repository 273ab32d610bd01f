// viem 2 as a wallet and a facilitator use it: signs and sends, reads, and listens.

import {
  BaseError,
  createPublicClient,
  createWalletClient,
  decodeEventLog,
  defineChain,
  http,
  parseAbi,
  parseSignature,
} from "viem";
import { privateKeyToAccount } from "viem/accounts";
import { ABI, AUTHORIZATION, PERMIT, say, until } from "./abi.mjs";
import { told as given } from "../buying.mjs";

const { rpc, token, chainId, shop } = given;
const abi = parseAbi(ABI);
const chain = defineChain({
  id: chainId,
  name: "x402sim",
  nativeCurrency: { name: "coin", symbol: "C", decimals: 18 },
  rpcUrls: { default: { http: [rpc] } },
  contracts: { multicall3: { address: "0xcA11bde05977b3631167028862bE2a173976CA11" } },
});
const options = { chain, transport: http(rpc), pollingInterval: 50, cacheTime: 0 };
const client = createPublicClient(options);
const walletOf = (key) => createWalletClient({ ...options, account: privateKeyToAccount(key) });
const [alice, bob, poor] = [given.alice, given.bob, given.poor].map(walletOf);
const [a, b] = [alice.account.address, bob.account.address];
const facts = {};
const sentHashes = [];

const call = (functionName, args, more = {}) => ({ address: token, abi, functionName, args, ...more });
const read = (name, args, more) => client.readContract(call(name, args, more));

// What became of a transaction, without what differs from chain to chain.
async function mined(sent) {
  const hash = await sent;
  const receipt = await client.waitForTransactionReceipt({ hash });
  sentHashes.push(hash);
  const named = receipt.logs.map((log) => decodeEventLog({ abi, ...log }));
  return {
    status: receipt.status,
    type: receipt.type,
    gas: receipt.gasUsed,
    from: receipt.from.toLowerCase(),
    to: receipt.to.toLowerCase(),
    logs: named.map((event) => [event.eventName, ...Object.values(event.args)]),
  };
}

// How a call or a transaction is refused: viem's name for it, and the token's reason.
async function refused(sent) {
  try {
    await sent;
  } catch (error) {
    if (!(error instanceof BaseError)) throw error;
    const known = /Nonce|Funds|Revert/;
    const cause = error.walk((each) => known.test(each.name)) ?? error;
    return { name: cause.name, reason: cause.reason ?? null };
  }
  return "it was not refused";
}

const heard = [];
const numbers = [];
const arrived = [];
const stops = [
  client.watchContractEvent({
    ...{ address: token, abi, eventName: "Transfer" },
    onLogs: (logs) => heard.push(...logs.map((log) => Number(log.args.value))),
    onError: (error) => { throw error; },
  }),
  client.watchBlockNumber({ onBlockNumber: (number) => numbers.push(number) }),
  client.watchPendingTransactions({ onTransactions: (hashes) => arrived.push(...hashes) }),
];
await until(() => numbers.length, "the first block");
await new Promise((done) => setTimeout(done, 300)); // the filters are made
const before = await client.getBlockNumber();

facts.chainId = await client.getChainId();
facts.named = [await read("name"), await read("version")];
facts.transfer = await mined(alice.writeContract(call("transfer", [shop, 11n])));
facts.legacy = await mined(alice.writeContract(call("transfer", [shop, 12n], { type: "legacy" })));
facts.coin = await mined(alice.sendTransaction({ to: shop, value: 13n }));

const domain = { name: given.name, version: given.version, chainId, verifyingContract: token };
const message = {
  from: a,
  to: shop,
  value: 14n,
  validAfter: 0n,
  validBefore: BigInt(given.end),
  nonce: given.nonce,
};
const typed = { domain, types: AUTHORIZATION, primaryType: "TransferWithAuthorization", message };
const split = (signature) => {
  const { r, s, v } = parseSignature(signature);
  return [Number(v), r, s];
};
const signed = split(await alice.signTypedData(typed));
const pay = call("transferWithAuthorization", [...Object.values(message), ...signed]);
facts.authorized = await mined(bob.writeContract(pay));
facts.usedTwice = await refused(client.simulateContract({ ...pay, account: bob.account }));
facts.reverts = await mined(bob.writeContract({ ...pay, gas: 200_000n }));

const [value, deadline] = [20n, BigInt(given.end)];
const permit = { owner: a, spender: b, value, nonce: await read("nonces", [a]), deadline };
const wanted = { domain, types: PERMIT, primaryType: "Permit", message: permit };
const ours = split(await alice.signTypedData(wanted));
const permits = call("permit", [a, b, value, deadline, ...ours]);
facts.permit = await mined(bob.writeContract(permits));
facts.permitTwice = await refused(client.simulateContract({ ...permits, account: bob.account }));
facts.allowed = await read("allowance", [a, b]);
const take = call("transferFrom", [a, shop, 15n]);
facts.taken = await mined(bob.writeContract(take));
facts.tooMuch = await refused(client.simulateContract({ ...take, account: bob.account }));
facts.approved = await mined(alice.writeContract(call("approve", [b, 5n])));
facts.left = await read("allowance", [a, b]);

const nonce = await client.getTransactionCount({ address: a, blockTag: "pending" });
facts.nonceTooLow = await refused(
  alice.writeContract(call("transfer", [shop, 1n], { nonce: nonce - 1, gas: 99_999n })),
);
facts.poor = await refused(poor.sendTransaction({ to: shop, value: 1n, gas: 21_000n }));
facts.broke = await refused(
  client.simulateContract({ ...call("transfer", [shop, 1n]), account: poor.account }),
);
facts.estimate = await client.estimateContractGas({
  ...call("transfer", [shop, 1n]),
  account: alice.account,
});

// As wagmi reads by default: calls of one moment in one, by Multicall3.
const batching = createPublicClient({ ...options, batch: { multicall: true } });
facts.batched = await Promise.all([
  batching.readContract(call("balanceOf", [shop])),
  batching.readContract(call("balanceOf", [a])),
  batching.readContract(call("balanceOf", [b])),
]);
facts.several = await client.multicall({
  contracts: [call("balanceOf", [shop]), call("transfer", [shop, 2n ** 200n])],
}).then((answers) => answers.map(({ status }) => status));

const event = { address: token, abi, eventName: "Transfer" };
const logs = await client.getContractEvents({ ...event, fromBlock: before + 1n });
facts.logs = logs.map((log) => [log.blockNumber - before, ...Object.values(log.args)]);
const then = await read("balanceOf", [shop], { blockNumber: before });
facts.moved = Number((await read("balanceOf", [shop])) - then);
facts.storage = await client.getStorageAt({ address: token, slot: "0xb" });
const head = await client.getBlockNumber({ cacheTime: 0 });
facts.pending = (await client.getBlock({ blockTag: "pending" })).number - head;
facts.blocks = head - before;
const block = await client.getBlock({ includeTransactions: true });
facts.block = block.transactions.map((tx) => [tx.type, tx.from.toLowerCase(), tx.nonce < nonce]);
const fees = await client.estimateFeesPerGas();
facts.fees = fees.maxFeePerGas > 0n && (await client.getFeeHistory({
  ...{ blockCount: 2, rewardPercentiles: [50] },
})).baseFeePerGas.length;

// The node's own accounts: it signs for them.
const first = privateKeyToAccount(given.first);
const owner = createWalletClient({ ...options, account: first.address });
facts.owner = (await owner.requestAddresses())[0] === first.address;
facts.typed = (await owner.signTypedData(typed)) === (await first.signTypedData(typed));
const text = { message: { raw: "0x1234" } };
facts.message = (await owner.signMessage(text)) === (await first.signMessage(text));
facts.sent = await mined(owner.writeContract(call("transfer", [shop, 16n])));

await until(() => heard.length >= logs.length + 1, "events");
await until(() => sentHashes.every((hash) => arrived.includes(hash)), "arriving transactions");
facts.heard = heard;
for (const stop of stops) stop();
say(facts);
process.exit(0);
