import { onchainTable } from "ponder";

export const events = onchainTable("events", (t) => ({
  id: t.text().primaryKey(),
  block: t.integer(),
  index: t.integer(),
  name: t.text(),
  account: t.hex(),
  what: t.text(),
  balance: t.text(),
}));
