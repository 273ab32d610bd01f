"""The tools of a case at play: requests, transfers on the chain, and the lines of the report."""

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field, replace
from typing import Any, Self

import httpx

from x402sim.http.exchange import retry_after_s
from x402sim.protocol import mcp
from x402sim.protocol.messages import decoded
from x402sim.protocol.money import base_in
from x402sim.suite import rooms
from x402sim.suite.dialect import Dialect
from x402sim.suite.drafts import lost
from x402sim.suite.money import Transfer
from x402sim.suite.redact import cut, redacted
from x402sim.suite.report.exchange import Exchange, Message
from x402sim.suite.report.results import Loss
from x402sim.suite.server.double import (
    LOOK_S,
    SETTLE,
    Double,
    Twist,
    is_answered,
    is_worked_on,
    on,
    waits,
)
from x402sim.suite.server.observed import Trade, Uses
from x402sim.suite.server.payment import (
    Payment,
    payables,
    paying,
    reason_in,
    receipt_in,
    required_in,
)
from x402sim.suite.server.raw import WHOLE, Answer, as_sent, send
from x402sim.suite.server.room import ServerRoom
from x402sim.suite.started import CLOCK
from x402sim.suite.verdict import Inconclusive, Lacking, NotApplicable, NotReady, Untold
from x402sim.text.words import counted, printable

Headers = Sequence[tuple[str, str]]
ALLOWED_BASE = 2_000_000 * 10**6
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


