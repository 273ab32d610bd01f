// wagmi as a page uses it, with its default client: reads at once (which it batches through Multicall3),
// writes through a connector whose accounts are the node's own, and a signed authorization.

import { connect, createConfig, estimateGas, getTransactionCount, http } from "@wagmi/core";
import { mock, readContract, readContracts, signTypedData, simulateContract } from "@wagmi/core";
import { waitForTransactionReceipt, writeContract } from "@wagmi/core";
import { encodeFunctionData, parseAbi, parseSignature } from "viem";
import { privateKeyToAccount } from "viem/accounts";
import { baseSepolia } from "viem/chains";
import { ABI, AUTHORIZATION, say } from "./abi.mjs";
import { told as given } from "../buying.mjs";

const { rpc, token, chainId, shop } = given;
const abi = parseAbi(ABI);
const account = privateKeyToAccount(given.alice).address;
const chain = { ...baseSepolia, id: chainId, rpcUrls: { default: { http: [rpc] } } };
const asked = [];
const onFetchRequest = async (request) => {
  const body = JSON.parse(await request.clone().text());
  if (body.method === "eth_call") asked.push(body.params[0].to.toLowerCase());
};
const transports = { [chainId]: http(rpc, { onFetchRequest }) };
const config = createConfig({ chains: [chain], connectors: [mock({ accounts: [account] })], transports });
const call = (functionName, args) => ({ address: token, abi, functionName, args });
const read = (functionName, ...args) => readContract(config, call(functionName, args));
const facts = {};

async function mined(sent) {
  const receipt = await waitForTransactionReceipt(config, { hash: await sent, pollingInterval: 50 });
  return { status: receipt.status, gas: receipt.gasUsed, logs: receipt.logs.length };
}

async function refused(sent) {
  try {
    await sent;
  } catch (error) {
    return [error.name, error.shortMessage];
  }
  return "it was not refused";
}

const all = () => Promise.all([read("name"), read("version"), read("nonces", account), read("balanceOf", shop)]);
facts.read = await all();
facts.batched = [...asked];
await connect(config, { connector: config.connectors[0] });
facts.transfer = await mined(writeContract(config, call("transfer", [shop, 11n])));

const domain = { name: given.name, version: given.version, chainId, verifyingContract: token };
const signedBy = { from: account, to: shop, value: 14n, validAfter: 0n, validBefore: BigInt(given.end) };
const message = { ...signedBy, nonce: given.nonce };
const primaryType = "TransferWithAuthorization";
const signature = await signTypedData(config, { domain, types: AUTHORIZATION, primaryType, message });
const { r, s, yParity } = parseSignature(signature);
const pay = call("transferWithAuthorization", [...Object.values(message), yParity + 27, r, s]);
facts.authorized = await mined(writeContract(config, pay));
facts.usedTwice = await refused(simulateContract(config, pay));
facts.tooMuch = await refused(simulateContract(config, call("transfer", [shop, 10n ** 18n])));
const data = encodeFunctionData(call("transfer", [shop, 1n]));
facts.estimate = await estimateGas(config, { account, to: token, data });
facts.count = await getTransactionCount(config, { address: account });
facts.after = await readContracts(config, {
  contracts: [call("balanceOf", [shop]), call("allowance", [account, shop]), call("transfer", [shop, 10n ** 18n])],
}).then((found) => found.map(({ status, result }) => [status, result ?? null]));
say(facts);
process.exit(0);
