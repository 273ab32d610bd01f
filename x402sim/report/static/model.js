// Payments, made of the journal's events and of recorded requests; sessions, blocks, faults.

import { decoded, named, object, own, parse, text, texts, words } from "./dom.js";

export const STAGES = ["402", "signed", "sent", "verified", "settled", "block", "served", "indexed"];
const WATCHED = STAGES.slice(0, -1); // `watch` cannot see a shop's index
const AT_THE_FACILITATOR = ["signed", "verified", "settled", "block"]; // what the facilitator of another's shop observes
const AFTER_VERIFY = /^(Nonce already used|Insufficient|Settlement|Facilitator)/;
const OF_TIME = /^(?:Authorization expired:|Invalid signature: Authorization not yet valid;) (valid\w+) is (\d+)/;
const MOST_EVENTS = 20000;
const NEVER = "It can never be paid any more";
const bare = (url) => url.replace(/^\w+:\/\/[^/]*/, "").split("?")[0];

export class Model {
  constructor() { this.version = 0; this.forgotten = null; this.hidden = new Set(); this.rewind(); }

  // A payment that the reader has deleted from the page, also after a tape was rewound.
  hide(lane) { for (const key of lane.keys) this.hidden.add(key); }
  isHidden(lane) { return this.hidden.size > 0 && [...lane.keys].some((key) => this.hidden.has(key)); }

  // Forget everything: a tape starts from its beginning.
  rewind() { this.eras = [{ begun: 0, events: new Map(), kept: new Set() }]; this.clear(); this.sessions = new Map(); this.txs = new Map(); this.faults = []; this.recent = new Map(); this.chainSkew = 0; this.hasStory = this.isWatched = false; }

  // A reset ends an era: afterwards, the same keys are another payment.
  clear() { this.lanes = []; this.asked = new Map(); this.undone = []; this.used = []; for (const era of this.eras) { era.keys = new Map(); era.events = new Map(); } this.keys = this.eras.at(-1).keys; }

  // The lane with a key, of the newest era that has one.
  known(key) { return this.eras.map(({ keys }) => keys.get(key)).findLast((lane) => lane && !lane.isGone); }

  // Do something in the era of an entry of the journal.
  during(seq, act) {
    const now = this.keys;
    this.keys = (this.eras.findLast(({ begun }) => begun <= seq) ?? this.eras.at(-1)).keys;
    try { act(); } finally { this.keys = now; }
  }

  // Whether the page knows if a payment was served: from a run's journal, or until the server forgets.
  knowsServed(lane) { return lane.stages.served || this.hasStory || (this.forgotten !== null && lane.seq > this.forgotten); }

  // The lane with one of these keys (payment id, authorization, transaction); made if `at` is given.
  lane(keys, at) {
    keys = keys.filter((key) => key && typeof key === "string");
    const found = [...new Set(keys.map((key) => this.keys.get(key)).filter(Boolean))];
    let lane = found[0];
    if (!lane && at === undefined) return undefined;
    if (!lane) {
      const era = this.eras.findIndex(({ keys }) => keys === this.keys);
      lane = { n: this.lanes.length, at, era, ...this.eras[era].ended, stages: {}, exchanges: [], notes: [], findings: [], struck: [], sessions: [], keys: new Set(), text: "", isGone: false, isWatched: this.isWatched };
      this.lanes.push(lane);
    }
    for (const other of found.slice(1)) this.merge(lane, other);
    for (const key of keys) {
      this.name(lane, key);
      if (!lane.keys.has(key)) { lane.keys.add(key); this.find(lane, key); }
    }
    lane.version = ++this.version;
    return lane;
  }

  // These keys and the authorization, unless an earlier payment has presented it.
  withNonce(keys, nonce, isRefused) {
    const owner = this.keys.get(nonce), isReplay = owner && ([...owner.keys].some((key) => key.startsWith("pay_")) || (isRefused && owner.stages.served));
    return isReplay && keys.some((key) => key && this.keys.get(key) !== owner) ? keys : [...keys, nonce];
  }

