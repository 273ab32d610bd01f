// What the shops in npm_*/sell.mjs share: what they are told, and three pages behind a middleware.
// Each prints its URL. It is told by a file, or gets the name of its server, and the rest in the
// environment, as the judge of servers gives it; then each page that is made has its number.
import { readFileSync } from "node:fs";

const [, , given] = process.argv;
const { env } = process;
export const told = given.endsWith(".json")
  ? JSON.parse(readFileSync(given, "utf8"))
  : {
      server: given,
      facilitator: env.FACILITATOR_URL,
      payTo: env.X402SIM_PAY_TO,
      network: env.X402SIM_NETWORK,
      name: env.X402SIM_NETWORK_NAME,
      price: "$0.01",
    };
export const prices = { "GET /weather": told.price, "GET /forecast": "$0.02", "POST /report": "$0.03" };
const port = Number(env.PORT ?? 0);
const says = (port) => console.log(`http://127.0.0.1:${port}`);
let number = 0;
const made = (page) => (given.endsWith(".json") ? page : { ...page, number: ++number });
const weather = () => made({ weather: "sunny" });
const forecast = (city) => made({ city });
const report = ({ title }) => {
  if (title === "fail") throw new Error("no report");
  return made({ title });
};

export function withExpress(express, paid) {
  const app = express();
  app.use(paid);
  app.use(express.json());
  app.get("/weather", (_, answer) => answer.json(weather()));
  app.get("/forecast", (request, answer) => answer.json(forecast(request.query.city)));
  app.post("/report", (request, answer) => answer.json(report(request.body)));
  const listening = app.listen(port, "127.0.0.1", () => says(listening.address().port));
}

export function withHono(app, paid, serve) {
  app.use(paid);
  app.get("/weather", (context) => context.json(weather()));
  app.get("/forecast", (context) => context.json(forecast(context.req.query("city"))));
  app.post("/report", async (context) => context.json(report(await context.req.json())));
  serve({ fetch: app.fetch, port, hostname: "127.0.0.1" }, ({ port }) => says(port));
}
