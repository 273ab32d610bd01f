import { withX402 } from "@x402/next";
import { accepts, report, server } from "../../shop.js";

export const POST = withX402(report, accepts("$0.03"), server());
