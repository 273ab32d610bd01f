// One exchange as text that runs: curl, Python, a test, a scenario, fetch with viem; and many as a HAR file.

import { decoded, integer, iso, money, named, object, origin, own, parse, text, tokenOf, words } from "./dom.js";

const HIDDEN = /^(host|content-length|connection|accept-encoding|transfer-encoding)$/i;
const NOT_SENT = /^(x-payment-id|x-session-id|expect|upgrade|keep-alive)$/i; // proofs, and what Node's fetch refuses
export const sentHeaders = (seen) => seen.sent.headers.filter(([name, value]) => !HIDDEN.test(name) && value !== "***");

// A control character in a text that is pasted acts on the terminal: ^C and a line end run what follows. One that
// changes the direction of the text, or has no width, hides what stands there.
const UNSEEN = /[^\x20-\x7e\p{L}\p{M}\p{N}\p{P}\p{S}]/gu;
const isSeen = (text) => text.search(UNSEEN) < 0;
const hex = (number, width) => number.toString(16).padStart(width, "0");

// A text in which what cannot be seen is an escape of JSON and Python.
export const visible = (text, hasLong = true) => text.replace(UNSEEN, (each) => (hasLong && each.length > 1 ? `\\U${hex(each.codePointAt(0), 8)}` : [...Array(each.length).keys()].map((at) => `\\u${hex(each.charCodeAt(at), 4)}`).join("")));

// The command that buys a good.
export const buying = ({ method, body, path }) => `x402sim pay ${/^[\w/.-]+$/.test(path) ? origin() + path : quote(origin() + path)}${body ? ` -d ${quote(JSON.stringify(body))}` : method === "GET" ? "" : ` -X ${method}`} --world ${origin()}`;

const bytesOf = ({ body, base64 }) => (base64 === undefined ? new TextEncoder().encode(body) : Uint8Array.from(atob(base64), (each) => each.charCodeAt(0)));

// The arguments of a printf that writes these bytes, in every shell.
const printed = (bytes) => `printf '${[...bytes].map((byte, at) => (byte < 32 || byte > 126 || byte === 39 || (byte === 45 && !at) ? `\\${byte.toString(8).padStart(3, "0")}` : byte === 37 ? "%%" : byte === 92 ? "\\\\" : String.fromCharCode(byte))).join("")}'`;

