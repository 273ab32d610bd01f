// A world of x402sim for tests in TypeScript or JavaScript: `start` it, and steer it by its control API, /_sim.
// It needs Node.js, and nothing else. Written from x402sim's own tables, so do not edit it.

import { spawn } from "node:child_process";
import { once } from "node:events";
import { createInterface } from "node:readline";

/** What `serve --json` prints first: the URLs, the addresses and the funded accounts. */
export interface Ready {
  event: "ready";
  /** This schema's $id; it changes when a field goes, or means another. */
  schema: "urn:x402sim:serve:1";
  /** Null with --no-service. */
  service: string | null;
  /** The x402 standard's, and Cronos' dialect. */
  facilitator: string;
  explorer: string;
  /** JSON-RPC of the first network's chain. */
  rpc: string;
  /** The control API; null if it is off. */
  control: string | null;
  /** The merchant's address. */
  payTo: `0x${string}`;
  /** The token of the first network. */
  asset: `0x${string}`;
  /** Its name in version 1: "base-sepolia". */
  network: string;
  /** The backend: "ledger", "anvil" or "node". */
  chain: string;
  chainId: number;
  token: TokenInfo;
  /** The accounts that pay; everybody knows their keys. */
  accounts: Account[];
  /** All networks, the first among them. */
  networks: OnNetwork[];
}

/** What a payer must know to sign for a network's token: its EIP-712 domain and decimals. */
export interface TokenInfo {
  chainId: number;
  name: string;
  symbol: string;
  version: string;
  decimals: number;
}

/** A funded account. Its balance is in base units, and in tokens: "1000.00". */
export interface Account {
  address: `0x${string}`;
  privateKey: `0x${string}`;
  /** Base units. */
  balance: string;
  /** Tokens. */
  balanceDecimal: string;
}

/** One network of a server: the chain's JSON-RPC, and the token. */
export interface OnNetwork {
  network: string;
  chainId: number;
  rpc: string;
  asset: `0x${string}`;
  token: TokenInfo;
}

/** A fault: the effect, the struck requests, how often and how likely. */
export interface Fault {
  victim: string;
  does: "answer" | "crash after" | "crash before" | "delay answer" | "delay request" | "duplicate" | "lose answer" | "lose request" | "refuse" | "shorten" | "truncate";
  path?: string;
  contains?: string;
  skip?: number;
  times?: number | null;
  probability?: number;
  seconds?: number;
  status?: number;
  body?: string;
  content_type?: string;
  work_done?: boolean;
  headers?: Record<string, string>;
  caller?: "all" | "facilitator" | "service";
  when?: Outages | Schedule;
}

/** Periods at random: an alternating renewal process, up first. */
export interface Outages {
  kind: "outages";
  mtbf_s: number;
  mttr_s: number;
}

/** Periods that are given: pairs of seconds, from and until, from when the fault is added. */
export interface Schedule {
  kind: "schedule";
  periods: [number, number][];
}

/** An account whose payments fail, how, and why; `nonce` is the used one. */
export interface FailingAccount {
  address: `0x${string}`;
  privateKey: `0x${string}`;
  /** Base units. */
  balance: string;
  /** Tokens. */
  balanceDecimal: string;
  fails: string;
  why: string;
  nonce?: string | null;
}

/** A settled payment: the path, the payer, the amount in base units, the transaction. */
export interface Paid {
  paymentId: string;
  path: string;
  payer: string;
  /** Base units. */
  amountBase: string;
  txHash: string;
}

/** The state of a world: its clock (epoch ms), chain, database and cache. */
export interface State {
  now: number;
  clockAdvancedSeconds: number;
  skews: Record<string, number>;
  lagSeconds: number;
  network: string;
  chain: ChainState;
  rows: Record<string, number>;
  pendingPayments: number;
  unindexedPayments: number;
  agents: Agent[];
  cachedEntitlements: number;
  snapshots: number[];
}

/** The chain's newest block (time in Unix seconds), its mempool and the token's supply. */
export interface ChainState {
  chainId: number;
  height: number | null;
  timestamp: number | null;
  automine: boolean;
  waiting: number;
  supply: string;
}

