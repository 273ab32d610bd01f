// A saved run as a tape: a slider chooses after how many events its state is shown.

import { byId, el, lasted } from "./dom.js";

const STEP_MS = 80, MOST_STEPS = 250;
const TOLD = { stored: "a payment of the database", served: "a payment is served" };

export class Tape {
  constructor(model, changed) {
    Object.assign(this, { model, changed, items: [], at: 0, timer: null });
    this.slider = el("input", { type: "range", min: "0", max: "0", step: "1", "aria-label": "Moment of the run", id: "moment" });
    this.button = el("button", { type: "button", id: "play", onclick: () => this.play() }, "Play");
    this.text = el("output", { class: "quiet", id: "at" });
    let wanted = null;
    this.slider.addEventListener("input", () => {
      this.pause();
      if (wanted === null) requestAnimationFrame(() => { this.seek(wanted); wanted = null; });
      wanted = this.slider.valueAsNumber;
    });
    this.slider.addEventListener("keydown", (event) => { if (event.key === " ") { event.preventDefault(); this.play(); } });
    byId("player").append(this.button, this.slider, this.text);
    byId("player").hidden = false;
  }

  // A recorded request, or one that served a payment, comes after the events that it caused.
  add(name, item) {
    let place = this.items.length;
    if (name === "exchanges" || name === "served") {
      const last = item.seq ?? Math.max(-1, ...item.seen), end = item.at_ms + (item.ms ?? 0);
      place = this.items.findIndex(([kind, each]) => kind === "journal" && (last >= 0 ? each.seq > last : each.at_ms > end));
      if (place < 0) place = this.items.length;
    }
    const isAtEnd = this.at === this.items.length;
    this.items.splice(place, 0, [name, item]);
    if (isAtEnd || place < this.at) this.tell(this.items[place]), this.at++;
  }

  tell([name, item]) { this.model.take(name, item); }

  seek(to) {
    if (to < this.at) { this.model.rewind(); this.at = 0; }
    while (this.at < to) this.tell(this.items[this.at++]);
    this.draw();
    this.changed();
  }

  draw() {
    const [kind, now] = this.items[this.at - 1] ?? [], first = this.items[0]?.[1];
    this.slider.max = String(this.items.length);
    this.slider.value = String(this.at);
    const since = now ? `, after ${lasted(now.at_ms - first.at_ms)}: ${TOLD[kind] ?? now.event ?? `${now.method} ${now.path}`}` : "";
    this.text.textContent = this.text.title = `${this.at} of ${this.items.length}${since}`;
    this.slider.setAttribute("aria-valuetext", this.text.textContent);
  }

  play() {
    if (this.timer) { this.pause(); return; }
    if (this.at === this.items.length) this.seek(0);
    const step = Math.ceil(this.items.length / MOST_STEPS);
    this.timer = setInterval(() => {
      this.seek(Math.min(this.items.length, this.at + step));
      if (this.at === this.items.length) this.pause();
    }, STEP_MS);
    this.button.textContent = "Pause";
  }

  pause() { clearInterval(this.timer); this.timer = null; this.button.textContent = "Play"; }
}
