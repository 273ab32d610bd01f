// One payment: the requirements beside the signed values, the rule that refused, the transaction, the messages.

import { curl, python, scenario, sentHeaders, test, viem, visible } from "./copies.js";
import { ask, byId, copy, decoded, el, indented, integer, iso, lasted, money, named, marked, own, readable, table, time, utc, words } from "./dom.js";
import { assetOf, left, stagesOf, status, step, untimely, why } from "./model.js";

let unfolded = new Set(); // the parts that the reader has opened
let picked = {}; // the request that the reader has picked, the form of the copy, and the form to send it again

export function showDetail(lane, model, close) {
  const box = byId("detail");
  box.hidden = !lane;
  // Read from the page: the browser sends `toggle` only after a redraw that follows the click at once.
  for (const { open, dataset } of box.querySelectorAll("details")) if (open) unfolded.add(dataset.part); else unfolded.delete(dataset.part);
  if (![...lane?.keys ?? []].some((key) => showDetail.keys?.has(key))) { unfolded = new Set(); picked = { as: picked.as }; }
  showDetail.keys = lane?.keys;
  if (!lane) return;
  if (close) showDetail.close = close;
  box.replaceChildren(
    el("div", { class: "bar" }, el("h2", {}, `${lane.payer ? named(lane.payer) : "Somebody"}: ${lane.resource ?? "a payment"}`),
      el("button", { type: "button", class: "small", title: "Until the page is loaded again", onclick: () => { model.hide(lane); showDetail.close(); } }, "Delete"),
      el("button", { type: "button", class: "small", onclick: () => showDetail.close() }, "Close")),
    ...[refusal, findings, copied, compared, stages, ids, transaction, sessions, requests, journal].flatMap((part) => guarded(part, lane, model)));
}

// A link names a payment that the page does not have.
export function showUnknown(key, close) {
  const box = byId("detail");
  box.hidden = false;
  showDetail.keys = undefined;
  if (box.dataset.unknown === key && box.querySelector(".unknown")) return;
  box.dataset.unknown = key;
  box.replaceChildren(el("div", { class: "bar unknown", role: "status" }, el("h2", {}, "No such payment is known"), el("button", { type: "button", class: "small", onclick: close }, "Close")),
    el("p", {}, el("code", {}, visible(key)), words.live ? " was not seen by this server, or is no longer known." : " is not in this run, or not yet at this moment of it."));
}

// A part of the details; an error in it does not stop the others.
function guarded(part, lane, model) {
  try { return part(lane, model); }
  catch (error) { console.error(error); return el("p", { class: "bad" }, `The ${part.name} of this payment cannot be shown: ${error.message}`); }
}

const sessions = (lane, model) => lane.sessions.map((id) => session(model.sessions.get(id)));

const requests = (lane, model) => [
  el("h3", {}, "Requests"),
  lane.exchanges.length ? el("div", {}, lane.exchanges.map(exchange))
    : el("p", { class: "quiet" }, words.live ? "The server no longer has them." : "A run's journal names each request, without its headers and body.")];

const FORMS = { curl, "a command": curl, Python: python, "a test": test, "a scenario": scenario, "fetch with viem": viem };
const isFitting = (name, seen) => (seen.endpoint ? !["curl", "Python"].includes(name) : name !== "a command");

// One place to copy a request of the payment, in any form that repeats it, and to send it again.
function copied(lane, model) {
  const all = lane.exchanges.filter((seen) => !seen.sent.cut), usual = all.findLast((each) => each.payment && !each.path.startsWith("/facilitator")) ?? all.at(-1);
  if (!usual) return "";
  const seen = () => all.find(({ n }) => n === picked.n) ?? usual;
  const request = el("select", { "aria-label": "Request", onchange: () => { picked.n = Number(request.value); picked.again = undefined; fill(); } }, all.map(({ n, method, path, status }) => el("option", { value: `${n}` }, `${method} ${path}, ${status ?? "broken"}`)));
  const as = el("select", { "aria-label": "as", onchange: () => { picked.as = as.value; } }), below = el("div");
  const fill = () => {
    as.replaceChildren(...Object.keys(FORMS).filter((name) => isFitting(name, seen()) && FORMS[name](lane, seen(), model)).map((name) => el("option", { value: name }, name)));
    as.value = [...as.options].some(({ value }) => value === picked.as) ? picked.as : as.options[0].value;
    below.replaceChildren(...(picked.again ? [picked.again] : []));
  };
  request.value = `${seen().n}`; fill();
  return [el("p", { class: "bar copying" }, "Copy", request, "as", as, copy(() => FORMS[as.value](lane, seen(), model), "Copy"),
    words.sends && !seen().endpoint && seen().sent.base64 === undefined ? el("button", { type: "button", class: "small", onclick: () => { picked.again = picked.again ? undefined : again(seen()); fill(); } }, "Send again…") : ""), below];
}

