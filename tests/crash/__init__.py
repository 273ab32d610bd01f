"""Real crashes: `serve --db` and `service --db` are killed under load, and the ledger is audited."""