  // Give a lane a key: in this era, and in later ones that kept the lane, as a request may arrive late.
  name(lane, key) {
    const now = this.eras.findLastIndex(({ keys }) => keys === this.keys);
    this.keys.set(key, lane);
    for (const { keys, kept } of this.eras.slice(now + 1)) {
      if (!kept.has(lane)) return;
      if (keys.get(key)?.isGone !== false) keys.set(key, lane);
    }
  }

  merge(lane, other) {
    other.isGone = true;
    for (const { kept } of this.eras) if (kept.has(other)) kept.add(lane);
    for (const key of other.keys) { this.name(lane, key); lane.keys.add(key); }
    for (const [name, at] of Object.entries(other.stages)) lane.stages[name] = Math.min(at, lane.stages[name] || at);
    lane.exchanges.push(...other.exchanges);
    for (const [name, value] of Object.entries(other)) lane[name] ??= value;
    lane.notes.push(...other.notes);
    lane.findings.push(...other.findings);
    lane.struck.push(...other.struck);
    lane.text += other.text;
    lane.at = Math.min(lane.at, other.at);
  }

  reach(lane, at, ...names) {
    for (const name of names) lane.stages[name] ||= at;
    if (!lane.stages[lane.stopped]) return;
    lane.stopped = lane.error = lane.reason = undefined;
  }

  stop(lane, at, stage, error, reason, final) {
    if (lane.stages.settled && !lane.undone) { // a second attempt at a payment that is made
      lane.notes.push([at, [error, reason].filter(Boolean).join(": ")]);
      return;
    }
    Object.assign(lane, { stopped: stage, error, reason, final, chain_s: Math.floor(at / 1000 + this.chainSkew) });
    this.find(lane, error, reason);
  }

  find(lane, ...texts) { for (const text of texts) if (text) lane.text += ` ${String(text).toLowerCase()}`; }

  // The facilitator has settled what was used last. From outside it is asked for another's shop, of which the journal
  // has no other record; our own service is in this process, and records its payments.
  sold(answer) {
    const event = this.used.shift();
    if (!event || !answer.path.startsWith("/facilitator/") || this.keys.has(event.tx_hash)) return;
    const lane = this.lane([event.authorization, event.tx_hash], event.at_ms), tx = this.txs.get(event.tx_hash);
    lane.isOutside = true;
    lane.tx = event.tx_hash;
    lane.amount = tx?.moves[0]?.amount_base;
    this.payer(lane, event.authorizer);
    this.reach(lane, event.at_ms, "signed", "sent", "verified", "settled");
    this.mined(lane, tx);
  }

  // Keep an event under the keys that it names: the request that makes its lane may come later.
  keep(event, asked) {
    const payment = asked?.payment_id ?? event.payment_id, { events } = this.eras.at(-1);
    for (const key of payment ? [payment, event.tx_hash] : [event.tx_hash, asked?.authorization ?? event.authorization])
      if (key) events.has(key) ? events.get(key).push(event) : events.set(key, [event]);
  }

  // The events of a lane, whichever came first, they or the request that ties them to it.
  eventsOf(lane) {
    const found = new Map();
    for (const { keys, events } of this.eras)
      for (const key of lane.keys) if (keys.get(key) === lane) for (const event of events.get(key) ?? []) found.set(event.seq, event);
    return [...found.values()].sort((a, b) => a.seq - b.seq);
  }

  payer(lane, who) {
    if (!who || lane.payer) return;
    lane.payer = who;
    this.find(lane, who, named(who));
  }

  // Take an event or a request; one that cannot be read becomes a lane that says so.
  take(name, item) {
    try {
      if (name === "journal") this.event(item);
      else if (name === "stored") this.stored(item);
      else if (name === "served") this.during(item.seq, () => this.served(this.lane([item.payment_id]), item.path, item.at_ms));
      else this.during(item.seen.length ? Math.max(...item.seen) : Infinity, () => this.exchange(item));
    } catch (error) {
      console.error(error);
      const lane = this.lane([`${name} ${item.seq ?? item.n}`], item.at_ms);
      lane.notes.push([item.at_ms, `${item.event ?? `${item.method} ${item.path}`} cannot be shown: ${error.message}`]);
    }
  }

