// The external facilitator: verify and settle. What it did with our request is never guessed:
// "unknown" means that the transfer may or may not have happened.
import { bug, settings } from './settings.mjs';
import { callJson } from './outbound.mjs';

const HASH = /^0x[0-9a-f]{64}$/i;

function post(path, header, requirements, timeoutMs) {
  const { scheme, network, payTo, asset, maxAmountRequired, maxTimeoutSeconds } = requirements;
  return callJson(`${settings.facilitatorUrl}/v2/x402/${path}`, {
    headers: { 'x402-version': '1' },
    timeoutMs,
    body: {
      x402Version: 1,
      paymentHeader: Buffer.from(JSON.stringify(header)).toString('base64'),
      paymentRequirements: { scheme, network, payTo, asset, maxAmountRequired, maxTimeoutSeconds },
    },
  });
}

export async function verify(header, requirements) {
  const answer = await post('verify', header, requirements, settings.verifyTimeoutMs);
  if (answer.body?.isValid === true && answer.status === 200) return { state: 'valid' };
  if (answer.body?.isValid === false) return { state: 'invalid', reason: String(answer.body.invalidReason) };
  return { state: 'unavailable', retryAfter: answer.retryAfter };
}

export async function settle(header, requirements) {
  const answer = await post('settle', header, requirements, settings.settleTimeoutMs);
  const { sent, status, body } = answer;
  if (!sent || status === 429) return { state: 'not_sent', retryAfter: answer.retryAfter };
  if (status === undefined || status >= 500 || status === 408) return { state: 'unknown' };
  if (bug('failed_is_ok') && status === 200) return { state: 'settled', txHash: body?.txHash ?? `0x${'0'.repeat(64)}` };
  if (body?.event === 'payment.failed') return { state: 'failed', reason: String(body.error) };
  if (status >= 400) return { state: 'failed', reason: String(body?.error ?? `HTTP ${status}`) };
  const { from, value } = header.payload;
  const told = (field, expected) => body[field] === undefined
    || String(body[field]).toLowerCase() === String(expected).toLowerCase();
  const coherent = body?.event === 'payment.settled' && HASH.test(body.txHash)
    && told('from', from) && told('to', requirements.payTo) && told('value', value);
  return coherent ? { state: 'settled', txHash: body.txHash } : { state: 'unknown' };
}