// A text as one word of a shell. That of a header is in Latin-1, a byte a character.
export const quote = (text) => (isSeen(text) ? `'${text.replaceAll("'", `'\\''`)}'` : `"$(${printed(new TextEncoder().encode(text))})"`);
const quoteHeader = (text) => (/^[\x20-\x7e]*$/.test(text) ? quote(text) : `"$(${printed(Uint8Array.from(text, (each) => each.charCodeAt(0)))})"`);

export function curl(_, seen) {
  if (seen.endpoint) { // a tool of MCP
    const { name, arguments: given } = object(parse(seen.sent.body));
    return `x402sim pay ${quote(origin() + seen.endpoint)} --tool ${quote(text(name) ?? "")} --arguments ${quote(JSON.stringify(given ?? {}))}`;
  }
  const { body, base64 } = seen.sent, isPlain = base64 === undefined && isSeen(body), headers = sentHeaders(seen).map(([name, value]) => (value.trim() ? `${name}: ${value}` : `${name};`));
  if (body && !headers.some((each) => /^content-type[:;]/i.test(each))) headers.push("Content-Type:"); // curl would add one
  const method = seen.method === "HEAD" ? "-I" : `-i -X ${/^[A-Z]+$/.test(seen.method) ? seen.method : quote(seen.method)}`;
  const data = !body ? [] : [isPlain ? `--data-raw ${quote(body)}` : "--data-binary @-"];
  return [...(isPlain ? [] : [`${printed(bytesOf(seen.sent))} |`]), `curl -g --path-as-is ${method}`, quote(origin() + seen.target), ...headers.map((each) => `-H ${quoteHeader(each)}`), ...data].join(" ");
}

// A value of JSON as Python writes it.
export function literal(value) {
  if (value === null || value === undefined) return "None";
  if (typeof value === "boolean") return value ? "True" : "False";
  if (Array.isArray(value)) return `[${value.map(literal).join(", ")}]`;
  if (typeof value === "object") return `{${Object.entries(value).map(([name, each]) => `${literal(name)}: ${literal(each)}`).join(", ")}}`;
  return visible(JSON.stringify(value));
}

const inBytes = (bytes) => `bytes.fromhex("${[...bytes].map((byte) => hex(byte, 2)).join("")}")`;
const content = (half) => (half.base64 === undefined ? `${literal(half.body)}.encode()` : inBytes(bytesOf(half)));

// The body of a request as an argument of a Python function: as JSON if that writes it again as it was sent, else
// as bytes, which `alice.send` takes as its `json`, too.
function bodyOf(seen, raw) {
  if (!seen.sent.body) return "";
  const value = parse(seen.sent.body), isSame = value !== undefined && JSON.stringify(value) === seen.sent.body.replace(/("(?:[^"\\]|\\.)*")|\s+/g, "$1");
  return isSame && !/\\ud[89a-f]/i.test(seen.sent.body) ? `, json=${literal(value)}` : `, ${raw}=${content(seen.sent)}`;
}

export function python(_, seen) {
  const header = (text) => (/^[\x20-\x7e]*$/.test(text) ? literal(text) : inBytes(Uint8Array.from(text, (each) => each.charCodeAt(0))));
  const headers = sentHeaders(seen).map(([name, value]) => `        (${header(name)}, ${header(value)}),\n`).join("");
  return `import httpx\n\nanswer = httpx.request(\n    ${literal(seen.method)},\n    ${literal(origin() + seen.target)},\n    headers=[\n${headers}    ],\n${seen.sent.body ? `    content=${content(seen.sent)},\n` : ""})\nprint(answer.status_code, answer.text)\n`;
}

// --- a story that does the same: it signs anew, with the same mistakes -----------------------

const head = (half, name) => half.headers.find(([each]) => each.toLowerCase() === name)?.[1];
const isEqual = (a, b) => String(a).toLowerCase() === String(b).toLowerCase();
const plain = (text) => String(text ?? "").replace(/[^\x20-\x7e]|["\\]/g, "?").slice(0, 200);
const sending = (seen) => `await alice.send(${literal(seen.method)}, ${literal(seen.target)}${bodyOf(seen, "json")})`;
const moved = (by) => (by ? ` ${by < 0 ? "-" : "+"} ${by < 0 ? -by : by}` : "");

// The request that was answered with the 402 that is paid; of the price list, if it was not seen.
function asking(lane) {
  const asked = lane.exchanges.find((each) => each.status === 402 && !each.payment && !each.path.startsWith("/facilitator"));
  const path = lane.required?.resource ?? "/api/perp/quote";
  return asked ? sending(asked) : path.startsWith("/api/perp/market") ? `await alice.send("GET", ${literal(path)})` : `await alice.ask(${literal(path.startsWith("/api/") && !path.includes("/sessions/") && lane.error !== "Payment requirements do not match" ? path : "/api/perp/quote")})`;
}

// The first request of a lane that was answered with a 402, whole, over HTTP.
const askedFirst = (lane) => lane.exchanges.find((each) => each.status === 402 && !each.payment && !each.sent.cut && !each.endpoint && !each.path.startsWith("/facilitator"));

// The numbers of what was signed, as integers: undefined for one that is no whole number.
const signedOf = ({ payment }) => object(object(payment?.payload).authorization ?? payment?.payload);
const numbersOf = (seen) => ["value", "validAfter", "validBefore"].map((name) => integer(text(signedOf(seen)[name]) ?? "none"));

// Whether a story can sign it anew: a header that cannot be signed is sent again as it was.
const canSign = (seen) => !!seen.payment && numbersOf(seen).every((each) => each >= 0n && each < 2n ** 256n) && /^0x[0-9a-f]{40}$/i.test(text(signedOf(seen).to))
  && [signedOf(seen).from, seen.payment.payload.asset ?? "", seen.payment.scheme ?? "", seen.payment.network ?? ""].every((each) => typeof each === "string");

// The arguments of `sign` that make what was signed differ from what was asked for.
function mistakes(lane, seen) {
  const wanted = lane.required ?? {}, signed = signedOf(seen), at = Math.round(seen.at_ms / 1000), [value, from, until] = numbersOf(seen);
  const given = [], by = value - (integer(wanted.maxAmountRequired ?? wanted.amount) ?? value), least = Math.min(300, wanted.maxTimeoutSeconds ?? 300);
  if (by) given.push(`value=required.price_base${moved(by)}`);
  if (!isEqual(signed.to, wanted.payTo)) given.push(`to=${isEqual(signed.to, signed.from) ? "alice.address" : literal(signed.to)}`);
  const [after, before] = [Number(from) - at, Number(until) - at];
  if (Math.abs(after + 60) > 5) given.push(`valid_after=${at + after < 1e9 ? from : `alice.now_s()${moved(after)}`}`);
  if (Math.abs(before - least) > 5) given.push(`valid_before=${at + before > 1e11 || at + before < 1e9 ? until : `alice.now_s()${moved(before)}`}`);
  const why = String(seen.refused.reason ?? "");
  if (why.includes("another domain")) given.push('network=replace(world.network, token_version="0")');
  else if (why.startsWith("Invalid EIP-3009 signature")) given.push("by=stranger.wallet");
  return given;
}

function paying(lane, seen, lines) {
  const { error, reason } = seen.refused, wanted = lane.required ?? {}, ask = asking(lane), raw = seen.body.paymentHeader;
  const isReplay = error === "Nonce already used";
  if (isReplay) lines.push(`earlier = ${ask}`, "header = alice.sign(earlier)", "await alice.pay(earlier, header)");
  const given = canSign(seen) ? mistakes(lane, seen) : [], labels = ["scheme", "network"].filter((name) => raw && canSign(seen) && wanted[name] && seen.payment[name] !== wanted[name]).map((name) => `${name}=${literal(seen.payment[name])}`);
  const asset = canSign(seen) && seen.payment.payload.asset;
  if (raw && asset && !isEqual(asset, wanted.asset)) labels.push(`asset=${literal(asset)}`);
  if (given.some((each) => each.startsWith("by="))) lines.push('stranger = await world.payer("stranger")');
  lines.push(`required = ${ask}`);
  if (raw && !canSign(seen)) lines.push(`header = ${literal(raw)}`);
  else if (!isReplay) lines.push(`header = alice.sign(${["required", ...(raw && !raw.startsWith("0x") ? ['spelling="base64"'] : []), ...given].join(", ")})`);
  if (labels.length) lines.push(`header = alice.rewrite_header(header, ${labels.join(", ")})`);
  const sent = object(seen.body.paymentRequirements), changed = {};
  const issued = lane.exchanges.find((each) => each.status === 402 && !each.payment)?.said.paymentRequirements;
  if (issued && seen.path === "/api/pay") for (const name of Object.keys({ ...issued, ...sent })) if (name !== "description" && literal(sent[name]) !== literal(issued[name])) changed[name] = sent[name] ?? null;
  const options = ["required", "header"];
  if (/^this payment id was not issued/.test(reason)) options.push(`payment_id=${literal(seen.body.paymentId)}`);
  if (Object.keys(changed).length) options.push(`requirements=${literal(changed)}`);
  if (error === "Payment already settled") lines.push("await alice.pay(required, header)");
  lines.push(`answer = await alice.pay(${options.join(", ")})`);
}

// The story of one exchange, line by line; undefined for one that no payer sends.
function story(lane, seen, model) {
  if (lane.isWatched || words.own || seen.path.startsWith("/facilitator") || seen.sent.cut) return undefined; // no new world has another's shop, or goods
  const { error, reason } = seen.refused, isPaying = seen.path === "/api/pay" ? typeof seen.body.paymentHeader === "string" && !!seen.body.paymentRequirements : canSign(seen), isOk = seen.status >= 200 && seen.status < 300;
  const struck = seen.seen.map((seq) => model.recent.get(seq)).filter((each) => each?.event === "note" && each.name === "fault struck").map((each) => each.data);
  const lines = [`alice = await world.payer("alice"${/^Insufficient/.test(error) ? "" : ', balance="100.00"'})`], needs = ["funds"];
  for (const { victim, does, path, contains, caller } of struck) {
    const known = model.faults.findLast((each) => each.victim === victim && each.does === does && each.caller === caller && each.contains === (contains ?? each.contains) && path.endsWith(each.path)) ?? {};
    const more = [...(known.path ? ["path"] : []), ...(known.contains ? ["contains"] : []), ...(known.caller ? ["caller"] : []), ...(known.seconds ? ["seconds"] : []), ...(does === "answer" ? ["status", "body", "headers"].filter((name) => known[name]) : [])].map((name) => `, ${name}=${literal(known[name])}`);
    lines.push(`await world.fault(Fault(victim=${literal(victim)}, does=${literal(does)}${more.join("")}))`);
    needs[1] = "faults";
  }
  const id = head(seen.sent, "x-payment-id"), session = head(seen.sent, "x-session-id"), isProof = id || session;
  const isPaid = id && (isOk || lane.stages.settled), isOneStep = isPaying && seen.path !== "/api/pay";
  if (isPaying) paying(lane, seen, lines);
  else if (session && isOk) lines.push('opened = await alice.open_session("0.10", 3600)');
  else if (id) lines.push(`required = ${asking(lane)}`, ...(isPaid ? ["await alice.pay(required)"] : []));
  if (isOneStep && isOk) lines.push("receipt = answer  # it was paid in one step; a story takes two");
  const shown = isPaid || (isOneStep && isOk) || id ? '{"X-Payment-Id": required.payment_id}' : session && isOk ? '{"X-Session-Id": opened.body["sessionId"]}' : session ? `{"X-Session-Id": ${literal(session)}}` : "";
  if (!isPaying || (isOneStep && isOk)) lines.push(`answer = ${sending(seen).replace(/\)$/, shown ? `, headers=${shown})` : ")")}`);
  const ruled = Object.entries(words.reasons).find(([begin]) => begin && String(reason ?? "").startsWith(begin));
  const known = [own(words.refusals, error)?.clause, isOk && isPaying ? "4.1/receipt" : "", seen.status === 402 && !isProof && !isPaying ? "1/unpaid-402" : "", ruled?.[1], isProof ? "7/payment-required" : "", "4.1/validate"].filter((each) => each && own(words.clauses, each));
  const covers = [...new Set([known[0], ...(ruled ? [ruled[1]] : [])])];
  const isOther = isOneStep && !isOk; // in two steps it is refused with another status, and text
  if (isOther) lines.push(`world.expect(answer.status == 200, False, "${known[0]}")`);
  else lines.push(seen.status === null ? `world.expect(answer.status is None or answer.status < 500, True, "${known[0]}")` : `world.expect(answer.status, ${seen.status}, "${known[0]}")`);
  if (error && !(isOther && error === "Payment Required")) lines.push(`world.expect(answer.error, ${literal(error)}, "${known[0]}")`);
  if (ruled) lines.push(`world.expect(answer.reason.startswith(${literal(ruled[0])}), True, "${ruled[1]}")`);
  if (isPaying && !struck.length) { lines.push(`world.expect(len(await world.transfers(alice)), ${isOk || /already/.test(error) ? 1 : 0}, "${known[0]}")`); needs.push("observe chain"); }
  const name = `copied_${plain(error || (isPaying ? "payment" : "request")).toLowerCase().replace(/[^a-z0-9]+/g, "_").replace(/^_|_$/g, "")}`;
  const title = `${plain(seen.method)} ${plain(seen.path)} is answered ${seen.status ?? "not at all"}${error ? `, ${plain(error)}` : ""}`;
  const imports = ["LiveWorld", ...(struck.length ? ["Fault"] : [])], first = lines.some((line) => line.includes("network=replace(")) ? "from dataclasses import replace\n\n" : "";
  return { name, title, why: plain(reason).split(";")[0], lines: lines.map((line) => `    ${line}\n`).join(""), needs: needs.join(", "), covers, imports, first };
}

export function scenario(lane, seen, model) {
  const copied = story(lane, seen, model);
  if (!copied) return undefined;
  const network = words.title === "cronos-testnet" || !words.live ? "" : ` --network ${plain(words.title)}`;
  return `# Save it as ${copied.name}.py and play it: x402sim run ${copied.name}.py${network}\n"""Alice does what was seen on the page${copied.why ? `: ${copied.why}` : ""}."""\n\n${copied.first}from x402sim import ${copied.imports.sort().join(", ")}, scenario\n\n\n@scenario(\n    title="${copied.title}",\n    covers="${copied.covers.join(", ")}",\n    needs="${copied.needs}",\n)\nasync def ${copied.name}(world: LiveWorld) -> None:\n${copied.lines}`;
}

