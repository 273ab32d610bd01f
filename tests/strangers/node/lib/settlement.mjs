// POST /api/pay: from a signed authorization to a stored payment, at most one per payment id and
// at most one payment id per authorization.
import { randomBytes } from 'node:crypto';
import { bug, on } from './settings.mjs';
import { Refusal, invalidSignature, settlementRefusal } from './errors.mjs';
import * as chain from './chain.mjs';
import * as entitlements from './entitlements.mjs';
import * as facilitator from './facilitator.mjs';
import * as headers from './header.mjs';
import * as offers from './offers.mjs';
import { attempts, commit, nonceHolders, nonceKey, payments, sessionOfPayment } from './store.mjs';
import { QUOTE_RESOURCE } from './resources.mjs';

const locks = new Map();
let sessionCounter = 0;

/** Runs one task after another for each payment id. */
async function locked(id, task) {
  const before = locks.get(id) ?? Promise.resolve();
  const mine = before.then(task, task);
  const quiet = mine.catch(() => {});
  locks.set(id, quiet);
  await quiet;
  if (locks.get(id) === quiet) locks.delete(id);
  return mine;
}

const pending = (detail) => new Refusal(503, 'Settlement not finished', detail, { retryAfter: 2 });
const unavailable = (retryAfter) => new Refusal(503, 'Facilitator unavailable', 'Nothing was charged', { retryAfter: retryAfter ?? 2 });

/** What the facilitator's reason is called in the specification. */
function refusalFor(reason) {
  if (/already used|nonce/i.test(reason)) {
    return settlementRefusal(409, bug('nonce_text') ? 'Settlement failed' : 'Nonce already used', reason);
  }
  if (/not yet valid/i.test(reason)) return settlementRefusal(400, 'Authorization not yet valid', reason);
  if (/expired/i.test(reason)) return settlementRefusal(400, 'Authorization expired', reason);
  if (/balance|insufficient/i.test(reason)) {
    return settlementRefusal(400, bug('balance_text') ? 'Insufficient funds' : 'Insufficient USDC balance', reason);
  }
  if (/signature/i.test(reason)) return invalidSignature(reason);
  return settlementRefusal(400, 'Settlement failed', reason);
}

const fateOf = (attempt) => chain.fateOf(attempt.header.payload, attempt.block);

/** Stores the payment, opens the session if it is a deposit, and grants the entitlement. */
function complete(attempt, txHash) {
  const { offer, header } = attempt;
  const payment = {
    payment_id: offer.id,
    tx_hash: txHash,
    from_address: header.payload.from,
    to_address: header.payload.to,
    amount: offer.amount,
    resource_url: offer.resource,
    status: 'settled',
    block_number: null,
    timestamp: Date.now(),
    auth: headers.digest(header),
    nonce_key: nonceKey(header.payload),
  };
  commit('settled', { payment, ...(offer.session && { session: newSession(offer, payment) }) }, { durable: true });
  entitlements.grant(payment);
  return payment;
}

function newSession({ session }, payment) {
  const opaque = bug('guessable_sessions')
    ? `${Math.floor(payment.timestamp / 1000)}_${(sessionCounter += 1)}` : randomBytes(16).toString('hex');
  return {
    id: bug('session_prefix') ? `sess_${opaque}` : `session_${opaque}`,
    payment_id: payment.payment_id,
    payer: payment.from_address,
    deposited: session.budget,
    expires_at: payment.timestamp + session.duration * 1000,
    state: 'open',
  };
}

function validate(body) {
  if (!body || typeof body !== 'object' || Array.isArray(body)) throw new Refusal(400, 'Invalid request', 'The body is not a JSON object');
  const { paymentId, paymentHeader, paymentRequirements } = body;
  if (typeof paymentId !== 'string' || !paymentId || paymentId.length > 1000) throw new Refusal(400, 'Invalid request', 'paymentId is missing');
  if (typeof paymentHeader !== 'string') throw new Refusal(400, 'Invalid request', 'paymentHeader is missing');
  if (!paymentRequirements || typeof paymentRequirements !== 'object' || Array.isArray(paymentRequirements)) {
    throw new Refusal(400, 'Invalid request', 'paymentRequirements is missing');
  }
  return { id: paymentId, header: headers.decode(paymentHeader), echo: paymentRequirements };
}

export async function pay(body) {
  const { id, header, echo } = validate(body);
  if (bug('concurrent_double_settle')) return settle(id, header, echo);
  return locked(id, () => settle(id, header, echo));
}

