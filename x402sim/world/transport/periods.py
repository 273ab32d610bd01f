"""When a fault strikes: while a part is down that fails and is repaired, or by a schedule."""

from collections.abc import Iterator
from itertools import chain, pairwise

import msgspec

from x402sim.rng import Stream
from x402sim.text.arguments import AboveZero, ExplainedMeta, require_kind

Period = tuple[float, float]
"""From when until when: the first second that is in it, and the first that no longer is."""


class Outages(
    msgspec.Struct,
    frozen=True,
    kw_only=True,
    forbid_unknown_fields=True,
    tag_field="kind",
    tag="outages",
    metaclass=ExplainedMeta,
):
    """Periods at random: an alternating renewal process, up first.

    Up-times are exponential with mean `mtbf_s` (the mean time between the end of an outage and the
    next one), down-times exponential with mean `mttr_s` (the mean time to repair). The part is up
    when the fault is added; after a time that is long against both, it is available for a share of
    mtbf / (mtbf + mttr).

    They are drawn from the world's seed, in a stream that nothing else uses: the same periods
    whoever asks, and another `mttr_s` changes their lengths in proportion, and no up-time.

    >>> Outages(mtbf_s=3600, mttr_s=60).availability
    0.9836065573770492
    """

    mtbf_s: float
    mttr_s: float

    def __post_init__(self) -> None:
        require_kind("mtbf_s of Outages", self.mtbf_s, AboveZero)
        require_kind("mttr_s of Outages", self.mttr_s, AboveZero)

    @property
    def availability(self) -> float:
        """The share of time in which it is up, in the long run: mtbf / (mtbf + mttr)."""
        return self.mtbf_s / (self.mtbf_s + self.mttr_s)

    def periods_from(self, start_s: float, rng: Stream) -> Iterator[Period]:
        """Yield the down-times after `start_s`, without end."""
        at_s = start_s
        while True:
            from_s = at_s + rng.expovariate(1 / self.mtbf_s)
            at_s = from_s + rng.expovariate(1 / self.mttr_s)
            yield from_s, at_s


class Schedule(
    msgspec.Struct,
    frozen=True,
    forbid_unknown_fields=True,
    tag_field="kind",
    tag="schedule",
    metaclass=ExplainedMeta,
):
    """Periods that are given: pairs of seconds, from and until, from when the fault is added.

    They are in order and do not overlap. `until` itself is not in a period.

    >>> Schedule([(600, 660), (7200, 7260)])
    Schedule(periods=((600, 660), (7200, 7260)))
    """

    periods: tuple[Period, ...]

    def __post_init__(self) -> None:
        wanted = "expected pairs of seconds in order, such as Schedule([(600, 660), (7200, 7260)])"
        try:
            periods = tuple((from_s, until_s) for from_s, until_s in self.periods)
            moments = [0.0, *chain.from_iterable(periods)]
            is_right = all(before <= after < float("inf") for before, after in pairwise(moments))
            is_right &= all(from_s < until_s for from_s, until_s in periods) and bool(periods)
        except (TypeError, ValueError):
            is_right = False
        if not is_right:
            raise ValueError(f"periods of Schedule: {wanted}, got {self.periods!r}")
        msgspec.structs.force_setattr(self, "periods", periods)

    def periods_from(self, start_s: float, rng: Stream) -> Iterator[Period]:
        """Yield the periods of a fault that is added at `start_s`; draws nothing."""
        return ((start_s + from_s, start_s + until_s) for from_s, until_s in self.periods)


When = Outages | Schedule
"""When a fault strikes."""
