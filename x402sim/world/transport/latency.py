"""The latency of a link: constant, lognormal, measured, or a distribution of the user's own."""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from numbers import Real
from typing import Any, Protocol

from x402sim.rng import Stream
from x402sim.text.printable import described

Latency = Callable[[Stream], float]
"""Draws the seconds that one message takes in one direction."""


class Quantiles(Protocol):
    """A distribution by its quantiles, such as a frozen one of scipy.stats."""

    def ppf(self, q: float, /) -> Any:
        """Return the quantile of a probability, in seconds."""


class Variates(Protocol):
    """A distribution that is drawn from with a seed, as those of scipy.stats."""

    def rvs(self, *, random_state: int) -> Any:
        """Return a number of seconds."""


LatencySpec = (
    float | tuple[float, float] | Sequence[float] | Quantiles | Variates | Callable[[Stream], float]
)
"""Constant seconds; (median in seconds, sigma) of a lognormal; measured seconds; a distribution
with `ppf` or `rvs`, such as a frozen one of scipy.stats; or a function of a random stream."""


def constant(seconds: float) -> Latency:
    """Return a constant latency."""
    return lambda _: seconds


def drawn_by(draw: Callable[[Stream], Any], spec: object) -> Latency:
    """Return a latency that a function draws, which raises `ValueError` for impossible seconds."""

    def latency(stream: Stream) -> float:
        drawn = draw(stream)
        try:
            seconds = float(drawn)
        except (TypeError, ValueError):
            seconds = math.nan
        if not 0 <= seconds < math.inf:
            raise ValueError(
                f"the latency {described(spec)} drew {drawn!r}; a latency is a finite number of "
                "seconds from 0"
            )
        return seconds

    return latency


def latency_of(spec: LatencySpec) -> Latency:
    """Return the latency that a spec describes; raises `ValueError` for an invalid spec.

    A drawn latency that is negative or not finite raises `ValueError` when it is drawn.
    """
    if _is_distribution(spec, "ppf"):
        return drawn_by(lambda stream: spec.ppf(stream.random()), spec)  # type: ignore[union-attr]
    if _is_distribution(spec, "rvs"):
        return drawn_by(lambda stream: spec.rvs(random_state=stream.getrandbits(32)), spec)  # type: ignore[union-attr]
    if callable(spec) and not isinstance(spec, type):
        return drawn_by(spec, spec)
    if _is_seconds(spec):
        return constant(float(spec))  # type: ignore[arg-type]
    is_listed = isinstance(spec, Iterable) and not isinstance(spec, str | bytes | Mapping)
    given: list[Any] = list(spec) if is_listed else []  # type: ignore[arg-type]
    if not given or not all(map(_is_seconds, given)):
        raise ValueError(
            "a latency is seconds, (median, sigma) of a lognormal, a list of measured seconds, a "
            "distribution with `ppf` or `rvs`, or a function of a random stream, not "
            f"{described(spec)}"
        )
    if isinstance(spec, tuple) and len(spec) == 2:
        median_s, sigma = spec
        return lambda stream: median_s * stream.lognormvariate(0, sigma)
    return lambda stream: stream.choice(given)


def _is_distribution(spec: object, method: str) -> bool:
    return not isinstance(spec, type) and callable(getattr(spec, method, None))


def _is_seconds(value: object) -> bool:
    if isinstance(value, bool) or not isinstance(value, Real):
        return False
    return 0 <= float(value) < math.inf
