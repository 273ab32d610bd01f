import { withX402 } from "@x402/next";
import { accepts, server, weather } from "../../shop.js";

export const GET = withX402(weather, accepts("$0.01"), server());
