import { randomUUID } from 'node:crypto';
import { isDeepStrictEqual } from 'node:util';

const newPaymentId = () => `pay_${randomUUID()}`;
const failed = (step, details, status = 400) => [status, { ok: false, error: `${step}_failed`, details }];
const payable = (res, accepts) => res.status(402).json({ x402Version: 1, error: 'payment_required', accepts: [accepts] });

// ---- As the public example does it, holes included (README.md lists them).

export function examplePaywall(facilitator) {
  const paid = new Map();

  const requirePayment = (options) => (req, res, next) => {
    const key = (req.header('x-payment-id') ?? '').trim();
    if (key && paid.get(key)?.settled) return next(); // HOLES 3, 4: any route, any caller, for ever
    return payable(res, options.challenge(newPaymentId())); // HOLE 2: the id and its terms are not remembered
  };

  async function pay({ paymentId, paymentHeader, paymentRequirements }) {
    const body = { x402Version: 1, paymentHeader, paymentRequirements }; // HOLE 1: terms are the caller's own
    const verify = await facilitator.verifyPayment(body);
    if (!verify.isValid) return failed('verify', verify);
    const settle = await facilitator.settlePayment(body); // HOLES 6, 7: no lock; a throw here leaves no record
    if (settle.event !== 'payment.settled') return failed('settle', settle);
    paid.set(paymentId, { settled: true, txHash: settle.txHash, at: Date.now() }); // HOLE 5: in memory
    return [200, { ok: true, txHash: settle.txHash }];
  }

  return { requirePayment, pay };
}

// ---- The same wire shape, with the holes closed.

const REQUIRED = ['scheme', 'network', 'asset', 'payTo', 'maxAmountRequired', 'maxTimeoutSeconds'];
const BAD_HEADER = 'Invalid Base64 paymentHeader';
const USED_UP = 'Authorization already used';

export function hardenedPaywall(facilitator, { asset, rpcUrl, answerMs = 20_000 }) {
  const records = new Map(); // paymentId -> { route, terms, at, header?, unsure?, attempt?, settled?, txHash? }
  const claims = new Map(); // "from/nonce" -> the paymentId it was presented for; kept, so one payment buys one id
  const chain = rpcUrl && chainReader(rpcUrl, asset);

  const sweep = setInterval(() => {
    for (const [id, r] of records) if (!r.tried && !r.attempt && Date.now() - r.at > 3_600_000) records.delete(id);
  }, 60_000);
  sweep.unref();

  const requirePayment = (options) => (req, res, next) => {
    const r = records.get((req.header('x-payment-id') ?? '').trim());
    if (r?.settled && r.route === options.route) return next();
    const paymentId = newPaymentId();
    const terms = options.challenge(paymentId);
    records.set(paymentId, { paymentId, route: options.route, terms, at: Date.now() });
    return payable(res, terms);
  };

  async function pay({ paymentId, paymentHeader, paymentRequirements: given }) {
    const r = records.get(paymentId);
    if (!r) return failed('verify', { isValid: false, invalidReason: 'Unknown paymentId' });
    if (typeof paymentHeader !== 'string') return failed('verify', { isValid: false, invalidReason: BAD_HEADER });
    const asIssued = (k) => isDeepStrictEqual(given[k], r.terms[k]);
    if (!Object.keys(given).every(asIssued) || !REQUIRED.every(asIssued)) {
      return failed('verify', { isValid: false, invalidReason: 'paymentRequirements are not the terms issued' });
    }
    if (r.header && r.header !== paymentHeader) {
      return failed('settle', { error: r.settled ? 'Payment already settled' : 'Another header is being settled' });
    }
    if (r.settled) return [200, { ok: true, txHash: r.txHash }];
    r.header = paymentHeader; // taken before the first await: one header, and one attempt, at a time
    r.attempt ??= attempt(r).finally(() => { r.attempt = undefined; });
    const late = failed('settle', { error: 'Still settling: send the same header again' }, 502);
    let timer;
    const patience = new Promise((resolve) => { timer = setTimeout(resolve, answerMs, late); });
    return Promise.race([r.attempt, patience]).finally(() => clearTimeout(timer));
  }

  async function attempt(r) {
    const body = { x402Version: 1, paymentHeader: r.header, paymentRequirements: r.terms };
    const release = (...answer) => { r.header = undefined; return failed(...answer); };
    if (!r.unsure) { // nothing sent yet under this header that could have been charged
      try {
        const verify = await facilitator.verifyPayment(body);
        if (!verify.isValid) return release('verify', verify);
      } catch (e) {
        return release('verify', { error: 'Not verified, nothing charged', reason: e.message }, 502);
      }
      r.auth = readHeader(r.header);
      if (!r.auth) return release('verify', { isValid: false, invalidReason: BAD_HEADER });
      const holder = claims.get(r.auth.key);
      if (holder && holder !== r.paymentId) return release('settle', { error: USED_UP });
      claims.set(r.auth.key, r.paymentId);
      try {
        // Unused now, so a use seen later is the doing of this header. Asked once for each header.
        if (chain && !holder && (await chain.isUsed(r.auth))) return release('settle', { error: USED_UP });
      } catch (e) {
        claims.delete(r.auth.key);
        return release('verify', { error: 'Node not reached, nothing charged', reason: e.message }, 502);
      }
    }
    r.tried = true;
    let settle;
    try {
      settle = await facilitator.settlePayment(body);
    } catch (e) {
      r.unsure = true; // settled or not: only the same header can tell, so the payment stays bound to it
      settle = { error: 'Answer of the facilitator lost: send the same header again', reason: e.message };
    }
    if (settle.event === 'payment.settled') return granted(r, settle.txHash);
    if (chain) {
      const txHash = await chain.transferOf(r.auth, r.terms).catch(() => undefined);
      if (txHash) return granted(r, txHash);
      if (settle.error === USED_UP) r.unsure = true; // used since we asked, but no transfer found (yet)
    } else if (r.unsure && settle.error === USED_UP) {
      return granted(r, null); // no node to ask: README.md says what this trusts
    }
    return r.unsure ? failed('settle', settle, 502) : release('settle', settle);
  }

  function granted(r, txHash) {
    Object.assign(r, { settled: true, txHash });
    return [200, { ok: true, txHash }];
  }

  return { requirePayment, pay };
}

