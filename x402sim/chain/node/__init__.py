"""A chain behind JSON-RPC: an anvil of our own, or an existing node."""
