export { forecast as GET } from "../../../shop.js";
