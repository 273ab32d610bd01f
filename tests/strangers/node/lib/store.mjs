// State: maps in memory, and, if STATE names a file, one JSON line per change, replayed at start.
import fs from 'node:fs';
import { bug, settings } from './settings.mjs';

export const payments = new Map(); // payment id -> record (2.4) plus `auth`, the digest of what paid it
export const attempts = new Map(); // payment id -> authorization given to the facilitator, outcome not known
export const sessions = new Map(); // session id -> session
export const sessionOfPayment = new Map(); // payment id of a deposit -> session
export const nonceHolders = new Map(); // "from:nonce" -> payment id it is bound to
export const reputation = new Map(); // resource -> payments matched by the indexer

export const nonceKey = ({ from, nonce }) => `${from}:${nonce}`.toLowerCase();

const apply = {
  attempt(line) {
    attempts.set(line.id, line);
    nonceHolders.set(nonceKey(line.header.payload), line.id);
  },
  failed({ id }) {
    const attempt = attempts.get(id);
    if (attempt) nonceHolders.delete(nonceKey(attempt.header.payload));
    attempts.delete(id);
  },
  dead({ id, reason }) {
    attempts.get(id).dead = reason;
  },
  settled({ payment, session }) {
    attempts.delete(payment.payment_id);
    payments.set(payment.payment_id, payment);
    nonceHolders.set(payment.nonce_key, payment.payment_id);
    if (!session) return;
    const opened = { ...session, deposited: BigInt(session.deposited), released: 0n, refundTries: 0 };
    sessions.set(opened.id, opened);
    sessionOfPayment.set(payment.payment_id, opened);
  },
  spent({ session, amount }) {
    sessions.get(session).released += BigInt(amount);
  },
  refund_sent({ session, block }) {
    sessions.get(session).refundAfterBlock ??= block;
  },
  refunded({ session, tx_hash }) {
    Object.assign(sessions.get(session), { state: 'refunded', refundTx: tx_hash });
  },
  indexed({ id, block_number }) {
    const payment = payments.get(id);
    payment.block_number = block_number;
    reputation.set(payment.resource_url, (reputation.get(payment.resource_url) ?? 0) + 1);
  },
};

let file;

/** Applies a change and appends it; `durable` waits for the disk: for what moves money. */
export function commit(type, fields, { durable = false } = {}) {
  const line = { type, ...fields };
  if (file !== undefined) {
    fs.writeSync(file, `${JSON.stringify(line)}\n`);
    if (durable) fs.fsyncSync(file);
  }
  apply[type](line);
}

export function open() {
  if (!settings.stateFile) return;
  if (fs.existsSync(settings.stateFile)) {
    const text = fs.readFileSync(settings.stateFile, 'utf8');
    const end = text.lastIndexOf('\n') + 1;
    // A line cut short by a crash was never acted upon.
    if (end < text.length) fs.truncateSync(settings.stateFile, Buffer.byteLength(text.slice(0, end)));
    for (const raw of text.slice(0, end).split('\n').filter(Boolean)) {
      const line = JSON.parse(raw);
      apply[line.type](line);
    }
    if (bug('records_not_reloaded')) payments.clear();
  }
  file = fs.openSync(settings.stateFile, 'a', 0o600);
}

export function close() {
  if (file === undefined) return;
  fs.fsyncSync(file);
  fs.closeSync(file);
}
