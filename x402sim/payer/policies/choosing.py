"""Rules that choose a service: plain functions from the listed services to the name of one.

Any `choose(services) -> name` of your own is one. The services come in a new random order each
time, so that a rule that takes the first of several equals prefers none of them.
"""

from collections.abc import Callable, Sequence

import msgspec


class ListedService(msgspec.Struct, frozen=True, kw_only=True):
    """A service as a buyer sees it in its list of agents (GET /api/agents).

    Its `name`, the price of a quote (`price_base` units), its `reputation`, and its merchant's
    address (`pay_to`).
    """

    name: str
    """The service's name."""
    price_base: int
    """The price of a quote, in base units."""
    reputation: int
    pay_to: str
    """The merchant's address."""


Choose = Callable[[Sequence[ListedService]], str]
"""Chooses one of the services; returns its name."""


def cheapest(services: Sequence[ListedService]) -> str:
    """Choose the lowest price."""
    return min(services, key=lambda service: service.price_base).name


def best_reputation(services: Sequence[ListedService]) -> str:
    """Choose the highest reputation."""
    return max(services, key=lambda service: service.reputation).name


def mixed(share: float) -> Choose:
    """Return a rule that weighs reputation with `share` (0 to 1) and price with the rest.

    Reputations count relative to the highest, prices to the lowest. `mixed(0)` chooses the
    cheapest, `mixed(1)` the best reputation.
    """
    if not 0 <= share <= 1:
        raise ValueError(f"mixed: expected a share from 0 to 1, got {share!r}")

    def choose(services: Sequence[ListedService]) -> str:
        highest = max(service.reputation for service in services) or 1
        lowest = min(service.price_base for service in services)

        def score(service: ListedService) -> float:
            return share * service.reputation / highest + (1 - share) * lowest / service.price_base

        return max(services, key=score).name

    return choose
