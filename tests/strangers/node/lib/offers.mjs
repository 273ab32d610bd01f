// Payment ids and the terms they stand for (2.1, 2.2).
import { createHmac, randomBytes, timingSafeEqual } from 'node:crypto';
import { BASE_UNITS_PER_CENT, OFFER_SECONDS, bug, on, settings } from './settings.mjs';

const MAX_OFFERS = 200_000;
const issued = new Map();
const key = createHmac('sha256', settings.privateKey).update('payment ids').digest();
const mac = (data) => createHmac('sha256', key)
  .update(`${settings.network} ${settings.merchant} ${settings.token}\n`.toLowerCase()).update(data).digest().subarray(0, 16);
let counter = 0;

function shortText(length) {
  const alphabet = 'ABCDEFGHJKMNPQRSTUVWXYZabcdefghijkmnpqrstuvwxyz23456789';
  let text = '';
  while (text.length < length) {
    const byte = randomBytes(1)[0];
    if (byte < 4 * alphabet.length) text += alphabet[byte % alphabet.length];
  }
  return text;
}

function sealed({ resource, amount, issuedAt, session }) {
  const data = Buffer.from(JSON.stringify([resource, amount, issuedAt, session ?? 0, randomBytes(6).toString('base64url')]));
  return `pay_${Buffer.concat([mac(data), data]).toString('base64url')}`;
}

function unsealed(id) {
  const raw = Buffer.from(id.slice(4), 'base64url');
  // One spelling only: the id is the key under which the payment is stored.
  if (!id.startsWith('pay_') || raw.length < 17 || `pay_${raw.toString('base64url')}` !== id) return undefined;
  const data = raw.subarray(16);
  if (!timingSafeEqual(raw.subarray(0, 16), mac(data))) return undefined;
  const [resource, amount, issuedAt, session] = JSON.parse(data.toString('utf8'));
  return { id, resource, amount, issuedAt, ...(session && { session }) };
}

export function issue(resource, amount, session) {
  const offer = { resource, amount: amount.toString(), issuedAt: Date.now(), ...(session && { session }) };
  if (bug('shared_offer') && !session) {
    const earlier = [...issued.values()].find((other) => other.resource === resource && !isExpired(other));
    if (earlier) return earlier;
  }
  if (on('stateless_ids')) return { ...offer, id: sealed(offer) };
  offer.id = on('short_ids') ? `pay_${shortText(12)}` : `pay_${randomBytes(16).toString('hex')}`;
  if (bug('guessable_ids')) offer.id = `pay_${Math.floor(offer.issuedAt / 1000).toString(16)}${(counter += 1).toString(16).padStart(4, '0')}`;
  if (bug('id_prefix')) offer.id = `payment_${offer.id.slice(4)}`;
  if (issued.size >= MAX_OFFERS) issued.delete(issued.keys().next().value);
  issued.set(offer.id, offer);
  return offer;
}

export const find = (id) => (on('stateless_ids') ? unsealed(id) : issued.get(id));

export const isExpired = (offer) => !bug('offer_never_expires') && Date.now() >= offer.issuedAt + OFFER_SECONDS * 1000;

export function sweep() {
  for (const [id, offer] of issued) if (isExpired(offer)) issued.delete(id);
}

/** The terms of an offer, without the description. */
export function termsOf({ resource, amount }) {
  return {
    scheme: 'exact',
    network: settings.network,
    payTo: settings.merchant,
    asset: settings.token,
    maxAmountRequired: amount,
    maxTimeoutSeconds: OFFER_SECONDS,
    resource,
  };
}

/** The body of a 402. */
export function paymentRequired(offer) {
  const terms = termsOf(offer);
  const description = offer.session
    ? `Deposit of a session, ${(Number(BigInt(offer.amount) / BASE_UNITS_PER_CENT) / 100).toFixed(2)} of the token`
    : `One paid call of ${offer.resource}`;
  const inTokens = (Number(offer.amount) / 1e6).toFixed(2);
  return {
    error: bug('error_text') ? 'payment_required' : 'Payment Required',
    paymentId: offer.id,
    paymentRequirements: {
      ...terms,
      ...(bug('amount_as_number') && { maxAmountRequired: Number(terms.maxAmountRequired) }),
      ...(!bug('no_description') && { description }),
      ...(on('extra_fields') && { mimeType: 'application/json', extra: { name: 'service terms 1' } }),
    },
    message: bug('message_in_tokens')
      ? `Payment of ${inTokens} USDC required`
      : `Payment of ${offer.amount} base units required for ${offer.resource}`,
    network: bug('network_label') ? String(settings.chainId) : settings.network,
  };
}

/** The name of the first field of an echoed paymentRequirements that is not as issued. */
export function difference(echo, terms) {
  const plain = (value, name) => {
    if (bug('amount_as_number') && name === 'maxAmountRequired') return String(value);
    return ['payTo', 'asset'].includes(name) && typeof value === 'string' ? value.toLowerCase() : value;
  };
  return Object.keys(terms).find((name) => plain(echo[name], name) !== plain(terms[name], name));
}
