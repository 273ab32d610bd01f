"""The tools of a case at play: requests, looks at the chain, and the lines of the report."""

import asyncio
import hashlib
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, replace
from typing import Any, Self

import httpx

from x402sim.chain.base import Call
from x402sim.clock import stopwatch
from x402sim.http.bounded import Limits, receive
from x402sim.http.exchange import retry_after_s
from x402sim.payer.wallet import Wallet
from x402sim.protocol import abi
from x402sim.protocol.crypto import Address, PrivateKey, from_hex, parse_address, sign
from x402sim.protocol.eip3009 import cancel_digest
from x402sim.protocol.messages import decoded, encode
from x402sim.protocol.permit2 import PERMIT2
from x402sim.protocol.permit2_payments import FACILITATOR, UPTO
from x402sim.suite import rooms
from x402sim.suite.dialect import BY_PERMIT2, Dialect
from x402sim.suite.facilitator.payment import PRICE_BASE, Answer, Draft, drafted
from x402sim.suite.facilitator.room import BALANCE_BASE, FacilitatorRoom, Money
from x402sim.suite.money import Transfer
from x402sim.suite.redact import redacted
from x402sim.suite.report.exchange import Exchange, Message
from x402sim.suite.started import CLOCK
from x402sim.suite.verdict import Inconclusive
from x402sim.text.words import counted, printable

MOST_BYTES = 1 << 22
"""The most bytes read of an answer."""
SHOWN = 700
"""The most characters of a request in a report."""


