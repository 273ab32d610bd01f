// Completes stored payments with block numbers from the chain explorer (8).
import { bug, settings } from './settings.mjs';
import { callJson } from './outbound.mjs';
import { commit, payments } from './store.mjs';

const INTERVAL_MS = (bug('indexer_hourly') ? 60 : 5) * 60 * 1000;
const BATCH = 100;

async function blockNumberOf(txHash) {
  const query = new URLSearchParams({ module: 'proxy', action: 'eth_getTransactionByHash', txhash: txHash });
  const { status, body } = await callJson(`${settings.explorerUrl}/api?${query}`, { method: 'GET' });
  // A rate limit is told in the text of a 200.
  const block = status === 200 && body?.result?.blockNumber;
  return typeof block === 'string' && /^0x[0-9a-f]+$/i.test(block) ? Number(block) : null;
}

let running = false;

async function run() {
  if (running) return;
  running = true;
  const open = [...payments.values()].filter((payment) => payment.block_number === null && payment.tx_hash);
  const inOrder = bug('indexer_oldest_first') ? open : open.reverse();
  for (const payment of inOrder.slice(0, BATCH)) {
    try {
      const block = await blockNumberOf(payment.tx_hash);
      if (block !== null) commit('indexed', { id: payment.payment_id, block_number: block });
    } catch (error) {
      console.error(`indexing ${payment.payment_id}: ${error.message}`);
    }
  }
  running = false;
}

export function startIndexer() {
  run();
  setInterval(run, INTERVAL_MS).unref();
}
