// The lanes, the newest first: only those in sight are in the document.

import { har } from "./copies.js";
import { byId, el, iso, money, named, readable, save, time, utc } from "./dom.js";
import { stagesOf, status, step, untimely, why } from "./model.js";
import { showDetail } from "./detail.js";

const FILTERS = ["all", "served", "paid", "pending", "refused", "asked"];

export class List {
  constructor(model) {
    this.model = model; this.shown = []; this.chosen = null; this.rows = new Map(); this.isDirty = true; this.held = null; this.height = 66; this.lacks = "";
    this.box = byId("lanes"); this.sizer = el("div", { class: "sizer", role: "presentation" }); this.box.append(this.sizer);
    byId("status").append(...FILTERS.map((name) => el("option", { value: name }, name === "all" ? "any status" : name)));
    const again = () => { this.isDirty = true; this.draw(); };
    byId("search").addEventListener("input", again);
    byId("status").addEventListener("change", again);
    byId("pause").addEventListener("click", () => { this.held = this.held ? null : [...this.model.lanes]; byId("pause").setAttribute("aria-pressed", String(!!this.held)); again(); });
    byId("clear").addEventListener("click", () => { this.model.clear(); this.held = this.held && []; this.choose(null); again(); });
    byId("har").addEventListener("click", () => save("payments.har", "application/json", har(this.shown.flatMap((lane) => lane.exchanges))));
    this.box.addEventListener("scroll", () => requestAnimationFrame(() => this.draw()), { passive: true });
    this.box.addEventListener("click", (event) => { const row = event.target.closest("[data-n]"); if (row) this.choose(this.byNumber(+row.dataset.n), true); });
    this.box.addEventListener("keydown", (event) => this.key(event));
    byId("payments").addEventListener("keydown", (event) => { if (event.key === "Escape" && this.chosen) { this.choose(null); this.box.focus(); } });
    new ResizeObserver(() => { this.height = parseFloat(getComputedStyle(this.box).getPropertyValue("--row")) || 66; this.draw(); }).observe(this.box);
  }

  isFar(at) { return at * this.height < this.box.scrollTop || (at + 1) * this.height > this.box.scrollTop + this.box.clientHeight; }

  byNumber(n) { return this.shown.find((lane) => lane.n === n); }

  key(event) {
    const page = Math.max(1, Math.floor(this.box.clientHeight / this.height) - 1), last = this.shown.length - 1;
    const step = { ArrowDown: 1, ArrowUp: -1, PageDown: page, PageUp: -page, Home: -Infinity, End: Infinity }[event.key];
    if (event.key === "Enter" && this.chosen) byId("detail").focus();
    if (step === undefined || last < 0) return;
    event.preventDefault();
    const at = Math.max(this.shown.indexOf(this.chosen), step > 1 ? 0 : -1), to = Math.min(last, Math.max(0, at + step));
    const top = to * this.height;
    if (top < this.box.scrollTop) this.box.scrollTop = top;
    if (top + this.height > this.box.scrollTop + this.box.clientHeight) this.box.scrollTop = top + this.height - this.box.clientHeight;
    this.choose(this.shown[to]);
  }

  // Choose the lane that has one of these keys, when there is one.
  want(keys, isSought = true) { Object.assign(this, { chosen: null, wanted: keys, isSought, isDirty: true }); }

  // Choose the same payment in lanes made anew; the list follows it only if it was in sight.
  keep() { if (this.chosen) this.want([...this.chosen.keys], !this.isFar(this.shown.indexOf(this.chosen))); }

  choose(lane, isClicked) {
    this.chosen = lane ?? null;
    this.wanted = null;
    byId("payments").classList.toggle("open", !!lane);
    showDetail(lane, this.model, () => { this.choose(null); this.box.focus(); });
    this.draw();
    if (lane && isClicked && matchMedia("(max-width: 1000px)").matches) byId("detail").scrollIntoView({ block: "start" });
  }

  filter() {
    const lanes = this.held ?? this.model.lanes, phrase = byId("search").value.trim().toLowerCase(), kind = byId("status").value;
    const wanted = lanes.some((lane) => lane.text.includes(phrase)) ? [phrase] : phrase.split(/\s+/); // "account 2", or words anywhere
    this.shown = lanes.filter((lane) => !lane.isGone && (kind === "all" || status(lane) === kind) && wanted.every((text) => lane.text.includes(text))).sort((a, b) => b.era - a.era || b.at - a.at || b.n - a.n);
    const more = this.held ? this.model.lanes.length - this.held.length : 0;
    byId("count").textContent = `${this.shown.length} of ${lanes.reduce((count, lane) => count + !lane.isGone, 0)}${this.held ? `, paused: ${more} more` : ""}${this.lacks ? `; ${this.lacks}` : ""}`;
    byId("har").hidden = !this.shown.some((lane) => lane.exchanges.length);
    byId("empty").hidden = this.shown.length > 0;
    this.isDirty = false;
  }

