// Small helpers. Data of other parties only ever becomes a text node.

export function el(tag, props, ...children) {
  const node = document.createElement(tag);
  for (const [name, value] of Object.entries(props ?? {})) {
    if (value === undefined || value === null || value === false) continue;
    if (name.startsWith("on")) node.addEventListener(name.slice(2), value);
    else if (name === "class") node.className = value;
    else if (name in node && typeof value !== "string") node[name] = value;
    else node.setAttribute(name, value === true ? "" : value);
  }
  node.append(...children.flat(9).filter((each) => each !== null && each !== undefined && each !== ""));
  return node;
}

// A text of ours, in which `code` is marked.
export const marked = (text) => text.split("`").map((part, n) => (n % 2 ? el("code", {}, part) : part));

export const byId = (id) => document.getElementById(id);
export const words = { refusals: {}, reasons: {}, standard: {}, advice: {}, clauses: {}, names: {}, goods: [], failing: {}, decimals: 6, symbol: "" };
export const own = (table, name) => (Object.hasOwn(table, name) ? table[name] : undefined); // not "constructor"
export const named = (who) => own(words.names, String(who).toLowerCase()) ?? short(who);

export function short(text) {
  text = String(text ?? "");
  if (text.startsWith("0x")) return text.length > 14 ? `${text.slice(0, 6)}…${text.slice(-4)}` : text;
  const begin = text.indexOf("_") + 9;
  return text.length > begin + 2 ? `${text.slice(0, begin)}…` : text;
}

// The whole number that digits write; undefined for any other text.
export const integer = (text) => (/^-?\d+$/.test(text) ? BigInt(text) : undefined);

// The token of an address: a recording may have several, and some that are not known.
export const tokenOf = (asset) => own(words.tokens ?? {}, String(asset).toLowerCase()) ?? (words.tokens && !words.network && asset ? { symbol: "base units", decimals: 0 } : words);

export function money(base, isPlain, asset) {
  const whole = integer(base), { symbol, decimals } = tokenOf(asset);
  if (whole === undefined) return String(base ?? "");
  const digits = String(whole < 0n ? -whole : whole).padStart(decimals + 1, "0");
  const cut = digits.length - decimals;
  const fraction = decimals ? `.${digits.slice(cut).replace(/0+$/, "").padEnd(2, "0")}` : "";
  return `${whole < 0n ? "-" : ""}${digits.slice(0, cut)}${fraction}${isPlain ? "" : ` ${symbol}`}`;
}

const two = (number, width = 2) => String(number).padStart(width, "0");
export function time(ms) {
  const at = new Date(ms);
  return `${two(at.getHours())}:${two(at.getMinutes())}:${two(at.getSeconds())}.${two(at.getMilliseconds(), 3)}`;
}

export const iso = (ms) => (Math.abs(ms) <= 8.64e15 ? new Date(ms).toISOString() : `${ms} ms`);

export function utc(seconds) {
  if (seconds >= 253402300800) return "after the year 9999";
  return seconds >= -62135596800 ? `${iso(seconds * 1000).slice(0, 19).replace("T", " ")} UTC` : "before the year 1";
}

// A reason with its Unix seconds in UTC, and the number after it unless it is to be short.
export const readable = (text, isShort) => text.replace(/\b(is|says) (\d{9,11})\b/g, (_, word, at) => `${word} ${utc(at)}${isShort ? "" : ` (${at})`}`);

export function span(seconds) {
  const size = Math.abs(seconds);
  const [unit, name] = [[86400, "d"], [3600, "h"], [60, "min"], [1, "s"]].find(([unit]) => size >= unit) ?? [1, "s"];
  return `${seconds < 0 ? "-" : ""}${+(size / unit).toFixed(1)} ${name}`;
}

// A duration in milliseconds, in a unit that fits.
export const lasted = (ms) => (ms < 1000 ? `${ms} ms` : span(ms / 1000));

// A button that copies a text; `what` is heard with its label.
export function copy(text, label = "Copy", what = "") {
  const button = el("button", { class: "small", type: "button" });
  const say = (said) => { button.textContent = said; if (what) button.ariaLabel = `${said} ${what}`; };
  say(label);
  button.addEventListener("click", async () => {
    try { await navigator.clipboard.writeText(typeof text === "function" ? text() : text); say("Copied"); }
    catch { say("Not allowed"); }
    setTimeout(() => say(label), 1200);
  });
  return button;
}

export function save(name, type, text) {
  const link = el("a", { href: URL.createObjectURL(new Blob([text], { type })), download: name });
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 10000);
}

