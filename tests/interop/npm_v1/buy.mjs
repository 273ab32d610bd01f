// Asks for a URL with a standard client of x402 version 1, which pays; prints the answer as JSON.
// It reads {"client": "fetch" or "axios", "url", "key", "body"} from stdin.
import axios from "axios";
import { createWalletClient, http } from "viem";
import { privateKeyToAccount } from "viem/accounts";
import { baseSepolia } from "viem/chains";
import { withPaymentInterceptor } from "x402-axios";
import { wrapFetchWithPayment } from "x402-fetch";
import { told, withAxios, withFetch } from "../buying.mjs";

const account = privateKeyToAccount(told.key);
const wallet = createWalletClient({ account, transport: http(), chain: baseSepolia });
if (told.client === "fetch") await withFetch(wrapFetchWithPayment(fetch, wallet));
else await withAxios(withPaymentInterceptor(axios.create(), wallet));