/** One service for sale (2.7): price in base units, reputation a count of payments. */
export interface Agent {
  id: string;
  name: string;
  description: string;
  resource: string;
  price: string;
  payTo: string;
  reputation: number;
}

/** An address, and the present balance. */
export interface Balance {
  address: `0x${string}`;
  /** Base units. */
  balance: string;
}

/** A wallet that is a contract. */
export interface MadeWallet {
  address: `0x${string}`;
}

/** The time of the clock (epoch ms). */
export interface Now {
  now: number;
}

/** The number of the chain's newest block. */
export interface Height {
  height: number;
}

/** Whether each transaction is mined immediately. */
export interface Automine {
  automine: boolean;
}

/** The counts of a run of the indexer, by result; `backlog` payments still have no block. */
export interface Indexed {
  asked: number;
  matched: number;
  reverted: number;
  unknown: number;
  unanswered: number;
  backlog: number;
}

/** The id of a snapshot. */
export interface SnapshotTaken {
  snapshot: number;
}

/** The restored snapshot, and how far the clock is ahead of real time. */
export interface Reverted {
  reverted: number;
  clockAdvancedSeconds: number;
}

/** A fresh world, and how far the clock is ahead of real time. */
export interface ResetDone {
  reset: boolean;
  clockAdvancedSeconds: number;
}

/** The description of a world: addresses, capabilities, time (epoch ms), number of events. */
export interface WorldInfo {
  payTo: `0x${string}`;
  asset: `0x${string}`;
  tokenOwner: `0x${string}`;
  chain: string;
  network: string;
  token: TokenInfo;
  offers: string[];
  now: number;
  journal: number;
  service: boolean;
}

/** A transfer of the token, named as in the journal; a mint comes from the zero address. */
export interface Transfer {
  txHash: string;
  blockNumber: number;
  sender: string;
  to: string;
  amountBase: string;
}

/** A query to the explorer about a transaction, and when it came (epoch ms). */
export interface ExplorerQuery {
  txHash: string;
  at: number;
}

/** A sent transaction, mined or not. */
export interface Sent {
  txHash: string;
  mined: boolean;
  revertReason: string | null;
  cause: string | null;
}

/** How many faults are active. */
export interface Standing {
  standing: number;
}

/** How far the explorer is behind the chain. */
export interface Lag {
  lagSeconds: number;
}

/** A facilitator and the settings, by the names of `FacilitatorSettings`. */
export interface FacilitatorNow {
  name: string;
  receipt_timeout_s: number;
  simulates: boolean;
  simulates_verify: boolean;
  listing_delay_s: number;
  native: number | null;
}

/** How often the service was killed. */
export interface Crashes {
  crashes: number;
}

/** How many calls of the token will revert. */
export interface Reverts {
  calls: number;
}

/** How many transactions wait in the mempool. */
export interface Waiting {
  waiting: number;
}

/** An event of the journal; "event" is its name, and the page "Events" of the guide has its fields. */
export type JournalEvent = { event: string; seq: number; at_ms: number; actor: string } & Record<string, unknown>;

/** A world that runs: what it printed when it was ready, its control API, and how to stop it. */
export interface World {
  ready: Ready;
  sim: Sim;
  stop(): Promise<void>;
}

/**
 * Start `x402sim serve` on a free port with these options, and return it once it is ready. It ends with this process,
 * however that ends: its stdin is a pipe from here.
 */
export async function start(options: string[] = [], command: string[] = ["x402sim"]): Promise<World> {
  const [program = "x402sim", ...first] = command;
  const words = [...first, "serve", "--port", "0", "--json", "--quiet", "--stop-with-stdin", ...options];
  const child = spawn(program, words, { stdio: ["pipe", "pipe", "inherit"] });
  const exited = once(child, "exit"); // it rejects if there is no such program
  const stop = async () => {
    child.kill("SIGINT");
    await exited;
  };
  const failed = exited.then(
    ([code]): never => {
      throw new Error(`${program} ${words.join(" ")} ended with ${code}`);
    },
    (error): never => {
      throw new Error(`cannot start ${program}: ${error.message}; put it on the PATH, or give its path as the command`);
    },
  );
  const [line] = await Promise.race([once(createInterface(child.stdout), "line"), failed]);
  const ready: Ready = JSON.parse(line);
  return { ready, sim: new Sim(ready.control!), stop };
}

