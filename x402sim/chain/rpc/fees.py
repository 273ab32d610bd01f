"""The methods about fees. Tips are what was bid above the base fee."""

from collections.abc import Sequence
from typing import Any

from x402sim.chain.base import Block, ChainError
from x402sim.chain.fees import BLOCK_GAS_LIMIT
from x402sim.chain.rpc.context import RpcContext, number
from x402sim.protocol.rpc_values import BadParams, Json, quantity, read_quantity, shown

MAX_FEE_HISTORY = 1024
MAX_PERCENTILES = 100


async def gas_price(rpc: RpcContext) -> Any:
    """Return the price of one unit of gas in wei; it is all base fee."""
    return quantity(await rpc.chain.gas_price())


async def priority_fee(rpc: RpcContext) -> Any:
    """Return zero: a tip is not needed."""
    return quantity(0)


async def fee_history(rpc: RpcContext, count: Any, newest: Any, percentiles: Any = None) -> Json:
    """Return base fees, how full the blocks were, and the tips at some percentiles of gas."""
    size = count if type(count) is int else read_quantity(count, "count")
    if not 1 <= size <= MAX_FEE_HISTORY:
        raise BadParams(f"count: expected 1 to {MAX_FEE_HISTORY}, got {size}")
    wanted = _percentiles(percentiles)
    last = await number(rpc, newest)
    head = await rpc.chain.height()
    if last > head:
        raise ChainError(f"block {last} is not mined yet; the newest is block {head}")
    numbers = range(max(0, last - size + 1), last + 1)
    blocks = [block for n in numbers if (block := await rpc.chain.block(n))]
    after = await rpc.chain.block(last + 1) or rpc.chain.pending_block()
    tips = {} if wanted is None else {"reward": [await _tips(rpc, b, wanted) for b in blocks]}
    return {
        "oldestBlock": quantity(numbers.start),
        "baseFeePerGas": [quantity(b.base_fee_wei) for b in (*blocks, after)],
        "gasUsedRatio": [b.gas_used / BLOCK_GAS_LIMIT for b in blocks],
        **tips,
    }


def _percentiles(given: Any) -> list[float] | None:
    """Return percentiles, from 0 to 100 and ascending; raises `BadParams`."""
    if given is None:
        return None
    several = given if isinstance(given, list) else [None]
    numbers = [p for p in several if isinstance(p, int | float) and not isinstance(p, bool)]
    is_fit = len(numbers) == len(several) <= MAX_PERCENTILES and numbers == sorted(numbers)
    if not is_fit or any(not 0 <= p <= 100 for p in numbers):
        raise BadParams(
            f"percentiles: expected a list of at most {MAX_PERCENTILES} numbers from 0 to 100, "
            f"ascending, got {shown(given)}"
        )
    return numbers


async def _tips(rpc: RpcContext, block: Block, percentiles: Sequence[float]) -> list[Any]:
    """Return the tip of the transaction in which each percentile of a block's gas falls."""
    found = [await rpc.chain.receipt(tx_hash) for tx_hash in block.tx_hashes]
    paid = sorted((each.gas_price - block.base_fee_wei, each.gas_used) for each in found if each)
    return [quantity(_tip(paid, block.gas_used * p / 100)) for p in percentiles]


def _tip(paid: list[tuple[int, int]], threshold: float) -> int:
    together = 0
    for tip_wei, gas_used in paid:
        together += gas_used
        if together >= threshold:
            return tip_wei
    return 0
