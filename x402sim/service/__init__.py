"""The service of the specification: payment gate, settlement, sessions, indexer."""
