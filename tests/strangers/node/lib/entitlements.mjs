// Proof of payment by X-Payment-Id: a cache in memory in front of the stored records (2.5, 5).
import { bug } from './settings.mjs';
import { payments } from './store.mjs';

const LIFETIME_MS = 24 * 3600 * 1000;
const cache = new Map();
const consumed = new Set();

export function grant({ payment_id, resource_url, from_address, timestamp }) {
  cache.set(payment_id, { paymentId: payment_id, resourceUrl: resource_url, userAddress: from_address, timestamp });
}

export function isEntitled(id, resource) {
  if (bug('single_use') && consumed.has(id)) return false;
  const bound = (paidFor) => paidFor === resource || bug('any_resource');
  const entry = cache.get(id);
  const fresh = entry && Date.now() - entry.timestamp < LIFETIME_MS;
  if (fresh && bound(entry.resourceUrl)) return true;
  const record = payments.get(id);
  return Boolean(record && bound(record.resource_url) && record.status === 'settled');
}

/** Called when an entitlement has bought an answer. */
export function used(id) {
  if (bug('single_use')) consumed.add(id);
}

export function sweep() {
  for (const [id, entry] of cache) if (Date.now() - entry.timestamp >= LIFETIME_MS) cache.delete(id);
}
