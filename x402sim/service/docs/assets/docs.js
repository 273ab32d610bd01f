// The interactive documentation: openapi.json in, forms out. Text is only ever set as
// text, never as markup, so nothing the service says can run.
// Published viewers (Swagger UI, 1.9 MB; RapiDoc, 0.9 MB) stop at a 402; this page pays and goes on.
"use strict";

const root = new URL("openapi.json", document.baseURI);
const forms = {}; // operationId -> its path, its inputs, and how to refresh its curl line
let api;

// --- elements

function el(tag, attributes = {}, ...children) {
  const node = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (name.startsWith("on")) node.addEventListener(name.slice(2), value);
    else if (value !== undefined) node.setAttribute(name, value);
  }
  node.append(...children); // a string becomes a text node
  return node;
}

const inline = (text) => text.split("`").map((part, i) => (i % 2 ? el("code", {}, part) : part));

// Paragraphs, "- " lists and "1. " lists: all the Markdown the descriptions use.
const prose = (text) => text.split("\n\n").map((block) => {
  const mark = /^(- |\d+\. )/;
  if (!mark.test(block)) return el("p", {}, ...inline(block));
  const items = block.split("\n").map((line) => el("li", {}, ...inline(line.replace(mark, ""))));
  return el(block.startsWith("-") ? "ul" : "ol", {}, ...items);
});

const table = (rows) => el("table", {}, el("tbody", {}, ...rows.map(([head, ...cells]) =>
  el("tr", {}, el("th", { scope: "row" }, head), ...cells.map((cell) => el("td", {}, ...inline(cell)))))));

const badge = (method) => el("span", { class: `method ${method}` }, method.toUpperCase());

// --- the document

const resolve = (node) => (node.$ref ? node.$ref.slice(2).split("/").reduce((at, key) => at[key], api) : node);

function typeOf(schema) {
  const found = resolve(schema);
  if (found.anyOf) return found.anyOf.map(typeOf).join(" or ");
  if (found.enum) return found.enum.join(" | ");
  return found.type === "object" ? found.title : found.type;
}

const fields = (schema) => Object.entries(resolve(schema).properties).map(([name, field]) =>
  [name, typeOf(field), field.description || resolve(field).description]);

// --- one operation's form

const pretty = (value) => JSON.stringify(value, null, 2);
const quoted = (text) => `'${text.replaceAll("'", "'\\''")}'`;

function request({ method, path, inputs }) {
  const filled = path.replace(/\{(\w+)\}/g, (_, name) => encodeURIComponent(inputs[name].value));
  const headers = Object.entries(inputs).filter(([name, { value }]) => name.includes("-") && value);
  return {
    url: new URL(`.${filled}`, root).href,
    method: method.toUpperCase(),
    headers: headers.map(([name, { value }]) => [name, value]),
    body: inputs.body?.value || undefined,
  };
}

function curlOf({ url, method, headers, body }) {
  const parts = [`curl -sS -i ${method === "GET" ? "" : `-X ${method} `}${quoted(url)}`];
  for (const header of headers) parts.push(`  -H ${quoted(header.join(": "))}`);
  if (body) parts.push(`  --data-raw ${quoted(body)}`);
  return parts.join(" \\\n");
}

function field(form, { name, value = "", hint, help, place = "" }) {
  const id = `${form.id}-${name}`;
  const isBody = name === "body";
  const described = help ? `${id}-help` : undefined;
  const input = el(isBody ? "textarea" : "input", {
    id, placeholder: hint && `e.g. ${hint}`, autocomplete: "off", spellcheck: "false",
    "aria-describedby": described, oninput: () => form.refresh(),
  });
  if (place === "path") input.required = true;
  input.value = value;
  form.inputs[name] = input;
  return [el("label", { for: id }, isBody ? "Body" : `${name} `, el("span", { class: "quiet" }, place)), input,
    ...(help ? [el("p", { class: "quiet help", id: described }, ...inline(help))] : [])];
}

function controls(form, about) {
  const nodes = (about.parameters || []).map(resolve).flatMap((each) => field(form, {
    name: each.name, place: each.in, hint: each.example, help: each.description,
    value: each.schema.enum && each.example,
  }));
  for (const [type, { example }] of Object.entries(about.requestBody?.content || {})) {
    nodes.push(...field(form, { name: "Content-Type", place: "header", value: type }));
    nodes.push(...field(form, { name: "body", value: pretty(example) }));
  }
  return nodes;
}

