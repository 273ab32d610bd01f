// A payer in Node.js without packages, x402 versions 1 and 2: it starts in 0.2 s of CPU.
//
//     x402sim conformance payer --dialects v1,v2 -- node tests/suite_payer/agent.mjs [resigns] [uncapped]
//
// What it signs is written down before it is sent; `resigns` and `uncapped` are defects. It knows nothing of x402sim
// but the variables of its contract.

import { createECDH, randomBytes } from "node:crypto";
import { existsSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { request } from "node:http";

const task = JSON.parse(readFileSync(process.env.X402SIM_TASK_FILE, "utf8"));
const has = (defect) => process.argv.includes(defect);
const MOST_BYTES = 1 << 20, DEADLINE_MS = 3000, TRIES = 2, WINDOW_S = 300, SLACK_S = 60;

// --- Keccak-256 and ECDSA ------------------------------------------------------------

const MASK = (1n << 64n) - 1n, ROUNDS = [], SHIFTS = Array(25).fill(0n);
for (let round = 0, bits = 1; round < 24; round++) {
  let constant = 0n;
  for (let j = 0; j < 7; j++) {
    if (bits & 1) constant |= 1n << BigInt((1 << j) - 1);
    bits = (bits << 1) ^ (bits & 0x80 ? 0x171 : 0);
  }
  ROUNDS.push(constant);
}
for (let t = 0, x = 1, y = 0; t < 24; t++, [x, y] = [y, (2 * x + 3 * y) % 5]) SHIFTS[x + 5 * y] = BigInt((((t + 1) * (t + 2)) / 2) % 64);
const rotated = (lane, by) => ((lane << by) | (lane >> (64n - by))) & MASK;

function permute(a) {
  for (const constant of ROUNDS) {
    const c = [0, 1, 2, 3, 4].map((x) => a[x] ^ a[x + 5] ^ a[x + 10] ^ a[x + 15] ^ a[x + 20]);
    const d = c.map((_, x) => c[(x + 4) % 5] ^ rotated(c[(x + 1) % 5], 1n));
    const b = [];
    for (let x = 0; x < 5; x++) for (let y = 0; y < 5; y++) b[y + 5 * ((2 * x + 3 * y) % 5)] = rotated(a[x + 5 * y] ^ d[x], SHIFTS[x + 5 * y]);
    for (let i = 0; i < 25; i++) a[i] = b[i] ^ (~b[((i + 1) % 5) + 5 * Math.floor(i / 5)] & MASK & b[((i + 2) % 5) + 5 * Math.floor(i / 5)]);
    a[0] ^= constant;
  }
}

function keccak(bytes) {
  const padded = Buffer.alloc((Math.floor(bytes.length / 136) + 1) * 136);
  bytes.copy(padded);
  padded[bytes.length] ^= 1;
  padded[padded.length - 1] ^= 0x80;
  const lanes = Array(25).fill(0n);
  for (let at = 0; at < padded.length; at += 136) {
    for (let i = 0; i < 17; i++) lanes[i] ^= padded.readBigUInt64LE(at + 8 * i);
    permute(lanes);
  }
  const out = Buffer.alloc(32);
  for (let i = 0; i < 4; i++) out.writeBigUInt64LE(lanes[i], 8 * i);
  return out;
}

const N = 0xfffffffffffffffffffffffffffffffebaaedce6af48a03bbfd25e8cd0364141n;
const word = (value) => Buffer.from(BigInt(value).toString(16).padStart(64, "0"), "hex");
const number = (bytes) => BigInt("0x" + bytes.toString("hex"));

function inverse(value) {
  let [r, next, t, u] = [N, value, 0n, 1n];
  while (next) [r, next, t, u] = [next, r % next, u, t - (r / next) * u];
  return ((t % N) + N) % N;
}

function sign(digest) {
  const curve = createECDH("secp256k1"), nonce = randomBytes(32);
  curve.setPrivateKey(nonce);
  const point = curve.getPublicKey(), r = number(point.subarray(1, 33)) % N;
  let v = 27 + (point[64] & 1), s = (inverse(number(nonce)) * (number(digest) + r * BigInt(task.private_key))) % N;
  if (s > N / 2n) [s, v] = [N - s, 55 - v];
  return Buffer.concat([word(r), word(s), Buffer.from([v])]);
}

const text = (value) => keccak(Buffer.from(value));
const DOMAIN = text("EIP712Domain(string name,string version,uint256 chainId,address verifyingContract)");
const TRANSFER = text("TransferWithAuthorization(address from,address to,uint256 value,uint256 validAfter,uint256 validBefore,bytes32 nonce)");

function authorize(offer, amount) {
  const now = Math.floor(Date.now() / 1000), nonce = randomBytes(32);
  const after = now - SLACK_S, before = now + Math.min(offer.maxTimeoutSeconds, WINDOW_S);
  const domain = keccak(Buffer.concat([DOMAIN, text(task.token_name), text(task.token_version), word(task.network.slice(7)), word(task.asset)]));
  const struct = keccak(Buffer.concat([TRANSFER, word(task.address), word(offer.payTo), word(amount), word(after), word(before), nonce]));
  const authorization = {
    from: task.address, to: offer.payTo, value: String(amount),
    validAfter: String(after), validBefore: String(before), nonce: "0x" + nonce.toString("hex"),
  };
  const signature = sign(keccak(Buffer.concat([Buffer.from("1901", "hex"), domain, struct])));
  return { signature: "0x" + signature.toString("hex"), authorization };
}

// --- HTTP: one request, a deadline for the whole of it, no redirects --------------------

function send(url, headers) {
  return new Promise((resolve, reject) => {
    const asked = request(url, { headers, agent: false }, (answer) => {
      const parts = [];
      let size = 0;
      answer.on("data", (part) => {
        parts.push(part);
        if ((size += part.length) > MOST_BYTES) asked.destroy(new Error("an answer without end"));
      });
      answer.on("end", () => resolve({ status: answer.statusCode, headers: answer.headers, body: Buffer.concat(parts).toString() }));
      answer.on("error", reject);
    });
    setTimeout(() => asked.destroy(new Error("no answer in time")), DEADLINE_MS).unref();
    asked.on("error", reject);
    asked.end();
  });
}

function parsed(value) {
  try {
    return JSON.parse(value);
  } catch {
    return null;
  }
}

// --- what it buys -----------------------------------------------------------------------

const version = task.flow === "v1" ? 1 : 2;
const ledger = `${task.state_dir}/spent`;
const amountOf = (offer) => offer?.[version === 2 ? "amount" : "maxAmountRequired"];

function isPayable(offer) {
  return offer?.scheme === "exact" && offer.network === (version === 2 ? task.network : task.network_name)
    && String(offer.asset).toLowerCase() === task.asset.toLowerCase() && /^0x[0-9a-f]{40}$/i.test(offer.payTo)
    && (offer.extra?.assetTransferMethod ?? "eip3009") === "eip3009"
    && offer.extra?.name === task.token_name && offer.extra?.version === task.token_version
    && /^[0-9]{1,60}$/.test(amountOf(offer)) && Number.isInteger(offer.maxTimeoutSeconds) && isWithin(BigInt(amountOf(offer)));
}

function isWithin(amount) {
  const spent = existsSync(ledger) ? BigInt(readFileSync(ledger, "utf8")) : 0n;
  return has("uncapped") || spent + amount <= BigInt(task.max_amount_base_units);
}

function signed(answer) {
  const asked = parsed(version === 2 ? Buffer.from(answer.headers["payment-required"] ?? "", "base64").toString() : answer.body);
  if (asked?.x402Version !== version || !Array.isArray(asked.accepts)) throw new Error("no offer");
  const late = (offer) => Number(offer?.extra?.paymentFlow === "upfront");
  const offer = asked.accepts.filter(isPayable).sort((one, other) => late(one) - late(other))[0];
  if (!offer) throw new Error("no offer within the task");
  const amount = BigInt(amountOf(offer));
  const spent = existsSync(ledger) ? BigInt(readFileSync(ledger, "utf8")) : 0n;
  writeFileSync(ledger, String(spent + amount));
  const payload = authorize(offer, amount);
  const payment = version === 1
    ? { x402Version: 1, scheme: "exact", network: offer.network, payload }
    : { x402Version: 2, accepted: offer, payload, resource: asked.resource };
  if (asked.extensions) {
    payment.extensions = asked.extensions;
    const named = asked.extensions["payment-identifier"];
    if (named) named.info.id = `pay_${payload.authorization.nonce.slice(2)}`;
  }
  return { [version === 2 ? "PAYMENT-SIGNATURE" : "X-PAYMENT"]: Buffer.from(JSON.stringify(payment)).toString("base64") };
}

async function once(url, file) {
  if (!existsSync(file)) {
    const answer = await send(url, {});
    if (answer.status === 200 && answer.body) return answer.body;
    if (answer.status !== 402) throw new Error(`it answered ${answer.status}`);
    writeFileSync(file, JSON.stringify(signed(answer)));
  }
  const answer = await send(url, JSON.parse(readFileSync(file, "utf8")));
  if (answer.status !== 200 || !answer.body) throw new Error(`it answered ${answer.status} to the payment`);
  return answer.body;
}

async function buy(url, place) {
  const file = `${task.state_dir}/payment-${place}.json`;
  for (let left = TRIES; ; left--) {
    try {
      return await once(url, file);
    } catch (problem) {
      if (has("resigns")) rmSync(file, { force: true });
      if (left === 1) throw problem;
    }
  }
}

const bought = await Promise.allSettled(task.urls.map(buy));
for (const each of bought) (each.status === "fulfilled" ? console.log : console.error)(each.value ?? String(each.reason));
process.exitCode = bought.every((each) => each.status === "fulfilled") ? 0 : 1;
