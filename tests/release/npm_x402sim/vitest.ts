// Fixtures for vitest: one server for a file of tests, as new before each test.

import { afterAll, beforeAll, test } from "vitest";
import { start, type Account, type Sim, type World } from "./index.js";

export interface Fixtures {
  /** The server: `world.ready` has the URLs, `world.sim` every action of the control API. */
  world: World;
  /** The accounts with money. */
  accounts: Account[];
  /** Let time pass: `await advance({ seconds: 3600 })`. */
  advance: Sim["advance"];
  /** Break something: `await fault({ victim: "service", does: "lose answer" })`. */
  fault: Sim["addFault"];
  /** The settled payments; it throws unless there are `times`: `await payments({ path: "/weather", times: 1 })`. */
  payments: Sim["payments"];
}

const START_MS = 60_000;

/** Return vitest's `test` with the fixtures. Call it at the top of a file, with options of `x402sim serve`. */
export function testWith(options: string[] = []) {
  let server: World | undefined;
  beforeAll(async () => {
    server = await start(options);
  }, START_MS);
  afterAll(() => server?.stop());
  return test.extend<Fixtures>({
    world: async ({}, use) => {
      await server!.sim.reset();
      await server!.sim.clearFaults();
      await use(server!);
    },
    accounts: ({ world }, use) => use(world.ready.accounts),
    advance: ({ world }, use) => use((given) => world.sim.advance(given)),
    fault: ({ world }, use) => use((given) => world.sim.addFault(given)),
    payments: ({ world }, use) => use((given) => world.sim.payments(given)),
  });
}