/** The control API of a world, /_sim. A refused action throws an error with the reason. */
export class Sim {
  readonly url: string;
  readonly options: { token?: string; network?: string };

  /** Take the `control` of the ready line; the token of `--control-token`; and another network than the first. */
  constructor(url: string, options: { token?: string; network?: string } = {}) {
    this.url = url;
    this.options = options;
  }

  /** The funded accounts of `serve`, with their private keys and balances in base units. */
  accounts(): Promise<Account[]> {
    return this.#json("GET", "/accounts", {});
  }

  /** List the accounts that fail in fixed ways, if they were made. */
  madeFailingAccounts(): Promise<FailingAccount[]> {
    return this.#json("GET", "/accounts/failing", {});
  }

  /** Make the accounts that fail in fixed ways, and list them: no balance, blacklisted, and so on. */
  failingAccounts(): Promise<FailingAccount[]> {
    return this.#json("POST", "/accounts/failing", {});
  }

  /** List the settled payments: ?path=/api/perp/quote&times=1 demands exactly one for the path. */
  payments(given: { path?: string; times?: number | null } = {}): Promise<Paid[]> {
    return this.#json("GET", "/payments", given);
  }

  /** Show the state of the world: clock, chain, database and cache. */
  state(): Promise<State> {
    return this.#json("GET", "/state", {});
  }

  /** Mint tokens to an address: {"address": "0x…", "amount": "100.00"}. */
  faucet(given: { address: string; amount?: string }): Promise<Balance> {
    return this.#json("POST", "/faucet", given);
  }

  /** Make a contract wallet, unless the wallet exists: {"owner": "0x…"}. */
  wallet(given: { owner: string }): Promise<MadeWallet> {
    return this.#json("POST", "/wallet", given);
  }

  /** Move the clock forward, then run what is due: {"seconds": 300}. */
  advance(given: { seconds: number }): Promise<Now> {
    return this.#json("POST", "/clock/advance", given);
  }

  /** Mine blocks: {"blocks": 1}. The first includes every waiting transaction. */
  mine(given: { blocks?: number } = {}): Promise<Height> {
    return this.#json("POST", "/mine", given);
  }

  /** Mine each transaction immediately, or only on demand: {"automine": false}. */
  setMining(given: { automine: boolean }): Promise<Automine> {
    return this.#json("POST", "/mining", given);
  }

  /** Replace the newest blocks: {"depth": 1, "drop": ["0x…"]}. */
  reorg(given: { depth?: number; drop?: string[] } = {}): Promise<Height> {
    return this.#json("POST", "/reorg", given);
  }

  /** Run the payment indexer now; return its counts, all 0 if a crash cut it short. */
  runIndexer(given: { service?: string } = {}): Promise<Indexed> {
    return this.#json("POST", "/indexer/run", given);
  }

  /** Take a snapshot of chain, database and cache; answers {"snapshot": id}. */
  snapshot(): Promise<SnapshotTaken> {
    return this.#json("POST", "/snapshot", {});
  }

  /** Revert to a snapshot: {"snapshot": id}. It and all later ones are deleted. */
  revert(given: { snapshot: number }): Promise<Reverted> {
    return this.#json("POST", "/revert", given);
  }

  /** Reset to block 0, an empty database and the initial balances. */
  reset(given: { clock?: boolean } = {}): Promise<ResetDone> {
    return this.#json("POST", "/reset", given);
  }

  /** Describe the world: merchant, token, owner, network, capabilities. */
  who(): Promise<WorldInfo> {
    return this.#json("GET", "/who", {});
  }

