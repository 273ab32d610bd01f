"""A payer in a scenario: it buys as its policy says, or acts step by step (`PayerClient`)."""

from functools import partial

from x402sim.events import ServiceName
from x402sim.payer.policies import Choose, ListedService
from x402sim.payer.wallet import Wallet
from x402sim.rng import later
from x402sim.text.arguments import explained
from x402sim.world.stages.stage import OpenStage
from x402sim.world.story import market
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
        stage: OpenStage,
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
        return await market.look_around(clients, self._listing_order)

    async def choose(self, rule: Choose) -> "Payer":
        """Return this payer at the service that a rule chooses: `await alice.choose(cheapest)`.

        Raises `PaymentFailed` if no service lists an agent, `ValueError` for a name that is none.
        """
        return self.at(market.chosen(rule, await self.services()))

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
