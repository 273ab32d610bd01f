// ethers 6 as a wallet and a facilitator use it: signs and sends, reads, and listens.

import { Contract, JsonRpcProvider, Signature, Wallet, ZeroHash, getBytes } from "ethers";
import { ABI, AUTHORIZATION, PERMIT, say, until } from "./abi.mjs";
import { told as given } from "../buying.mjs";

const { rpc, token, chainId, shop } = given;
const provider = new JsonRpcProvider(rpc, undefined, { cacheTimeout: -1 });
provider.pollingInterval = 50;
const alice = new Wallet(given.alice, provider);
const bob = new Wallet(given.bob, provider);
const contract = new Contract(token, ABI, alice);
const facts = {};

// What became of a transaction, without what differs from chain to chain.
async function mined(sent) {
  const receipt = await (await sent).wait();
  const named = receipt.logs.map((log) => contract.interface.parseLog(log));
  return {
    status: receipt.status,
    type: receipt.type,
    gas: receipt.gasUsed,
    from: receipt.from,
    to: receipt.to,
    logs: named.map((event) => [event.name, ...event.args]),
  };
}

// How a call or a transaction is refused.
async function refused(sent) {
  try {
    await (await sent).wait?.();
  } catch (error) {
    return { code: error.code, reason: error.reason ?? null };
  }
  return "it was not refused";
}

const heard = [];
await contract.on("Transfer", (from, to, value) => heard.push(Number(value)));
const blocks = [];
await provider.on("block", (number) => blocks.push(number));
const before = await provider.getBlockNumber();

facts.chainId = (await provider.getNetwork()).chainId;
facts.named = [await contract.name(), await contract.version()];
facts.transfer = await mined(contract.transfer(shop, 11));
facts.legacy = await mined(
  contract.transfer(shop, 12, { type: 0, gasPrice: (await provider.getFeeData()).gasPrice }),
);
facts.coin = await mined(alice.sendTransaction({ to: shop, value: 13n }));

const domain = { name: given.name, version: given.version, chainId, verifyingContract: token };
const authorization = {
  from: alice.address,
  to: shop,
  value: 14,
  validAfter: 0,
  validBefore: given.end,
  nonce: given.nonce,
};
const signed = Signature.from(await alice.signTypedData(domain, AUTHORIZATION, authorization));
const pay = [...Object.values(authorization), signed.v, signed.r, signed.s];
const asBob = contract.connect(bob);
facts.authorized = await mined(asBob.transferWithAuthorization(...pay));
facts.usedTwice = await refused(asBob.transferWithAuthorization(...pay));
facts.reverts = await refused(asBob.transferWithAuthorization(...pay, { gasLimit: 200_000 }));

const value = 20n;
const deadline = given.end;
const permitNonce = await contract.nonces(alice.address);
const permit = { owner: alice.address, spender: bob.address, value, nonce: permitNonce, deadline };
const ours = Signature.from(await alice.signTypedData(domain, PERMIT, permit));
const arguments_ = [alice.address, bob.address, value, deadline, ours.v, ours.r, ours.s];
facts.permit = await mined(asBob.permit(...arguments_));
facts.permitTwice = await refused(asBob.permit(...arguments_));
facts.allowed = await contract.allowance(alice.address, bob.address);
facts.taken = await mined(asBob.transferFrom(alice.address, shop, 15));
facts.tooMuch = await refused(asBob.transferFrom(alice.address, shop, 15));
facts.approved = await mined(contract.approve(bob.address, 5));
facts.left = await contract.allowance(alice.address, bob.address);

const nonce = await provider.getTransactionCount(alice.address, "pending");
facts.nonceTooLow = await refused(contract.transfer(shop, 1, { nonce: nonce - 1, gasLimit: 99_999 }));
const poor = new Wallet(given.poor, provider);
facts.poor = await refused(poor.sendTransaction({ to: shop, value: 1n, gasLimit: 21_000 }));
facts.broke = await refused(contract.connect(poor).transfer(shop, 1));
facts.estimate = await contract.transfer.estimateGas(shop, 1);

const logs = await contract.queryFilter("Transfer", before + 1);
facts.logs = logs.map((log) => [log.blockNumber - before, ...log.args]);
const then = await contract.balanceOf(shop, { blockTag: before });
facts.moved = Number((await contract.balanceOf(shop)) - then);
facts.storage = await provider.getStorage(token, 11);
facts.unused = await provider.getStorage(token, ZeroHash.replace("0x0", "0x9"));
facts.pending = (await provider.send("eth_getBlockByNumber", ["pending", false])).number;
facts.head = await provider.getBlockNumber();
facts.pending = Number(facts.pending) - facts.head;
facts.blocks = facts.head - before;
delete facts.head;

// The node's own accounts: it signs for them.
const owner = await provider.getSigner(0);
facts.owner = owner.address;
facts.typed = (await owner.signTypedData(domain, AUTHORIZATION, authorization)) ===
  (await new Wallet(given.first).signTypedData(domain, AUTHORIZATION, authorization));
facts.message = (await owner.signMessage(getBytes("0x1234"))) ===
  (await new Wallet(given.first).signMessage(getBytes("0x1234")));
facts.sent = await mined(contract.connect(owner).transfer(shop, 16));

await until(() => heard.length >= logs.length + 1, "events");
facts.heard = heard;
await until(() => blocks.length >= 3, "blocks");
await contract.off("Transfer");
provider.destroy();
say(facts);
process.exit(0);
