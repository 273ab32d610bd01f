// A paywalled service in the shape of the Cronos x402 "paywall" example; HARDENED=1 closes its holes.
import cors from 'cors';
import express from 'express';
import { Contract, CronosNetwork, Facilitator } from '@crypto.com/facilitator-client';
import { examplePaywall, hardenedPaywall } from './paywall.js';

const env = process.env;
const network = env.NETWORK || CronosNetwork.CronosTestnet;
const asset = env.TOKEN_ADDRESS || (network === CronosNetwork.CronosMainnet ? Contract.USDCe : Contract.DevUSDCe);
const hardened = env.HARDENED === '1';
if (hardened && !env.MERCHANT_ADDRESS) throw new Error('MERCHANT_ADDRESS is not set');

const facilitator = new Facilitator({ network });
if (env.FACILITATOR_URL) facilitator.baseUrl = env.FACILITATOR_URL.replace(/\/+$/, '');

// The network's own node goes with the network's own facilitator; any other facilitator needs RPC_URL set.
const rpcUrl = env.RPC_URL || (env.FACILITATOR_URL ? undefined : facilitator.rpcUrl);
const paywall = hardened ? hardenedPaywall(facilitator, { asset, rpcUrl }) : examplePaywall(facilitator);

let origin = '';
const paid = (route, price, description) => {
  const [method, path] = route.split(' ');
  return paywall.requirePayment({
    route,
    challenge: (paymentId) => ({
      scheme: 'exact',
      network,
      asset,
      payTo: env.MERCHANT_ADDRESS ?? '',
      maxAmountRequired: price,
      maxTimeoutSeconds: 300,
      description,
      mimeType: 'application/json',
      resource: origin + path,
      outputSchema: { input: { type: 'http', method }, output: { type: 'object' } },
      extra: { paymentId },
    }),
  });
};

const app = express();
app.use(cors());
app.use(express.json());

app.get('/api/data', paid('GET /api/data', env.PRICE_BASE_UNITS || '1000000', 'Unlock data'), (req, res) => {
  res.json({ ok: true, response: 'paid content unlocked' });
});

// Not in the example, which has a single paid route: a second, cheaper one.
app.post('/api/perp/quote', paid('POST /api/perp/quote', '10000', 'Unlock a quote'), (req, res) => {
  const { pair = 'CRO-USD', side = 'long', leverage = 1 } = req.body ?? {};
  const entryPrice = 0.1;
  const move = entryPrice / Math.max(1, Number(leverage) || 1);
  const liquidationPrice = side === 'short' ? entryPrice + move : entryPrice - move;
  res.json({ ok: true, quote: { pair, entryPrice, liquidationPrice, fundingRate: 0.0001, bestVenue: 'example' } });
});

app.post('/api/pay', async (req, res, next) => {
  try {
    const { paymentId, paymentHeader, paymentRequirements } = req.body ?? {};
    if (!paymentId || !paymentHeader || !paymentRequirements) {
      return res.status(400).json({ error: 'missing payment fields' });
    }
    const [status, body] = await paywall.pay({ paymentId, paymentHeader, paymentRequirements });
    return res.status(status).json(body);
  } catch (e) {
    return next(e); // the example has no error handler of its own: Express answers 500 in HTML
  }
});

if (hardened) {
  app.use((e, req, res, next) => {
    const status = e.status ?? 500;
    res.status(status).json({ ok: false, error: status < 500 ? 'bad_request' : 'internal_error', details: {} });
  });
}

const server = app.listen(Number(env.PORT ?? 8787), '127.0.0.1', () => {
  origin = `http://127.0.0.1:${server.address().port}`;
  console.log(`listening on ${origin}`);
});

process.on('SIGTERM', () => {
  server.close(() => process.exit(0));
  server.closeAllConnections();
});
