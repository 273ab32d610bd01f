// viem 2 over WebSocket: it watches by subscriptions, and asks for what http clients ask less often.

import {
  createPublicClient,
  createTestClient,
  createWalletClient,
  defineChain,
  encodeFunctionData,
  parseAbi,
  publicActions,
  walletActions,
  webSocket,
} from "viem";
import { privateKeyToAccount } from "viem/accounts";
import { ABI, say, until } from "./abi.mjs";
import { told as given } from "../buying.mjs";

const { rpc, token, chainId, shop } = given;
const abi = parseAbi(ABI);
const url = rpc.replace(/^http/, "ws");
const chain = defineChain({
  id: chainId,
  name: "x402sim",
  nativeCurrency: { name: "coin", symbol: "C", decimals: 18 },
  rpcUrls: { default: { http: [rpc], webSocket: [url] } },
});
const options = { chain, transport: webSocket(url, { reconnect: false }), cacheTime: 0 };
const client = createPublicClient(options);
const accounts = [given.alice, given.bob, given.poor].map((key) => privateKeyToAccount(key));
const [alice, bob, poor] = accounts.map((account) => createWalletClient({ ...options, account }));
const facts = {};
const call = (functionName, args, more = {}) => ({ address: token, abi, functionName, args, ...more });
const transfer = (value, more) => call("transfer", [shop, value], more);
const encoded = (value) => ({
  to: token,
  data: encodeFunctionData({ abi, functionName: "transfer", args: [shop, value] }),
});

async function mined(sent) {
  const receipt = await client.waitForTransactionReceipt({ hash: await sent });
  return [receipt.status, receipt.type, receipt.gasUsed, receipt.logs.length];
}

async function refused(sent) {
  try {
    await sent;
  } catch (error) {
    return error.walk((each) => /Nonce|Funds|Revert/.test(each.name))?.name ?? error.name;
  }
  return "it was not refused";
}

const [heads, heard, arrived] = [[], [], []];
const fail = (error) => { throw error; };
const stops = [
  client.watchBlocks({ onBlock: (block) => heads.push(block), onError: fail }),
  client.watchContractEvent({
    ...{ address: token, abi, eventName: "Transfer", onError: fail },
    onLogs: (logs) => heard.push(...logs),
  }),
  client.watchPendingTransactions({ onTransactions: (all) => arrived.push(...all), onError: fail }),
];
await new Promise((done) => setTimeout(done, 500)); // they are subscribed
const before = await client.getBlockNumber();

facts.transfer = await mined(alice.writeContract(transfer(11n)));
const accessList = [{ address: token, storageKeys: [] }];
facts.accessList = await mined(alice.writeContract(transfer(12n, { accessList, type: "eip2930" })));
const fees = await client.estimateFeesPerGas();
const nonce = await client.getTransactionCount({ address: alice.account.address });
const fields = { ...fees, type: "eip1559", gas: 100_000n, chainId };
const raw = await alice.signTransaction({ ...fields, ...encoded(13n), nonce });
const at_once = await client.sendRawTransactionSync({ serializedTransaction: raw });
facts.sync = [at_once.status, at_once.gasUsed, at_once.logs.length];
const authorization = await bob.signAuthorization({ contractAddress: shop });
facts.delegated = await mined(
  alice.sendTransaction({ authorizationList: [authorization], to: shop, gas: 200_000n }),
);
facts.code = (await client.getCode({ address: bob.account.address })).toLowerCase() ===
  `0xef0100${shop.slice(2).toLowerCase()}`;

// Five at once, of one account: each has its own nonce, and they arrive in any order.
const first = await client.getTransactionCount({ address: alice.account.address });
const five = await Promise.all([4, 3, 2, 1, 0].map(async (ahead) => {
  const serializedTransaction = await alice.signTransaction({
    ...fields,
    ...encoded(BigInt(20 + ahead)),
    nonce: first + ahead,
  });
  return client.sendRawTransaction({ serializedTransaction });
}));
facts.five = (await Promise.all(five.map((hash) => mined(hash)))).map(([status]) => status);

const block = await client.getBlock({ blockNumber: before + 1n, includeTransactions: true });
const [sent] = block.transactions;
const ofBlock = { blockNumber: before + 1n };
facts.byPlace = [
  (await client.getTransaction({ ...ofBlock, index: 0 })).hash === sent.hash,
  (await client.getTransaction({ blockHash: block.hash, index: 0 })).hash === sent.hash,
  await client.getBlockTransactionCount(ofBlock),
  await client.getBlockTransactionCount({ blockHash: block.hash }),
];
const confirmations = await client.getTransactionConfirmations({ hash: sent.hash });
facts.confirmed = confirmations > 1n;
facts.blobs = await client.getBlobBaseFee();

facts.poor = await refused(client.simulateContract({ ...transfer(5n), account: poor.account }));

const test = createTestClient({ ...options, mode: "anvil" }).extend(publicActions).extend(walletActions);
const somebody = "0x00000000000000000000000000000000000000a1";
if (given.controls) {
  await test.setBalance({ address: somebody, value: 10n ** 24n });
  await test.setNonce({ address: somebody, nonce: 7 });
  await test.setCode({ address: "0x00000000000000000000000000000000000000a2", bytecode: "0x6001" });
  await test.impersonateAccount({ address: somebody });
  const [status, , gas] = await mined(
    test.sendTransaction({ account: somebody, to: shop, value: 3n, gas: 30_000n }),
  );
  facts.impersonated = [status, gas];
  facts.nonce = await test.getTransactionCount({ address: somebody });
}

await until(() => heard.length >= 8, "events");
await until(() => five.every((hash) => arrived.includes(hash)), "arriving transactions");
facts.heard = heard.map((log) => Number(log.args.value)).sort();
facts.timed = heard.every((log) => Number(log.blockTimestamp) > 0);
facts.heads = heads[0].number === before + 1n;
for (const stop of stops) stop();
(await client.transport.getRpcClient()).close();
say(facts);
process.exit(0);
