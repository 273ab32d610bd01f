// An adapter for the official npm packages, @x402/core and @x402/evm; time and chain are those of each request.
import { createInterface } from "node:readline";
import { x402Facilitator } from "@x402/core/facilitator";
import * as http from "@x402/core/http";
import * as schemas from "@x402/core/schemas";
import { x402ResourceServer } from "@x402/core/server";
import { convertToTokenAmount } from "@x402/core/utils";
import { ExactEvmScheme } from "@x402/evm/exact/facilitator";
import { ExactEvmSchemeV1 } from "@x402/evm/exact/v1/facilitator";
import { encodeAbiParameters, parseAbiParameters, verifyTypedData } from "viem";

const readers = {
  required: [http.decodePaymentRequiredHeader, schemas.PaymentRequiredSchema],
  payment: [http.decodePaymentSignatureHeader, schemas.PaymentPayloadSchema],
  receipt: [http.decodePaymentResponseHeader, null], // the package has no schema of a receipt
};
const writers = {
  required: http.encodePaymentRequiredHeader,
  payment: http.encodePaymentSignatureHeader,
  receipt: http.encodePaymentResponseHeader,
};
class Unsupported extends Error {}
const isBody = ({ version, message }) => version === 1 && message === "required";
const known = (asked) => {
  if (asked.version === "spec") throw new Unsupported();
};

function decode(asked) {
  known(asked);
  const [read, schema] = readers[asked.message];
  const value = isBody(asked) ? JSON.parse(asked.text) : read(asked.text);
  return { value: schema ? schema.parse(value) : value };
}

function encode(asked) {
  known(asked);
  return { text: isBody(asked) ? JSON.stringify(asked.value) : writers[asked.message](asked.value) };
}

function match({ accepts, accepted }) {
  const payment = { x402Version: 2, payload: {}, accepted };
  const found = new x402ResourceServer().findMatchingRequirements(accepts, payment);
  return { index: found === undefined ? null : accepts.indexOf(found) };
}

const word = (type, value) => encodeAbiParameters(parseAbiParameters(type), [value]);
const results = {
  "0x70a08231": ({ balance }) => word("uint256", BigInt(balance)),
  "0xe94a0102": ({ nonceUsed }) => word("bool", nonceUsed),
  "0x06fdde03": ({ token }) => word("string", token.name),
  "0x54fd4d50": ({ token }) => word("string", token.version),
};

// The signer of a facilitator, whose chain is the state of a request.
function chain(state) {
  const isToken = (address) => address.toLowerCase() === state.token.address.toLowerCase();
  const getCode = async ({ address }) => (isToken(address) ? "0x01" : state.payerCode === "0x" ? undefined : state.payerCode);
  const reads = {
    balanceOf: () => BigInt(state.balance),
    authorizationState: () => state.nonceUsed,
    name: () => state.token.name,
    version: () => state.token.version,
    transferWithAuthorization: () => {
      if (state.transfer !== "ok") throw new Error(`execution ${state.transfer}`);
    },
  };
  return {
    getAddresses: () => ["0x1a642f0E3c3aF545E7AcBD38b07251B3990914F1"],
    getCode,
    async readContract({ address, functionName, args }) {
      if (functionName === "isValidSignature") return state.isValidSignature.slice(0, 10);
      if (functionName === "tryAggregate")
        return args[1].map(({ callData }) => {
          const read = results[callData.slice(0, 10)];
          return read ? { success: true, returnData: read(state) } : { success: state.transfer === "ok", returnData: "0x" };
        });
      if (!isToken(address)) throw new Error("execution reverted");
      return reads[functionName]();
    },
    async verifyTypedData(asked) {
      if (await getCode(asked)) return state.isValidSignature.startsWith("0x1626ba7e");
      return verifyTypedData(asked);
    },
  };
}

async function verify({ version, payment, requirements, state }) {
  Date.now = () => state.time * 1000;
  const facilitator = new x402Facilitator();
  const signer = chain(state);
  facilitator.register(`eip155:${state.chainId}`, new ExactEvmScheme(signer));
  facilitator.registerV1("base-sepolia", new ExactEvmSchemeV1(signer));
  const { isValid, invalidReason } = await facilitator.verify(payment, requirements);
  return { isValid, invalidReason };
}

const operations = {
  decode,
  encode,
  match,
  units: ({ text, decimals }) => ({ base: convertToTokenAmount(text, decimals) }),
  verify,
  capabilities: () => ({ name: "@x402/core and @x402/evm", operations: Object.keys(operations).slice(0, -1) }),
};

for await (const line of createInterface({ input: process.stdin })) {
  const { id, op, input } = JSON.parse(line);
  let answer;
  try {
    answer = { id, result: await operations[op](input) };
  } catch (wrong) {
    const code = wrong instanceof Unsupported ? "unsupported" : "invalid";
    answer = { id, error: { code, message: String(wrong.message).slice(0, 200) } };
  }
  console.log(JSON.stringify(answer));
}
