import { Hono } from "hono";
import { asc } from "ponder";
import { db } from "ponder:api";
import { events } from "ponder:schema";

const app = new Hono();
app.get("/rows", async (asked) => {
  const found = await db.select().from(events).orderBy(asc(events.block), asc(events.index));
  return asked.json(found.map(({ id, ...row }) => Object.values(row)));
});
export default app;
