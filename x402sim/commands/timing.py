"""The options of `run` for latencies, block times and the explorer's lag."""

import shlex
from dataclasses import dataclass
from typing import Annotated

import typer

from x402sim.commands.common import seconds

Latencies = Annotated[
    list[str] | None,
    typer.Option(
        "--latency",
        metavar="PART=S",
        help="Latency of one message to service, facilitator, explorer or rpc: seconds, or "
        "MEDIAN,SIGMA of a lognormal; repeatable.",
    ),
]
ExplorerLag = Annotated[
    float,
    typer.Option(parser=seconds, metavar="S", help="Seconds until the explorer shows a block."),
]


@dataclass(frozen=True, slots=True)
class Timing:
    """The options as the user typed them."""

    latency: tuple[str, ...] = ()
    block_time_s: float | None = None
    explorer_lag_s: float = 0.0

    @property
    def latencies(self) -> dict[str, float | tuple[float, ...]]:
        """The latency of each part; raises `ValueError` if it cannot be read."""
        return dict(map(_latency, self.latency))

    @property
    def options(self) -> str:
        """The options that repeat it, with a space before each; empty by default."""
        shown = "".join(f" --latency {shlex.quote(text)}" for text in self.latency)
        if self.block_time_s is not None:
            shown += f" --block-time {self.block_time_s:g}"
        return shown + (f" --explorer-lag {self.explorer_lag_s:g}" if self.explorer_lag_s else "")


def _latency(text: str) -> tuple[str, float | tuple[float, ...]]:
    part, _, given = text.partition("=")
    try:
        numbers = tuple(map(float, given.split(",")))
    except ValueError:
        numbers = ()
    if len(numbers) not in (1, 2) or not min(numbers) >= 0:
        wanted = "PART=SECONDS or PART=MEDIAN,SIGMA is needed, from 0 on"
        raise ValueError(f"--latency: {wanted}, not {text!r}")
    return part, numbers if len(numbers) == 2 else numbers[0]
