// An adapter for viem: typed data, signatures, wrappers, calls, decimals.
import { createInterface } from "node:readline";
import {
  encodeFunctionData, hashDomain, hashStruct, hashTypedData, parseAbi, parseErc6492Signature, parseUnits,
  recoverTypedDataAddress, size, slice,
} from "viem";
import { privateKeyToAccount } from "viem/accounts";

const named = (text) => text.split(",").map((each) => ({ type: each.split(" ")[0], name: each.split(" ")[1] }));
const terms = named("address from,address to,uint256 value,uint256 validAfter,uint256 validBefore,bytes32 nonce");
const types = {
  EIP712Domain: named("string name,string version,uint256 chainId,address verifyingContract"),
  TransferWithAuthorization: terms,
  ReceiveWithAuthorization: terms,
  CancelAuthorization: named("address authorizer,bytes32 nonce"),
  Permit: named("address owner,address spender,uint256 value,uint256 nonce,uint256 deadline"),
  PermitWitnessTransferFrom: named("TokenPermissions permitted,address spender,uint256 nonce,uint256 deadline,Witness witness"),
  TokenPermissions: named("address token,uint256 amount"),
};
const typesOf = (domain, message) => ({
  ...types,
  EIP712Domain: types.EIP712Domain.filter(({ name }) => !domain || name in domain), // Permit2's has no version
  Witness: named("facilitator" in (message?.witness ?? message ?? {}) ? "address to,address facilitator,uint256 validAfter" : "address to,uint256 validAfter"),
});
const plain = parseAbi(["function transferWithAuthorization(address,address,uint256,uint256,uint256,bytes32,uint8,bytes32,bytes32)"]);
const wallet = parseAbi(["function transferWithAuthorization(address,address,uint256,uint256,uint256,bytes32,bytes)"]);
const domainOf = (domain) => ({ ...domain, chainId: BigInt(domain.chainId) });
const dataOf = ({ domain, type, message }) => ({ domain: domainOf(domain), types: typesOf(domain, message), primaryType: type, message });

const operations = {
  domain: ({ domain }) => ({ hash: hashDomain({ domain: domainOf(domain), types: typesOf(domain) }) }),
  struct: ({ type, message }) => ({ hash: hashStruct({ data: message, primaryType: type, types: typesOf(undefined, message) }) }),
  digest: (asked) => ({ hash: hashTypedData(dataOf(asked)) }),
  sign: async (asked) => ({ signature: await privateKeyToAccount(asked.privateKey).signTypedData(dataOf(asked)) }),
  recover: async (asked) => ({ address: await recoverTypedDataAddress({ ...dataOf(asked), signature: asked.signature }) }),
  unwrap: ({ signature }) => {
    const { address, data, signature: inner } = parseErc6492Signature(signature);
    return { factory: address ?? null, call: data ?? null, signature: inner };
  },
  calldata: ({ message, signature }) => {
    const isPlain = size(signature) === 65;
    const last = isPlain ? [Number(slice(signature, 64)), slice(signature, 0, 32), slice(signature, 32, 64)] : [signature];
    const args = [...terms.map(({ name }) => message[name]), ...last];
    return { data: encodeFunctionData({ abi: isPlain ? plain : wallet, functionName: "transferWithAuthorization", args }) };
  },
  units: ({ text, decimals }) => ({ base: String(parseUnits(text, decimals)) }),
  capabilities: () => ({ name: "viem", operations: Object.keys(operations).slice(0, -1) }),
};

for await (const line of createInterface({ input: process.stdin })) {
  const { id, op, input } = JSON.parse(line);
  let answer;
  try {
    answer = { id, result: await operations[op](input) };
  } catch (wrong) {
    answer = { id, error: { code: "invalid", message: String(wrong.message).slice(0, 200) } };
  }
  console.log(JSON.stringify(answer));
}
