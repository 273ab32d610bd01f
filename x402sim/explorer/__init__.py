"""The chain explorer: what an indexer asks about a transaction hash."""