const PARTS = ["scheme", "network", "amount", "maxAmountRequired", "asset", "payTo"];

// Whether a payment, when it was sent, was what the 402 asks for.
function isAsAsked({ required }, seen) {
  const { to } = signedOf(seen), [value, from, until] = numbersOf(seen), at = seen.at_ms / 1000;
  return canSign(seen) && value === integer(required?.amount ?? required?.maxAmountRequired) && isEqual(to, required.payTo) && from < at && at < until;
}

// A test of the watched URL, or of own goods: what is asked for; or a purchase, where what was signed is as asked.
function ofUrl(lane, seen) {
  const asked = askedFirst(lane), base = (words.upstream ?? origin()).replace(/\/$/, ""), isPaying = !!seen.payment;
  if (!asked || seen.path.startsWith("/facilitator") || (!isPaying && seen.status !== 402)) return undefined;
  const asset = lane.required?.asset, { symbol, network } = tokenOf(asset), price = money(lane.amount, true, asset), name = plain(`${asked.method} ${asked.path.split("?")[0]}`);
  const call = [literal(asked.method), literal(base + asked.target), `headers=${literal(Object.fromEntries(sentHeaders(asked).filter(([each]) => !NOT_SENT.test(each))))}`, ...(asked.sent.body ? [`content=${content(asked.sent)}`] : []), "timeout=60"];
  const function_ = name.toLowerCase().replace(/[^a-z0-9]+/g, "_").replace(/_$/, ""), title = `"""${name} `, request = (more) => `    answer = httpx.request(\n${[...call, ...more].map((each) => `        ${each},\n`).join("")}    )\n`;
  if (!isPaying) {
    const inHeader = head(asked.answered, "payment-required"), where = inHeader ? 'json.loads(base64.b64decode(answer.headers["PAYMENT-REQUIRED"]))["accepts"][0]' : `answer.json()${asked.said.paymentRequirements ? '["paymentRequirements"]' : '["accepts"][0]'}`;
    const offered = object(inHeader ? required(asked).accepts?.[0] : asked.said.paymentRequirements ?? asked.said.accepts?.[0]);
    const wanted = Object.fromEntries(Object.entries(offered).filter(([each]) => PARTS.includes(each)));
    return `${title}asks for ${price} ${symbol}."""\n\n${inHeader ? "import base64\nimport json\n\n" : ""}import httpx\n\n\ndef test_${function_}_asks_for_a_payment():\n${request([])}    assert answer.status_code == 402, answer.text\n    offer = ${where}\n    wanted = ${literal(wanted)}\n    assert {name: offer[name] for name in wanted} == wanted\n`;
  }
  if (!network || lane.stopped || lane.required.scheme !== "exact" || !isAsAsked(lane, seen)) return undefined;
  return `${title}is sold for ${price} ${symbol}. The account of X402SIM_PRIVATE_KEY pays."""\n\nimport os\n\nimport httpx\n\nfrom x402sim import PaymentAuth, Wallet\nfrom x402sim.protocol.networks import NETWORKS\n\n\ndef test_${function_}_is_sold():\n    wallet = Wallet(os.environ["X402SIM_PRIVATE_KEY"])\n    payer = PaymentAuth(wallet, max_amount="${price}", network=NETWORKS["${network}"])\n${request(["auth=payer"])}    assert answer.is_success, answer.text\n    assert payer.signed_base == ${integer(lane.amount)}  # one payment\n`;
}