  // Mark a payment as served, if the path is the one that it paid for.
  served(lane, path, at) { if (lane && (!lane.resource || bare(lane.resource) === bare(path))) this.reach(lane, at, "served"); }

  // A payment that the database had when the server started.
  stored({ at_ms: at, session, ...record }) {
    const lane = this.lane([record.payment_id, record.authorization, record.tx_hash], at);
    this.payer(lane, record.payer);
    Object.assign(lane, { tx: record.tx_hash, amount: record.amount_base, resource: record.resource, seq: -1, isStored: true });
    this.find(lane, record.resource);
    lane.isOutside = false;
    this.reach(lane, at, "402", "signed", "sent");
    if (record.status === "settled") this.reach(lane, at, "verified", "settled");
    if (record.status === "failed") this.stop(lane, at, "settled", NEVER, null, true);
    if (record.block !== null) { this.reach(lane, at, "block", "indexed"); lane.block = record.block; }
    if (record.served) this.reach(lane, at, "served");
    if (!session) return;
    this.opened(lane, session, at);
    Object.assign(this.sessions.get(session.session_id), session);
  }

  opened(lane, session, at) {
    lane.sessions.push(session.session_id);
    this.find(lane, session.session_id);
    this.name(lane, session.session_id);
    lane.keys.add(session.session_id);
    this.sessions.set(session.session_id, { ...session, released: 0, refunded: 0, refunds: new Set(), status: "open", steps: [[at, Number(session.deposited_base)]] });
  }

  // --- the journal -------------------------------------------------------------------------

