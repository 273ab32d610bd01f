export { report as POST } from "../../../shop.js";
