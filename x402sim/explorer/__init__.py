"""The chain explorer, which the indexer queries for transactions."""
