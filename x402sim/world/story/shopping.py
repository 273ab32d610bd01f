"""Shopping in a story: a payer asks all services for their agents, and chooses one."""

import asyncio
from collections.abc import Sequence

from x402sim.events import ServiceName
from x402sim.payer.errors import PaymentFailed
from x402sim.payer.shops import Choose, Shop
from x402sim.protocol.messages import AgentList, BadMessage, decode
from x402sim.rng import Stream
from x402sim.text.printable import described
from x402sim.text.suggest import unknown
from x402sim.world.story.answers import Answer
from x402sim.world.story.payer_client import QUOTE, PayerClient


async def look_around(clients: dict[ServiceName, PayerClient], order: Stream) -> list[Shop]:
    """Ask every service for its agents, at the same time; return those that sell quotes.

    They come in a random order: a rule that takes the first of equals prefers nobody.
    """
    answers = await asyncio.gather(*(each.send("GET", "/api/agents") for each in clients.values()))
    found = [_shop(name, answer) for name, answer in zip(clients, answers, strict=True)]
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
    if not callable(rule):
        raise ValueError(
            "rule: expected a function of the shops, such as `cheapest` of x402sim.policies, got "
            f"{described(rule)}"
        )
    if not shops:
        raise PaymentFailed("no service lists an agent that sells quotes")
    name = rule(shops)
    known = [shop.name for shop in shops]
    if name not in known:
        raise ValueError(
            f"the rule {described(rule)} chose no shop: {unknown('shop', name, known)}"
        )
    return name
