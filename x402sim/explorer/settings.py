"""The settings of the explorer of a world."""

from dataclasses import dataclass

from x402sim.text.arguments import FromZero, explained


@explained
@dataclass(frozen=True, slots=True, kw_only=True)
class ExplorerSettings:
    """The settings of the explorer. Raises `ValueError` for an impossible value.

    lag_s
        Seconds after its time until it shows a block.
    interval_s
        Seconds between its looks at the chain, beginning with the world; 0 shows blocks at once.
    """

    lag_s: FromZero = 0.0
    interval_s: FromZero = 0.0
