// What is done to the world, each with the same in curl and Python; and payments made from here.

import { buying, literal, quote } from "./copies.js";
import { ask, at, byId, copy, el, marked, origin, parse, span, table, words } from "./dom.js";
import { advice, linkTo } from "./detail.js";

let last = null, fault = {};
const field = (label, control) => el("label", {}, label, control);
const select = (name, options) => el("select", { name }, options.map(([value, text]) => el("option", { value }, text ?? value)));
const number = (name, value, min) => el("input", { name, type: "number", value: String(value), min: String(min), step: "any", required: true });
const form = (title, parts, send) => el("form", { "aria-label": title, onsubmit: (event) => { event.preventDefault(); send(new FormData(event.target)); } }, parts);
const button = (text, act) => el("button", { type: "button", onclick: act }, text);
// What belongs to one wish: one is open at a time, and each has one main button, that of its first form.
const wish = (title, about, ...forms) => el("details", { class: "card", name: "wish", open: title === (words.service ? "Pay" : "Break") }, el("summary", {}, el("h2", {}, title), el("span", { class: "quiet" }, about)), forms);

// What an action has done, in words; `done` is what the control API answered.
const ahead = (seconds) => (seconds ? `${span(Math.abs(seconds))} ${seconds > 0 ? "ahead of" : "behind"} real time` : "right");
const DONE = {
  "faults": ({ does, victim, path, contains, times }) => `Waits for ${times === null ? "every request" : times === 1 ? "one request" : `${times} requests`} to the ${victim}${path ? `, ${path}` : ""}${contains ? `, that contains ${contains}` : ""}: ${does}.`,
  "faults/clear": () => "No fault waits any more.",
  "clock/advance": ({ seconds }) => `${span(seconds)} have passed.`,
  "clock/skew": ({ actor, seconds }) => `The clock of the ${actor} is ${seconds ? `${span(Math.abs(seconds))} ${seconds > 0 ? "ahead" : "behind"}` : "right"}.`,
  "mine": (_, { height }) => `The chain is at block ${height}.`,
  "mining": (_, { automine }) => (automine ? "Each transaction is mined at once." : "Transactions wait until you mine."),
  "reorg": (_, { height }) => `The newest block was replaced; the chain is at block ${height}.`,
  "indexer/run": (_, { asked, matched }) => `The indexer asked for ${asked} payment${asked === 1 ? "" : "s"}, and found the block of ${matched}.`,
  "snapshot": (_, { snapshot }) => `Snapshot ${snapshot} was taken.`,
  "revert": (_, { reverted }) => `Chain, database and cache are as in snapshot ${reverted}.`,
  "crash": () => "The service was killed, and runs again.",
  "reset": (_, { clockAdvancedSeconds }) => `Chain, database and balances begin anew; the clock is ${ahead(clockAdvancedSeconds)}.`,
};

// What came of a payment, in words; a refusal with a status lower than `below` is right.
function outcome({ status, said: answer }, below) {
  const { error, reason } = parse(answer) ?? {}, why = error ? [error, reason].filter(Boolean).join(": ") : answer;
  if (status === null) return `There was no answer. ${answer}`;
  if (status < 400) return below ? `Not refused: the server took a wrong payment (${status}).` : `Paid and served (${status}).`;
  const todo = advice({ error, reason });
  return [`${status < below ? "Refused, as it should be" : "Refused"} (${status}): ${why}.`, ...(todo ? [" Do: ", marked(todo)] : [])];
}

