"""The chain: `base` is its interface, `ledger` the one in memory, `node` one behind JSON-RPC."""
