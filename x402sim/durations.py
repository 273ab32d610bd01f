"""Durations of messages and of service: constant, exponential, lognormal, measured, or drawn by a
distribution of scipy.stats.
"""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from numbers import Real
from typing import Any, Protocol

from x402sim.rng import Stream
from x402sim.text.arguments import AboveZero, explained
from x402sim.text.words import as_given

Duration = Callable[[Stream], float]
"""Draws seconds: the way of a message in one direction, or the service of a request."""


class Quantiles(Protocol):
    """A distribution by quantiles, such as a frozen distribution of scipy.stats."""

    def ppf(self, q: float, /) -> Any:
        """Return the quantile of a probability, in seconds."""


class Variates(Protocol):
    """A distribution drawn from with a seed, as in scipy.stats."""

    def rvs(self, *, random_state: int) -> Any:
        """Return a number of seconds."""


DurationSpec = (
    float | tuple[float, float] | Sequence[float] | Quantiles | Variates | Callable[[Stream], float]
)
"""Constant seconds; (median in seconds, sigma) of a lognormal; measured seconds; a distribution
with `ppf` or `rvs`, such as a frozen distribution of scipy.stats; or a function of a random stream.
"""


@explained
@dataclass(frozen=True, slots=True, kw_only=True)
class Exponential:
    """Exponentially distributed seconds, with the mean `mean_s`: memoryless, the M of M/M/c.

    >>> from x402sim.backends import Exponential, FacilitatorSettings
    >>> FacilitatorSettings(servers=1, service_time_s=Exponential(mean_s=1.2)).service_time_s
    Exponential(mean_s=1.2)
    """

    mean_s: AboveZero

    def __call__(self, stream: Stream) -> float:
        """Draw seconds."""
        return stream.expovariate(1 / self.mean_s)


def constant(seconds: float) -> Duration:
    """Return a constant duration."""
    return lambda _: seconds


def drawn_by(draw: Callable[[Stream], Any], spec: object) -> Duration:
    """Return a duration that a function draws; raises `ValueError` for impossible seconds."""

    def duration(stream: Stream) -> float:
        drawn = draw(stream)
        try:
            seconds = float(drawn)
        except (TypeError, ValueError):
            seconds = math.nan
        if not 0 <= seconds < math.inf:
            raise ValueError(
                f"the duration {as_given(spec)} drew {as_given(drawn)}; a duration is a finite "
                "number of seconds from 0"
            )
        return seconds

    return duration


def duration_of(spec: DurationSpec) -> Duration:
    """Return the duration that a spec describes; raises `ValueError` for an invalid spec.

    A negative or infinite duration raises `ValueError` when drawn.
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
            "a duration is seconds, (median, sigma) of a lognormal, a list of measured seconds, a "
            "distribution with `ppf` or `rvs`, or a function of a random stream, not "
            f"{as_given(spec)}"
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


# --- how many requests are served at a time ---------------------------------------------------

ServiceTime = DurationSpec | Mapping[str, DurationSpec]
"""How long a server is busy with a request: with any, or by the end of its path."""


def service_times(spec: ServiceTime | None) -> dict[str, Duration]:
    """Return how long a server is busy, by the end of the request's path; "" is any path.

    Raises `ValueError` for an invalid spec.
    """
    by_path = spec if isinstance(spec, Mapping) else {"": 0.0 if spec is None else spec}
    found: dict[str, Duration] = {}
    for path, each in by_path.items():
        at = (
            f"service_time_s of {as_given(path)}" if isinstance(spec, Mapping) else "service_time_s"
        )
        try:
            found[path] = duration_of(each)
        except ValueError as wrong:
            raise ValueError(f"{at}: {wrong}") from None
    return found


def require_servers(
    servers: int | None, service_time_s: ServiceTime | None, queue_length: int | None
) -> None:
    """Raise `ValueError` for an impossible service time, and for one without servers."""
    given = {"service_time_s": service_time_s, "queue_length": queue_length}
    for name, value in given.items():
        if servers is None and value is not None:
            raise ValueError(
                f"{name}: it is for a part with so many servers: give `servers`, such as servers=1"
            )
    if not service_times(service_time_s):
        raise ValueError(
            'service_time_s: expected a time by path, such as {"/settle": 1.2}, got {}'
        )
