"""The tools of a case at play: requests, transfers on the chain, and the lines of the report."""

import asyncio
import json
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from typing import Any, Self

import httpx

from x402sim.protocol import mcp
from x402sim.protocol.messages import decoded
from x402sim.report.exchange import Exchange, Message
from x402sim.report.results import Loss
from x402sim.suite import rooms
from x402sim.suite.drafts import lost
from x402sim.suite.money import Transfer
from x402sim.suite.redact import cut, redacted
from x402sim.suite.server.double import Double
from x402sim.suite.server.payment import Dialect, Payment, payables, paying, required_in
from x402sim.suite.server.raw import WHOLE, Answer, as_sent, send
from x402sim.suite.server.room import ServerRoom
from x402sim.suite.started import CLOCK
from x402sim.suite.verdict import Inconclusive, Lacking, NotApplicable, NotReady
from x402sim.text.words import counted, printable

Headers = Sequence[tuple[str, str]]
ALLOWED_BASE = 1000 * 10**6
"""What each payer lets Permit2 take: all that it has."""
COUNTER = "counter"
"""The option with the path that counts runs of handlers."""


@dataclass(frozen=True, slots=True)
class Item:
    """An item for sale: a request, and with a payment the request buys the item."""

    method: str
    target: str
    body: str = ""
    tool: str = ""
    """The name of a tool of the MCP server at the target; the body is the tool's arguments."""
    used: str = ""
    """The amount that the item uses if it is sold `upto`, in tokens; empty if unknown."""

    @property
    def call(self) -> mcp.Call:
        """The call of a tool."""
        return mcp.Call(self.tool, decoded(self.body.encode()) if self.body else {})

    @property
    def place(self) -> tuple[str, str]:
        """The identity of the item: path and tool."""
        return self.path, self.tool

    @property
    def path(self) -> str:
        """The path, without the query."""
        return self.target.partition("?")[0]

    @property
    def shown(self) -> str:
        """The item in the words of the command line."""
        method = "" if self.method == "GET" else self.method
        return " ".join(filter(None, (method, self.target, self.tool, self.body)))

    @property
    def content(self) -> bytes | None:
        """The body of the request; None without one."""
        return self.body.encode() if self.body else None

    @property
    def headers(self) -> Headers:
        """The headers of the body."""
        return [("Content-Type", "application/json")] if self.body else []


