// What is sold and listed: quotes, agents, and the documentation.
import { on, bug } from './settings.mjs';
import { Refusal } from './errors.mjs';
import { reputation } from './store.mjs';
import { QUOTE_RESOURCE, SESSION_RESOURCE } from './resources.mjs';

const PRICES = { BTC: 97250.5, ETH: 3420.25, SOL: 182.4, CRO: 0.1185 };
const VENUES = ['Northbridge', 'Harbor Perps', 'Meridian'];

export function quote(body) {
  const invalid = (detail) => new Refusal(400, 'Invalid quote request', detail);
  if (!body || typeof body !== 'object' || Array.isArray(body)) throw invalid('The body is not a JSON object');
  const { pair, side = 'long', leverage = 1, sizeUsd = 1000 } = body;
  const [, base] = typeof pair === 'string' ? /^([A-Z0-9]{1,12})-[A-Z0-9]{1,12}$/i.exec(pair) ?? [] : [];
  if (!base) throw invalid('pair is not "<BASE>-<QUOTE>"');
  if (typeof side !== 'string' || !side) throw invalid('side is not a text');
  if (!Number.isFinite(leverage) || leverage <= 0) throw invalid('leverage is not a positive number');
  if (!Number.isFinite(sizeUsd) || sizeUsd <= 0) throw invalid('sizeUsd is not a positive number');

  const seed = [...base.toUpperCase()].reduce((sum, letter) => sum * 31 + letter.charCodeAt(0), 7) % 9973;
  const direction = /^(short|sell)$/i.test(side) ? -1 : 1;
  const rounded = (value) => Number(value.toPrecision(8));
  const entry = (PRICES[base.toUpperCase()] ?? 1 + seed / 10) * (1 + direction * Math.min(sizeUsd / 1e9, 0.01));
  const liquidation = Math.max(0, entry * (1 - direction * (0.995 / leverage)));
  const number = (value) => (bug('numbers_as_strings') ? String(rounded(value)) : rounded(value));
  return {
    pair,
    entryPrice: number(entry),
    liquidationPrice: number(liquidation),
    fundingRate: number(((seed % 200) - 100) / 1e6),
    bestVenue: VENUES[seed % VENUES.length],
    ...(on('extra_fields') && { side, asOf: Date.now(), alternatives: [] }),
  };
}

const AGENTS = [
  { id: 'perp-quoter', name: 'Perp quoter', description: 'Quotes perpetual futures across venues', resource: QUOTE_RESOURCE },
  { id: 'session-desk', name: 'Session desk', description: 'Sells prepaid budgets', resource: SESSION_RESOURCE },
  { id: 'venue-scout', name: 'Venue scout', description: 'Compares venues for the quoter', resource: null },
].map((agent) => (on('extra_fields') ? { ...agent, tags: ['x402'], links: { docs: '/llms.txt' } } : agent));

export function agents(query) {
  const all = AGENTS.map((agent) => ({ ...agent, reputation: reputation.get(agent.resource) ?? 0 }));
  const shape = (list) => (on('agents_by_id') ? Object.fromEntries(list.map((agent) => [agent.id, agent])) : list);
  if (!on('agents_paged')) return { agents: shape(all) };
  const page = Number(query.get('page') ?? 1);
  if (!Number.isInteger(page) || page < 1) throw new Refusal(400, 'Invalid page', 'page is a number from 1');
  const perPage = 2;
  return {
    agents: shape(all.slice((page - 1) * perPage, page * perPage)),
    page, perPage, total: all.length,
    next: page * perPage < all.length ? `/api/agents?page=${page + 1}` : null,
  };
}

const PAGES = {
  '/docs/payments.md': ['Payments', `# Payments

Call a protected endpoint; answer 402 carries paymentId and paymentRequirements. Sign an EIP-3009
authorization for exactly these terms and POST paymentId, paymentHeader and paymentRequirements to
/api/pay. Then repeat the call with the header X-Payment-Id. A payment is valid for its resource only.
When /api/pay answers 503, send the same payment header again: you are never charged twice for one id.
`],
  '/docs/sessions.md': ['Sessions', `# Sessions

POST /api/sessions/create with maxSpend ("1.00") and duration (seconds) answers 402 for the deposit.
Pay it as any payment; the answer names the session. Send X-Session-Id with protected requests: the
price is deducted from the budget. When the session expires, the unspent rest is sent back to the payer.
`],
  '/docs/endpoints.md': ['Endpoints', `# Endpoints

- POST /api/perp/quote: a quote for {pair, side, leverage, sizeUsd}; 10000 base units
- POST /api/sessions/create: opens a session; its deposit
- POST /api/pay: settles a payment
- GET /api/agents: the agents
`],
};

export const page = (path) => (Object.hasOwn(PAGES, path) ? PAGES[path][1] : undefined);

export const index = `# Perp quotes\n\n> Perpetual futures quotes, paid per request with x402.\n\n## Documentation\n\n${
  Object.entries(PAGES).map(([path, [title]]) => `- [${title}](${path})`).join('\n')}\n`;
