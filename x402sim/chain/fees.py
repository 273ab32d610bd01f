"""Fees and limits of gas: those of the ledger, and of what the chains send without a signature."""

BASE_FEE_WEI = 5_000 * 10**9
"""The base fee of every block: 5000 gwei, Cronos's minimum. Less where the gas price is less."""
GAS_PRICE_WEI = BASE_FEE_WEI
"""What a transaction without a signature pays for a unit of gas: the base fee, and no tip."""
GAS_LIMIT = 200_000
"""The gas limit of such a transaction: more than any call of a stablecoin needs."""
BLOCK_GAS_LIMIT = 30_000_000
PLENTY_WEI = 10**12 * 10**18
"""More native currency than anyone can spend on gas."""


def usual_gas_price() -> int:
    """Return the price of one unit of gas, in wei, where it never changes."""
    return GAS_PRICE_WEI
