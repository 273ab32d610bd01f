"""Rules that choose a service: plain functions from the shops to the name of one.

Any `choose(shops) -> name` of your own is one. The shops come in an order that is drawn anew each
time, so that a rule that takes the first of several equals prefers none of them.
"""

from collections.abc import Callable, Sequence

import msgspec


class Shop(msgspec.Struct, frozen=True, kw_only=True):
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


Choose = Callable[[Sequence[Shop]], str]
"""Chooses one of the shops; returns its name."""


def cheapest(shops: Sequence[Shop]) -> str:
    """Choose the lowest price."""
    return min(shops, key=lambda shop: shop.price_base).name


def best_reputation(shops: Sequence[Shop]) -> str:
    """Choose the highest reputation."""
    return max(shops, key=lambda shop: shop.reputation).name


def mixed(share: float) -> Choose:
    """Return a rule that weighs reputation with `share` (0 to 1) and price with the rest.

    Reputations count relative to the highest, prices to the lowest. `mixed(0)` chooses the
    cheapest, `mixed(1)` the best reputation.
    """
    if not 0 <= share <= 1:
        raise ValueError(f"mixed: expected a share from 0 to 1, got {share!r}")

    def choose(shops: Sequence[Shop]) -> str:
        highest = max(shop.reputation for shop in shops) or 1
        lowest = min(shop.price_base for shop in shops)

        def score(shop: Shop) -> float:
            return share * shop.reputation / highest + (1 - share) * lowest / shop.price_base

        return max(shops, key=score).name

    return choose
