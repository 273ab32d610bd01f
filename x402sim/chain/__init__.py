"""Chain backends: `base` is the interface, `ledger` a chain in memory, `node` a JSON-RPC node."""