// A form that sends a request to the watched part again, as the reader has changed it.
function again(seen) {
  const said = el("output", { "aria-live": "polite" });
  const field = (label, control) => el("label", {}, label, control), area = (name, rows, text) => el("textarea", { name, rows, spellcheck: "false" }, text);
  const send = async (data) => {
    said.className = ""; said.textContent = "…";
    try {
      const headers = data.get("headers").split("\n").filter((each) => each.trim()).map((each) => each.split(/:(.*)/s).slice(0, 2).map((part) => part.trim()));
      const { status, said: answer } = await ask("ui/send", { to: seen.path.startsWith("/facilitator") ? "facilitator" : "service", method: data.get("method"), target: data.get("target"), headers, body: data.get("body") });
      said.textContent = status === null ? `There was no answer: ${answer}` : `${status}: ${indented(answer)}`;
    } catch (error) { said.className = "bad"; said.textContent = String(error.message); }
  };
  return el("form", { class: "card", "aria-label": "Send again", onsubmit: (event) => { event.preventDefault(); send(new FormData(event.target)); } },
    field("method", el("input", { name: "method", value: seen.method, required: true })), field("path", el("input", { name: "target", value: seen.target, required: true })),
    field("headers, one a line", area("headers", "5", sentHeaders(seen).map((each) => each.join(": ")).join("\n"))), field("body", area("body", "4", seen.sent.body)),
    seen.payment ? el("p", { class: "quiet" }, "It has a payment, which is sent again as it is: nothing is signed. Delete it to send the request without it.") : "", el("button", {}, "Send"), said);
}

// The journal's events of a payment, with all fields that are not empty.
function journal(lane, model) {
  const events = model.eventsOf(lane);
  const said = (event) => Object.entries(event).filter(([name, value]) => !["seq", "at_ms", "event", "actor", "payment_id", "exchange"].includes(name) && value !== null && value !== "").map(([name, value]) => `${name} ${typeof value === "object" ? JSON.stringify(value) : /_s$/.test(name) && value > 1e8 && value < 1e11 ? `${utc(value)} (${value})` : readable(String(value))}`).join(", ");
  return events.length ? folded("journal", `In the journal: ${events.length} event${events.length === 1 ? "" : "s"}`, table("Events of this payment", ["time", "who", "event", ""], events.map((each) => [time(each.at_ms), each.actor, each.event, said(each)]))) : "";
}

// A session's remaining budget after each change, as steps down from its deposit.
function burnDown({ steps, deposited_base: all }) {
  if (steps.length < 3) return "";
  const svg = (tag, props) => { const node = document.createElementNS("http://www.w3.org/2000/svg", tag); for (const [name, value] of Object.entries(props)) node.setAttribute(name, value); return node; };
  const y = (value) => 38 - 36 * (value / Number(all)), x = (n) => (n / steps.length) * 300;
  const drawn = svg("svg", { viewBox: "0 0 300 40", class: "burn", role: "img", "aria-label": `What was left after each of ${steps.length - 1} changes` });
  drawn.append(svg("path", { d: steps.map(([, value], n) => `${n ? "V" : "M0 "}${y(value)} H${x(n + 1)}`).join(" ") }));
  return drawn;
}

const folded = (id, title, ...inside) => el("details", { open: unfolded.has(id), "data-part": id }, el("summary", {}, title), inside);

const rowsOf = ({ required: wanted, signed: got }) => {
  if (!wanted || !got) return [];
  const isMoney = (value) => (value === undefined ? undefined : integer(value) === undefined ? `${value} (no whole number)` : `${value} = ${money(value, false, wanted.asset ?? got.asset)}`);
  return [
    ["amount", isMoney(wanted.maxAmountRequired ?? wanted.amount), isMoney(got.value), "5/exact-amount"],
    ["to", wanted.payTo, got.to, "5/exact-recipient"],
    ["token", wanted.asset, got.asset, "2.1/asset"],
    ["network", wanted.network, got.network, "2.1/network"],
    ["scheme", wanted.scheme, got.scheme, "2.1/scheme"],
  ].filter(([, a, b]) => a !== undefined && b !== undefined);
};
const isSame = ([name, a, b]) => String(a).toLowerCase() === String(b).toLowerCase() || (name === "network" && String(a).includes(":") !== String(b).includes(":"));