  draw() {
    if (this.isDirty) this.filter();
    const found = this.wanted && !this.chosen && this.wanted.map((key) => this.model.known(key)).find(Boolean);
    if (found) { const at = this.shown.indexOf(found); if (at >= 0 && this.isSought && this.isFar(at)) this.box.scrollTop = at * this.height; this.choose(found); return; }
    if (this.wanted && !this.chosen) { showDetail(null); byId("payments").classList.remove("open"); }
    this.sizer.style.height = `${this.shown.length * this.height}px`;
    const first = Math.max(0, Math.floor(this.box.scrollTop / this.height) - 4);
    const last = Math.min(this.shown.length, Math.ceil((this.box.scrollTop + this.box.clientHeight) / this.height) + 4);
    const kept = new Map();
    for (let i = first; i < last; i++) {
      const lane = this.shown[i], isChosen = lane === this.chosen, isCut = i > 0 && this.shown[i - 1].era !== lane.era;
      let row = this.rows.get(lane);
      if (!row || row.version !== lane.version || row.isChosen !== isChosen) {
        const node = this.row(lane, isChosen);
        row?.node.replaceWith(node);
        row = { node, version: lane.version, isChosen };
      }
      row.node.classList.toggle("cut", isCut); // the line that a reset draws
      if (!row.node.isConnected) this.sizer.append(row.node);
      row.node.style.transform = `translateY(${i * this.height}px)`;
      row.node.ariaPosInSet = String(i + 1); row.node.ariaSetSize = String(this.shown.length);
      kept.set(lane, row);
    }
    for (const [lane, row] of this.rows) if (!kept.has(lane)) row.node.remove();
    this.rows = kept;
    if (this.chosen && kept.has(this.chosen)) this.box.setAttribute("aria-activedescendant", `lane${this.chosen.n}`);
    else this.box.removeAttribute("aria-activedescendant");
    if (this.chosen && this.chosen.version !== this.seen) { this.seen = this.chosen.version; showDetail(this.chosen, this.model); }
  }

  // An error in one lane is that lane's.
  row(lane, isChosen) {
    const same = { id: `lane${lane.n}`, "data-n": String(lane.n), role: "option", "aria-selected": String(isChosen) };
    try { return this.drawn(lane, same); }
    catch (error) { console.error(error); return el("div", { class: "lane refused", ...same }, `This payment cannot be shown: ${error.message}`); }
  }

  drawn(lane, same) {
    const kind = status(lane), told = lane.stopped ? why(lane) : lane.stages.served ? "" : lane.told.at(-1)?.[1] ?? "";
    return el("div", { class: `lane ${kind}${lane.past ? " over" : ""}`, ...same },
      el("div", { class: "top" }, el("span", { class: "at", title: iso(lane.at) }, time(lane.at)), el("span", { class: `badge ${kind}` }, kind),
        el("span", { class: "who" }, lane.payer ? named(lane.payer) : "somebody"), el("span", { class: "what" }, lane.resource ?? "a payment"),
        lane.past ? el("span", { class: "past" }, lane.past) : "", el("span", { class: "amount" }, amounts(lane))),
      el("div", { class: "below" }, el("span", { class: "track" }, stagesOf(lane).map((stage) => el("span", { class: `step ${step(lane, stage, this.model)}` }, step(lane, stage, this.model) === "unknown" ? `${stage}?` : stage))),
        el("span", { class: "why", title: told }, untimely(lane) ? inShort(lane) : readable(told, true))));
  }
}

// What was paid or asked for; both, if something else was signed.
function amounts(lane) {
  if (lane.amount === undefined) return "";
  const signed = lane.signed?.value, isOdd = signed !== undefined && String(signed) !== String(lane.amount);
  return isOdd ? `${money(signed, true)}, asked ${money(lane.amount)}` : money(lane.amount);
}

// In short: both times, and why it was called valid before.
function inShort(lane) {
  const [, end, at] = untimely(lane);
  return `${lane.error}: ${end} is ${utc(at)}, the chain's time ${utc(lane.chain_s)}; verify does not look at it`;
}

