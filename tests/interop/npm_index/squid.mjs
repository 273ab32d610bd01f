// A squid (Subsquid's processor, which subgraphs are moved to), from RPC alone: it follows blocks that are not
// final, checks logs against blooms and receipts against blocks, and reads the state at each event's block.
// Its URL is printed when it has indexed what there was.

import { EvmBatchProcessor } from "@subsquid/evm-processor";
import { readFileSync } from "node:fs";
import { createServer } from "node:http";

const { rpc, token, events } = JSON.parse(readFileSync(process.argv[2]));
const address = (word) => `0x${word.slice(26)}`;
const final = { height: -1, hash: "0x", top: [] };
let rows = [];
const server = createServer((_, answer) => answer.end(JSON.stringify(rows)));

const database = {
  supportsHotBlocks: true,
  connect: async () => final,
  transact: (info, handle) => replace(info.prevHead, () => handle(rows)),
  transactHot: (info, handle) =>
    replace(info.baseHead, async () => {
      for (const block of info.newBlocks) await handle(rows, block);
    }),
};

async function replace({ height }, handle) {
  rows = rows.filter(([block]) => block <= height);
  await handle();
}

const processor = new EvmBatchProcessor()
  .setRpcEndpoint(rpc)
  .setRpcDataIngestionSettings({ headPollInterval: 200 })
  .setFinalityConfirmation(30)
  .addLog({ address: [token.toLowerCase()], topic0: Object.keys(events), transaction: true })
  .setFields({ log: { topics: true, data: true }, transaction: { status: true } });

processor.run(database, async ({ blocks, store, isHead, _chain }) => {
  for (const { header, logs } of blocks) {
    for (const { logIndex, topics, data, transaction } of logs) {
      const name = events[topics[0]];
      const [who, what] = name === "Transfer" ? [topics[2], String(BigInt(data))] : topics.slice(1);
      const call = { to: token, data: `0x70a08231${who.slice(2)}` }; // balanceOf
      const balance = await _chain.client.call("eth_call", [call, `0x${header.height.toString(16)}`]);
      if (transaction.status !== 1) throw new Error(`a log of a failed transaction in ${header.height}`);
      store.push([header.height, logIndex, name, address(who), what, String(BigInt(balance))]);
    }
  }
  if (isHead && !server.listening) {
    server.listen(0, "127.0.0.1", () => console.log(`http://127.0.0.1:${server.address().port}`));
  }
});