function readHeader(header) {
  try {
    const { from, nonce } = JSON.parse(Buffer.from(header, 'base64').toString('utf8')).payload;
    if (!/^0x[0-9a-f]{40}$/i.test(from) || !/^0x[0-9a-f]{64}$/i.test(nonce)) return undefined;
    return { from: from.toLowerCase(), nonce: nonce.toLowerCase(), key: `${from}/${nonce}`.toLowerCase() };
  } catch {
    return undefined;
  }
}

function chainReader(url, asset) {
  const TRANSFER = '0xddf252ad1be2c89b69c2b068fc378daa952ba7f163c4a11628f55a4df523b3ef';
  const AUTHORIZATION_USED = '0x98de503528ee59b575ef0c0a2576a82497bfc029a5685b209e9ec333479b10a5';
  const word = (hex) => hex.slice(2).toLowerCase().padStart(64, '0');
  async function call(method, ...params) {
    const body = JSON.stringify({ jsonrpc: '2.0', id: 1, method, params });
    const headers = { 'content-type': 'application/json' };
    const answer = await fetch(url, { method: 'POST', headers, body, signal: AbortSignal.timeout(5_000) });
    const { result, error } = await answer.json();
    if (error || result === undefined) throw new Error(`${method}: ${error?.message}`);
    return result;
  }
  return {
    async isUsed({ from, nonce }) { // authorizationState(address,bytes32)
      return BigInt(await call('eth_call', { to: asset, data: `0xe94a0102${word(from)}${word(nonce)}` }, 'latest')) === 1n;
    },
    // The transaction that used this authorization to pay these terms, looked for in the last 2000 blocks.
    async transferOf({ from, nonce }, terms) {
      const newest = Number(await call('eth_blockNumber'));
      const fromBlock = `0x${Math.max(0, newest - 2000).toString(16)}`;
      const topics = [AUTHORIZATION_USED, `0x${word(from)}`, `0x${word(nonce)}`];
      const [used] = await call('eth_getLogs', { address: asset, fromBlock, toBlock: 'latest', topics });
      const receipt = used && (await call('eth_getTransactionReceipt', used.transactionHash));
      const parties = [TRANSFER, `0x${word(from)}`, `0x${word(terms.payTo)}`];
      const paid = receipt?.logs.some((log) => log.address.toLowerCase() === asset.toLowerCase()
        && Number(log.logIndex) === Number(used.logIndex) + 1 // this authorization's own transfer, not a neighbour's
        && isDeepStrictEqual(log.topics.map((t) => t.toLowerCase()), parties)
        && BigInt(log.data) === BigInt(terms.maxAmountRequired));
      return paid ? used.transactionHash : undefined;
    },
  };
}
