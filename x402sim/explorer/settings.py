"""The settings of the explorer of a world."""

import math
from dataclasses import dataclass

from x402sim.text.arguments import explained


@explained
@dataclass(frozen=True, slots=True, kw_only=True)
class ExplorerSettings:
    """The settings of the explorer. Raises `ValueError` for an impossible value.

    lag_s
        Seconds after its time until it shows a block.
    interval_s
        Seconds between its looks at the chain, beginning with the world; 0 shows blocks at once.
    """

    lag_s: float = 0.0
    interval_s: float = 0.0

    def __post_init__(self) -> None:
        for name in ("lag_s", "interval_s"):
            value = getattr(self, name)
            if not 0 <= value < math.inf:
                raise ValueError(f"{name}: expected seconds from 0, got {value!r}")
