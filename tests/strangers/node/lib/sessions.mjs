// Sessions: a budget paid for once, spent per request, its rest refunded after expiry (2.6, 4.4).
import { BASE_UNITS_PER_CENT, MINIMUM_DEPOSIT, QUOTE_PRICE, bug, on } from './settings.mjs';
import { Refusal } from './errors.mjs';
import * as chain from './chain.mjs';
import * as facilitator from './facilitator.mjs';
import { commit, sessions } from './store.mjs';

const MAX_SECONDS = 30 * 24 * 3600;
const REFUND_WINDOW_SECONDS = 300;
const BATCH_EVERY_MS = on('late_refunds') ? 4_000 : 250;
const BATCH_AGE_MS = on('late_refunds') ? 3_000 : 0;

/** Reads the body of a create request: {amount, session} of the offer. */
export function readRequest(body) {
  const { maxSpend, duration } = body && typeof body === 'object' ? body : {};
  if (typeof maxSpend !== 'string' || !/^\d{1,9}\.\d{2}$/.test(maxSpend)) {
    throw new Refusal(400, 'Invalid maxSpend', 'It is a string such as "1.00"');
  }
  if (!Number.isInteger(duration) || duration < 1 || duration > MAX_SECONDS) {
    throw new Refusal(400, 'Invalid duration', `It is a number of seconds from 1 to ${MAX_SECONDS}`);
  }
  const cents = bug('float_deposit') ? BigInt(Math.floor(parseFloat(maxSpend) * 100)) : BigInt(maxSpend.replace('.', ''));
  const budget = cents * BASE_UNITS_PER_CENT;
  if (budget < MINIMUM_DEPOSIT) throw new Refusal(400, 'maxSpend is too small', `The least is ${(Number(MINIMUM_DEPOSIT) / 1e6).toFixed(2)}`);
  return {
    amount: bug('deposit_at_quote_price') ? QUOTE_PRICE : budget,
    session: { budget: budget.toString(), duration },
  };
}

/** Opens another session for a deposit that has one already. */
export function openAgain(session) {
  const id = `${session.id.slice(0, -4)}${Math.floor(Math.random() * 65536).toString(16).padStart(4, '0')}`;
  sessions.set(id, { ...session, id, released: 0n });
  return sessions.get(id);
}

export const remaining = (session) => session.deposited - session.released;

const isOver = (session) => session.state !== 'open' || (Date.now() >= session.expires_at && !bug('spend_after_expiry'));
const covers = (session, price) => (bug('session_needs_more') ? remaining(session) > price : remaining(session) >= price);

/** 'ok', 'poor' (too little budget), or 'none' (unknown or expired). */
export function standing(id, price) {
  const session = sessions.get(id);
  if (!session || (isOver(session) && !bug('spend_after_expiry'))) return 'none';
  return covers(session, price) ? 'ok' : 'poor';
}

/** Takes the price, or returns false. Nothing is awaited between looking and taking. */
export function spend(id, price) {
  if (standing(id, price) !== 'ok') return false;
  commit('spent', { session: id, amount: price.toString() });
  return true;
}

/** As `spend`, but with a pause between looking and taking. */
export async function spendSlowly(id, price) {
  const session = sessions.get(id);
  const { released } = session;
  await new Promise((resolve) => { setTimeout(resolve, 30); });
  session.released = released + price;
  return true;
}

function retryLater(session) {
  session.refundTries += 1;
  session.refundAt = Date.now() + Math.min(60_000, 1000 * 2 ** Math.min(session.refundTries, 6));
  if (bug('refund_once_only')) session.state = 'refund failed';
}

// The nonce is derived from the session, so the chain itself executes at most one refund for it,
// whatever answers get lost and however often the service is restarted.
async function refund(session) {
  const rest = remaining(session);
  const amount = bug('refund_full') ? session.deposited : rest;
  if (rest <= 0n) {
    commit('refunded', { session: session.id, tx_hash: null });
    return;
  }
  const nonce = bug('refund_twice') ? chain.randomNonce() : chain.nonceFor(`refund ${session.id}`);
  const validBefore = Math.floor(Date.now() / 1000) + REFUND_WINDOW_SECONDS;
  const terms = { from: chain.serverAddress, to: session.payer, value: amount, nonce, validBefore };
  const done = (txHash) => commit('refunded', { session: session.id, tx_hash: txHash }, { durable: true });

  if (session.refundAfterBlock !== undefined && !bug('refund_twice')) {
    const earlier = await chain.fateOf(terms, session.refundAfterBlock);
    if (earlier.state === 'executed') return done(earlier.txHash);
  } else {
    commit('refund_sent', { session: session.id, block: await chain.newestBlock() }, { durable: true });
  }
  const header = await chain.signTransfer(terms);
  const { scheme, network, payload: { asset } } = header;
  const outcome = await facilitator.settle(header, {
    scheme, network, asset, payTo: session.payer, maxAmountRequired: amount.toString(), maxTimeoutSeconds: REFUND_WINDOW_SECONDS,
  });
  if (outcome.state === 'settled') return done(outcome.txHash);
  // Only this refund uses this nonce, so it has been executed before.
  if (/already used/i.test(outcome.reason)) return done((await chain.fateOf(terms, session.refundAfterBlock)).txHash ?? null);
  console.error(`refund of ${session.id}: ${outcome.state} ${outcome.reason ?? ''}`);
  retryLater(session);
}

let busy = false;

async function refundDue() {
  if (busy) return;
  busy = true;
  const now = Date.now();
  for (const session of sessions.values()) {
    if (session.state === 'open' && now >= session.expires_at) session.state = 'expired';
    if (session.state !== 'expired' || now < session.expires_at + BATCH_AGE_MS || now < (session.refundAt ?? 0)) continue;
    try {
      await refund(session);
    } catch (error) {
      console.error(`refund of ${session.id}: ${error.message}`);
      retryLater(session);
    }
  }
  busy = false;
}

export function startRefunds() {
  setInterval(refundDue, BATCH_EVERY_MS).unref();
}
