// ethers 6 over WebSocket: its events are subscriptions.

import { Contract, Wallet, WebSocketProvider } from "ethers";
import { ABI, say, until } from "./abi.mjs";
import { told as given } from "../buying.mjs";

const { rpc, token, shop } = given;
const provider = new WebSocketProvider(rpc.replace(/^http/, "ws"), undefined, { cacheTimeout: -1 });
const alice = new Wallet(given.alice, provider);
const contract = new Contract(token, ABI, alice);
const facts = {};
const [heard, numbers, arrived] = [[], [], []];
await contract.on("Transfer", (from, to, value) => heard.push(Number(value)));
await provider.on("block", (number) => numbers.push(number));
await provider.on("pending", (hash) => arrived.push(hash));
const before = await provider.getBlockNumber();

const sent = await contract.transfer(shop, 11);
const receipt = await sent.wait();
facts.transfer = [receipt.status, receipt.gasUsed, receipt.logs.length];
const listed = await contract.transfer(shop, 12, { type: 1, accessList: [[token, []]] });
facts.accessList = [(await listed.wait()).gasUsed, (await provider.getTransaction(listed.hash)).type];
const block = await provider.getBlock(before + 1, true);
facts.block = [block.length, block.prefetchedTransactions[0].hash === sent.hash];
facts.sha3 = await provider.send("web3_sha3", ["0x1234"]);
facts.listening = await provider.send("net_listening", []);
await until(() => heard.length === 2, "events");
await until(() => numbers.length >= 2, "blocks");
await until(() => [sent.hash, listed.hash].every((hash) => arrived.includes(hash)), "arriving transactions");
facts.heard = heard;
await contract.off("Transfer");
await provider.off("block");
await provider.destroy();
say(facts);
process.exit(0);