export const table = (caption, heads, rows) => el("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": caption },
  el("table", {}, el("caption", {}, caption), heads.some(Boolean) ? el("thead", {}, el("tr", {}, heads.map((head) => el("th", { scope: "col" }, head)))) : "",
    el("tbody", {}, rows.map((row) => el("tr", { class: row.class }, (row.cells ?? row).map((cell) => el("td", {}, cell)))))));

// A value of JSON that others sent, of any kind, as text; undefined if there is none. An object could
// have a `toString` that is no function, so nothing but this makes text of it.
export function text(value) {
  if (value === undefined || value === null) return undefined;
  if (typeof value === "number") return Number.isSafeInteger(value) ? String(value) : `${value} (a number)`;
  return typeof value === "string" ? value : JSON.stringify(value);
}

export const object = (value) => (value && typeof value === "object" && !Array.isArray(value) ? value : {});
export const texts = (value) => Object.fromEntries(Object.entries(object(value)).map(([name, each]) => [name, text(each)]));

const DEEPEST = 200; // no message is nested so; what is, would end the stack of whatever writes it
const isDeeper = (value, left) => value !== null && typeof value === "object" && (left === 0 || Object.values(value).some((each) => isDeeper(each, left - 1)));

// The value of a JSON text; undefined for any other, and for one that is nested too deeply.
export function parse(text) {
  try {
    const value = JSON.parse(text);
    return isDeeper(value, DEEPEST) ? undefined : value;
  } catch { return undefined; }
}

// A JSON text with line breaks. Its tokens stay as they were sent: long numbers, names that occur twice.
export function indented(text) {
  if (parse(text) === undefined) return text;
  let depth = 0, before = "";
  const lines = [];
  for (const [token] of text.matchAll(/"(?:[^"\\]|\\.)*"|[[\]{},:]|[^\s[\]{},:"]+/g)) {
    const isEnd = token === "}" || token === "]", wasBegin = before === "{" || before === "[";
    if (isEnd) depth--;
    if (before === "," || wasBegin !== isEnd) lines.push(`\n${"  ".repeat(depth)}`);
    lines.push(token === ":" ? ": " : token);
    if (token === "{" || token === "[") depth++;
    before = token;
  }
  return lines.join("");
}

// The JSON text of a header, in hex or base64; undefined for anything else.
export function decoded(text) {
  if (typeof text !== "string" || text.length < 20) return undefined;
  try {
    const bytes = /^0x/i.test(text)
      ? Uint8Array.from(text.slice(2).match(/../g), (pair) => parseInt(pair, 16))
      : Uint8Array.from(atob(text.replaceAll("-", "+").replaceAll("_", "/")), (c) => c.charCodeAt(0));
    const found = new TextDecoder().decode(bytes);
    return typeof (parse(found) ?? undefined) === "object" ? found : undefined;
  } catch { return undefined; }
}

// --- the server ----------------------------------------------------------------------------

// What a page that stands alone shows: its words, and what a server would stream.
export const given = parse(byId("tape")?.textContent ?? "");
const base = new URL("../", given ? given.words.page ?? "http://127.0.0.1:4020/_sim/ui/" : import.meta.url); // /_sim/
export const origin = () => words.origin ?? base.origin; // where a payer sends its requests
let token = "";
export const setToken = (given) => { token = given; };
const headers = () => (token ? { Authorization: `Bearer ${token}` } : {});
export const at = (path) => new URL(path, base).href;

export async function ask(path, body) {
  const answer = await fetch(at(path), body === undefined ? { headers: headers() } : {
    method: "POST", headers: { ...headers(), "Content-Type": "application/json" }, body: JSON.stringify(body),
  });
  const said = parse(await answer.text());
  if (!answer.ok) throw Object.assign(new Error([said?.error, said?.reason].filter(Boolean).join(": ") || `${answer.status}`), { status: answer.status });
  return said;
}

// Server-sent events over fetch, which can send the token; yields [event, lines].
export async function* streamed(path, signal) {
  const answer = await fetch(at(path), { headers: headers(), signal });
  if (!answer.ok) throw Object.assign(new Error(`${answer.status}`), { status: answer.status });
  const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  for (;;) {
    const { value, done } = await reader.read();
    if (done) return;
    const messages = (rest + value).split("\n\n");
    rest = messages.pop();
    for (const message of messages) {
      const lines = message.split("\n");
      if (lines[0].startsWith("event: ")) yield [lines[0].slice(7), lines.slice(1).map((each) => JSON.parse(each.slice(6)))];
    }
  }
}
