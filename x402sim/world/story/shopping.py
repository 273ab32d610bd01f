"""Lets a payer of a story look at the services, and choose one."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Generic, Protocol, TypeVar

from x402sim.events import ServiceName
from x402sim.payer.errors import PaymentFailed
from x402sim.payer.shops import Choose, Shop
from x402sim.protocol.messages import AgentList, BadMessage, decode
from x402sim.rng import Stream
from x402sim.text.printable import described
from x402sim.text.suggest import unknown
from x402sim.world.story.answers import Answer

QUOTE = "/api/perp/quote"
Place = TypeVar("Place")


@dataclass(slots=True)
class Tour(Generic[Place]):
    """One payer at each service it has been to, and the order in which it looks at shops."""

    clients: dict[ServiceName, Place] = field(default_factory=dict)
    order: Stream | None = None


class Buyer(Protocol):
    """A payer at one service."""

    async def send(self, method: str, path: str) -> Answer:
        """Send one request to the service."""


async def look_around(buyers: dict[ServiceName, Buyer], order: Stream) -> list[Shop]:
    """Ask every service for its agents, at the same time; return those that sell quotes.

    They come in a random order: a rule that takes the first of equals prefers nobody.
    """
    answers = await asyncio.gather(*(each.send("GET", "/api/agents") for each in buyers.values()))
    found = [_shop(name, answer) for name, answer in zip(buyers, answers, strict=True)]
    shops = [shop for shop in found if shop is not None]
    order.shuffle(shops)
    return shops


def _shop(name: ServiceName, answer: Answer) -> Shop | None:
    if answer.status != 200:
        return None
    try:
        listed: AgentList = decode(answer.text.encode(), AgentList)
    except BadMessage:
        return None
    sellers = (each for each in listed.agents if each.resource == QUOTE)
    agent = next(sellers, None)
    if agent is None:
        return None
    return Shop(
        name=name,
        price_base=int(agent.price),
        reputation=agent.reputation,
        pay_to=agent.pay_to,
    )


def chosen(rule: Choose, shops: Sequence[Shop]) -> ServiceName:
    """Return the service that a rule chooses; raises `PaymentFailed` and `ValueError`."""
    if not shops:
        raise PaymentFailed("no service lists an agent that sells quotes")
    name = rule(shops)
    known = [shop.name for shop in shops]
    if name not in known:
        raise ValueError(
            f"the rule {described(rule)} chose no shop: {unknown('shop', name, known)}"
        )
    return name