  /** List the token's transfers, oldest first: ?account=0x… from or to this account only. */
  transfers(given: { account?: string } = {}): Promise<Transfer[]> {
    return this.#json("GET", "/transfers", given);
  }

  /** The newest queries to the explorer about transactions, oldest first; ?since=MS later ones. */
  explorerQueries(given: { since?: number } = {}): Promise<ExplorerQuery[]> {
    return this.#json("GET", "/explorer/queries", given);
  }

  /** Read balances in base units: {"accounts": ["0x…"]}. */
  balances(given: { accounts: string[] }): Promise<string[]> {
    return this.#json("POST", "/balances", given);
  }

  /** Send a transaction of any account: {"from": "0x…", "to": "0x…", "data": "0x…"}. */
  send(given: { from: string; to: string; data?: string }): Promise<Sent> {
    return this.#json("POST", "/send", given);
  }

  /** List the active faults. */
  faults(): Promise<Fault[]> {
    return this.#json("GET", "/faults", {});
  }

  /** Inject a fault: {"victim": "facilitator", "does": "lose answer", "path": "/settle"}. */
  addFault(given: Fault): Promise<Standing> {
    return this.#json("POST", "/faults", given);
  }

  /** Reset faults, clock skews, the explorer's lag, forced reverts, mining and facilitators. */
  clearFaults(given: { keep?: string[] } = {}): Promise<Standing> {
    return this.#json("POST", "/faults/clear", given);
  }

  /** Skew an actor's clock: {"actor": "service", "seconds": -30}. */
  skew(given: { actor: string; seconds: number }): Promise<Now> {
    return this.#json("POST", "/clock/skew", given);
  }

  /** Make the explorer lag behind the chain: {"seconds": 600}. */
  lagExplorer(given: { seconds: number }): Promise<Lag> {
    return this.#json("POST", "/explorer/lag", given);
  }

  /** Change a facilitator's settings: {"receipt_timeout_s": 0.5}. */
  setFacilitator(given: { name?: string | null; receipt_timeout_s?: number | null; simulates?: boolean | null; simulates_verify?: boolean | null; listing_delay_s?: number | null } = {}): Promise<FacilitatorNow> {
    return this.#json("POST", "/facilitator", given);
  }

  /** Kill the service; answers when it has restarted on its database, 1 second later. */
  crash(given: { service?: string } = {}): Promise<Crashes> {
    return this.#json("POST", "/crash", given);
  }

  /** Make the next calls of the token revert, or the next that name an account: {"calls": 1, "account": "0x…"}. */
  forceRevert(given: { calls?: number; account?: string } = {}): Promise<Reverts> {
    return this.#json("POST", "/force-revert", given);
  }

  /** Drop every transaction from the mempool. */
  drop(): Promise<Waiting> {
    return this.#json("POST", "/drop", {});
  }

  /** What happened, and what was done here, as NDJSON; ?since=SEQ skips the rest. */
  journal(given: { since?: number } = {}): Promise<JournalEvent[]> {
    return this.#events("/journal", given);
  }

  async #send(method: "GET" | "POST", path: string, given: object): Promise<Response> {
    const { token, network } = this.options;
    const url = new URL(this.url + path);
    if (network) url.searchParams.set("network", network);
    if (method === "GET") for (const [name, value] of Object.entries(given)) url.searchParams.set(name, String(value));
    const answer = await fetch(url, {
      method,
      headers: { "Content-Type": "application/json", ...(token ? { Authorization: `Bearer ${token}` } : {}) },
      ...(method === "POST" ? { body: JSON.stringify(given) } : {}),
    });
    if (!answer.ok) throw new Error(`${method} ${url} answered ${answer.status}: ${await answer.text()}`);
    return answer;
  }

  async #json<T>(method: "GET" | "POST", path: string, given: object): Promise<T> {
    return (await (await this.#send(method, path, given)).json()) as T;
  }

  async #events(path: string, given: object): Promise<JournalEvent[]> {
    const [, ...lines] = (await (await this.#send("GET", path, given)).text()).trim().split("\n"); // the first: its format
    return lines.map((line) => JSON.parse(line));
  }
}