  event(event) {
    this.recent.set(event.seq, event);
    if (this.recent.size > 2 * MOST_EVENTS) this.recent = new Map([...this.recent].slice(-MOST_EVENTS)); // one by one is slow
    const at = event.at_ms;
    const of = () => Object.assign(this.lane([event.payment_id], at), { isOutside: false });
    if (event.event !== "transaction undone" && event.event !== "note") this.undone = [];
    let lane;
    this.keep(event, this.asked.get(event.exchange));
    switch (event.event) {
      case "begin": this.isWatched = event.upstream !== undefined; this.hasStory = !this.isWatched; break;
      case "payment settled":
        lane = this.lane([event.payment_id, event.tx_hash], at);
        lane.isOutside = false;
        this.payer(lane, event.payer);
        Object.assign(lane, { tx: event.tx_hash, amount: event.amount_base, resource: event.resource, undone: false, seq: event.seq });
        this.find(lane, event.resource);
        this.reach(lane, at, "402", "signed", "sent", "verified", "settled");
        lane.stopped = lane.error = lane.reason = undefined;
        if (this.txs.has(lane.tx)) this.mined(lane, this.txs.get(lane.tx));
        break;
      case "payment refused":
        lane = of();
        this.reach(lane, at, "402", "signed", "sent");
        if (AFTER_VERIFY.test(event.refusal) || ofTime(event.refusal, event.reason)) this.reach(lane, at, "verified");
        this.stop(lane, at, lane.stages.verified ? "settled" : "verified", event.refusal, event.reason, event.final);
        break;
      case "payment failed":
        lane = of(); lane.stages.settled = 0; lane.undone = true;
        this.stop(lane, at, "settled", NEVER, null, true);
        break;
      case "payment undone":
        lane = of(); lane.undone = true;
        for (const stage of ["settled", "block", "indexed"]) delete lane.stages[stage]; // what was served, was
        lane.notes.push([at, "The chain has undone its transfer, and may still make it."]);
        break;
      case "paid again": lane = of(); lane.notes.push([at, "A second header of this id was used, too: it bought nothing."]); break;
      case "settlement answer lost": lane = of(); lane.notes.push([at, "The facilitator's answer did not arrive."]); break;
      case "transaction replaced":
        lane = this.lane([event.payment_id, event.tx_hash], at); lane.tx = event.tx_hash;
        if (this.txs.has(lane.tx)) this.mined(lane, this.txs.get(lane.tx));
        break;
      case "payment indexed":
        lane = this.lane([event.payment_id]); // not one that was cleared
        if (lane) { this.reach(lane, at, "block", "indexed"); lane.block = event.block; }
        break;
      case "transaction mined": {
        const tx = { ...this.txs.get(event.tx_hash), ...event, undone: false, moves: [], used: [] };
        this.txs.set(event.tx_hash, tx);
        lane = this.lane([event.tx_hash]);
        if (lane) this.mined(lane, tx);
        break;
      }
      case "answer sent": if (event.actor === "facilitator" && event.path.endsWith("/settle")) this.sold(event); break;
      case "transfer": this.txs.get(event.tx_hash)?.moves.push(event); break;
      case "authorization consumed":
        this.txs.get(event.tx_hash)?.used.push(event);
        lane = this.lane([event.authorization]);
        if (!lane && !this.hasStory && event.use === "used") this.used.push(event);
        if (lane && event.use === "used") { this.lane([event.authorization, event.tx_hash]); lane.tx ??= event.tx_hash; this.mined(lane, this.txs.get(event.tx_hash)); }
        break;
      case "transaction undone": {
        const tx = this.txs.get(event.tx_hash);
        if (tx) tx.undone = true;
        lane = this.lane([event.tx_hash]);
        if (lane) { this.undone.push([lane, lane.stages.block]); delete lane.stages.block; }
        break;
      }
      case "session opened":
        lane = of(); this.opened(lane, event, at);
        break;
      case "session debited": case "debit undone": this.session(event, { released: event.released_base }); break;
      case "session refunded": this.refunded(event); break;
      case "refund delayed": this.session(event, { status: `refund delayed: ${event.reason}` }); break;
      case "refund undone": this.refundUndone(event); break;
      case "request sent": this.asked.set(event.exchange, event); lane = this.sent(event, at); break;
      case "answer received": lane = this.answered(this.asked.get(event.exchange), event, at); this.asked.delete(event.exchange); break;
      case "no answer":
        lane = this.lane([this.asked.get(event.exchange)?.payment_id]);
        lane?.notes.push([at, `${event.actor} got no answer from ${event.to}: ${event.reason}`]);
        break;
      case "clock skewed": if (event.victim === "chain") this.chainSkew = event.seconds; break;
      case "fault injected": this.faults.push({ ...event, struck: 0 }); break;
      case "note": this.note(event); break;
    }
    if (lane) lane.version = ++this.version;
  }

  // A debit that is undone after the refund is another refund; two services may record one.
  refunded(event) {
    const { refunds = new Set(), refunded } = this.sessions.get(event.session_id) ?? {};
    const more = refunds.has(event.tx_hash) ? 0 : Number(event.amount_base);
    refunds.add(event.tx_hash);
    this.session(event, { refunded: Number(refunded) + more, status: "refunded" });
  }

  // Older journals do not name what the chain has undone: everything then.
  refundUndone(event) {
    const { refunds, refunded } = this.sessions.get(event.session_id) ?? {};
    refunds?.delete(event.tx_hash);
    this.session(event, { refunded: event.tx_hash ? Math.max(0, Number(refunded) - event.amount_base) : 0, status: "expired" });
  }

  session(event, changes) {
    const session = this.sessions.get(event.session_id);
    if (session) { Object.assign(session, changes); session.steps.push([event.at_ms, left(session)]); }
    const lane = this.keys.get(event.session_id);
    if (lane) lane.version = ++this.version;
  }

  mined(lane, tx) {
    if (!tx || tx.undone) return;
    lane.block = tx.block;
    if (tx.revert_reason) this.stop(lane, tx.at_ms, "settled", "The transaction reverted", tx.revert_reason, null);
    else this.reach(lane, tx.at_ms, "block");
  }

