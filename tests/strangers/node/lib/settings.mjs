// Settings from the environment, and the two switches CHOICES and DEFECT.
const env = process.env;

const CHOICES = `ignore_echo stateless_ids short_ids session_id_in_header minimum_deposit budget_403
  load_shed redirects gzip serialised second_authorization late_refunds slow_settlement problem_json
  extra_fields connection_close agents_by_id agents_paged agents_paid session_first errors_422
  lowercase_addresses strict_window`.split(/\s+/);

const DEFECTS = `error_text amount_as_number network_label message_in_tokens resource_with_query
  no_description id_prefix guessable_ids shared_offer float_deposit deposit_at_quote_price llms_html
  unpaid_validated_first unknown_session_401 timestamp_seconds trusts_echo unknown_id_accepted
  grants_before_settlement failed_is_ok concurrent_double_settle resettle any_resource
  session_per_repeat session_needs_more session_race charges_refused session_prefix
  numbers_as_strings single_use overpay_accepted balance_text nonce_text already_used_is_paid
  guessable_sessions spend_after_expiry refund_full refund_twice refund_once_only verify_ignored
  lost_answer_forgotten records_not_reloaded offer_never_expires indexer_oldest_first
  indexer_hourly`.split(/\s+/);

function refuse(text) {
  console.error(text);
  process.exit(2);
}

function need(name, pattern) {
  const value = env[name] ?? '';
  if (!pattern.test(value)) refuse(`${name} is missing or malformed`);
  return value;
}

const choices = new Set((env.CHOICES ?? '').split(',').map((name) => name.trim()).filter(Boolean));
for (const name of choices) if (!CHOICES.includes(name)) refuse(`unknown choice ${name}`);
const defect = (env.DEFECT ?? '').trim();
if (defect && !DEFECTS.includes(defect)) refuse(`unknown defect ${defect}`);

export const on = (name) => choices.has(name);
export const bug = (name) => defect === name;

const address = /^0x[0-9a-f]{40}$/i;
const spelled = (value) => (on('lowercase_addresses') ? value.toLowerCase() : value);

export const settings = {
  port: Number(env.PORT ?? 8402),
  stateFile: env.STATE || null,
  privateKey: need('PRIVATE_KEY', /^0x[0-9a-f]{64}$/i),
  merchant: spelled(need('MERCHANT_ADDRESS', address)),
  token: spelled(need('TOKEN_ADDRESS', address)),
  tokenName: env.TOKEN_NAME ?? 'Bridged USDC (Stargate)', // asked of the chain when RPC_URL is set
  tokenVersion: env.TOKEN_VERSION ?? '1',
  network: need('NETWORK', /^\S+$/),
  chainId: Number(need('CHAIN_ID', /^\d+$/)),
  facilitatorUrl: need('FACILITATOR_URL', /^https?:/).replace(/\/$/, ''),
  explorerUrl: (env.EXPLORER_URL ?? '').replace(/\/$/, ''),
  explorerKey: env.EXPLORER_API_KEY ?? '',
  rpcUrl: env.RPC_URL ?? '',
  verifyTimeoutMs: 10_000,
  longestWindow: 360, // the 300 s of the terms, and a minute for a payer's clock
  settleTimeoutMs: Number(env.SETTLE_TIMEOUT_MS ?? 20_000),
};

export const QUOTE_PRICE = 10_000n;
export const OFFER_SECONDS = 300;
export const BASE_UNITS_PER_CENT = 10_000n;
export const MINIMUM_DEPOSIT = on('minimum_deposit') ? 50_000n : BASE_UNITS_PER_CENT;
