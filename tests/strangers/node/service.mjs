// A pay-per-request API: HTTP 402 with x402 payments, and prepaid sessions.
import http from 'node:http';
import { gzipSync } from 'node:zlib';
import { QUOTE_PRICE, bug, on, settings } from './lib/settings.mjs';
import { Refusal } from './lib/errors.mjs';
import * as catalogue from './lib/catalogue.mjs';
import * as entitlements from './lib/entitlements.mjs';
import * as offers from './lib/offers.mjs';
import * as sessions from './lib/sessions.mjs';
import * as settlement from './lib/settlement.mjs';
import * as store from './lib/store.mjs';
import { startIndexer } from './lib/indexer.mjs';
import { AGENTS_RESOURCE, QUOTE_RESOURCE, SESSION_RESOURCE } from './lib/resources.mjs';

const MAX_BODY = 64 * 1024;
const MAX_RUNNING = 4;
const INDEX_PATH = on('redirects') ? '/docs/llms.txt' : '/llms.txt';

const json = (status, body, headers = {}) => ({ status, body, headers });
const text = (body, type) => ({ status: 200, text: body, headers: { 'content-type': `${type}; charset=utf-8` } });
const extras = () => (on('extra_fields') ? { apiRelease: '2026.1', warnings: [] } : {});

// ---- proof of payment

function requirePayment(resource, amount, session) {
  const offer = offers.issue(resource, amount, session);
  return json(402, { ...offers.paymentRequired(offer), ...extras() });
}

async function isEntitled(id, resource) {
  if (!id) return false;
  if (entitlements.isEntitled(id, resource)) return true;
  // Perhaps it was paid, and only the facilitator's answer was lost.
  await settlement.reconcile(id);
  return entitlements.isEntitled(id, resource);
}

/**
 * Serves `produce()` against proof of payment for the resource, else answers 402.
 * `produce` throws for a request that cannot be served; such a request costs nothing.
 */
async function protect(request, resource, price, produce) {
  const paymentId = request.headers['x-payment-id'];
  const sessionId = request.headers['x-session-id'];

  const byPayment = async () => {
    if (!(await isEntitled(paymentId, resource))) return undefined;
    const body = produce();
    entitlements.used(paymentId);
    return json(200, body);
  };
  const bySession = async () => {
    if (!sessionId) return undefined;
    const standing = sessions.standing(sessionId, price);
    if (standing === 'poor' && on('budget_403')) throw new Refusal(403, 'Session budget is insufficient', `The price is ${price}`);
    if (standing === 'none' && bug('unknown_session_401')) throw new Refusal(401, 'Invalid session', 'Unknown or expired');
    if (standing !== 'ok') return undefined;
    if (bug('charges_refused')) {
      sessions.spend(sessionId, price);
      return json(200, produce());
    }
    const body = produce();
    const taken = bug('session_race') ? await sessions.spendSlowly(sessionId, price) : sessions.spend(sessionId, price);
    return taken ? json(200, body) : undefined;
  };

  const order = on('session_first') ? [bySession, byPayment] : [byPayment, bySession];
  // The other proof may still be good, so a refusal of the first is kept until then.
  let refusal;
  for (const proof of order) {
    try {
      const answer = await proof();
      if (answer) return answer;
    } catch (error) {
      if (!(error instanceof Refusal) || ![401, 403].includes(error.status)) throw error;
      refusal = error;
    }
  }
  if (refusal) throw refusal;
  return requirePayment(resource, price);
}

// ---- endpoints

function quote({ request, body, resource }) {
  if (bug('unpaid_validated_first')) catalogue.quote(body);
  return protect(request, resource, QUOTE_PRICE, () => ({ quote: catalogue.quote(body), ...extras() }));
}

function agents({ request, query }) {
  const list = () => ({ ...catalogue.agents(query), ...extras() });
  return on('agents_paid') ? protect(request, AGENTS_RESOURCE, QUOTE_PRICE, list) : json(200, list());
}

function sessionAnswer(session) {
  const about = {
    ...(!on('session_id_in_header') && { sessionId: session.id }),
    deposited: session.deposited.toString(),
    released: session.released.toString(),
    expiresAt: session.expires_at,
  };
  return { about, headers: on('session_id_in_header') ? { 'x-session-id': session.id } : {} };
}

async function createSession({ request, body }) {
  const paymentId = request.headers['x-payment-id'];
  if (await isEntitled(paymentId, SESSION_RESOURCE)) {
    let session = store.sessionOfPayment.get(paymentId);
    if (session && bug('session_per_repeat')) session = sessions.openAgain(session);
    if (session) {
      const { about, headers } = sessionAnswer(session);
      return json(200, { ...about, ...extras() }, headers);
    }
  }
  const { amount, session } = sessions.readRequest(body);
  return requirePayment(SESSION_RESOURCE, amount, session);
}

async function pay({ body }) {
  const payment = await settlement.pay(body);
  const session = store.sessionOfPayment.get(payment.payment_id);
  const { about, headers } = session ? sessionAnswer(session) : {};
  return json(200, {
    success: true,
    paymentId: payment.payment_id,
    txHash: payment.tx_hash,
    timestamp: bug('timestamp_seconds') ? Math.floor(payment.timestamp / 1000) : payment.timestamp,
    ...about,
    ...extras(),
  }, headers);
}

const ROUTES = {
  [QUOTE_RESOURCE]: { POST: quote },
  [SESSION_RESOURCE]: { POST: createSession },
  '/api/pay': { POST: pay },
  [AGENTS_RESOURCE]: { GET: agents },
  [INDEX_PATH]: { GET: () => text(catalogue.index, bug('llms_html') ? 'text/html' : 'text/plain') },
};