// What to do, by the longest known beginning of the reason or the error; "" is of unknown words of settle.
export function advice({ error, reason, stopped, final }) {
  const fits = (text) => Object.keys(words.advice).filter((begin) => text?.startsWith(begin)).sort((a, b) => b.length - a.length);
  const found = [...fits(reason), ...fits(error)].find(Boolean);
  return found ? words.advice[found] : own(words.refusals, error)?.do ?? (stopped === "settled" || final === false ? words.advice[""] : undefined);
}

function refusal(lane) {
  const struck = lane.struck.map((fault) => el("p", { class: "note" }, `${time(fault.at)}  A fault struck it, at the ${fault.victim}, ${fault.path}: ${fault.does}${own(words.faults ?? {}, fault.does) ? ` (${words.faults[fault.does]})` : ""}.`));
  const notes = lane.notes.map(([at, text]) => el("p", { class: "note" }, `${time(at)}  ${readable(text)}`));
  if (!lane.stopped) return [...struck, ...notes];
  const known = own(words.refusals, lane.error) ?? {}, todo = advice(lane), odd = rowsOf(lane).filter((row) => !isSame(row));
  const said = Object.entries(words.standard).filter(([word]) => lane.error?.split(":")[0] === word).map(([, clause]) => clause);
  const clauses = [...new Set([known.clause, ...said, ...odd.map((row) => row[3]), ...Object.entries(words.reasons).filter(([begin]) => lane.reason?.startsWith(begin)).map(([, clause]) => clause)])].filter(Boolean);
  return [el("div", { class: "refusal" },
    el("p", {}, el("strong", {}, lane.error), marked(readable(why(lane)).slice(lane.error?.length ?? 0))),
    untimely(lane) ? el("p", {}, `verify had called it valid: a Cronos facilitator's verify does not look at time. settle does, by the chain's, which was ${utc(lane.chain_s)} (${lane.chain_s}).`) : "",
    clauses.map((id) => el("p", { class: "quiet" }, el("code", {}, id), " ", marked(own(words.clauses, id) ?? ""))),
    todo ? el("p", {}, el("strong", {}, "Do: "), marked(todo)) : "",
    el("p", { class: "quiet" }, lane.final === false ? "Not final: it may still be paid." : lane.final ? "Final: nothing was charged, and never will be." : "")),
  ...struck, ...notes];
}

// The findings of `watch`, by the rules of `decode` and `doctor`.
const findings = (lane) => [...new Map(lane.findings.map((each) => [`${each.about} ${each.seen}`, each])).values()].map(({ mark, about, seen, wanted, do: todo }) => el("div", { class: mark === "note" ? "note" : "refusal" },
  el("p", {}, el("strong", {}, `${mark}: ${about}`)), el("p", { class: "quiet" }, `seen: ${seen}; wanted: ${wanted}`), el("p", {}, el("strong", {}, "Do: "), marked(todo))));

function compared(lane) {
  const rows = rowsOf(lane), got = lane.signed;
  if (!rows.length) return "";
  const shown = rows.map((row) => ({ class: isSame(row) ? "" : "odd", cells: [row[0], row[1], row[2], isSame(row) ? "yes" : "no"] }));
  const window = [got.validAfter, got.validBefore].map((each) => each === undefined ? undefined : integer(each) >= 0n ? Number(each) : NaN);
  if (window.some((each) => each !== undefined)) {
    const until = (seconds, said) => (Number.isNaN(seconds) ? `${said} (no time)` : seconds === undefined ? "?" : el("span", { title: String(seconds) }, utc(seconds)));
    const isOdd = window.some(Number.isNaN) || (lane.stopped && !(window[0] < lane.chain_s && lane.chain_s < window[1]));
    shown.push({ class: isOdd ? "odd" : "", cells: ["valid", [`${lane.required.maxTimeoutSeconds ?? "?"} s at most`, ...(lane.stopped ? ["; the chain's time was ", until(lane.chain_s)] : [])],
      [until(window[0], got.validAfter), " to ", until(window[1], got.validBefore)], isOdd ? "no" : "yes"] });
  }
  shown.push(["resource", lane.required.resource ?? lane.resource ?? "", got.resource ?? "not signed", ""]);
  return table("Asked for, and signed", ["part", "asked for", "signed", "same?"], shown);
}

const STEPS = { no: () => "stopped", not: () => "not seen", unknown: () => (words.live ? "no longer known" : "not known") };