export function test(lane, seen, model) {
  if (lane.isWatched || words.own) return ofUrl(lane, seen);
  const copied = story(lane, seen, model);
  if (!copied) return undefined;
  const network = words.title === "cronos-testnet" || !words.live ? "" : `@pytest.mark.x402(network=${literal(words.title)})\n`, top = network ? "import pytest\n" : "";
  const asked = lane.exchanges.find((each) => each.status === 402 && !each.payment && each.path.startsWith("/api/")) ?? seen;
  if (seen.status === 200 && asked.path !== "/api/pay" && lane.stages.settled && copied.imports.length < 2 && !head(seen.sent, "x-session-id"))
    return `"""${copied.title}."""\n\n${top && `${top}\n\n`}${network}def test_${copied.name}(x402_server, x402_payer):\n    answer = x402_payer.client.request(${literal(asked.method)}, ${literal(asked.target)}${bodyOf(asked, "content")})\n    assert answer.is_success\n    assert len(x402_server.transfers(x402_payer.address)) == 1\n`;
  return `"""${copied.title}."""\n\n${copied.first}${top}from x402sim import ${[...copied.imports, "World"].sort().join(", ")}\n\n\nasync def ${copied.name}(world: LiveWorld) -> None:\n${copied.lines}\n\n${network}def test_${copied.name}(x402_server):\n    World(on=x402_server.url).play(${copied.name}).raise_for_failure()\n`;
}

