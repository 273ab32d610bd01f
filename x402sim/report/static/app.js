// The page: it follows the server's stream, and shows one of three views.

import { buying } from "./copies.js";
import { ask, byId, copy, el, given, origin, setToken, streamed, words } from "./dom.js";
import { Model } from "./model.js";
import { List } from "./list.js";
import { clocksOf, showState } from "./state.js";
import { buildSteering, showFaults } from "./steer.js";
import { Tape } from "./tape.js";

const model = new Model(), list = new List(model), VIEWS = ["payments", "state", "steering"];
let tape = null, started = null, since = 0, after = 0, isDirty = true, view = "payments", isAsking = false;

const LOADED_MS = 700; // then all of the server's data are here: a link to a missing payment says so

function tell(text, kind) { byId("link").textContent = text; byId("link").className = kind; }

function take(name, lines) {
  if (name === "hello") { greet(lines[0]); return; }
  for (const each of lines) {
    if (name === "journal") since = each.seq + 1;
    if (name === "exchanges") after = each.n;
    if (tape) tape.add(name, each); else model.take(name, each);
  }
  tape?.draw();
  isDirty = list.isDirty = true;
}

// What the server has, and what it has forgotten.
function greet(hello) {
  started = hello.started;
  setTimeout(() => { isDirty = list.isLoaded = true; }, LOADED_MS);
  Object.assign(model, { forgotten: hello.forgotten });
  list.lacks = [hello.older ? `${hello.older} older in the database` : "", hello.first ? `what was before event ${hello.first} is no longer known` : "", hello.dropped ? `${hello.dropped} older request${hello.dropped === 1 ? " is" : "s are"} no longer kept` : ""].filter(Boolean).join("; ");
}

async function follow() {
  if (given) { for (const each of given.messages) take(...each); list.isLoaded = true; tell("saved run", "live"); return; }
  for (;;) {
    try {
      for await (const [name, lines] of streamed(`ui/events?since=${since}&after=${after}`)) {
        if (name === "hello" && started !== null && started !== lines[0].started) { location.reload(); return; }
        if (name === "hello") tell(words.live ? "live" : words.label ?? "saved run", "live");
        take(name, lines);
      }
      tell("not connected; trying again", "bad");
    } catch (error) {
      if (error.status === 401) throw error;
      if (!(error instanceof TypeError && /fetch|network/i.test(error.message))) console.error(error);
      tell(`not connected (${error.message}); trying again`, "bad");
    }
    await new Promise((done) => setTimeout(done, 1000));
  }
}

async function refresh() {
  if (isAsking || !words.live) { if (view === "state") await showState(model); return; }
  isAsking = true;
  try {
    if (view === "state" && getSelection().type !== "Range") await showState(model, () => { isDirty = true; });
    const wrong = clocksOf(await ask("state"));
    byId("alarm").hidden = !wrong.length;
    byId("wrong").textContent = wrong.join("; ");
    byId("back").hidden = !wrong[0]?.startsWith("the world's clock");
  } catch { /* the stream says whether the server is there */ } finally { isAsking = false; }
}

function draw() {
  try {
    if (isDirty && !document.hidden) {
      isDirty = false;
      if (view === "payments") list.draw();
      if (view === "steering") showFaults(model);
      refresh();
    }
  } finally { setTimeout(() => requestAnimationFrame(draw), 150); } // an error must not stop the drawing
}

// The keys that a link names: a payment id, a session, a transaction, or an authorization, which may begin with 0x.
function keysOf(text) {
  let key = text;
  try { key = decodeURIComponent(text); } catch { /* a link that somebody has typed */ }
  return [key, key.toLowerCase(), key.toLowerCase().replace(/^0x/, "")];
}

function choose(hash) {
  const [name, ...rest] = hash.slice(1).split("="), id = rest.join("=");
  view = VIEWS.includes(name) ? name : "payments";
  if (name === "payment" && id) list.want(keysOf(id));
  for (const name of VIEWS) byId(name).hidden = name !== view;
  for (const link of document.querySelectorAll("nav a")) {
    if (link.getAttribute("href") === `#${view}`) link.setAttribute("aria-current", "page"); else link.removeAttribute("aria-current");
  }
  isDirty = list.isDirty = true;
}

async function start() {
  Object.assign(words, given?.words ?? await ask("ui/words"));
  if (!words.live) { tape = new Tape(model, () => { list.keep(); isDirty = list.isDirty = true; }); byId("pause").hidden = byId("clear").hidden = true; }
  byId("token").hidden = true;
  byId("title").textContent = words.title;
  document.title = `x402sim, ${words.title}`;
  const good = words.goods[0], nothing = words.label && words.upstream ? `No payment yet: send the payer to ${origin()}.` : words.live ? `No payment is shown. Give your shop the facilitator ${origin()}/facilitator.` : "No payment is shown.";
  byId("empty").replaceChildren(...(words.live && good ? [el("p", {}, "No payment is shown. Pay here, under ", el("a", { href: "#steering" }, "Steering"), ", or from a terminal:"), el("div", { class: "code" }, el("pre", {}, buying(good)), copy(buying(good)))] : [el("p", {}, nothing)]));
  if (words.live) buildSteering(model); else document.querySelector("nav a[href='#steering']").hidden = true;
  choose(location.hash);
  addEventListener("hashchange", () => choose(location.hash));
  addEventListener("click", (event) => { // in a frame without a URL, a link within the page would leave it
    const link = given && event.target.closest("a[href^='#']");
    if (link) { event.preventDefault(); choose(link.getAttribute("href")); }
  });
  byId("back").addEventListener("click", async () => { await ask("faults/clear", {}); await ask("reset", { clock: true }); refresh(); });
  setInterval(() => { isDirty = true; }, 3000);
  draw();
  await follow();
}

function begin() {
  start().catch((error) => {
    if (error.status === 401) { byId("token").hidden = false; tell("needs the control token of this server", "bad"); } else tell(`this page failed: ${error.message}`, "bad");
  });
}

byId("token").addEventListener("submit", (event) => { event.preventDefault(); setToken(new FormData(event.target).get("token")); begin(); });
begin();
