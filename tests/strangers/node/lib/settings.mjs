// Settings from the environment, and the two switches CHOICES and DEFECT.
const env = process.env;

const choices = new Set((env.CHOICES ?? '').split(','));
const defect = env.DEFECT ?? '';

export const on = (name) => choices.has(name);
export const bug = (name) => defect === name;

const spelled = (value) => (on('lowercase_addresses') ? value.toLowerCase() : value);

export const settings = {
  port: Number(env.PORT ?? 8402),
  stateFile: env.STATE || null,
  privateKey: env.PRIVATE_KEY,
  merchant: spelled(env.MERCHANT_ADDRESS),
  token: spelled(env.TOKEN_ADDRESS),
  network: env.NETWORK,
  chainId: Number(env.CHAIN_ID),
  facilitatorUrl: env.FACILITATOR_URL,
  explorerUrl: env.EXPLORER_URL,
  rpcUrl: env.RPC_URL,
  verifyTimeoutMs: 10_000,
  longestWindow: 360, // the 300 s of the terms, and a minute for a payer's clock
  settleTimeoutMs: 20_000,
};

export const QUOTE_PRICE = 10_000n;
export const OFFER_SECONDS = 300;
export const BASE_UNITS_PER_CENT = 10_000n;
export const MINIMUM_DEPOSIT = on('minimum_deposit') ? 50_000n : BASE_UNITS_PER_CENT;
