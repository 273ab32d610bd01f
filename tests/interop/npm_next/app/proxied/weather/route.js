export { weather as GET } from "../../../shop.js";
