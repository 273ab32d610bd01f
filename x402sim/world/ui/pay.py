"""Pays this server's own service from one of its funded accounts, rightly or with one mistake."""

from dataclasses import replace
from typing import Annotated, Any, Literal

import httpx
import msgspec
from msgspec import Meta

from x402sim.http.web import bad_body
from x402sim.payer.auth import PaymentAuth
from x402sim.payer.errors import PaymentFailed
from x402sim.payer.flow import FlowAuth
from x402sim.payer.mistakes import MISTAKES, draft_of, request_of
from x402sim.payer.session import SessionAuth
from x402sim.payer.watched import Exchange, Watched, pays
from x402sim.protocol.eip3009 import Authorization
from x402sim.protocol.messages import Wire
from x402sim.service.issue import MARKET, QUOTE
from x402sim.text.suggest import unknown
from x402sim.world.assembly.parts import Parts
from x402sim.world.control.context import require_service

ORDER = {"pair": "BTC-USD", "side": "long", "leverage": 10, "sizeUsd": 1000}
PAY_PATH = "/api/pay"
DEADLINE_S = 20.0
_PLENTY = "1000000.00"
_DEPOSIT = "0.10"


class Pay(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What to buy, from which account, and the name of the mistake to make, if any."""

    account: Annotated[int, Meta(ge=0)] = 0
    buys: Literal["quote", "market", "session"] = "quote"
    wrong: str = ""


class Paid(Wire, frozen=True):
    """What came of it: the last answer's status, or None and why there is none."""

    status: int | None
    said: str


async def pay(parts: Parts, asked: Pay, url: str) -> Paid:
    """Pay the service at this URL over TCP, as any payer does; raises `Refused`."""
    require_service(parts, "/ui/pay")
    if asked.account >= len(parts.accounts):
        raise bad_body(f"account: there are {len(parts.accounts)}, counted from 0")
    if asked.wrong and asked.wrong not in MISTAKES:
        raise bad_body(unknown("mistake", asked.wrong, MISTAKES))
    if asked.wrong and asked.buys == "session":
        raise bad_body("a mistake is made with a quote or the market, not with a session")
    # what answers there is this process, with a certificate of its own
    client = httpx.AsyncClient(base_url=url, trust_env=False, timeout=DEADLINE_S, verify=False)  # noqa: S501
    async with client as http:
        buyer = _Buyer(parts, asked, http)
        try:
            if asked.wrong == "replay":
                await buyer.buy("")
            answer = await buyer.buy(asked.wrong)
        except (PaymentFailed, httpx.HTTPError) as failed:
            return Paid(None, str(failed) or repr(failed))
    return Paid(answer.status_code, answer.text[:1000])


class _Buyer:
    """One account's purchases; `_used` is the authorization that it signed last."""

    def __init__(self, parts: Parts, asked: Pay, http: httpx.AsyncClient) -> None:
        self._parts, self._asked, self._http = parts, asked, http
        self._wallet = parts.accounts[asked.account]
        self._used: Authorization | None = None

    async def buy(self, wrong: str) -> httpx.Response:
        """Buy once; raises `PaymentFailed` and `httpx.HTTPError`."""
        payer = self._payer()
        flow = Watched(
            lambda _: payer,
            sends=lambda _: None,
            seen=self._seen,
            limits=payer.limits,
            pay_path=PAY_PATH,
            change=(lambda request: self._changed(request, wrong)) if wrong else None,
        )
        wanted: dict[str, Any] = {"method": "POST", "url": QUOTE, "json": ORDER}
        if self._asked.buys == "market":
            wanted = {"method": "GET", "url": MARKET}
        return await self._http.request(**wanted, auth=flow)

    def _payer(self) -> FlowAuth:
        network, clock = self._parts.service.setup.network, self._parts.clock
        if self._asked.buys == "session":
            return SessionAuth(
                self._wallet,
                max_spend=_DEPOSIT,
                network=network,
                clock=clock,
                deadline_s=DEADLINE_S,
            )
        return PaymentAuth(
            self._wallet,
            max_amount=_PLENTY,
            max_total=_PLENTY,
            network=network,
            clock=clock,
            deadline_s=DEADLINE_S,
        )

    def _seen(self, exchange: Exchange) -> None:
        if pays(exchange.request, PAY_PATH) and self._used is None:
            self._used = self._draft(exchange.request).auth

    def _changed(self, request: httpx.Request, wrong: str) -> httpx.Request:
        draft = self._draft(request)
        draft = replace(draft, auth=self._used or draft.auth)
        return request_of(MISTAKES[wrong].change(draft), request)

    def _draft(self, request: httpx.Request) -> Any:
        network, now_s = self._parts.service.setup.network, self._parts.clock.now_s()
        return draft_of(request, self._wallet, network, now_s)
