// What the shops in npm_*/sell.mjs share: what their file tells, and GET /weather behind a middleware.
// Each prints its URL.
import { readFileSync } from "node:fs";

export const told = JSON.parse(readFileSync(process.argv[2], "utf8"));
const weather = { weather: "sunny" };
const says = (port) => console.log(`http://127.0.0.1:${port}`);

export function withExpress(app, paid) {
  app.use(paid);
  app.get("/weather", (_, answer) => answer.json(weather));
  const listening = app.listen(0, "127.0.0.1", () => says(listening.address().port));
}

export function withHono(app, paid, serve) {
  app.use(paid);
  app.get("/weather", (context) => context.json(weather));
  serve({ fetch: app.fetch, port: 0, hostname: "127.0.0.1" }, ({ port }) => says(port));
}