function stages(lane, model) {
  const begin = Math.min(...stagesOf(lane).map((name) => lane.stages[name]).filter(Boolean));
  return el("ol", { class: "stages" }, stagesOf(lane).map((name) => {
    const kind = step(lane, name, model), but = name === "verified" && untimely(lane) ? ", not its time" : "";
    const at = lane.isStored && lane.stages[name] === begin ? "in the database" : `+${lasted(lane.stages[name] - begin)}${but}`;
    return el("li", { class: kind }, el("span", {}, name), el("span", { class: "quiet" }, STEPS[kind]?.() ?? at));
  }));
}

const line = (name, value, ...more) => (value ? el("div", {}, el("dt", {}, name), el("dd", {}, el("code", {}, value), " ", copy(visible(value), "Copy", name), " ", more)) : "");

export const linkTo = (key) => `#payment=${encodeURIComponent(key.toWellFormed())}`;
const copyLink = (key) => copy(() => location.href.split("#")[0] + linkTo(key), "Copy link");

function ids(lane) {
  const all = [...lane.keys], nonce = lane.signed?.nonce ?? (lane.isOutside ? all.find((key) => /^[0-9a-f]{64}$/.test(key)) : undefined);
  return el("dl", {}, el("div", {}, el("dt", {}, "status"), el("dd", {}, [status(lane), lane.stopped && `stopped at ${lane.stopped}`, `begun ${iso(lane.at)}`, lane.past && `${lane.past} at ${time(lane.pastAt)}`].filter(Boolean).join(", "))), line("payer", lane.payer), line("amount", lane.amount && money(lane.amount, false, assetOf(lane))),
    all.filter((key) => key.startsWith("pay_")).map((key) => line("payment id", key, copyLink(key))),
    all.filter((key) => key.startsWith("session_")).map((key) => line("session", key)), line("authorization", nonce, ...(lane.isOutside && nonce ? [copyLink(nonce.replace(/^0x/, "").toLowerCase())] : [])), line("transaction", lane.tx));
}

function transaction(lane, model) {
  const tx = model.txs.get(lane.tx);
  if (!tx) return "";
  const events = [
    ...tx.used.map((each) => [`AuthorizationUsed`, `${named(each.authorizer)}, ${each.authorization} (${each.use})`]),
    ...tx.moves.map((each) => ["Transfer", `${named(each.sender)} to ${named(each.to)}: ${money(each.amount_base)}`]),
  ];
  return table(`Transaction${tx.undone ? " (undone by the chain)" : ""}`, ["", ""], [
    ["block", `${tx.block}, ${iso(tx.block_time_s * 1000)}`], ["call", tx.call || "(another contract)"],
    ["gas", `${tx.gas} at ${tx.gas_price_wei} wei, paid by ${named(tx.sender)}`], ["outcome", tx.revert_reason ? `reverted: ${tx.revert_reason}` : "succeeded"], ...events]);
}

export function session(found) {
  if (!found) return "";
  const rest = left(found);
  return el("div", { class: "session" }, el("p", {}, el("code", {}, found.session_id), ` ${named(found.payer)}, ${found.status}`),
    el("meter", { min: 0, max: Number(found.deposited_base), value: rest, "aria-label": "what is left" }), burnDown(found),
    el("p", { class: "quiet" }, `${money(rest)} left of ${money(found.deposited_base)}, ${money(found.released)} spent, ${money(found.refunded)} refunded; ends ${time(found.expires_ms)}`));
}

function exchange(seen) {
  const title = [el("span", { class: "mono" }, `${seen.method} ${seen.path}`), el("span", { class: seen.status >= 400 && seen.status !== 402 ? "bad" : "" }, ` ${seen.status ?? "broken"} `), el("span", { class: "quiet" }, `${seen.ms} ms, ${time(seen.at_ms)}`)];
  const payment = seen.payment && el("div", {}, el("h4", {}, "The payment, decoded"), el("pre", { tabindex: "0" }, indented(seen.decoded)));
  return folded(`${seen.n}`, title, seen.sent.cut ? el("p", { class: "quiet" }, "It was longer than what is kept, so it cannot be sent again.") : "", payment ?? "", half("Request", seen.sent), half("Answer", seen.answered));
}

function half(name, { headers, body }) {
  const inside = headers.filter(([key, value]) => /^(payment-required|(x-)?payment-response)$/i.test(key) && decoded(value)).map(([key, value]) => el("div", {}, el("h4", {}, `${key}, decoded`), el("pre", { tabindex: "0" }, indented(decoded(value)))));
  return el("div", {}, el("h4", {}, name), el("pre", { tabindex: "0" }, [...headers.map((each) => each.join(": ")), "", indented(body)].join("\n")), inside);
}
