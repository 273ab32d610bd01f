// The lanes, the newest first. Only visible lanes are in the document.

import { har } from "./copies.js";
import { byId, el, iso, money, named, readable, save, time, utc } from "./dom.js";
import { assetOf, stagesOf, status, step, untimely, why } from "./model.js";
import { linkTo, showDetail, showUnknown } from "./detail.js";

const MOST_PRINTED = 2000; // lanes on paper, where nothing can be scrolled
const FILTERS = ["all", "served", "paid", "charged, not served", "pending", "refused", "asked"];

export class List {
  constructor(model) {
    this.model = model; this.shown = []; this.chosen = null; this.rows = new Map(); this.isDirty = true; this.held = null; this.lacks = ""; this.isLoaded = this.isPrinting = false; this.rowPx = 64;
    this.box = byId("lanes"); this.sizer = el("div", { class: "sizer", role: "presentation" }); this.box.append(this.sizer);
    byId("status").append(...FILTERS.map((name) => el("option", { value: name }, name === "all" ? "any status" : name)));
    const again = () => { this.isDirty = true; this.draw(); };
    byId("search").addEventListener("input", again);
    byId("status").addEventListener("change", again);
    byId("pause").addEventListener("click", () => { this.held = this.held ? null : [...this.model.lanes]; byId("pause").setAttribute("aria-pressed", String(!!this.held)); again(); });
    byId("clear").addEventListener("click", () => { this.model.clear(); this.held = this.held && []; this.choose(null); again(); });
    byId("har").addEventListener("click", () => save("payments.har", "application/json", har(this.shown.flatMap((lane) => lane.exchanges))));
    this.box.addEventListener("scroll", () => requestAnimationFrame(() => this.draw()), { passive: true });
    this.box.addEventListener("click", (event) => {
      const row = event.target.closest("[data-n]");
      this.draw(); // what is drawn may be of an earlier moment, whose lanes the model has dropped
      const lane = row && this.shown.find(({ n }) => n === +row.dataset.n);
      if (lane) this.choose(lane, true);
    });
    this.box.addEventListener("keydown", (event) => this.key(event));
    byId("payments").addEventListener("keydown", (event) => { if (event.key === "Escape" && this.chosen) { this.choose(null); this.box.focus(); } });
    for (const [event, isPrinting] of [["beforeprint", true], ["afterprint", false]]) addEventListener(event, () => { this.isPrinting = isPrinting; this.draw(); });
    new ResizeObserver(() => this.draw()).observe(this.box);
  }

  // The number of the lane at a height of the list: all lanes have one height, that of the style.
  laneAt(px) { return Math.max(0, Math.min(this.shown.length - 1, Math.floor(px / this.rowPx))); }

  isFar(at) { return at * this.rowPx < this.box.scrollTop || (at + 1) * this.rowPx > this.box.scrollTop + this.box.clientHeight; }

  key(event) {
    const page = Math.max(1, this.laneAt(this.box.scrollTop + this.box.clientHeight) - this.laneAt(this.box.scrollTop) - 1), last = this.shown.length - 1;
    const step = { ArrowDown: 1, ArrowUp: -1, PageDown: page, PageUp: -page, Home: -Infinity, End: Infinity }[event.key];
    if (event.key === "Enter" && this.chosen) byId("detail").focus();
    if (step === undefined || last < 0) return;
    event.preventDefault();
    const at = Math.max(this.shown.indexOf(this.chosen), step > 1 ? 0 : -1), to = Math.min(last, Math.max(0, at + step));
    this.box.scrollTop = Math.max((to + 1) * this.rowPx - this.box.clientHeight, Math.min(this.box.scrollTop, to * this.rowPx));
    this.choose(this.shown[to]);
  }

  // The address of the page is that of the chosen payment; a page in a frame of a notebook has none.
  address() {
    if (!/^(https?|file):$/.test(location.protocol)) return;
    const keys = [...this.chosen?.keys ?? []], key = keys.find((each) => each.startsWith("pay_")) ?? keys[0];
    history.replaceState(null, "", key ? linkTo(key) : "#payments");
  }

