// Headless Chromium that does what it is told: each line of stdin is the JSON text of a function's
// body, which has `page`; each line of stdout is what it returned, or its error, and what the page
// complained of meanwhile.

import chromium from "@sparticuz/chromium";
import { createInterface } from "node:readline";
import puppeteer from "puppeteer-core";

const browser = await puppeteer.launch({
  args: chromium.args,
  executablePath: await chromium.executablePath(),
  headless: "shell",
});
const page = await browser.newPage();
let said = [];
page.on("console", (message) => {
  if (["error", "warn"].includes(message.type())) said.push(message.text());
});
page.on("pageerror", (error) => said.push(String(error)));
page.on("dialog", (dialog) => {
  said.push(`dialog: ${dialog.message()}`);
  dialog.dismiss();
});
page.setDefaultTimeout(30_000);
const Told = Object.getPrototypeOf(async () => {}).constructor;
try {
  for await (const line of createInterface({ input: process.stdin })) {
    let told;
    try {
      told = { returned: await new Told("page", JSON.parse(line))(page) };
    } catch (error) {
      told = { failed: String(error) };
    }
    console.log(JSON.stringify({ ...told, said }));
    said = [];
  }
} finally {
  await browser.close();
}
