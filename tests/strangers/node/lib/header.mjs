// The payment header (2.3): decoding it, and the checks that need no facilitator.
import { createHash } from 'node:crypto';
import { bug, on, settings } from './settings.mjs';
import { Refusal, invalidSignature, settlementRefusal } from './errors.mjs';

const same = (a, b) => a.toLowerCase() === b.toLowerCase();
const malformed = (detail) => new Refusal(400, 'Malformed payment header', detail);

function unixSeconds(value, name) {
  const seconds = typeof value === 'string' && /^\d{1,15}$/.test(value) ? Number(value) : value;
  if (!Number.isSafeInteger(seconds) || seconds < 0) throw malformed(`${name} is not a time in Unix seconds`);
  return seconds;
}

/** Returns the facilitator's header object, with exactly the fields that were looked at. */
export function decode(text) {
  if (!/^0x([0-9a-f]{2})+$/i.test(text)) throw malformed('it is not 0x and hex digits');
  let decoded = Buffer.from(text.slice(2), 'hex').toString('utf8').trim();
  if (!decoded.startsWith('{')) decoded = Buffer.from(decoded, 'base64').toString('utf8');
  let header;
  try {
    header = JSON.parse(decoded);
  } catch {
    throw malformed('it carries no JSON');
  }
  const payload = header?.payload;
  const matches = (value, pattern) => typeof value === 'string' && pattern.test(value);
  if (!payload || typeof payload !== 'object') throw malformed('it has no payload');
  for (const name of ['from', 'to', 'asset']) {
    if (!matches(payload[name], /^0x[0-9a-f]{40}$/i)) throw malformed(`${name} is not an address`);
  }
  if (!matches(payload.nonce, /^0x[0-9a-f]{64}$/i)) throw malformed('nonce is not 32 bytes');
  if (!matches(payload.value, /^\d{1,78}$/)) throw malformed('value is not an amount');
  if (!matches(payload.signature, /^0x([0-9a-f]{2}){1,1024}$/i)) throw malformed('signature is not hex');
  const { from, to, value, nonce, signature, asset } = payload;
  return {
    x402Version: header.x402Version,
    scheme: header.scheme,
    network: header.network,
    payload: {
      from, to, value,
      validAfter: unixSeconds(payload.validAfter, 'validAfter'),
      validBefore: unixSeconds(payload.validBefore, 'validBefore'),
      nonce: nonce.toLowerCase(), signature, asset,
    },
  };
}

/** Tells whether two headers are the same signed authorization. */
export const digest = ({ payload }) => createHash('sha256')
  .update([payload.from, payload.nonce, payload.signature].join().toLowerCase()).digest('hex');

export function isExpired({ payload }) {
  return payload.validBefore * 1000 <= Date.now();
}

/** Throws unless the authorization is for exactly these terms, now. */
export function check(header, terms) {
  const { payload } = header;
  if (header.x402Version !== 1 || header.scheme !== terms.scheme || header.network !== terms.network) {
    throw invalidSignature('The authorization is for another version, scheme or network');
  }
  if (!same(payload.asset, terms.asset)) throw invalidSignature('The authorization is for another token');
  if (!same(payload.to, terms.payTo)) throw invalidSignature('The authorization is for another recipient');
  const enough = BigInt(payload.value) >= BigInt(terms.maxAmountRequired);
  const exact = BigInt(payload.value) === BigInt(terms.maxAmountRequired);
  if (bug('overpay_accepted') ? !enough : !exact) throw invalidSignature('The authorization is for another amount');
  if (isExpired(header)) throw settlementRefusal(400, 'Authorization expired', 'validBefore has passed');
  if (payload.validAfter * 1000 > Date.now()) {
    throw settlementRefusal(400, 'Authorization not yet valid', 'validAfter is in the future');
  }
  const longest = Date.now() / 1000 + settings.longestWindow;
  if (on('strict_window') && payload.validBefore > longest) {
    throw settlementRefusal(400, 'Authorization window too long', `validBefore is more than ${settings.longestWindow} s from now`);
  }
}
