"""The parts of a world by name; its services: merchants, networks, and what a payer chooses."""

import asyncio
from collections.abc import Collection, Sequence

from x402sim import events
from x402sim.events import ServiceName
from x402sim.payer.core import PaymentFailed
from x402sim.payer.policies import Choose, ListedService
from x402sim.protocol.crypto import checksum
from x402sim.protocol.messages import Agent, AgentList, decoded
from x402sim.rng import Stream
from x402sim.text.printable import described
from x402sim.text.suggest import unknown
from x402sim.world.stages.stage import OpenStage
from x402sim.world.story.answers import Answer
from x402sim.world.story.payer_client import QUOTE, PayerClient


def parts_of(stage: OpenStage) -> frozenset[events.Part]:
    """Return the names of all that acts without the story: services, facilitators, and so on."""
    parts = stage.parts
    named = (*parts.services, *parts.recipe.facilitators) if parts else ()
    return frozenset((*named, *stage.services, *events.OUTSIDE, "service", "chain"))


def require_new(stage: OpenStage, payers: Collection[str], name: str) -> None:
    """Raise `ValueError` for the name of a payer or a part that is there already."""
    if name in payers:
        raise ValueError(f"there is a payer named {name!r} already; names are unique")
    if name in parts_of(stage):
        raise ValueError(f"there is a part named {name!r}: give the payer another name")


def merchants(stage: OpenStage, first: str) -> dict[ServiceName, str]:
    """Return the merchant's address of each service, given that of the first."""
    ours = stage.parts.services if stage.parts else {}
    found = {name: checksum(each.process.service.env.pay_to) for name, each in ours.items()}
    return found | {stage.first: first}


def accounts(stage: OpenStage, first: str, service: str | None) -> frozenset[str]:
    """Return the addresses of all merchants, or of one service's; raises `ValueError`."""
    found = merchants(stage, first)
    name = stage.first if service == "service" else service
    if name is not None and name not in found:
        raise ValueError(unknown("service", name, found))
    return frozenset(found.values() if name is None else [found[name]])


async def look_around(
    clients: dict[ServiceName, PayerClient], order: Stream
) -> list[ListedService]:
    """Ask every service for its agents, at the same time; return those that sell quotes.

    They come in a random order: a rule that takes the first of equals prefers nobody.
    """
    answers = await asyncio.gather(*(each.send("GET", "/api/agents") for each in clients.values()))
    listed = []
    for name, answer in zip(clients, answers, strict=True):
        agent = next((each for each in _agents(answer) if each.resource == QUOTE), None)
        if agent is not None:
            listed.append(
                ListedService(
                    name=name,
                    price_base=int(agent.price),
                    reputation=agent.reputation,
                    pay_to=agent.pay_to,
                )
            )
    order.shuffle(listed)
    return listed


def _agents(answer: Answer) -> Sequence[Agent]:
    """Return the agents that an answer lists; none if it is no list of them."""
    listed: AgentList | None = decoded(answer.text.encode(), AgentList)
    return listed.agents if listed is not None and answer.status == 200 else ()


def chosen(rule: Choose, services: Sequence[ListedService]) -> ServiceName:
    """Return the service that a rule chooses; raises `PaymentFailed` and `ValueError`."""
    if not callable(rule):
        raise ValueError(
            "rule: expected a function of the services, such as `cheapest` of x402sim.policies, "
            f"got {described(rule)}"
        )
    if not services:
        raise PaymentFailed("no service lists an agent that sells quotes")
    name = rule(services)
    known = [service.name for service in services]
    if not isinstance(name, str):
        raise ValueError(
            f"the rule {described(rule)} returns the name of a service, such as {known[0]!r}, and "
            f"not {described(name)}"
        )
    if name not in known:
        raise ValueError(
            f"the rule {described(rule)} chose no listed service: {unknown('service', name, known)}"
        )
    return name