  // A finding of `watch`, in an exchange or in a payment's transaction.
  found(finding) {
    const lane = this.lane([finding.authorization]) ?? this.lanes.findLast((each) => each.exchanges.some(({ n }) => n === finding.exchange));
    if (!lane) return;
    lane.findings.push(finding);
    this.find(lane, finding.mark, finding.about, finding.seen);
  }

  note(event) {
    const at = event.at_ms;
    if (event.name === "exchange") { this.exchange({ ...event.data, at_seq: event.seq }); return; } // of `watch`
    if (event.name === "finding") { this.found(event.data); return; }
    if (event.name === "fault struck") {
      const struck = texts(event.data);
      const hit = ({ victim, does, path, contains, caller }) => victim === struck.victim && does === struck.does && caller === struck.caller && contains === (struck.contains ?? contains) && struck.path?.endsWith(path);
      const fault = this.faults.find((each) => !each.over && hit(each));
      if (fault && ++fault.struck === fault.times) fault.over = true;
    } else if (event.name === "faults cleared") { this.chainSkew = 0; for (const fault of this.faults) fault.over ||= !(Array.isArray(event.data.keep) && event.data.keep.includes(fault.contains)); }
    else if (event.name === "reset") {
      this.restore();
      for (const lane of this.lanes) this.end(lane, "before the reset", at);
      for (const era of this.eras) era.ended ??= { past: "before the reset", pastAt: at }; // for requests that are told late
      for (const session of this.sessions.values()) session.status = "before the reset";
      this.begin(event.seq, []);
    } else if (event.name === "reverted") {
      const gone = new Set(this.restore());
      for (const lane of gone) this.end(lane, "undone by a snapshot", at);
      this.begin(event.seq, [...this.keys].filter(([, lane]) => !gone.has(lane)));
    }
  }

  // The blocks undone just before a reset or revert were no reorganisation: restore them.
  restore() {
    const lanes = this.undone.map(([lane, block]) => { if (block) lane.stages.block = block; return lane; });
    this.undone = [];
    return lanes;
  }

  begin(seq, keys) {
    this.keys = new Map(keys);
    this.eras.push({ begun: seq, keys: this.keys, events: new Map(), kept: new Set(this.keys.values()) });
  }

  end(lane, past, at) {
    if (!lane.past) Object.assign(lane, { past, pastAt: at });
    lane.version = ++this.version;
  }

  // A request of a payer or a service: only the journal of a run has these.
  sent(event, at) {
    const nonce = event.authorization !== "unreadable" && event.authorization;
    const lane = this.lane(event.payment_id ? this.withNonce([event.payment_id], nonce) : [nonce], event.payment_id ? at : undefined);
    if (!lane || !event.authorization) return lane;
    this.reach(lane, at, "402", "signed", "sent");
    if (this.hasStory && event.to !== "facilitator") this.payer(lane, event.actor);
    return lane;
  }

  answered(asked, event, at) {
    if (!asked) return undefined;
    const isAsking = event.status === 402, nonce = asked.payment_id ? null : asked.authorization;
    const lane = isAsking ? this.lane([event.payment_id], event.payment_id ? at : undefined) : this.lane([asked.payment_id ?? event.payment_id, nonce]);
    if (!lane) return undefined;
    if (isAsking) { this.reach(lane, at, "402"); if (this.hasStory) this.payer(lane, event.actor); lane.resource ??= asked.path; this.find(lane, asked.path); }
    else if (asked.path.endsWith("/verify") && event.ok) this.reach(lane, at, "verified");
    else if (event.status < 300 && event.to !== "facilitator" && !asked.path.endsWith("/api/pay")) this.reach(lane, at, "served");
    return lane;
  }

  // --- recorded requests -------------------------------------------------------------