  // Choose the lane that has one of these keys, when there is one.
  want(keys, isSought = true) { Object.assign(this, { chosen: null, wanted: keys, isSought, isDirty: true }); }

  // Choose the same payment after the lanes were made again; scroll to it only if it was visible.
  keep() { if (this.chosen) this.want([...this.chosen.keys], !this.isFar(this.shown.indexOf(this.chosen))); }

  choose(lane, isClicked) {
    this.chosen = lane ?? null;
    this.wanted = null;
    this.address();
    byId("payments").classList.toggle("open", !!lane);
    showDetail(lane, this.model, () => { this.isDirty = true; this.choose(null); this.box.focus(); });
    this.draw();
    if (lane && isClicked && matchMedia("(max-width: 1000px)").matches) byId("detail").scrollIntoView({ block: "start" });
  }

  filter() {
    const lanes = this.held ?? this.model.lanes, phrase = byId("search").value.trim().toLowerCase(), kind = byId("status").value;
    const wanted = lanes.some((lane) => lane.text.includes(phrase)) ? [phrase] : phrase.split(/\s+/); // "account 2", or words anywhere
    this.shown = lanes.filter((lane) => !lane.isGone && !this.model.isHidden(lane) && (kind === "all" || status(lane) === kind) && wanted.every((term) => fits(lane, term))).sort((a, b) => b.era - a.era || b.at - a.at || b.n - a.n);
    const more = this.held ? this.model.lanes.length - this.held.length : 0;
    byId("count").textContent = `${this.shown.length} of ${lanes.reduce((count, lane) => count + !lane.isGone, 0)}${this.held ? `, paused: ${more} more` : ""}${this.lacks ? `; ${this.lacks}` : ""}`;
    byId("har").hidden = !this.shown.some((lane) => lane.exchanges.length);
    byId("empty").hidden = this.shown.length > 0;
    this.isDirty = false;
  }

  draw() {
    if (this.isDirty) this.filter();
    this.rowPx = parseFloat(getComputedStyle(this.box).getPropertyValue("--row")) || this.rowPx;
    const found = this.wanted && !this.chosen && this.wanted.map((key) => this.model.known(key)).find(Boolean);
    if (found) { const at = this.shown.indexOf(found); if (at >= 0 && this.isSought && this.isFar(at)) this.box.scrollTop = at * this.rowPx; this.choose(found); return; }
    if (this.wanted && !this.chosen) {
      byId("payments").classList.toggle("open", this.isLoaded);
      if (this.isLoaded) showUnknown(this.wanted[0], () => this.choose(null)); else showDetail(null);
    }
    this.sizer.style.height = `${this.shown.length * this.rowPx}px`;
    const first = this.isPrinting ? 0 : Math.max(0, this.laneAt(this.box.scrollTop) - 4);
    const last = Math.min(this.shown.length, this.isPrinting ? MOST_PRINTED : this.laneAt(this.box.scrollTop + this.box.clientHeight) + 5);
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
      const place = this.sizer.children[kept.size]; // in the order in which they are read
      if (place !== row.node) this.sizer.insertBefore(row.node, place ?? null);
      row.node.style.transform = `translateY(${i * this.rowPx}px)`;
      row.node.ariaPosInSet = String(i + 1); row.node.ariaSetSize = String(this.shown.length);
      kept.set(lane, row);
    }
    for (const [lane, row] of this.rows) if (!kept.has(lane)) row.node.remove();
    this.rows = kept;
    if (this.chosen && kept.has(this.chosen)) this.box.setAttribute("aria-activedescendant", `lane${this.chosen.n}`);
    else this.box.removeAttribute("aria-activedescendant");
    if (this.chosen && this.chosen.version !== this.seen) { this.seen = this.chosen.version; showDetail(this.chosen, this.model); }
  }

  // An error in one lane does not stop the others.
  row(lane, isChosen) {
    const same = { id: `lane${lane.n}`, "data-n": String(lane.n), role: "option", "aria-selected": String(isChosen) };
    try { return this.drawn(lane, same); }
    catch (error) { console.error(error); return el("div", { class: "lane refused", ...same }, `This payment cannot be shown: ${error.message}`); }
  }

  drawn(lane, same) {
    const said = status(lane), kind = said.split(",")[0], text = reason(lane), mark = marks(lane);
    return el("div", { class: `lane ${kind}${lane.past ? " over" : ""}`, ...same },
      el("div", { class: "top" }, el("span", { class: "at", title: iso(lane.at) }, time(lane.at)), el("span", { class: `badge ${kind}` }, said),
        el("span", { class: "who" }, lane.payer ? named(lane.payer) : "somebody"), el("span", { class: "what" }, lane.resource ?? "a payment"),
        el("span", { class: "amount" }, amounts(lane))),
      el("div", { class: "track", "aria-hidden": "true" }, stagesOf(lane).map((stage) => el("span", { class: `step ${step(lane, stage, this.model)}` }, step(lane, stage, this.model) === "unknown" ? `${stage}?` : stage))),
      el("span", { class: "heard" }, heard(lane, this.model)), mark || text ? el("div", { class: "why", title: [mark, text].filter(Boolean).join("; ") }, mark ? el("span", { class: lane.struck.length ? "past struck" : "past" }, mark) : "", text) : "");
  }
}