@dataclass(slots=True, kw_only=True, eq=False)
class Play(rooms.Play[ServerRoom, Answer]):
    """The tools of a case: a room, a dialect, the items for sale, and the record so far."""

    dialect: Dialect
    items: Sequence[Item]
    handlers: Mapping[str, Item] = field(default_factory=dict)
    """Items with a special handler, by the name of the option, such as `failing`."""
    metered: Sequence[Item] = ()
    """Items sold `upto` whose amount used is known."""
    restarts: bool = True
    """Whether the server may be killed and started again."""
    nonces: set[str] = field(default_factory=set)
    """The nonces of the case's payments, in small letters."""
    counted: int | None = None
    """The number at --counter's path before the last payment was drafted."""

    async def ready(self) -> Self:
        """Note the height of the chain."""
        self.since = await self.room.height()
        return self

    @property
    def item(self) -> Item:
        """The item to buy."""
        return self.items[0]

    @property
    def other(self) -> Item:
        """Another item, at another path or of another tool.

        Raises `NotApplicable` without one.
        """
        found = next((each for each in self.items[1:] if each.place != self.item.place), None)
        if found is None:
            what = "tools" if self.item.tool else "paths"
            raise NotApplicable(f"it needs two paid {what}: give another with --also")
        return found

    def handled(self, option: str) -> Item:
        """Return the item of an option; raises `NotApplicable` without an item."""
        if option not in self.handlers:
            raise NotApplicable(f"the case needs a {option} request: give one with --{option}")
        return self.handlers[option]

    def needs_restarts(self) -> None:
        """Do nothing, or raise `Lacking` if the server may not be killed."""
        if not self.restarts:
            raise Lacking("it is not killed and started again: --restart yes, with --start COMMAND")

    async def start_again(self) -> None:
        """Start a killed server again; raises `Inconclusive` if the start fails."""
        try:
            await self.room.start()
        except NotReady as why:
            raise Inconclusive(f"it does not start again: {why}") from why

    @property
    def replica(self) -> int:
        """The port of the other server of one deployment."""
        assert self.room.replica is not None
        return self.room.replica.port

    @property
    def double(self) -> Double:
        """The facilitator."""
        return self.room.double

    # --- requests ---------------------------------------------------------------------------

    async def ask(
        self,
        item: Item | None = None,
        headers: Headers = (),
        *,
        method: str = "",
        target: str = "",
        port: int = 0,
        begun: asyncio.Event | None = None,
        about: str = "",
    ) -> Answer:
        """Send a request, by default for the item; never raises for the server's behaviour.

        `port` replaces the server's port; `begun` is set when a body begins to arrive; `about`
        begins the request's line in the report.
        """
        it = item or self.item
        if it.tool:
            params = mcp.params_of(it.call, httpx.Headers([*headers]))
            return await self.call(params, it, port=port, begun=begun, about=about)
        answer = await send(
            port or self.room.port,
            method or it.method,
            target or it.target,
            [*it.headers, *headers],
            it.content,
            self.patience_s,
            begun,
        )
        return self._heard(answer, about, [f"{n}: {as_sent(text)}" for n, text in headers], it.body)

    async def call(
        self,
        params: Mapping[str, Any],
        item: Item | None = None,
        headers: Headers = (),
        *,
        port: int = 0,
        begun: asyncio.Event | None = None,
        about: str = "",
    ) -> Answer:
        """Call a tool with these parameters; never raises for the server's behaviour."""
        wire = self.room.wire((item or self.item).target, port)
        answer = await wire.call(params, self.patience_s, headers, begun)
        shown = printable(cut(redacted(json.dumps(params, default=str)), 2 * WHOLE))
        return self._heard(answer, about, (), shown)

    def _heard(self, answer: Answer, about: str, headers: Sequence[str], body: str) -> Answer:
        """Keep an answer, also for the report: there only the first offer is whole."""
        with_offer = answer.has_offer and not any(each.has_offer for each in self.answers)
        self.answers.append(answer)
        sent = Message(answer.sent, tuple(headers), body, short=answer.sent)
        self.exchanges.append(Exchange(about, sent, answer.message(with_offer=with_offer)))
        return answer

    async def draft(self, item: Item | None = None, **how: Any) -> Payment:
        """Ask for an item, and return a good payment of the offer."""
        return (await self.drafts(item, **how))[0]

    async def drafts(self, item: Item | None = None, **how: Any) -> list[Payment]:
        """Ask for an item, and return a good payment of each payable offer, at least one."""
        answer = await self.ask(item, **how)
        offers = [*payables(self.dialect, answer, self.room.network)]
        if answer.status != 402 or not offers:
            raise Inconclusive(f"it offers nothing that can be paid: {answer.how}")
        required = required_in(self.dialect, answer) or {}
        if self.dialect.by_permit2:
            for wallet in self.room.world.wallets:
                await self.room.allow(wallet.address_bytes, ALLOWED_BASE)
        payments = [
            paying(
                self.dialect,
                self.room.network,
                self.room.payer,
                required,
                offer,
                CLOCK.now_s(),
                self.draw(),
            )
            for offer in offers
        ]
        self.nonces |= {payment.nonce.lower() for payment in payments}
        self.counted = await self.count()
        return payments

    async def pay(
        self,
        payment: Payment,
        item: Item | None = None,
        headers: Headers = (),
        *,
        about: str = "",
        **how: Any,
    ) -> Answer:
        """Ask for an item with a payment."""
        about = ": ".join(filter(None, (about, f"paying {payment.nonce[:12]}…")))
        return await self.ask(item, [payment.header, *headers], about=about, **how)

    @asynccontextmanager
    async def leaving(
        self, payment: Payment, item: Item | None = None, **how: Any
    ) -> AsyncIterator[asyncio.Task[Answer]]:
        """Ask for an item with a payment, and hang up at the end of a `with` block."""
        paying = asyncio.create_task(self.pay(payment, item, **how))
        try:
            yield paying
        finally:
            if not paying.done():
                self.say(f"paying {payment.nonce[:12]}…: the client hangs up")
            paying.cancel()
            with suppress(asyncio.CancelledError):
                await paying

    async def at_once(self, payments: Sequence[Payment]) -> list[Answer]:
        """Send a request with each of these payments, all at once."""
        return list(await asyncio.gather(*(self.pay(each) for each in payments)))

    async def goods(self, item: Item | None = None) -> Answer:
        """Return the answer to a good payment of an item in this room; raises `Inconclusive`."""
        it = item or self.item
        key = (str(self.dialect), it.shown)
        if key not in self.room.goods:
            answer = await self.pay(await self.draft(it), it)
            if not answer.is_2xx:
                raise Inconclusive(f"a good payment was not served: {answer.how}")
            self.room.goods[key] = answer
        return self.room.goods[key]

    async def count(self) -> int | None:
        """Return the number of handler runs from --counter's path; None without the option.

        None also for two servers, which may count separately. Raises `Inconclusive`.
        """
        if COUNTER not in self.handlers or self.room.replica is not None:
            return None
        answer = await self.ask(self.handlers[COUNTER], about="the counter")
        body = [each for name, each in answer.numbers.items() if not name.startswith("header")]
        if not answer.is_2xx or len(body) != 1:
            raise Inconclusive(f"what --{COUNTER} names answers no single number: {answer.how}")
        return body[0]

    async def ran(self) -> int | None:
        """Return how often handlers have run since the last draft of a payment; None if unknown."""
        now = await self.count()
        return None if now is None or self.counted is None else now - self.counted

    # --- results ----------------------------------------------------------------------------

    def is_goods(self, answer: Answer, goods: Answer) -> bool:
        """Tell whether an answer resembles the paid goods: a success with the same fields.

        An answer that is no JSON object must have the same text, digits aside.
        """
        if not answer.is_2xx or not answer.body:
            return False
        sold, got = goods.json, answer.json
        if isinstance(sold, dict) and sold:
            return isinstance(got, dict) and got.keys() == sold.keys()
        same = answer.headers.get("content-type") == goods.headers.get("content-type")
        return same and answer.undated == goods.undated

    async def moved(self, payment: Payment | None = None) -> list[Transfer]:
        """Return the transfers of this case's payments, or of one payment.

        Transfers of earlier cases are left out: some servers settle late.
        """
        mine = self.nonces if payment is None else {payment.nonce.lower()}
        found = [each for each in await self.room.moved(self.since) if each.nonce in mine]
        base = sum(each.amount_base for each in found)
        by = "the payments of this case" if payment is None else f"{payment.nonce[:12]}…"
        self.say(
            f"on the chain, by {by}: {counted(len(found), 'transfer')} of {base}",
            found,
        )
        return found

    def tokens(self, base: int, why: str) -> Loss:
        """Return a loss in base units of the token."""
        return lost(self.room.network, base, why)

    @property
    def is_silent(self) -> bool:
        """Whether an answer is missing."""
        return any(not each.status for each in self.answers)