  exchange(seen) {
    const head = (half, name) => half.headers.find(([each]) => each.toLowerCase() === name)?.[1];
    const body = object(parse(seen.sent.body)), said = object(parse(seen.answered.body));
    const isAside = seen.path.startsWith("/facilitator");
    const raw = text(body.paymentHeader) ?? head(seen.sent, "payment-signature") ?? head(seen.sent, "x-payment");
    const decodedText = decoded(raw) ?? (body.paymentPayload && JSON.stringify(body.paymentPayload));
    const payment = decodedText && object(parse(decodedText));
    const payload = object(payment?.payload), signed = texts(payload.authorization ?? payload), accepted = object(payment?.accepted);
    const nonce = signed.nonce?.replace(/^0x/, "").toLowerCase();
    const shown = head(seen.sent, "x-payment-id"), offered = object(accepted.extra).paymentId;
    const isAsking = seen.status === 402; // its id is of another payment than the one it refuses
    const made = [offered, shown, body.paymentId], answers = [said.paymentId, head(seen.answered, "x-payment-id")];
    const offer = object(parse(decoded(head(seen.answered, "payment-required")) ?? "")), asked = said.paymentRequirements ?? said.accepts?.[0] ?? offer.accepts?.[0];
    const keys = isAsking ? (payment ? made : [said.paymentId ?? object(object(asked).extra).paymentId]) : [...made, ...answers];
    const session = isAsking ? undefined : head(seen.sent, "x-session-id") ?? said.sessionId;
    keys.push(session);
    keys.push(seen.lane); // that `watch` saw to belong together
    const all = this.withNonce(keys.filter((key) => typeof key === "string"), nonce, payment && seen.status >= 400);
    if (!all.some(Boolean)) return;
    const lane = this.lane(all, seen.at_ms), { at_ms: at } = seen, end = at + seen.ms;
    lane.at = Math.min(lane.at, at);
    const refusal = seen.seen.map((seq) => this.recent.get(seq)).find((each) => each?.event === "payment refused");
    const receipt = object(parse(decoded(head(seen.answered, "payment-response") ?? head(seen.answered, "x-payment-response")) ?? ""));
    const noReason = payment && !isAside && isAsking ? "402, without a reason" : undefined;
    const refused = refusal ? { error: refusal.refusal, reason: refusal.reason, isNoted: lane.stages.settled && !lane.undone } : { error: text(receipt.errorReason ?? said.invalidReason ?? said.error ?? said.errorReason ?? offer.error) || noReason, reason: text(said.reason ?? said.invalidMessage ?? said.errorMessage) };
    const isOk = seen.status >= 200 && seen.status < 300;
    Object.assign(seen, { body, said, receipt, payment, decoded: decodedText, refused, isOk });
    lane.exchanges.push(seen);
    for (const { name, data } of seen.seen.map((seq) => this.recent.get(seq)).filter((each) => each?.event === "note"))
      if (name === "fault struck") { const fault = texts(data); lane.struck.push({ ...fault, at }); this.find(lane, fault.does); }
    lane.isOutside = isAside && (lane.isOutside ?? !this.hasStory);
    if (!isAside && seen.path !== "/api/pay" && (payment || shown)) lane.isUnserved = !isOk;
    if (!isAside && seen.path !== "/api/pay") { lane.resource ??= seen.path; this.find(lane, seen.path); }
    const [wanted, sent] = [asked, body.paymentRequirements].map(texts).map((each) => (Object.keys(each).length ? each : undefined));
    if (seen.status === 402) {
      lane.required = wanted ?? lane.required;
      if (!payment) lane.stages["402"] = end; // the journal had only told that it was before
    }
    lane.required ??= sent;
    lane.resource ??= (isAside && text(object(payment?.resource).url)) || lane.required?.resource;
    lane.amount ??= lane.required?.maxAmountRequired ?? lane.required?.amount;
    if (payment) {
      const { asset, network, scheme } = texts({ ...payment, ...accepted, asset: payload.asset ?? accepted.asset });
      const isOther = lane.signed && lane.stages.settled && (isAside || seen.status !== 200); // not what has paid
      if (!isOther) lane.signed = { ...signed, asset, network, scheme, resource: text(object(payment.resource).url) };
      this.paying(lane, seen, isAside, at, end);
    } else if (isOk && (shown || session)) { if (session) this.reach(lane, end, "served"); else this.served(lane, seen.path, end); }
    else if (seen.status >= 400 && seen.status !== 402) lane.notes.push([end, [`${seen.method} ${seen.path}: ${seen.status}`, text(said.error), text(said.reason)].filter(Boolean).join(" ")]);
    if (seen.status === null) lane.notes.push([end, `${seen.method} ${seen.path}: ${seen.broke ?? "the connection broke before the answer"}`]);
    if (seen.hidden) lane.notes.push([end, seen.hidden]);
  }

