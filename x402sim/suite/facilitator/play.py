"""The tools of a case at play: requests, looks at the chain, and the lines of the report."""

import hashlib
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Self

import httpx

from x402sim.clock import stopwatch
from x402sim.http.bounded import Limits, receive
from x402sim.payer.wallet import Wallet
from x402sim.protocol.crypto import Address, PrivateKey, parse_address
from x402sim.protocol.messages import decoded, encode
from x402sim.protocol.permit2_payments import FACILITATOR, UPTO
from x402sim.report.exchange import Exchange, Message
from x402sim.suite import rooms
from x402sim.suite.facilitator.payment import (
    BY_PERMIT2,
    PRICE_BASE,
    Answer,
    Dialect,
    Draft,
    drafted,
)
from x402sim.suite.facilitator.room import BALANCE_BASE, FacilitatorRoom, Money
from x402sim.suite.redact import redacted
from x402sim.suite.started import CLOCK
from x402sim.suite.verdict import Inconclusive
from x402sim.text.words import printable

MOST_BYTES = 1 << 22
"""The most bytes read of an answer."""
SHOWN = 700
"""The most characters of a request in a report."""


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
        self,
        payer: Wallet | None = None,
        *,
        amount_base: int = PRICE_BASE,
        allowed_base: int = BALANCE_BASE,
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
            amount_base,
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
        """Send a request; never raises for the facilitator's behaviour."""
        elapsed, most_s = stopwatch(), patience_s or self.patience_s
        limits, found = Limits(max_answer_bytes=MOST_BYTES, deadline_s=most_s), dict[str, Any]()
        try:
            http = self.room.http
            request = http.build_request(
                method, self.room.url + path, content=content, headers=headers, timeout=most_s
            )
            got = await receive(http.send(request, stream=True), limits)
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


def _shown(content: bytes) -> str:
    """Return a request in short: without signatures, and cut."""
    known = decoded(content) if len(content) < 4 * SHOWN else None
    text = content[: 4 * SHOWN].decode("utf-8", "backslashreplace")
    if known is not None:
        text = encode(known).decode()
    text = redacted(text)
    more = f"… ({len(content)} bytes)" if len(text) > SHOWN else ""
    return printable(text[:SHOWN] + more)