NOTHING = Item("GET", "/x402sim-nothing")
"""An item no server has."""
NOTHING_IN: tuple[object, ...] = (None, "", [], {})
"""The values of an empty field."""
BEGINS_S = 1.5
"""The most seconds from an answer to the end of its settlement, for a server that serves first."""
LIMITED, TRIES, MOST_WAIT_S = 429, 4, 2.0
"""The status of a server that is asked too much; how often a request is sent, and the longest
Retry-After that is waited for."""
AGAIN, PAUSE_S = 2, 0.3
"""How often a payment is sent again, and the seconds before each repetition."""
MOST_STEP = 4
"""The most runs of the handler for one payment; a number with larger steps counts another event."""
HELD_S = 0.6
"""Seconds without another call of the facilitator until no more are expected."""
UNKNOWN = (202, 409, 423, 425, 429)
"""Statuses of an unknown outcome, like every 5xx."""
ALIKE = (
    "the goods are the same for every payment, so a stored answer looks like a new answer: put a "
    "counter into the goods, or name a path that counts (--counter)"
)
UNUSED = "its receipts say that every sale used nothing: name a request that uses something"


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

    def sold(self, has: Callable[[Item], object], what: str) -> Item:
        """Return the first item that `has` something; raises `NotApplicable` without one."""
        found = next((each for each in self.items if has(each)), None)
        if found is None:
            raise NotApplicable(f"nothing that it sells has a {what}: give one with --also")
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
        shown = [f"{n}: {as_sent(text)}" for n, text in headers]
        for left in reversed(range(TRIES)):
            answer = await send(
                port or self.room.port,
                method or it.method,
                target or it.target,
                [*it.headers, *headers],
                it.content,
                self.patience_s,
                begun,
            )
            self._heard(answer, about, shown, it.body)
            wait_s = retry_after_s(answer.headers.get("retry-after"), CLOCK.now())
            if not left or answer.status != LIMITED or wait_s is None or wait_s > MOST_WAIT_S:
                break
            await self.wait(wait_s)
        return answer

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

    # --- purchases --------------------------------------------------------------------------

    async def trade(
        self,
        *twists: Twist,
        again: int = AGAIN,
        item: Item | None = None,
        payment: Payment | None = None,
    ) -> Trade:
        """Pay with a twisted facilitator; then send the same payment again, untwisted."""
        if twists:
            with suppress(Inconclusive):  # known goods show themselves in a refusal
                await self.goods(item)
        payment = payment or await self.draft(item)
        with self.double.twisted(*twists):
            before = len(self.double.calls)
            answers = [await self.pay(payment, item)]
            if answers[0].is_2xx:
                # some servers answer first and settle then
                await self.double.until(SETTLE, payment.nonce, BEGINS_S, is_answered)
            for call in self.double.calls[before:] if twists else ():
                self.say(f"the facilitator answers {call.told}")
        return await self.sent_again(payment, answers, again, item)

    async def sent_again(
        self,
        payment: Payment,
        answers: Sequence[Answer],
        again: int = AGAIN,
        item: Item | None = None,
        **how: Any,
    ) -> Trade:
        """Send a payment again until it is served; `answers` are the earlier answers to it."""
        got = list(answers)
        for _ in range(again):
            is_unpaid = not self.double.is_settled(payment.nonce)
            if got[-1].is_sale or (is_unpaid and self.has_goods(got[-1])):
                break
            await self.wait(PAUSE_S)
            got.append(await self.pay(payment, item, **how))
        return Trade(
            payment=payment,
            answers=got,
            moved=await self.moved(payment),
            settled=self.double.count(SETTLE, payment.nonce),
        )

    async def until_held(self, path: str, payment: Payment, *, after: bool = False) -> None:
        """Wait until the facilitator holds a call for a payment, `after` the call's work or before.

        Raises `NotApplicable` if the server does not make the call.
        """
        is_there = is_worked_on if after else bool
        if not await self.double.until(path, payment.nonce, self.patience_s, is_there):
            raise NotApplicable(f"it does not ask {path}")

    async def held(self, path: str, asked: Sequence[Awaitable[Answer]]) -> list[Answer]:
        """Send requests at once, while the facilitator holds the calls of a path.

        The facilitator answers when each request has led to a call, or no other came for `HELD_S`:
        a server may work off requests one by one, and a busy machine is slow.
        """
        gate, before = asyncio.Event(), self.double.count(path)
        with self.double.twisted(on(path, waits(gate))):
            answers = asyncio.gather(*asked)
            seen, looks = 0, 0  # looks, not seconds: a machine may stand still for a second
            while seen < len(asked) and looks * LOOK_S < HELD_S:
                now = self.double.count(path) - before
                seen, looks = (now, 0) if now > seen else (seen, looks + 1)
                await CLOCK.sleep(LOOK_S)
            gate.set()
            return list(await answers)

    async def times_made(self, do: Callable[[], Awaitable[object]]) -> int | None:
        """Return how often the paid handler ran during `do`, by --counter's number.

        Without --counter, a number in goods or headers counts if each payment raises the number by
        one step, at most `MOST_STEP`, and other requests do not. None without such a number.
        """
        if (before := await self.count()) is not None:
            await do()
            return (await self.count() or 0) - before
        await self.goods()  # one purchase for the room, before the count

        async def bought() -> Mapping[str, int]:
            return (await self.pay(await self.draft())).numbers

        one, two, three = [await bought() for _ in range(3)]
        steps = {name: two[name] - one[name] for name in one if name in two}
        steps = {
            n: by for n, by in steps.items() if 0 < by <= MOST_STEP and three.get(n) == two[n] + by
        }
        if steps:
            for _ in range(2):
                await self.ask(
                    NOTHING if not self.item.tool else replace(self.item, tool="nothing")
                )
            four = await bought()
            steps = {name: by for name, by in steps.items() if four.get(name) == three[name] + by}
        for name, by in steps.items():
            await do()
            last = (await bought()).get(name)
            return None if last is None else last - (four[name] + by)
        return None

    async def needs_numbers(self, other: int = 0) -> None:
        """Buy twice, unless a path counts; raises `Untold` if the goods are alike.

        Two servers may each number their own goods. A purchase from the server at port `other`, and
        one more from the first server if the numbers are equal, keep later numbers apart.
        """
        if await self.count() is not None:
            return
        first, second = [(await self.pay(await self.draft())).goods for _ in range(2)]
        if first == second:
            raise Untold(ALIKE)
        if other and (await self.pay(await self.draft(), port=other)).goods == second:
            await self.pay(await self.draft())

    async def used(self, payment: Payment, answers: Sequence[Answer], *more: Payment) -> Uses:
        """Return the uses of a payment sent several times, with the transfers of `more` payments.

        Raises `Untold` if every sale has used nothing.
        """
        moved = [each for one in (payment, *more) for each in await self.moved(one)]
        unused = [each for each in answers if each.is_sale and self.amount_told(each) == 0]
        uses = Uses(
            payment=payment, answers=answers, moved=moved, runs=await self.ran(), unused=unused
        )
        if unused and not (moved or uses.successes):
            raise Untold(UNUSED)
        return uses

    async def distinguished(
        self, payment: Payment, answers: Sequence[Answer], other: Item | None = None
    ) -> Uses:
        """Return the uses of one payment.

        Raises `Untold` if several successes have the same goods as another payment, for `other` if
        given.
        """
        uses = await self.used(payment, answers)
        goods = [each.goods for each in uses.successes]
        if uses.runs is None and len(set(goods)) < len(goods):
            now = await self.pay(
                await self.draft(other), other
            )  # goods may hold the time in seconds
            if now.goods in goods:
                raise Untold(ALIKE)
        return uses

    def amount_told(self, answer: Answer) -> int | None:
        """Return the settled amount in a receipt of `upto`, in base units; None without one."""
        receipt = self.receipt(answer)
        is_told = self.dialect is Dialect.UPTO and receipt.get("success") is True
        return base_in(receipt.get("amount")) if is_told else None

    def used_nothing(self, observed: Trade) -> bool:
        """Tell whether a receipt of `upto` says that nothing was used: then nothing need move."""
        return any(self.amount_told(each) == 0 for each in observed.answers if each.is_sale)

    def is_honest(self, answer: Answer) -> bool:
        """Tell whether an answer without goods is honest about a payment that has moved.

        Dishonest is a refusal, 402 or another 4xx outside `UNKNOWN`, with neither the transaction
        nor a reason with "pending".
        """
        if not answer.status or answer.is_server_error or answer.status in UNKNOWN:
            return True
        is_named = bool(self.receipt(answer).get("transaction"))
        return is_named or "pending" in reason_in(self.dialect, answer)

    def receipt(self, answer: Answer) -> dict[str, Any]:
        """Return the receipt in an answer; empty without a receipt."""
        return receipt_in(self.dialect, answer)

    def required(self, answer: Answer) -> dict[str, Any]:
        """Return the payment required of a 402; empty without one."""
        return required_in(self.dialect, answer) or {}

    # --- results ----------------------------------------------------------------------------

    def is_goods(self, answer: Answer, goods: Answer) -> bool:
        """Tell whether an answer resembles the paid goods: a success with the same fields.

        {"data": {}, "error": "not found"} is none of {"data": {…}, "error": null}: no object or
        list of the goods may be empty, nor all fields. A refusal, or what is no JSON object, must
        have the same text, digits aside.
        """
        if not answer.body:
            return False
        sold, got = goods.json, answer.json
        if answer.is_2xx and isinstance(sold, dict) and sold:
            if not isinstance(got, dict) or got.keys() != sold.keys():
                return False
            full = {name: value for name, value in sold.items() if value not in NOTHING_IN}
            lost = [value for name, value in full.items() if got[name] in NOTHING_IN]
            is_empty = any(isinstance(each, (dict, list)) for each in lost)
            return not is_empty and (len(lost) < len(full) or not full)
        same = answer.headers.get("content-type") == goods.headers.get("content-type")
        is_told = answer.is_2xx or len(goods.undated) > len("{}")
        return same and is_told and answer.undated == goods.undated

    def has_goods(self, answer: Answer) -> bool:
        """Tell whether a refusal has the text of bought goods."""
        sold = self.room.goods.values()
        is_told = not answer.is_2xx and not self.item.tool
        return is_told and any(self.is_goods(answer, each) for each in sold)

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