  paying(lane, seen, isAside, at, end) {
    this.payer(lane, lane.signed.from);
    lane.stages["402"] = Math.min(lane.stages["402"] || at, at); // the journal tells of it with the outcome only
    lane.stages.signed = lane.stages.sent = at; // nobody saw when it was signed
    const caused = seen.seen.map((seq) => this.recent.get(seq)).filter(Boolean);
    const asked = caused.filter((each) => each.event === "answer sent" && each.actor === "facilitator");
    const mined = caused.find((each) => each.event === "transaction mined");
    if (mined && !this.keys.has(mined.tx_hash)) {
      this.lane([...lane.keys, mined.tx_hash]);
      lane.tx ??= mined.tx_hash;
      this.mined(lane, this.txs.get(mined.tx_hash));
    }
    const tried = asked.find((each) => each.path.endsWith("/settle"));
    if (tried || (isAside && seen.said.isValid)) lane.stages.verified = tried ? asked[0].at_ms : end;
    if (seen.isOk && !isAside) { if (seen.receipt.success !== false) this.reach(lane, end, "verified", "settled"); if (seen.path !== "/api/pay") this.reach(lane, end, "served"); }
    if (isAside && seen.said.success) { this.reach(lane, end, "verified", "settled"); lane.tx ??= text(seen.said.transaction ?? seen.said.txHash); }
    const { error: no, reason: why, isNoted } = seen.refused;
    if (no && !isNoted && (seen.status >= 400 || seen.said.isValid === false || seen.said.success === false)) {
      const isOpen = (seen.receipt.success ?? seen.said.success) === false && own(words.advice, no) === undefined; // an unknown word of settle
      const final = typeof seen.said.final === "boolean" ? seen.said.final : isOpen ? false : undefined;
      this.stop(lane, end, tried || lane.stages.verified ? "settled" : "verified", no, why, final);
    }
  }
}

// A refusal by settle for the time, which verify of the service's facilitator does not check.
const ofTime = (error, reason) => OF_TIME.exec(`${error}: ${reason}`);
export const untimely = (lane) => lane.stopped === "settled" && ofTime(lane.error, lane.reason);
export const why = (lane) => [lane.error, lane.reason].filter(Boolean).join(": ");
export const assetOf = (lane) => lane.required?.asset ?? lane.signed?.asset;
export const left = (session) => Number(session.deposited_base) - Number(session.released) - Number(session.refunded);

export const stagesOf = (lane) => (lane.isOutside ? AT_THE_FACILITATOR : lane.isWatched ? WATCHED : STAGES);

// The state of a lane's stage: "no" is where it stopped, "unknown" if the server has forgotten it.
export function step(lane, stage, model) {
  if (lane.stopped === stage) return "no";
  if (lane.stages[stage]) return "yes";
  return stage === "served" && lane.stages.settled && !lane.isUnserved && !model.knowsServed(lane) ? "unknown" : "not";
}

export function status(lane) {
  if (lane.stopped) return lane.final === false ? "pending" : "refused";
  if (lane.undone) return "pending";
  if (lane.stages.served) return "served";
  if (lane.stages.settled || lane.stages.block) return lane.isUnserved ? "charged, not served" : "paid";
  return lane.stages.sent ? "pending" : "asked";
}
