// Accounts, sessions, blocks and transactions, clocks.

import { ask, byId, copy, el, iso, money, named, short, span, table, time, words } from "./dom.js";
import { session } from "./detail.js";

const give = (address, done) => el("button", { type: "button", class: "small", "aria-label": `Add 100 to ${address}`, onclick: async (event) => {
  event.target.disabled = true;
  try { await ask("faucet", { address, amount: "100.00" }); } finally { done(); }
} }, "Add 100");

export function clocksOf(state) {
  const wrong = Object.entries(state.skews).map(([name, skew]) => `${name}'s clock is ${span(Math.abs(skew))} ${skew > 0 ? "ahead" : "behind"}`);
  if (Math.abs(state.clockAdvancedSeconds) >= 1) wrong.unshift(`the world's clock is ${span(state.clockAdvancedSeconds)} ahead of real time`);
  if (state.lagSeconds) wrong.push(`the explorer is ${span(state.lagSeconds)} late`);
  return wrong;
}

function failed(made, again) {
  if (!Object.keys(words.failing).length) return "";
  const make = async () => { await ask("accounts/failing", {}); again(); };
  if (!made.length)
    return el("div", {}, el("h2", {}, "Accounts that fail"), el("p", { class: "bar" }, `For tests of refusals: ${Object.keys(words.failing).join(", ")}. `, el("button", { type: "button", class: "small", onclick: make }, "Make them"), " or pay with one under ", el("a", { href: "#steering" }, "Steering")));
  return table("Accounts that fail", ["how", "address", "key"], made.map(({ fails, why, address, privateKey, nonce }) => [`${fails}: ${why}`, copy(address, short(address)), [copy(privateKey, "Copy", `key: ${fails}`), ...(nonce ? [" ", copy(nonce, "Copy nonce")] : [])]]));
}

export async function showState(model, again) {
  const parts = [];
  if (words.live) {
    const [state, accounts, made] = await Promise.all(["state", "accounts", "accounts/failing"].map((path) => ask(path)));
    parts.push(
      table(`Accounts, in ${words.symbol}`, ["no.", "address", "balance", "key", "money"], accounts.map((each, n) => [`${n}`, copy(each.address, short(each.address)), money(each.balance, true), copy(each.privateKey, "Copy", `key of account ${n}`), give(each.address, again)])),
      failed(made, again),
      table("World", ["", ""], [
        ["time", iso(state.now)], ["clocks", clocksOf(state).join("; ") || "all right"],
        ["chain", `id ${state.chain.chainId}, block ${state.chain.height}, ${state.chain.automine ? "each transaction is mined at once" : "blocks come at an interval, or on demand"}, ${state.chain.waiting} waiting`],
        ["supply", money(state.chain.supply)], ["service", Object.entries(state.rows).map(([name, count]) => `${count} ${name}`).join(", ")],
        ["pending payments", `${state.pendingPayments}`], ["indexer", `${state.unindexedPayments} payments are not indexed yet; ${backlog(model)}`]]));
    if (state.agents.length) parts.push(table("Agents", ["agent", "sells", "price", "reputation"], state.agents.map((each) => [each.name, each.resource, money(each.price), `${each.reputation}`])));
  }
  const sessions = [...model.sessions.values()].slice(-30).reverse();
  const txs = [...model.txs.values()].slice(-50).reverse();
  parts.push(el("h2", {}, "Sessions"), ...(sessions.length ? sessions.map(session) : [el("p", { class: "quiet" }, "None yet.")]),
    txs.length ? table("Transactions, the newest first", ["block", "time", "transaction", "call", "moved", "gas"], txs.map((tx) => ({ class: tx.undone ? "odd" : "", cells: [`${tx.block}`, time(tx.at_ms), el("code", { title: tx.tx_hash }, short(tx.tx_hash)),
      tx.undone ? `${tx.call}, undone` : tx.revert_reason ? `${tx.call}, reverted: ${tx.revert_reason}` : tx.call, tx.moves.map((each) => `${named(each.sender)} to ${named(each.to)}: ${money(each.amount_base)}`).join("; "), `${tx.gas}`] }))) : el("p", { class: "quiet" }, words.upstream ? "No transaction was seen: watch --rpc URL follows them on the chain." : "No transaction yet."));
  const buttons = () => [...byId("state").querySelectorAll("button")], focused = buttons().indexOf(document.activeElement);
  byId("state").replaceChildren(...parts);
  buttons()[focused]?.focus();
}

function backlog(model) {
  const last = [...model.recent.values()].findLast((each) => each.event === "indexer ran");
  return last ? `it last ran at ${time(last.at_ms)}: looked for ${last.asked}, found ${last.matched}` : "it has not run yet";
}
