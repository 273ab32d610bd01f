// An answer other than success. `text` is what the specification calls the error text.
import { on } from './settings.mjs';

export class Refusal extends Error {
  constructor(status, text, detail, { retryAfter, ...extra } = {}) {
    super(text);
    Object.assign(this, { status, text, detail, retryAfter, extra });
  }
}

/** A refusal for one of the causes of the settlement error table. */
export const settlementRefusal = (status, text, detail, extra) => new Refusal(on('errors_422') ? 422 : status, text, detail, extra);

export const invalidSignature = (detail) => settlementRefusal(400, 'Invalid signature', detail);