async function settle(id, header, echo) {
  const settled = payments.get(id);
  if (settled && !bug('resettle')) throw alreadySettled(settled, header);

  const attempt = attempts.get(id);
  let offer = attempt?.offer ?? offers.find(id);
  if (!offer && bug('unknown_id_accepted')) offer = { id, resource: QUOTE_RESOURCE, amount: '10000', issuedAt: Date.now() };
  if (!offer) throw new Refusal(404, 'Unknown payment id', 'It was not issued here, or some time ago');

  let terms = offers.termsOf(offer);
  const wrong = offers.difference(echo, terms);
  if (bug('trusts_echo')) terms = { ...terms, payTo: String(echo.payTo), maxAmountRequired: String(echo.maxAmountRequired) };
  else if (wrong && !on('ignore_echo')) throw new Refusal(400, 'Payment requirements do not match', `${wrong} is not as issued`);

  if (attempt) {
    const resent = headers.digest(header) === headers.digest(attempt.header);
    const finished = await continueAttempt(attempt, resent, terms);
    if (finished) return finished;
  }

  headers.check(header, terms);
  if (offers.isExpired(offer)) throw new Refusal(410, 'Payment id expired', 'Request the resource again for a new one');
  const key = nonceKey(header.payload);
  const holder = nonceHolders.get(key);
  if (holder && holder !== id && !bug('already_used_is_paid')) throw refusalFor('Nonce already used for another payment');
  nonceHolders.set(key, id);
  const release = () => {
    if (holder) nonceHolders.set(key, holder);
    else nonceHolders.delete(key);
  };

  if (bug('overpay_accepted')) terms = { ...terms, maxAmountRequired: header.payload.value };
  const verdict = await facilitator.verify(header, terms);
  if (verdict.state === 'unavailable') {
    release();
    throw unavailable(verdict.retryAfter);
  }
  if (verdict.state === 'invalid' && !bug('verify_ignored')) {
    release();
    const refusal = refusalFor(verdict.reason);
    throw refusal.text === 'Settlement failed' ? invalidSignature(verdict.reason) : refusal;
  }
  if (bug('grants_before_settlement')) {
    entitlements.grant({ payment_id: id, resource_url: offer.resource, from_address: header.payload.from, timestamp: Date.now() });
  }

  const block = await chain.newestBlock();
  const fresh = { id, offer, header, block, at: Date.now() };
  // Before the transfer can happen, so that a crash leaves something to look after.
  commit('attempt', fresh, { durable: true });
  return execute(fresh, terms, { resent: false });
}

async function execute(attempt, terms, { resent }) {
  const outcome = await facilitator.settle(attempt.header, terms);
  if (outcome.state === 'settled') return complete(attempt, outcome.txHash);
  if (bug('already_used_is_paid') && /already used/i.test(outcome.reason)) {
    const { txHash } = await chain.fateOf(attempt.header.payload, null);
    if (txHash) return complete(attempt, txHash);
  }
  if (bug('lost_answer_forgotten') && outcome.state === 'unknown') {
    commit('failed', { id: attempt.id });
    throw new Refusal(502, 'Settlement failed', 'No answer from the facilitator');
  }
  // A refusal of an authorization that was sent before says nothing about the first time.
  if (outcome.state === 'unknown' || (resent && outcome.state === 'failed')) {
    const fate = await fateOf(attempt);
    if (fate.state === 'executed') return complete(attempt, fate.txHash);
    if (fate.state === 'dead') {
      commit('dead', { id: attempt.id, reason: fate.reason });
      throw refusalFor(fate.reason);
    }
    if (fate.state === 'open' && outcome.reason && !/already used/i.test(outcome.reason)) throw refusalFor(outcome.reason);
    throw pending('Whether the transfer happened is not known yet; send the same payment header again');
  }
  if (resent) throw pending('The facilitator cannot be reached; send the same payment header again');
  commit('failed', { id: attempt.id });
  throw outcome.state === 'not_sent' ? unavailable(outcome.retryAfter) : refusalFor(outcome.reason);
}

/** Brings an earlier attempt to an end; returns nothing if a new authorization may be tried. */
async function continueAttempt(attempt, resent, terms) {
  const fate = attempt.dead ? { state: 'dead', reason: attempt.dead } : await fateOf(attempt);
  if (fate.state === 'executed') {
    const payment = complete(attempt, fate.txHash);
    if (resent || on('second_authorization')) return payment;
    throw alreadySettled(payment);
  }
  if (fate.state === 'dead') {
    if (!attempt.dead) commit('dead', { id: attempt.id, reason: fate.reason });
    if (resent) throw refusalFor(fate.reason);
    if (on('second_authorization')) return undefined;
    throw new Refusal(409, 'Payment id void', 'Its authorization failed; use a new payment id');
  }
  if (resent) return execute(attempt, terms, { resent: true });
  throw new Refusal(409, 'Settlement not finished', 'Another authorization was sent for this payment id and can still be executed', { retryAfter: 2 });
}

function alreadySettled(payment, header) {
  // Only the payer has the header that paid: whoever lost the answer may have it again.
  const known = header && headers.digest(header) === payment.auth;
  const session = known && sessionOfPayment.get(payment.payment_id);
  return settlementRefusal(409, 'Payment already settled', 'Use a new payment id', {
    ...(known && { txHash: payment.tx_hash }),
    ...(session && { session }),
  });
}

/** Looks on the chain what became of an attempt, if there is one. */
export async function reconcile(id) {
  const attempt = attempts.get(id);
  if (!attempt || attempt.dead || locks.has(id) || Date.now() - (attempt.lookedAt ?? 0) < 1000) return;
  attempt.lookedAt = Date.now();
  await locked(id, async () => {
    if (attempts.get(id) !== attempt) return;
    const fate = await fateOf(attempt);
    if (fate.state === 'executed') complete(attempt, fate.txHash);
    if (fate.state === 'dead') commit('dead', { id, reason: fate.reason });
  });
}

export function sweep() {
  const dayAgo = Date.now() - 24 * 3600 * 1000;
  for (const [id, attempt] of attempts) if (attempt.dead && attempt.at < dayAgo) attempts.delete(id);
}

export async function reconcileAll() {
  for (const id of [...attempts.keys()]) await reconcile(id);
}
