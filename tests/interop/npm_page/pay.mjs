// Opens a page in headless Chromium. The wallet is an EIP-1193 provider that is injected before the
// page runs, as extensions do; its requests go to the chain's JSON-RPC from the extension's origin.

import chromium from "@sparticuz/chromium";
import { readFile } from "node:fs/promises";
import puppeteer from "puppeteer-core";
import { told as given } from "../buying.mjs";

const here = (name) => readFile(new URL(name, import.meta.url));
const files = {
  "/": ["text/html", await here("page.html")],
  "/ethers.js": ["text/javascript", await here("node_modules/ethers/dist/ethers.min.js")],
};

// The wallet: it asks the node, whose accounts are its own, by HTTP or on one WebSocket.
const asked = [];
const waiting = new Map();
const headers = { Origin: given.wallet };
const socket = given.socket ? new WebSocket(given.rpc.replace(/^http/, "ws"), { headers }) : null;
if (socket) {
  await new Promise((done, fail) => Object.assign(socket, { onopen: done, onerror: fail }));
  socket.onmessage = ({ data }) => {
    const answer = JSON.parse(data);
    waiting.get(answer.id)(answer);
  };
}
async function wallet(request) {
  asked.push(request.method);
  const id = asked.length;
  const body = JSON.stringify({ jsonrpc: "2.0", id, params: [], ...request });
  if (socket) {
    socket.send(body);
    return new Promise((done) => waiting.set(id, done));
  }
  const json = { ...headers, "Content-Type": "application/json" };
  return (await fetch(given.rpc, { method: "POST", headers: json, body })).json();
}

const browser = await puppeteer.launch({
  args: chromium.args,
  executablePath: await chromium.executablePath(),
  headless: "shell",
});
try {
  const page = await browser.newPage();
  const said = [];
  page.on("console", (message) => said.push(message.text()));
  page.on("pageerror", (error) => said.push(String(error)));
  await page.exposeFunction("askWallet", wallet);
  await page.evaluateOnNewDocument(() => {
    window.ethereum = {
      async request(request) {
        const answer = await window.askWallet(request);
        if (answer.error) throw answer.error;
        return answer.result;
      },
      on() {},
      removeListener() {},
    };
  });
  await page.setRequestInterception(true);
  page.on("request", (request) => {
    const url = new URL(request.url());
    if (url.origin !== given.page) return request.continue();
    const [contentType, body] = files[url.pathname] ?? ["text/plain", ""];
    return request.respond({ contentType, body });
  });
  await page.goto(given.page);
  await page.waitForFunction("window.ready", { timeout: 10_000 }).catch(() => {
    throw new Error(`the page did not start: ${said.join("; ")}`);
  });
  const run = (name, ...args) =>
    page.evaluate((name, args) => window[name](...args), name, args).catch((error) => {
      throw new Error(`${name}: ${error.message}; the page said: ${said.join("; ")}`);
    });
  const bought = await run("buy", given.url, given.body);
  const sent = await run("send", given.token, given.shop, "7");
  console.log(JSON.stringify({ bought, sent, asked }));
} finally {
  await browser.close();
  socket?.close();
}