export function buildSteering(model) {
  const said = el("output", { id: "said", "aria-live": "polite", tabindex: "0" }, "Results appear here.");
  last = el("div", { id: "same", class: "card" }, el("h2", {}, "The same in a program"), el("p", { class: "quiet" }, "Appears here when you have done something."));
  const act = async (path, body, python) => {
    said.textContent = "…";
    try {
      const done = await ask(path, body ?? {});
      said.className = ""; said.textContent = DONE[path](body ?? {}, done);
    } catch (error) { said.className = "bad"; said.textContent = String(error.message); }
    same(path, body ?? {}, python);
    showFaults(model);
  };
  const buy = async (data) => {
    const from = data.get("account"), fails = Object.hasOwn(words.failing, from), how = data.get("wrong"), isSession = how === "session";
    const good = words.goods.find(({ name }) => name === data.get("buys")), path = good.hasHoles ? data.get("route") : good.path, wrong = isSession ? "" : how;
    const body = { buys: good.name, path, ...(fails ? { fails: from } : { account: Number(from) }), ...(isSession ? { session: true } : {}), wrong };
    said.className = ""; said.textContent = "Paying…";
    const same = `${buying({ ...good, path })}${fails ? " --key KEY" : ` --account ${from}`}${wrong ? ` --wrong ${wrong}` : ""}${isSession ? " --session" : ""}`;
    show([...(fails ? [`x402sim accounts --failing --world ${origin()}`] : []), same]);
    try {
      const paid = await ask("ui/pay", body), below = fails ? 600 : wrong ? 500 : 0; // the token itself refuses a blacklisted account
      said.replaceChildren(...[outcome(paid, below)].flat(2), " ", paid.payment ? el("a", { href: linkTo(paid.payment) }, "See its lane") : "");
      if (paid.status === null || (paid.status < 400 ? below : paid.status >= below)) said.className = "bad";
    } catch (error) { said.className = "bad"; said.textContent = String(error.message); }
  };
  const accounts = [...Object.values(words.names).filter((name) => name.startsWith("account ")).map((name) => [name.slice(8), name]), ...Object.entries(words.failing).map(([name, why]) => [name, `${name}: ${why}`])];
  const wrongs = [["", "correctly"], ["session", "correctly, from a session of ten prices"], ...Object.entries(words.mistakes).map(([name, does]) => [name, `wrongly: ${does}`])];
  const goods = select("buys", words.goods.map(({ name, price }) => [name, `${name}, ${price} ${words.symbol}`]));
  const route = el("input", { name: "route" }), routed = field("path", route);
  const holes = () => { const good = words.goods.find(({ name }) => name === goods.value); routed.hidden = !good?.hasHoles; route.value = good?.path ?? ""; };
  goods.addEventListener("change", holes); holes();
  const victim = select("victim", Object.keys(words.victims).map((name) => [name])), path = el("select", { name: "path" });
  const containing = el("input", { name: "containing", placeholder: "any text, such as a payment id" });
  const usual = () => { // what a payer notices: a lost receipt, a lost settlement
    const known = [...path.options].map((each) => each.value);
    path.value = victim.value === "facilitator" && known.includes("/settle") ? "/settle" : "";
    containing.value = victim.value === "service" ? "payment" : "";
  };
  const paths = () => path.replaceChildren(...["", ...words.victims[victim.value].filter((each) => each !== "/" && !each.includes("{") && !each.startsWith("/docs"))].map((each) => el("option", { value: each }, each || "any path")));
  victim.addEventListener("change", () => { paths(); usual(); });
  victim.value = "facilitator";
  paths();
  usual();
  const does = select("does", Object.entries(words.faults).map(([name, text]) => [name, `${name}: ${text}`]));
  const inject = (data) => {
    const kind = data.get("does");
    fault = { victim: data.get("victim"), does: kind };
    if (data.get("path")) fault.path = data.get("path");
    if (data.get("containing")) fault.contains = data.get("containing");
    if (fault.victim === "rpc" && data.get("caller") !== "service") fault.caller = data.get("caller");
    fault.times = data.get("times") === "" ? null : Number(data.get("times"));
    if (words.delays.includes(kind)) fault.seconds = Number(data.get("seconds"));
    if (kind === "answer") {
      const lines = data.get("headers").split("\n").filter((each) => each.trim());
      fault.status = Number(data.get("status"));
      if (data.get("body")) fault.body = data.get("body");
      if (lines.length) fault.headers = Object.fromEntries(lines.map((each) => each.split(/:(.*)/s).slice(0, 2).map((part) => part.trim())));
    }
    act("faults", fault, `server.fault(Fault(${Object.entries(fault).map(([name, value]) => `${name}=${literal(value)}`).join(", ")}))`);
  };
  const seconds = el("span", {}, field("seconds", number("seconds", 5, 0))), code = el("span", {}, field("status", number("status", 503, 200)), field("body", el("textarea", { name: "body", rows: "1" })),
    field("headers (one a line)", el("textarea", { name: "headers", rows: "2", placeholder: "Retry-After: 30" })));
  const whose = el("span", {}, field("whose calls", select("caller", words.callers.map((name) => [name]))));
  const fits = () => { seconds.hidden = !words.delays.includes(does.value); code.hidden = does.value !== "answer"; whose.hidden = victim.value !== "rpc"; };
  for (const each of [does, victim]) each.addEventListener("change", fits);
  fits();
  const play = form("Play a scenario", [], () => {});
  const advance = (amount) => act("clock/advance", { seconds: amount }, `server.advance(${amount})`);
  const chain = (text, path, body) => button(text, () => act(path, body));
  // What follows an action stands beside the forms: no button moves while it is clicked.
  byId("steering").replaceChildren(said, el("div", { class: "steer" }, el("div", {},
    words.service ? wish("Pay", "rightly, wrongly, or with an account that fails", form("Pay", [field("from", select("account", accounts)), field("for", goods), routed, field("how", select("wrong", wrongs)), el("button", {}, "Pay")], buy), play) : "",
    wish("Break", "lose, delay or change answers; crash", form("Faults", [field("where", victim), whose, field("what", does), field("path", path), field("containing (payment: not the first request, which is answered 402)", containing),
      field("times (empty: always)", el("input", { name: "times", type: "number", min: "1", value: "1" })), seconds, code, el("button", {}, "Inject"),
      el("p", {}, button("Clear all", () => act("faults/clear", {}, "httpx.post(server.control_url + \"/faults/clear\", json={})")), words.service ? chain("Crash the service", "crash") : "")], inject)),
    wish("Time", "move the clock of all, or of one", form("Time", [field("seconds", number("seconds", 30, 0)), el("button", {}, "Advance"), el("p", {}, [60, 300, 3600, 86400].map((each) => button(`+${span(each)}`, () => advance(each))))], (data) => advance(Number(data.get("seconds")))),
      form("Skew a clock", [field("whose clock", select("actor", words.actors.map((each) => [each]))), field("is ahead by seconds", number("seconds", -60, -1e8)), el("button", { type: "submit" }, "Set this clock")], (data) => act("clock/skew", { actor: data.get("actor"), seconds: Number(data.get("seconds")) }))),
    wish("Chain", "mine, undo, go back", form("Chain", [field("blocks", number("blocks", 1, 1)), el("button", {}, "Mine"),
      el("p", {}, chain("Mine on demand", "mining", { automine: false }), chain("Mine at once", "mining", { automine: true }), chain("Undo the newest", "reorg", { depth: 1 }), words.service ? chain("Run the indexer", "indexer/run") : ""),
      el("p", {}, chain("Snapshot", "snapshot"), button("Back to it", async () => act("revert", { snapshot: (await ask("state")).snapshots.at(-1) ?? 0 })), button("Reset everything", async () => { await act("faults/clear"); await act("reset", {}, "server.reset()"); }))], (data) => act("mine", { blocks: Number(data.get("blocks")) })))),
    el("div", { class: "after" }, last, el("div", { id: "faults", class: "card" }))));
  showFaults(model);
  showScenarios(play, said);
}