function redirectOf(url) {
  if (!on('redirects')) return undefined;
  if (url.pathname === '/llms.txt') return { status: 301, headers: { location: INDEX_PATH } };
  const plain = url.pathname.replace(/\/+$/, '');
  const known = Object.hasOwn(ROUTES, plain) || catalogue.page(plain);
  return plain !== url.pathname && known ? { status: 308, headers: { location: plain + url.search } } : undefined;
}

// ---- HTTP

async function readBody(request) {
  const chunks = [];
  let size = 0;
  for await (const chunk of request) {
    size += chunk.length;
    if (size > MAX_BODY) throw new Refusal(413, 'Body too large', `At most ${MAX_BODY} bytes`);
    chunks.push(chunk);
  }
  try {
    return JSON.parse(Buffer.concat(chunks).toString('utf8'));
  } catch {
    return undefined; // an endpoint that needs a body says so
  }
}

async function route(request, url, body) {
  const redirect = redirectOf(url);
  if (redirect) return redirect;
  const page = catalogue.page(url.pathname);
  const methods = page ? { GET: () => text(page, 'text/markdown') } : Object.hasOwn(ROUTES, url.pathname) && ROUTES[url.pathname];
  if (!methods) throw new Refusal(404, 'Not found', `There is no ${url.pathname}`);
  const handler = methods[request.method === 'HEAD' ? 'GET' : request.method];
  if (!handler) {
    const allow = Object.keys(methods).join(', ');
    return { ...failure(new Refusal(405, 'Method not allowed', `Allowed: ${allow}`)), allow };
  }
  const resource = bug('resource_with_query') ? url.pathname + url.search : url.pathname;
  return handler({ request, body, resource, query: url.searchParams });
}

function failure(error) {
  const refusal = error instanceof Refusal ? error : new Refusal(500, 'Internal error', 'It has been logged');
  if (refusal !== error) console.error(error);
  const { session, ...extra } = refusal.extra;
  const shown = session ? sessionAnswer(session) : { about: {}, headers: {} };
  const headers = { ...shown.headers, ...(refusal.retryAfter && { 'retry-after': String(refusal.retryAfter) }) };
  const more = { ...extra, ...shown.about, ...extras() };
  if (!on('problem_json')) return json(refusal.status, { error: refusal.text, message: refusal.detail, ...more }, headers);
  const type = `/docs/endpoints.md#${refusal.text.toLowerCase().replace(/[^a-z]+/g, '-')}`;
  return json(refusal.status, { type, title: refusal.text, status: refusal.status, detail: refusal.detail, ...more },
    { ...headers, 'content-type': 'application/problem+json' });
}

function send(request, response, answer) {
  const headers = {
    'cache-control': 'no-store',
    ...(answer.body && { 'content-type': 'application/json' }),
    ...(answer.allow && { allow: answer.allow }),
    ...(on('connection_close') && { connection: 'close' }),
    ...answer.headers,
  };
  let payload = Buffer.from(answer.text ?? (answer.body ? JSON.stringify(answer.body) : ''));
  const accepted = /(^|,)\s*(gzip|\*)\s*(;\s*q=(0\.0*[1-9]|1)[\d.]*)?\s*(,|$)/i.test(request.headers['accept-encoding'] ?? '');
  if (on('gzip')) {
    headers.vary = 'Accept-Encoding';
    if (accepted && payload.length) {
      payload = gzipSync(payload);
      headers['content-encoding'] = 'gzip';
    }
  }
  response.writeHead(answer.status, { ...headers, 'content-length': payload.length });
  response.end(request.method === 'HEAD' ? undefined : payload);
}

let running = 0;
let queue = Promise.resolve();

async function answerTo(request) {
  if (on('load_shed') && running > MAX_RUNNING) {
    request.resume();
    return failure(new Refusal(503, 'Busy', 'Nothing was done; try again', { retryAfter: 1 }));
  }
  try {
    const url = new URL(`http://service${request.url}`);
    const body = await readBody(request);
    if (!on('serialised')) return await route(request, url, body);
    const turn = queue.then(() => route(request, url, body));
    queue = turn.catch(() => {});
    return await turn;
  } catch (error) {
    if (error.code === 'ERR_INVALID_URL') return failure(new Refusal(400, 'Invalid request', 'The target is not a path'));
    return failure(error);
  }
}

const server = http.createServer(async (request, response) => {
  running += 1;
  try {
    const answer = await answerTo(request);
    if (answer.status === 413) answer.headers.connection = 'close';
    send(request, response, answer);
  } catch (error) {
    console.error(error);
    response.destroy();
  } finally {
    running -= 1;
  }
});

// Longer than clients keep theirs, so that none sends into a socket being closed.
server.keepAliveTimeout = 65_000;

// ---- start and stop

store.open();
sessions.startRefunds();
startIndexer();
settlement.reconcileAll();
setInterval(settlement.reconcileAll, 10_000).unref();
setInterval(offers.sweep, 60_000).unref();
setInterval(() => { entitlements.sweep(); settlement.sweep(); }, 3600_000).unref();

server.listen(settings.port, '127.0.0.1', () => console.log(`listening on http://127.0.0.1:${server.address().port}`));

for (const signal of ['SIGTERM', 'SIGINT']) {
  process.once(signal, () => {
    const stop = () => {
      store.close();
      process.exit(0);
    };
    server.close(stop);
    server.closeIdleConnections();
    setTimeout(stop, 5_000).unref();
  });
}
