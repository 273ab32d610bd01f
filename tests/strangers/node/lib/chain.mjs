// The token contract: reading what became of an authorization, and signing one for refunds.
import { randomBytes } from 'node:crypto';
import { secp256k1 } from '@noble/curves/secp256k1';
import { keccak_256 } from '@noble/hashes/sha3';
import { settings } from './settings.mjs';
import { callJson } from './outbound.mjs';

const keccak = (data) => Buffer.from(keccak_256(data));
const utf8 = (text) => Buffer.from(text, 'utf8');
const bytes = (hex) => Buffer.from(hex.slice(2), 'hex');
const hex = (buffer) => `0x${Buffer.from(buffer).toString('hex')}`;
const word = (value) => (typeof value === 'string'
  ? Buffer.concat([Buffer.alloc(32), bytes(value)]).subarray(-32)
  : bytes(`0x${BigInt(value).toString(16).padStart(64, '0')}`));
const topic = (signature) => hex(keccak(utf8(signature)));

const USED = topic('AuthorizationUsed(address,bytes32)');
const CANCELED = topic('AuthorizationCanceled(address,bytes32)');
const TRANSFER = topic('Transfer(address,address,uint256)');
const selector = (signature) => keccak(utf8(signature)).subarray(0, 4);

async function rpc(method, params) {
  const answer = await callJson(settings.rpcUrl, { body: { jsonrpc: '2.0', id: 1, method, params }, timeoutMs: 5_000 });
  if (answer.status !== 200 || !answer.body || answer.body.error || !('result' in answer.body)) {
    throw new Error(`${method} failed`);
  }
  return answer.body.result;
}

const call = (data) => rpc('eth_call', [{ to: settings.token, data: hex(data) }, 'latest']);

/** The newest block's number, or null when the node does not tell. */
export const newestBlock = () => rpc('eth_blockNumber', []).then(Number, () => null);

/**
 * What became of an authorization sent after block `after`:
 * {state: 'executed', txHash} | 'open' (can still execute) | 'dead' (never will), with a reason | 'unknown'.
 */
export async function fateOf({ from, to, value, nonce, validBefore }, after) {
  try {
    const used = BigInt(await call(Buffer.concat([
      selector('authorizationState(address,bytes32)'), word(from), bytes(nonce)])));
    if (used === 0n) {
      const block = await rpc('eth_getBlockByNumber', ['latest', false]);
      // Our clock alone would not do at once: the node may not have seen the newest blocks yet.
      const over = Number(block.timestamp) >= Number(validBefore) || Date.now() / 1000 > Number(validBefore) + 60;
      return over ? { state: 'dead', reason: 'Authorization expired' } : { state: 'open' };
    }
    const since = Math.max(0, (after ?? Number(await rpc('eth_blockNumber', []))) - 1000);
    const [log] = await rpc('eth_getLogs', [{
      address: settings.token,
      fromBlock: `0x${since.toString(16)}`,
      toBlock: 'latest',
      topics: [[USED, CANCELED], hex(word(from)), nonce],
    }]);
    if (!log) return { state: 'unknown' };
    const dead = { state: 'dead', reason: 'Authorization already used' };
    if (log.topics[0].toLowerCase() === CANCELED || (after !== null && Number(log.blockNumber) <= after)) return dead;
    const receipt = await rpc('eth_getTransactionReceipt', [log.transactionHash]);
    if (!receipt) return { state: 'unknown' };
    // The signer may have used this nonce for another transfer.
    const expected = [TRANSFER, hex(word(from)), hex(word(to))].join();
    const paid = Number(receipt.status) === 1 && receipt.logs.some((entry) => entry.address.toLowerCase() === settings.token.toLowerCase()
      && entry.topics.join().toLowerCase() === expected && BigInt(entry.data) === BigInt(value));
    return paid ? { state: 'executed', txHash: log.transactionHash } : dead;
  } catch {
    return { state: 'unknown' };
  }
}

const DOMAIN_TYPE = 'EIP712Domain(string name,string version,uint256 chainId,address verifyingContract)';
const TRANSFER_TYPE = 'TransferWithAuthorization(address from,address to,uint256 value,uint256 validAfter,uint256 validBefore,bytes32 nonce)';

let separator;
async function domainSeparator() {
  if (separator) return separator;
  const text = async (getter) => {
    const raw = bytes(await call(selector(getter)));
    return raw.subarray(64, 64 + Number(BigInt(hex(raw.subarray(32, 64))))).toString('utf8');
  };
  const name = await text('name()');
  const version = await text('version()');
  separator = keccak(Buffer.concat([keccak(utf8(DOMAIN_TYPE)), keccak(utf8(name)), keccak(utf8(version)),
    word(settings.chainId), word(settings.token)]));
  return separator;
}

export const serverAddress = hex(keccak(
  secp256k1.getPublicKey(bytes(settings.privateKey), false).subarray(1)).subarray(12));

/** A nonce that only this wallet can know and that is always the same for the same label. */
export const nonceFor = (label) => hex(keccak(Buffer.concat([bytes(settings.privateKey), utf8(label)])));
export const randomNonce = () => hex(randomBytes(32));

/** The facilitator's header object for a transfer out of the server wallet. */
export async function signTransfer({ to, value, nonce, validBefore }) {
  const validAfter = 0;
  const struct = keccak(Buffer.concat([keccak(utf8(TRANSFER_TYPE)), word(serverAddress), word(to),
    word(value), word(validAfter), word(validBefore), bytes(nonce)]));
  const digest = keccak(Buffer.concat([Buffer.from([0x19, 0x01]), await domainSeparator(), struct]));
  const signed = secp256k1.sign(digest, bytes(settings.privateKey));
  return {
    x402Version: 1,
    scheme: 'exact',
    network: settings.network,
    payload: {
      from: serverAddress, to, value: value.toString(), validAfter, validBefore, nonce,
      signature: hex(Buffer.concat([signed.toCompactRawBytes(), Buffer.from([27 + signed.recovery])])),
      asset: settings.token,
    },
  };
}
