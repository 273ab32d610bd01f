// What the shops in npm_*/sell.mjs share: what a file tells them, and three pages behind a middleware. Each prints its URL.
import { readFileSync } from "node:fs";

export const told = JSON.parse(readFileSync(process.argv[2], "utf8"));
export const prices = { "GET /weather": told.price, "GET /forecast": "$0.02", "POST /report": "$0.03" };
const says = (port) => console.log(`http://127.0.0.1:${port}`);
const weather = () => ({ weather: "sunny" });
const forecast = (city) => ({ city });
const report = ({ title }) => {
  if (title === "fail") throw new Error("no report");
  return { title };
};

export function withExpress(express, paid) {
  const app = express();
  app.use(paid);
  app.use(express.json());
  app.get("/weather", (_, answer) => answer.json(weather()));
  app.get("/forecast", (request, answer) => answer.json(forecast(request.query.city)));
  app.post("/report", (request, answer) => answer.json(report(request.body)));
  const listening = app.listen(0, "127.0.0.1", () => says(listening.address().port));
}

export function withHono(app, paid, serve) {
  app.use(paid);
  app.get("/weather", (context) => context.json(weather()));
  app.get("/forecast", (context) => context.json(forecast(context.req.query("city"))));
  app.post("/report", async (context) => context.json(report(await context.req.json())));
  serve({ fetch: app.fetch, port: 0, hostname: "127.0.0.1" }, ({ port }) => says(port));
}
