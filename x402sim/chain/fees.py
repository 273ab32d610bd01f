"""Fees and limits of gas: those of the ledger, and of what the chains send without a signature."""

GAS_LIMIT = 200_000
"""The gas limit of a transaction without a signature: more than any call of a stablecoin needs."""
BLOCK_GAS_LIMIT = 30_000_000
PLENTY_WEI = 10**12 * 10**18
"""More native currency than anyone can spend on gas."""
