"""The rules of a service's reputation: objects with one method, which the indexer calls.

After a run of the indexer has matched payments, it updates the reputation of each resource
(6/reputation) from the payments that are in a block. The specification does not show its form.
"""

from dataclasses import dataclass
from typing import Protocol

import msgspec


class Track(msgspec.Struct, frozen=True):
    """The settled payments for a resource that are in a block, and how many were ever served.

    They are `matched`, and of them, `served`.
    """

    matched: int = 0
    served: int = 0


class Reputation(Protocol):
    """What the reputation of a resource is."""

    @property
    def counts_served(self) -> bool:
        """Whether the service must keep which payments it has served."""

    def of(self, track: Track) -> int:
        """Return the reputation; the highest is the best."""


@dataclass(frozen=True, slots=True)
class MatchedPayments:
    """The default: how many payments are in a block.

    It counts sales: a seller that takes the money and serves nobody has as much of it as an
    honest one that sells as much.
    """

    counts_served = False

    def of(self, track: Track) -> int:
        """Return the number of payments."""
        return track.matched


@dataclass(frozen=True, slots=True)
class ServedShare:
    """The share of the payments that were served, in thousandths.

    It begins at 500, as if one payment had been served and one had not: a service that nobody has
    tried is better than one that has failed, and worse than one that has not.
    """

    counts_served = True

    def of(self, track: Track) -> int:
        """Return the share in thousandths, from 0 to 1000."""
        return round(1000 * (track.served + 1) / (track.matched + 2))