function formOf(method, path, about) {
  const form = { id: about.operationId, method, path, inputs: {} };
  const curl = el("pre", { tabindex: "0", role: "region", "aria-label": "curl command" });
  const copy = el("button", { type: "button" }, "Copy");
  const button = el("button", { class: "main" }, "Send");
  const status = el("p", { role: "status" });
  const answer = el("div");
  form.refresh = () => {
    curl.textContent = curlOf(request(form));
    if (form.inputs.body) form.inputs.body.rows = Math.min(24, form.inputs.body.value.split("\n").length);
  };
  copy.onclick = async () => {
    getSelection().selectAllChildren(curl); // what remains where there is no clipboard
    const copied = await navigator.clipboard?.writeText(curl.textContent).then(() => true, () => false);
    copy.textContent = copied ? "Copied" : "Selected";
    setTimeout(() => { copy.textContent = "Copy"; }, 1500);
  };
  const send = async (event) => {
    event.preventDefault();
    button.disabled = true;
    status.replaceChildren("Waiting for the response…");
    answer.replaceChildren();
    await exchange(form, status, answer);
    button.disabled = false;
  };
  const node = el("form", { class: "try", onsubmit: send }, ...controls(form, about), button, status, answer,
    el("div", { class: "bar" }, el("h4", {}, "The same request with curl"), copy), curl);
  forms[form.id] = form;
  form.refresh();
  return node;
}

// --- answers

async function exchange(form, status, answer) {
  try {
    const sent = request(form);
    const response = await fetch(sent.url, sent);
    const raw = await response.text();
    const tone = response.ok ? "good" : response.status === 402 ? "warn" : "bad";
    status.replaceChildren(el("span", { class: `status ${tone}` }, `${response.status} ${response.statusText}`));
    let body = null;
    try { body = JSON.parse(raw); } catch { /* not JSON: shown as it is */ }
    const headers = [...response.headers].map((pair) => pair.join(": ")).join("\n");
    answer.append(...(body ? next(form.id, body, sent.body) : []),
      el("details", {}, el("summary", {}, "Response headers"), el("pre", {}, headers)),
      el("pre", { tabindex: "0", role: "region", "aria-label": "Response body" }, body ? pretty(body) : raw));
  } catch (error) {
    status.replaceChildren(el("span", { class: "status bad" }, `No response: ${error.message}`));
  }
}

// What to do after an answer: pay a 402, repeat what is paid for, spend a session.
function next(id, body, sent) {
  if (body.paymentId && body.paymentRequirements) return [payNext(body)];
  if (id === "pay" && body.success) {
    const { resource } = JSON.parse(sent).paymentRequirements;
    fill("getPayment", "paymentId", body.paymentId);
    const paid = Object.values(forms).find((form) => form.path === resource);
    return paid ? [doneNext(paid.id, "X-Payment-Id", body.paymentId, "Repeat the request")] : [];
  }
  if (id !== "createSession" || !body.sessionId) return [];
  fill("getSession", "sessionId", body.sessionId);
  return [doneNext("quote", "X-Session-Id", body.sessionId, "Spend the session")];
}

function payNext({ paymentId, paymentRequirements }) {
  const { description: _, ...requirements } = paymentRequirements; // not sent back (4.1)
  const bar = el("div", { class: "bar" }, goTo("pay", "Go to POST /api/pay"));
  const filled = (paymentHeader) => fill("pay", "body", pretty({ paymentId, paymentHeader, paymentRequirements: requirements }));
  filled("0x");
  offerToPay(bar, requirements, filled);
  return el("section", { class: "next", "aria-label": "What to do next" }, el("h4", {}, "What to do next"),
    el("ol", {},
      el("li", {}, ...inline(`Sign an EIP-3009 authorization of exactly \`${requirements.maxAmountRequired}\` base units to \`${requirements.payTo}\` with the payer's key: `),
        el("a", { href: "docs/payment-flow.md" }, "a script that does it"), "."),
      el("li", {}, ...inline("Send the payment header to `POST /api/pay`. Its form now holds this paymentId and these paymentRequirements.")),
      el("li", {}, ...inline("Repeat this request with `X-Payment-Id`."))),
    bar);
}

// --- a local mock server has accounts beside the service, which sign here by its JSON-RPC

async function beside(path, body) {
  const sent = body && { method: "POST", headers: { "Content-Type": "application/json" }, body: pretty(body) };
  const response = await fetch(new URL(path, root), sent);
  if (!response.ok) throw new Error(`${path} answered ${response.status}`);
  return response.json();
}

async function offerToPay(bar, requirements, filled) {
  const who = await beside("_sim/who").catch(() => undefined); // a service alone, or one with a control token
  if (!who) return;
  const pay = async () => {
    try {
      filled(await signed(who, requirements));
      show("pay");
      document.querySelector("#pay form").requestSubmit();
    } catch (error) {
      bar.replaceChildren(el("span", { class: "status bad" }, `Not signed: ${error.message}`));
    }
  };
  bar.prepend(el("button", { type: "button", class: "main", onclick: pay }, "Pay with account 0"));
}