const FIELDS = { payer: (lane) => `${lane.payer ?? ""} ${lane.payer ? named(lane.payer) : "somebody"}`, path: (lane) => lane.resource, status, error: why };

// Whether a lane fits a term of the search: a field, as in status:refused, an amount, as in amount>0.01, or any text; a
// "-" before the term excludes what fits.
function fits(lane, term) {
  if (lane.text.includes(term)) return true;
  const [, not, name, compare, value] = /^(-?)(?:(payer|path|status|error|amount)([:<>]))?(.*)$/s.exec(term);
  if (not) return !value || !fits(lane, term.slice(1));
  if (name === "amount") { const [is, than] = [Number(money(lane.amount, true, assetOf(lane))), Number(value)]; return compare === ">" ? is > than : compare === "<" ? is < than : is === than; }
  return !!name && String(FIELDS[name](lane) ?? "").toLowerCase().includes(value);
}

// Faults that struck it, and the reset or revert that ended its world.
const marks = (lane) => [...new Set(lane.struck.map(({ does }) => `fault: ${does}`)), lane.past].filter(Boolean).join(", ");

// What a screen reader says instead of the names of all steps.
function heard(lane, model) {
  if (lane.stopped) return `stopped at ${lane.stopped}`;
  const reached = stagesOf(lane).filter((stage) => lane.stages[stage]), unknown = stagesOf(lane).filter((stage) => step(lane, stage, model) === "unknown");
  return [reached.length ? `as far as ${reached.at(-1)}` : "", ...unknown.map((stage) => `whether it was ${stage} is no longer known`)].filter(Boolean).join(", ");
}

// Why it stopped, or its newest note, or what is wrong.
function reason(lane) {
  const wrong = lane.findings.findLast(({ mark }) => mark === "wrong");
  const text = lane.stopped ? why(lane) : lane.stages.served ? "" : lane.notes.at(-1)?.[1] ?? (wrong ? `${wrong.about}: ${wrong.seen}` : "");
  return (untimely(lane) ? inShort(lane) : readable(text, true)).replaceAll("`", "");
}

// The amount; also the signed one, if it differs.
function amounts(lane) {
  if (lane.amount === undefined) return "";
  const signed = lane.signed?.value, isOdd = signed !== undefined && String(signed) !== String(lane.amount);
  const asked = money(lane.amount, false, assetOf(lane));
  return isOdd ? `${money(signed, true, assetOf(lane))}, asked ${asked}` : asked;
}

// In short: both times, and why it was called valid before.
function inShort(lane) {
  const [, end, at] = untimely(lane);
  return `${lane.error}: ${end} is ${utc(at)}, the chain's time ${utc(lane.chain_s)}; verify does not look at it`;
}

