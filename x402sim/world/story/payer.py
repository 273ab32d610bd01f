"""A payer in a scenario: it buys as its policy says, or acts step by step (`PayerClient`)."""

import asyncio
from collections.abc import Sequence
from functools import partial

from x402sim.events import ServiceName
from x402sim.payer.core import PaymentFailed
from x402sim.payer.policies import Choose, ListedService
from x402sim.payer.wallet import Wallet
from x402sim.protocol.messages import Agent, AgentList, decoded
from x402sim.protocol.routes import AGENTS, QUOTE
from x402sim.rng import Stream, later
from x402sim.text.arguments import explained
from x402sim.text.printable import described
from x402sim.text.suggest import unknown
from x402sim.world.stages.stage import Stage
from x402sim.world.story.answers import Answer
from x402sim.world.story.orders import Shopper, Spending
from x402sim.world.story.payer_client import PayerClient


class Payer(PayerClient):
    """One payer at one service.

    `ask`, `sign` and `pay` are the steps of a purchase. `buy` takes them as the policy says, up to
    the receipt; `fetch` goes on until the quote is served, or spends a session. In one step the
    receipt comes with the quote.

    `http` is its httpx client, which pays by itself with an `auth`:
    `await alice.http.get("/api/perp/market", auth=PaymentAuth(alice.wallet, clock=world.clock))`.
    """

    def __init__(
        self,
        stage: Stage,
        name: str,
        wallet: Wallet,
        spending: Spending,
        service: ServiceName = "service",
    ) -> None:
        super().__init__(stage, name, wallet, service)
        if spending.policy.timeout_s is not None:
            self.http.timeout = spending.policy.timeout_s
        self._spending, self._shopper = spending, Shopper(self, spending)
        self._elsewhere: dict[ServiceName, Payer] = {}
        """This payer at other services, by service; shared by all of them."""
        self._listing_order = later(partial(stage.stream, f"shops of {name}"))

    def at(self, service: ServiceName) -> "Payer":
        """Return this payer at another service of the world: `await alice.at(other).ask()`."""
        there = self._elsewhere.get(service)
        if there is None:
            there = Payer(self.stage, self.name, self.wallet, self._spending, service)
            there._elsewhere, there._listing_order = self._elsewhere, self._listing_order
            self._elsewhere[service] = there
        there.skew_s = self.skew_s
        return there

    async def services(self) -> list[ListedService]:
        """Ask each service for its agents; return those that sell quotes, in a random order."""
        clients: dict[ServiceName, PayerClient] = {
            name: self.at(name) for name in self.stage.services
        }
        return await _look_around(clients, self._listing_order)

    async def choose(self, rule: Choose) -> "Payer":
        """Return this payer at the service that a rule chooses: `await alice.choose(cheapest)`.

        Raises `PaymentFailed` if no service lists an agent, `ValueError` for a name that is none.
        """
        return self.at(_chosen(rule, await self.services()))

    async def buy(self) -> Answer:
        """Request a quote, pay as the policy says, and return the last answer to a payment.

        Raises `PaymentFailed` without a 402, and `SpendingCapExceeded` beyond the budget.
        """
        return (await self._shopper.order(self.ask)).last

    async def fetch(self) -> Answer:
        """Get one quote as the policy says; return the last answer, whose status is 200 if served.

        It pays for it and shows the payment id, or spends a session. Without a 402, or after a
        final refusal, the answer is that one. Raises `SpendingCapExceeded` beyond the budget.
        """
        return await self._shopper.fetch()

    @explained
    async def open_session(self, deposit: str, duration: int) -> Answer:
        """Pay a deposit as the policy says, and return the answer that names the session.

        Raises as `buy`.
        """
        return await self._shopper.deposit(deposit, duration)


async def _look_around(
    clients: dict[ServiceName, PayerClient], order: Stream
) -> list[ListedService]:
    """Ask every service for its agents, at the same time; return those that sell quotes.

    They come in a random order: a rule that takes the first of equals prefers nobody.
    """
    answers = await asyncio.gather(*(each.send("GET", AGENTS) for each in clients.values()))
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


def _chosen(rule: Choose, services: Sequence[ListedService]) -> ServiceName:
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
