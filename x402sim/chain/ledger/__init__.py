"""The chain in memory: blocks, transactions and the EIP-3009 token, deterministic."""
