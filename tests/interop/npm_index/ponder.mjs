// ponder: an app whose handlers read the token's state at each event's block (`readContract`). It writes beside
// its app, which is therefore copied to the folder of the file that this program is given.
// Its URL is printed when it has indexed what there was.

import { cpSync, readFileSync, symlinkSync } from "node:fs";
import { createServer } from "node:net";
import { dirname, join } from "node:path";
import { setTimeout } from "node:timers/promises";

const [, , told] = process.argv;
const app = join(dirname(told), "ponder");
cpSync(join(import.meta.dirname, "ponder"), app, { recursive: true });
symlinkSync(join(import.meta.dirname, "node_modules"), join(app, "node_modules"));

const free = createServer().listen(0, "127.0.0.1");
await new Promise((resolve) => free.once("listening", resolve));
const { port } = free.address();
await new Promise((resolve) => free.close(resolve));

const PONDER_TELEMETRY_DISABLED = "1";
Object.assign(process.env, { TOLD: readFileSync(told, "utf8"), PORT: port, PONDER_TELEMETRY_DISABLED });
process.argv.splice(2, 1, "start", "--root", app, "--schema", "public", "--hostname", "127.0.0.1");
const say = process.stdout.write.bind(process.stdout);
process.stdout.write = process.stderr.write.bind(process.stderr); // its log
import("./node_modules/ponder/dist/esm/bin/ponder.js");

const url = `http://127.0.0.1:${port}`;
const ready = () => fetch(`${url}/ready`).then(({ ok }) => ok, () => false);
while (!(await ready())) await setTimeout(100);
say(`${url}\n`);
