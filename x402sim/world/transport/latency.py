"""The latency of a link: constant, lognormal, or drawn from measurements."""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from numbers import Real
from typing import Any

from x402sim.rng import Stream

Latency = Callable[[Stream], float]
"""Draws the seconds that one message takes in one direction."""
LatencySpec = float | tuple[float, float] | Sequence[float]
"""Constant seconds; (median in seconds, sigma) of a lognormal; or measured seconds."""


def constant(seconds: float) -> Latency:
    """Return a constant latency."""
    return lambda _: seconds


def lognormal(median_s: float, sigma: float) -> Latency:
    """Return a lognormal latency: usually near the median, sometimes far above."""
    return lambda stream: median_s * stream.lognormvariate(0, sigma)


def empirical(samples_s: Sequence[float]) -> Latency:
    """Return a latency that draws from measured values."""
    samples = list(samples_s)
    return lambda stream: stream.choice(samples)


def latency_of(spec: LatencySpec) -> Latency:
    """Return the latency that a spec describes; raises `ValueError` for an invalid spec."""
    if _is_seconds(spec):
        return constant(float(spec))  # type: ignore[arg-type]
    given = [] if isinstance(spec, str | bytes | Mapping) else _listed(spec)
    if not given or not all(map(_is_seconds, given)):
        raise ValueError(
            "a latency is seconds, (median, sigma) of a lognormal, or a list of measured seconds, "
            f"not {spec!r}"
        )
    if isinstance(spec, tuple) and len(spec) == 2:
        return lognormal(*spec)
    return empirical(given)


def _listed(spec: object) -> list[Any]:
    return list(spec) if isinstance(spec, Iterable) else []


def _is_seconds(value: object) -> bool:
    if isinstance(value, bool) or not isinstance(value, Real):
        return False
    return 0 <= float(value) < math.inf
