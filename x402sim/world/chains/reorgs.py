"""The reorganisations of a chain that reorganises by itself.

`Reorgs` draws from a stream how deep each is; an object of your own with its method `depths`, and
`drop`, can be given instead.
"""

from collections.abc import Collection, Iterator
from dataclasses import dataclass
from typing import Protocol

from x402sim.chain.base import Chain
from x402sim.protocol.crypto import Hash
from x402sim.rng import Stream
from x402sim.text.arguments import ZeroToOne, explained


class Reorganises(Protocol):
    """When a chain reorganises, how deep, and what it drops."""

    drop: float
    """The chance that a transaction of a replaced block is not mined again."""

    def depths(self, stream: Stream) -> Iterator[int]:
        """Yield before each new block how many of the newest are replaced; 0 is none."""


@explained
@dataclass(frozen=True, slots=True)
class Reorgs:
    """Before each new block, the newest blocks are replaced with `probability`.

    probability
        The chance of a reorganisation, before each new block.
    deeper
        The chance that one of d blocks has d + 1: a transfer with t blocks on top is undone with
        probability · deeper^t before the next block; default 0.5.
    drop
        The chance that a transaction of a replaced block is lost, and not mined again; default 1.
        Those of the token's owner, such as mints, are always mined again.
    """

    probability: ZeroToOne
    deeper: ZeroToOne = 0.5
    drop: ZeroToOne = 1.0

    def __post_init__(self) -> None:
        if self.deeper == 1:
            raise ValueError("deeper: expected less than 1, or a reorganisation has no end")

    def depths(self, stream: Stream) -> Iterator[int]:
        """Yield the depths, which are geometric."""
        while True:
            depth = int(stream.random() < self.probability)
            while depth and stream.random() < self.deeper:
                depth += 1
            yield depth


async def dropped(chain: Chain, depth: int, drop: float, stream: Stream) -> Collection[Hash]:
    """Draw which transactions of the newest blocks are lost."""
    height = await chain.height()
    blocks = [await chain.block(number) for number in range(height - depth + 1, height + 1)]
    lost = []
    for tx_hash in (tx for block in blocks if block for tx in block.tx_hashes):
        sent = await chain.transaction(tx_hash)
        if sent is not None and sent.call.sender != chain.owner and stream.random() < drop:
            lost.append(tx_hash)
    return lost