// --- a program that buys the same, with packages that others publish -------------------------

const js = (value) => visible(JSON.stringify(value), false);
const required = (seen) => object(parse(decoded(head(seen.answered, "payment-required") ?? "")));

// It asks for what the lane asked for, and pays with its account, or with account 0 for one that is not the server's.
export function viem(lane, seen) {
  if (seen.path.startsWith("/facilitator") || seen.sent.cut) return undefined;
  const asked = askedFirst(lane);
  const offered = asked && object(required(asked).accepts?.[0]), network = text(offered?.network), asset = text(offered?.asset), most = text(offered?.amount);
  if (!/^eip155:\d+$/.test(network ?? "") || !asset || !/^\d+$/.test(most ?? "") || (asked.sent.body && /^(GET|HEAD)$/.test(asked.method))) return undefined;
  const { body, base64 } = asked.sent, account = /^account (\d+)$/.exec(named(lane.payer))?.[1] ?? 0;
  const headers = sentHeaders(asked).filter(([name]) => !NOT_SENT.test(name)).map((pair) => `    [${pair.map(js).join(", ")}],\n`).join("");
  const content = body ? `  body: ${base64 === undefined ? js(body) : `Buffer.from(${js(base64)}, "base64")`},\n` : "";
  return `// npm install @x402/fetch @x402/evm viem; save it as buy.mjs, and: node buy.mjs
import { ExactEvmScheme } from "@x402/evm";
import { wrapFetchWithPaymentFromConfig } from "@x402/fetch";
import { privateKeyToAccount } from "viem/accounts";

${lane.isWatched ? "const key = process.env.X402SIM_PRIVATE_KEY;" : `const accounts = () => fetch(${js(`${origin()}/_sim/accounts`)}).then((answer) => answer.json());
const key = process.env.X402SIM_PRIVATE_KEY ?? (await accounts())[${account}].privateKey;`}
const client = new ExactEvmScheme(privateKeyToAccount(key));
const pay = wrapFetchWithPaymentFromConfig(fetch, {
  schemes: [{ network: ${js(network)}, client }],
  // this token, and no more at a time than was asked for here
  spendControls: { allowedAssets: [{ network: ${js(network)}, asset: ${js(asset)}, maxAmountPerPayment: ${js(most)} }] },
});
const answer = await pay(${js(origin() + asked.target)}, {
  method: ${js(asked.method)},
  headers: [
${headers}  ],
${content}});
console.log(answer.status, await answer.text());
`;
}

