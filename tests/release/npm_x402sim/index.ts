// The package for Node.js: the client of the control API, and the program, which is in the package.

import { fileURLToPath } from "node:url";
import { start as startProgram, type World } from "./sim.js";

export * from "./sim.js";

/** The path of the program `x402sim`, without Python. */
export const program = fileURLToPath(new URL("program/x402sim", import.meta.url));

/** Start `x402sim serve` of this package on a free port, with these options; it ends with this process. */
export function start(options: string[] = [], command: string[] = [program]): Promise<World> {
  return startProgram(options, command);
}