async function showScenarios(card, said) {
  const all = await ask("ui/play"), story = el("p", { class: "quiet" });
  const name = select("scenario", all.map((each) => [each.name, each.lacks.length ? `${each.name} (skipped here)` : each.takesTime ? `${each.name} (moves the clock)` : each.name]));
  const tell = () => {
    const { title, story: text, takesTime, lacks } = all.find((each) => each.name === name.value);
    story.replaceChildren(...marked([`${title}.`, text, lacks.length ? `It needs ${lacks.join(", ")}, which this server lacks.` : takesTime ? "It moves this server's clock ahead, which stays there: payers with a right clock are refused then, until you give the time back." : ""].join(" ")));
  };
  name.value = "replay";
  name.addEventListener("change", tell);
  tell();
  card.append(field("or a scenario", name), story, el("p", {}, el("button", { type: "submit" }, "Play it here"), el("a", { href: "#payments" }, "Watch its payments")));
  card.addEventListener("submit", async () => {
    said.className = ""; said.textContent = `Playing ${name.value}…`;
    show([`x402sim run ${name.value} --on ${origin()}`]);
    try {
      const { outcome, reason, checks, clockAheadSeconds } = await ask("ui/play", { scenario: name.value }), held = checks.filter((each) => each.ok).length;
      said.className = outcome === "failed" ? "bad" : "";
      said.textContent = `${name.value}: ${outcome}${reason ? `, ${reason}` : ""}; ${held} of ${checks.length} checks held.${clockAheadSeconds ? ` It left the clock ${span(clockAheadSeconds)} ahead.` : ""}`;
    } catch (error) { said.className = "bad"; said.textContent = String(error.message); }
  });
}

export function showFaults(model) {
  const rows = model.faults.slice(-30).reverse().map((each) => ({ class: each.over ? "quiet" : "", cells: [each.does, `${each.victim} ${each.path}`, `${each.struck} of ${each.times ?? "any number"}`, each.over ? "over" : "waits"] }));
  byId("faults")?.replaceChildren(rows.length ? table("Faults that were injected", ["what", "where", "hits", "state"], rows) : el("p", { class: "quiet" }, "No fault was injected yet."));
}

function same(path, body, inPython) {
  const json = JSON.stringify(body);
  const plain = `httpx.post("${at(path)}", json=${literal(body)})`;
  show([`curl ${at(path)} -H 'Content-Type: application/json' -d ${quote(json)}`, inPython ?? plain]);
}

function show(lines) {
  last.replaceChildren(el("h2", {}, "The same in a program"), ...lines.map((text) => el("div", { class: "code" }, el("pre", { tabindex: "0" }, text), copy(text))));
}