// --- HAR 1.2 -----------------------------------------------------------------------------------

const pairs = (all) => [...all].map(([name, value]) => ({ name, value }));
const version = "HTTP/1.1", rest = { cookies: [], headersSize: -1 };

export function har(all) {
  const entry = (seen) => {
    const url = seen.endpoint ? seen.target : origin() + seen.target, size = (half) => bytesOf(half).length, cut = (half) => (half.cut ? { comment: "cut: not all of it is kept" } : {}), kind = (half) => head(half, "content-type") ?? "";
    return {
      startedDateTime: iso(seen.at_ms), time: seen.ms, cache: {}, timings: { send: 0, wait: seen.ms, receive: 0 },
      request: { ...rest, method: seen.method, url, httpVersion: version, headers: pairs(seen.sent.headers), queryString: pairs(new URL(url).searchParams), bodySize: size(seen.sent), ...(seen.sent.body ? { postData: { mimeType: kind(seen.sent), text: seen.sent.body, ...(seen.sent.base64 ? { comment: `not UTF-8; in base64: ${seen.sent.base64}` } : {}), ...cut(seen.sent) } } : {}) },
      response: { ...rest, status: seen.status ?? 0, statusText: "", httpVersion: version, headers: pairs(seen.answered.headers), redirectURL: "", bodySize: size(seen.answered), content: { size: size(seen.answered), mimeType: kind(seen.answered), ...(seen.answered.base64 ? { text: seen.answered.base64, encoding: "base64" } : { text: seen.answered.body }), ...cut(seen.answered) } },
    };
  };
  const entries = [...new Set(all)].sort((a, b) => a.n - b.n).map(entry);
  const text = JSON.stringify({ log: { version: "1.2", creator: { name: "x402sim", version: words.version ?? "" }, entries } }, null, 1);
  return text.split("\n").map((each) => visible(each, false)).join("\n");
}
