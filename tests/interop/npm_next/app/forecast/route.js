import { withX402 } from "@x402/next";
import { accepts, forecast, server } from "../../shop.js";

export const GET = withX402(forecast, accepts("$0.02"), server());