const hex = (bytes) => `0x${[...bytes].map((byte) => byte.toString(16).padStart(2, "0")).join("")}`;

// A payment header for these requirements, signed by account 0 of a world (2.3).
async function signed({ token, now }, { scheme, network, asset, payTo, maxAmountRequired, maxTimeoutSeconds }) {
  const [{ address }] = await beside("_sim/accounts");
  const at = Math.floor(now / 1000);
  const authorization = {
    from: address, to: payTo, value: maxAmountRequired, validAfter: at - 60,
    validBefore: at + Math.min(300, maxTimeoutSeconds), nonce: hex(crypto.getRandomValues(new Uint8Array(32))),
  };
  const typed = (text) => text.split(", ").map((each) => each.split(" ")).map(([type, name]) => ({ type, name }));
  const message = {
    types: {
      EIP712Domain: typed("string name, string version, uint256 chainId, address verifyingContract"),
      TransferWithAuthorization: typed("address from, address to, uint256 value, uint256 validAfter, uint256 validBefore, bytes32 nonce"),
    },
    primaryType: "TransferWithAuthorization",
    domain: { name: token.name, version: token.version, chainId: token.chainId, verifyingContract: asset },
    message: authorization,
  };
  const call = { jsonrpc: "2.0", id: 1, method: "eth_signTypedData_v4", params: [address, message] };
  const { result, error } = await beside("rpc", call);
  if (error) throw new Error(error.message);
  const header = { x402Version: 1, scheme, network, payload: { ...authorization, signature: result, asset } };
  return hex(new TextEncoder().encode(JSON.stringify(header)));
}

function doneNext(id, name, value, action) {
  fill(id, name, value);
  return el("section", { class: "next done", "aria-label": "What to do next" },
    el("p", {}, ...inline(`The form of \`${forms[id].path}\` now holds this \`${name}\`.`)), goTo(id, action));
}

function fill(id, name, value) {
  const input = forms[id]?.inputs[name];
  if (!input) return;
  input.value = value;
  forms[id].refresh();
}

function show(id) {
  const node = document.getElementById(id);
  node.querySelector("details").open = true;
  node.querySelector("form").scrollIntoView();
  forms[id].inputs.body?.focus({ preventScroll: true });
}

const goTo = (id, text) => el("button", { type: "button", onclick: () => show(id) }, text);

// --- the page

function article(method, path, about) {
  const schema = about.requestBody?.content["application/json"].schema;
  const answers = Object.entries(about.responses).map(([status, { description }]) => [status, description]);
  return el("article", { id: about.operationId }, el("details", {},
    el("summary", {}, badge(method), el("h3", { class: "path" }, path), el("span", { class: "quiet" }, about.summary)),
    el("div", { class: "inside" }, ...(about.description ? prose(about.description) : []),
      ...(schema ? [el("h4", {}, "Request body"), table(fields(schema))] : []),
      el("h4", {}, "Responses"), table(answers), formOf(method, path, about))));
}

function render() {
  const main = document.getElementById("operations");
  const contents = document.getElementById("contents");
  document.title = `${api.info.title} ${api.info.version}`;
  document.getElementById("title").replaceChildren(api.info.title, " ", el("small", { class: "quiet" }, api.info.version));
  document.getElementById("summary").textContent = api.info.summary;
  main.append(...prose(api.info.description));
  const operations = Object.entries(api.paths).flatMap(([path, item]) =>
    Object.entries(item).map(([method, about]) => ({ path, method, about })));
  for (const tag of api.tags) {
    main.append(el("h2", {}, tag.name), el("p", { class: "quiet" }, tag.description));
    contents.append(el("h2", {}, tag.name));
    for (const { path, method, about } of operations.filter((each) => each.about.tags.includes(tag.name))) {
      const node = article(method, path, about);
      const open = () => { node.querySelector("details").open = true; };
      main.append(node);
      contents.append(el("a", { href: `#${node.id}`, onclick: open }, badge(method), path));
    }
  }
  const chosen = document.getElementById(location.hash.slice(1) || "quote");
  chosen?.querySelector("details")?.setAttribute("open", "");
  if (location.hash) chosen?.scrollIntoView();
}

async function start() {
  try {
    const response = await fetch(root);
    if (!response.ok) throw new Error(`status ${response.status}`);
    api = await response.json();
    render();
  } catch (error) {
    document.getElementById("operations").append(el("p", { class: "status bad" }, `openapi.json could not be read: ${error.message}`));
  }
}

start();