LONG_S = 200.0
"""Seconds for a settlement without a receipt: the public facilitators wait up to 180 s."""
SENDS_S = 5.0
"""Seconds that a play waits for the relayer's transaction, before the play goes on without."""
LOOK_S = 0.02
BUSY, BUSY_S = 429, 60.0
"""The status of a busy facilitator, and the most seconds of waiting in one request."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Observed:
    """Payments, the answers to each request, and the state of the chain in the end.

    `early` is the state of the chain at the first answer, if a play looked then.
    """

    pairs: tuple[tuple[Draft, Answer], ...]
    money: Money
    early: Money | None = None
    verified: Answer | None = None

    @property
    def all_answers(self) -> list[Answer]:
        """The answers."""
        return [answer for _, answer in self.pairs]

    @property
    def demand_on_settle(self) -> str:
        """The demand on settle after the answer of verify; empty without verify."""
        return self.verified.demand_on_settle if self.verified else ""

    @property
    def summary(self) -> str:
        """The answers, and the state of the chain."""
        hows = [f"settle: {answer.how}" for _, answer in self.pairs[:4]]
        more = [f"and {counted(len(self.pairs) - 4, 'answer')} more"] if len(self.pairs) > 4 else []
        return "; ".join([*hows, *more, self.money.summary])

    @property
    def drafts(self) -> list[Draft]:
        """The payments, each once."""
        found: list[Draft] = []
        for draft, _ in self.pairs:
            if all(draft.auth != each.auth for each in found):
                found.append(draft)
        return found

    def answers(self, draft: Draft) -> list[Answer]:
        """Return the answers to a payment."""
        return [answer for each, answer in self.pairs if each.auth == draft.auth]

    def moved(self, draft: Draft, money: Money | None = None) -> list[Transfer]:
        """Return the transfers of a payment."""
        auth = draft.auth
        its = auth.from_, auth.to, auth.value
        moved = (money or self.money).moved
        return [each for each in moved if (each.sender, each.to, each.amount_base) == its]


@dataclass(frozen=True, slots=True, kw_only=True)
class Tried:
    """The outcome of a payment: verified, and settled whatever verify said.

    `money` is what the chain shows. `about` names the payment in a play with several.
    """

    draft: Draft
    verified: Answer
    settled: Answer
    money: Money
    about: str = ""


@dataclass(slots=True, kw_only=True, eq=False)
class Play(rooms.Play[FacilitatorRoom, Answer]):
    """The tools of a case: a room, a dialect, and the record so far."""

    dialect: Dialect
    sent_before: int = 0
    """The relayer's transactions before the play."""

    async def ready(self) -> Self:
        """Note the height of the chain."""
        self.since = await self.room.chain.height()
        self.sent_before = len(self.room.node.sent)
        return self

    # --- payments ---------------------------------------------------------------------------

    def payee(self) -> Address:
        """Return the new account of a shop, without money."""
        return PrivateKey(self.draw()).address

    @property
    def now_s(self) -> int:
        """The chain's time in whole Unix seconds: our time, unless a case has moved the clock."""
        return self.room.clock.now_s()

    @property
    def wall_s(self) -> int:
        """Our own time in whole Unix seconds."""
        return CLOCK.now_s()

    async def draft(
        self, payer: Wallet | None = None, *, allowed_base: int = BALANCE_BASE
    ) -> Draft:
        """Return a good payment of a new payer, or of `payer`, who has allowed Permit2 so much.

        If the chain's clock differs from ours, the payment's window is open by both clocks.
        """
        payer = payer or await self.room.payer()
        if self.dialect in BY_PERMIT2:
            await self.room.allow(payer.address_bytes, allowed_base)
        return drafted(
            self.dialect,
            self.room.network,
            payer,
            self.payee(),
            (self.now_s, self.wall_s),
            hashlib.sha256(self.draw()).digest(),
            PRICE_BASE,
            await self.facilitator() if self.dialect is Dialect.UPTO else None,
        )

    async def facilitator(self) -> Address:
        """Return the account that settles `upto`, as GET /supported names it.

        Raises `Inconclusive` without one.
        """
        if self.room.account is None:
            kinds = (await self.get(self.dialect.supported_path)).fields.get("kinds")
            for kind in kinds if isinstance(kinds, list) else []:
                with suppress(AttributeError, TypeError, KeyError, ValueError):
                    if (kind["scheme"], kind["network"]) == (UPTO, self.room.network.caip2):
                        self.room.account = parse_address(kind["extra"][FACILITATOR])
        if self.room.account is None:
            raise Inconclusive(f"GET /supported lists no {UPTO} with extra.{FACILITATOR}")
        return self.room.account

    # --- requests ---------------------------------------------------------------------------

    async def verify(self, draft: Draft) -> Answer:
        """Ask whether a payment is valid."""
        return await self.post(self.dialect.verify_path, draft.content)

    async def settle(self, draft: Draft, *, patience_s: float | None = None) -> Answer:
        """Ask to settle a payment."""
        return await self.post(self.dialect.settle_path, draft.content, patience_s=patience_s)

    async def post(
        self,
        path: str,
        content: bytes,
        headers: Mapping[str, str] | None = None,
        *,
        patience_s: float | None = None,
    ) -> Answer:
        """Post bytes; `headers` replace the dialect's."""
        own = self.dialect.headers if headers is None else headers
        return await self.ask("POST", path, content, own, patience_s=patience_s)

    async def get(self, path: str) -> Answer:
        """Ask for a page, such as /supported."""
        return await self.ask("GET", path)

    async def ask(
        self,
        method: str,
        path: str,
        content: bytes = b"",
        headers: Mapping[str, str] | None = None,
        *,
        patience_s: float | None = None,
    ) -> Answer:
        """Send a request, later again while the facilitator is busy.

        Never raises for the facilitator's behaviour.
        """
        begun, most_s = stopwatch(), patience_s or self.patience_s
        limits, found = Limits(max_answer_bytes=MOST_BYTES, deadline_s=most_s), dict[str, Any]()
        try:
            http = self.room.http
            while True:
                elapsed = stopwatch()
                request = http.build_request(
                    method, self.room.url + path, content=content, headers=headers, timeout=most_s
                )
                got = await receive(http.send(request, stream=True), limits)
                wait_s = retry_after_s(got.headers.get("retry-after"), CLOCK.now()) or 1.0
                if got.status_code != BUSY or self.room.is_busy or begun() + wait_s > BUSY_S:
                    break
                await self.wait(wait_s)
            self.room.is_busy = got.status_code == BUSY
            text = got.content.decode("utf-8", "replace")
            found = {"status": got.status_code, "json": decoded(got.content), "text": text}
        except httpx.TimeoutException:
            found |= {"failure": f"none within {most_s:g} s", "is_late": True}
        except httpx.HTTPError as error:
            found["failure"] = self.room.has_ended or repr(error)[:200]
        answer = Answer(dialect=self.dialect, path=path, seconds=elapsed(), **found)
        self.answers.append(answer)
        sent = Message(f"{method} {path}", body=_shown(content))
        self.exchanges.append(Exchange(request=sent, answer=answer.message))
        return answer

    # --- results ----------------------------------------------------------------------------

    async def money(self) -> Money:
        """Return the transfers, and the relayer's transactions, since the case began."""
        return await self.room.money(self.since, self.sent_before)

    def saw(self, money: Money) -> None:
        """Write for the report what moved."""
        self.say(money.summary, money.moved)

    @property
    def is_silent(self) -> bool:
        """Whether the last answer is missing."""
        return bool(self.answers) and not self.answers[-1].status

    # --- the steps of plays ----------------------------------------------------------------

    async def observe(self, *pairs: tuple[Draft, Answer], early: Money | None = None) -> Observed:
        """Return the answers, and the present state of the chain."""
        money = await self.money()
        self.saw(money)
        return Observed(pairs=pairs, money=money, early=early)

    async def tried(
        self, draft: Draft, about: str = "", *, verified_as: Draft | None = None
    ) -> Tried:
        """Verify and settle a payment, whatever verify says; return the outcome.

        `verified_as` is the request to verify in `upto`, with the maximum.
        """
        since, sent_before = await self.room.chain.height(), len(self.room.node.sent)
        if about:
            self.say(f"{about}:")
        verified, settled = await self.verify(verified_as or draft), await self.settle(draft)
        money = await self.room.money(since, sent_before)
        self.saw(money)
        return Tried(draft=draft, verified=verified, settled=settled, money=money, about=about)

    async def until_sent(self, *tasks: asyncio.Task[Answer], count: int = 1) -> bool:
        """Wait until the relayer has sent `count` transactions, or all tasks are done.

        Counts from the beginning of the play; returns whether the transactions were sent.
        """

        def is_sent() -> bool:
            return len(self.room.node.sent) - self.sent_before >= count

        await until(lambda: is_sent() or all(task.done() for task in tasks))
        return is_sent()

    @asynccontextmanager
    async def unmined(self) -> AsyncIterator[None]:
        """Mine nothing within a `with` block; mine the waiting transactions afterwards."""
        controls = self.room.controls
        await controls.set_automine(False)
        try:
            yield
        finally:
            await self.room.tidy()

    async def settled_once(self, draft: Draft) -> Answer:
        """Settle a good payment; raises `Inconclusive` for a refusal."""
        answer = await self.settle(draft)
        if not answer.succeeded:
            raise Inconclusive(f"the first settlement failed: {answer.how}")
        return answer

    async def verified_and_settled(self, draft: Draft) -> Observed:
        """Verify and settle a payment, whatever verify says."""
        verified = await self.verify(draft)
        answer = await self.settle(draft)
        return replace(await self.observe((draft, answer)), verified=verified)

    async def settled_when_mined(self, draft: Draft) -> Answer:
        """Settle a payment while mining is off, and mine the relayer's transaction."""
        task = asyncio.create_task(self.settle(draft))
        await self.until_sent(task)
        await self.room.controls.mine()
        return await task

    async def valid_first(self, draft: Draft) -> Answer:
        """Verify a payment; raises `Inconclusive` for an invalid one."""
        answer = await self.verify(draft)
        if not answer.is_valid:
            raise Inconclusive(f"the payment was not valid to begin with: {answer.how}")
        return answer

    async def drained(self, draft: Draft, sink: Address) -> None:
        """Let the payer send all of its tokens away."""
        room, payer, asset = self.room, draft.auth.from_, draft.network.asset
        await room.controls.set_native_balance(payer, 10**18)
        held = await room.chain.call(Call(payer, asset, abi.balance_of(payer)))
        await room.transact(payer, asset, abi.transfer(sink, int.from_bytes(held)))

    async def used_by_another(self, draft: Draft) -> None:
        """Let a stranger have the payment's transfer made: anybody may submit it."""
        await self.room.transact(self.room.owner.address_bytes, *draft.call)

    async def cancelled(self, draft: Draft) -> None:
        """Let the payer cancel the payment's nonce."""
        auth, network = draft.auth, draft.network
        if draft.permit:
            word, bit = divmod(draft.message.nonce, 256)
            data = abi.calldata(abi.INVALIDATE_NONCES, word, 1 << bit)
            await self.room.transact(auth.from_, PERMIT2, data)
            return
        key = PrivateKey(from_hex(draft.wallet.private_key, 32))
        signature = sign(cancel_digest(auth.from_, auth.nonce, network.domain), key)
        data = abi.cancel_authorization(auth.from_, auth.nonce, signature)
        await self.room.transact(self.room.owner.address_bytes, network.asset, data)


async def until(condition: Callable[[], bool], most_s: float = SENDS_S) -> bool:
    """Wait for a condition; return whether it holds."""
    for _ in range(int(most_s / LOOK_S)):
        if condition():
            return True
        await CLOCK.sleep(LOOK_S)
    return condition()


def _shown(content: bytes) -> str:
    """Return a request in short: without signatures, and cut."""
    known = decoded(content) if len(content) < 4 * SHOWN else None
    text = content[: 4 * SHOWN].decode("utf-8", "backslashreplace")
    if known is not None:
        text = encode(known).decode()
    text = redacted(text)
    more = f"… ({len(content)} bytes)" if len(text) > SHOWN else ""
    return printable(text[:SHOWN] + more)
