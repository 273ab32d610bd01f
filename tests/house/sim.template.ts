// A world of x402sim for tests in TypeScript or JavaScript: `start` it, and steer it by its control API, /_sim.
// It needs Node.js, and nothing else. Written from x402sim's own tables, so do not edit it.

import { spawn } from "node:child_process";
import { once } from "node:events";
import { createInterface } from "node:readline";

// TYPES

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

  // METHODS

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
