// Pays in both modes, with the npm client's own headers, and tries each hole. Starts the mock world and the service.
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { createInterface } from 'node:readline';
import { Facilitator } from '@crypto.com/facilitator-client';
import { ethers } from 'ethers';

async function start(command, args, env) {
  const child = spawn(command, args, { env: { ...process.env, ...env }, stdio: ['ignore', 'pipe', 'ignore'] });
  const [line] = await once(createInterface({ input: child.stdout }), 'line');
  return { child, line };
}
async function stop({ child }) {
  child.kill('SIGTERM');
  return (await once(child, 'exit'))[0];
}
const send = async (url, body, headers = {}) => {
  const json = { 'content-type': 'application/json' };
  const res = await fetch(url, body && { method: 'POST', body: JSON.stringify(body), headers: { ...json, ...headers } });
  const text = await res.text();
  try { return { status: res.status, body: JSON.parse(text) }; } catch { return { status: res.status, body: text }; }
};

const python = process.env.PYTHON ?? 'python3';
const sim = await start(python, ['-m', 'x402sim', 'serve', '--no-service', '--json', '--port', '0'], {});
const world = JSON.parse(sim.line);
const [alice, bob] = world.accounts;
const provider = new ethers.JsonRpcProvider(world.rpc, world.chainId, { staticNetwork: true });
const wallet = new ethers.Wallet(alice.privateKey, provider);
const client = new Facilitator({ network: world.network });
const fault = (does) => send(`${world.control}/faults`, { victim: 'facilitator', does, path: '/v2/x402/settle' });
const merchantGot = async () => {
  const { body } = await send(`${world.control}/balances`, { accounts: [world.payTo] });
  return BigInt(Object.values(body)[0].balance ?? Object.values(body)[0]);
};

async function check(mode, env, expected) {
  const service = await start(process.execPath, ['server.js'], {
    FACILITATOR_URL: world.facilitator, MERCHANT_ADDRESS: world.payTo, NETWORK: world.network,
    TOKEN_ADDRESS: world.asset, PORT: '0', ...env,
  });
  const base = service.line.replace('listening on ', '');
  const quote = (id) => send(`${base}/api/perp/quote`, { pair: 'CRO-USD' }, id && { 'x-payment-id': id });
  const data = async (id) => (await fetch(`${base}/api/data`, { headers: { 'x-payment-id': id } })).status;
  const sign = (terms, to = terms.payTo) => client.generatePaymentHeader(
    { to, value: terms.maxAmountRequired, asset: terms.asset, signer: wallet });
  const terms = async () => (await quote()).body.accepts[0];
  const pay = (t, header, paymentId = t.extra.paymentId) => send(`${base}/api/pay`, {
    paymentId, paymentHeader: header, paymentRequirements: t });
  const opens = async (id) => (await quote(id)).status === 200;

  const tries = {
    async 'pays, then reads the resource'() {
      const t = await terms();
      const before = await merchantGot();
      const paid = await pay(t, await sign(t));
      return paid.body.ok && (await opens(t.extra.paymentId)) && (await merchantGot()) - before === 10000n;
    },
    async '1 own terms open it: one unit, to oneself'() {
      const t = await terms();
      const forged = { ...t, payTo: alice.address, maxAmountRequired: '1' };
      await pay(forged, await sign(forged));
      return opens(t.extra.paymentId);
    },
    async '2 an id never issued opens it'() {
      const t = await terms();
      await pay(t, await sign(t), 'pay_mine');
      return opens('pay_mine');
    },
    async '3 a payment for the quote opens the dearer route'() {
      const t = await terms();
      await pay(t, await sign(t));
      return (await data(t.extra.paymentId)) === 200;
    },
    async '6 two headers at once are both charged for one id'() {
      const t = await terms();
      const before = await merchantGot();
      await Promise.all([pay(t, await sign(t)), pay(t, await sign(t))]);
      return (await merchantGot()) - before === 20000n;
    },
    async '7 a lost answer leaves a charge that opens nothing'() {
      const t = await terms();
      const header = await sign(t);
      await fault('lose answer');
      const first = await pay(t, header);
      const again = await pay(t, header);
      return first.status >= 500 && !again.body.ok && !(await opens(t.extra.paymentId));
    },
    async '7b so does a duplicated request'() {
      const t = await terms();
      const header = await sign(t);
      await fault('duplicate');
      await pay(t, header);
      await pay(t, header);
      return !(await opens(t.extra.paymentId));
    },
    async 'a header paid for one id opens another, after a lost request'() {
      const [a, b] = [await terms(), await terms()];
      const header = await sign(a);
      await pay(a, header);
      await fault('lose request');
      await pay(b, header);
      await send(`${world.control}/faults/clear`, {});
      await pay(b, header);
      return opens(b.extra.paymentId);
    },
    async 'a nonce spent on another transfer opens it, after a lost request'() {
      const t = await terms();
      const header = await sign(t);
      const { nonce, validAfter, validBefore } = JSON.parse(atob(header)).payload;
      await fault('lose request');
      await pay(t, header);
      const elsewhere = { from: alice.address, to: bob.address, value: 1n, validAfter, validBefore, nonce };
      const domain = { name: 'Bridged USDC (Stargate)', version: '1', chainId: world.chainId, verifyingContract: t.asset };
      const types = { TransferWithAuthorization: Object.entries({ from: 'address', to: 'address', value: 'uint256',
        validAfter: 'uint256', validBefore: 'uint256', nonce: 'bytes32' }).map(([name, type]) => ({ name, type })) };
      const signature = ethers.Signature.from(await wallet.signTypedData(domain, types, elsewhere));
      const token = new ethers.Interface(['function transferWithAuthorization(address,address,uint256,uint256,uint256,bytes32,uint8,bytes32,bytes32)']);
      const input = token.encodeFunctionData('transferWithAuthorization', [...Object.values(elsewhere), signature.v, signature.r, signature.s]);
      const sent = await send(`${world.control}/send`, { from: bob.address, to: t.asset, data: input });
      if (sent.status !== 200) throw new Error(JSON.stringify(sent));
      await pay(t, header);
      return opens(t.extra.paymentId);
    },
  };
  let wrong = 0;
  for (const [name, attempt] of Object.entries(tries)) {
    const got = await attempt();
    await send(`${world.control}/faults/clear`, {});
    const right = got === (expected[name] ?? expected.default);
    if (!right) wrong += 1;
    console.log(`${right ? 'as expected' : 'NOT EXPECTED'}  ${mode}: ${name}: ${got ? 'yes' : 'no'}`);
  }
  const code = await stop(service);
  if (code !== 0) wrong += 1;
  console.log(`${code === 0 ? 'as expected' : 'NOT EXPECTED'}  ${mode}: stops on SIGTERM with ${code}`);
  return wrong;
}

const PAYS = 'pays, then reads the resource';
const [ELSEWHERE, TWICE] = ['a nonce spent on another transfer opens it, after a lost request', 'a header paid for one id opens another, after a lost request'];
let wrong = 0;
try {
  wrong += await check('as the example', {}, { default: true, [ELSEWHERE]: false, [TWICE]: false });
  wrong += await check('hardened', { HARDENED: '1', RPC_URL: world.rpc }, { default: false, [PAYS]: true });
  wrong += await check('hardened, no node', { HARDENED: '1', RPC_URL: '' },
    { default: false, [PAYS]: true, '7b so does a duplicated request': true, [ELSEWHERE]: true });
} finally {
  provider.destroy();
  await stop(sim);
}
console.log(wrong ? `${wrong} not as expected` : 'all as expected');
process.exitCode = wrong ? 1 : 0;
