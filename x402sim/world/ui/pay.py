"""Pays this server's own service from one of its funded accounts, rightly or with one mistake."""

from dataclasses import replace
from typing import Annotated, Any, Literal

import httpx
import msgspec
from msgspec import Meta

from x402sim.clock import Clock
from x402sim.http.web import bad_body
from x402sim.payer.auth import PaymentAuth
from x402sim.payer.core import PaymentFailed
from x402sim.payer.flow import FlowAuth
from x402sim.payer.mistakes import MISTAKES, Change, Draft, Watched, draft_of, paid_in, request_of
from x402sim.payer.session import SessionAuth
from x402sim.payer.wallet import Wallet
from x402sim.protocol.eip3009 import Authorization
from x402sim.protocol.messages import Wire
from x402sim.protocol.networks import Network
from x402sim.protocol.routes import MARKET, QUOTE
from x402sim.text.suggest import unknown
from x402sim.world.assembly.running_world import RunningWorld
from x402sim.world.control.common import require_service

ORDER = {"pair": "BTC-USD", "side": "long", "leverage": 10, "sizeUsd": 1000}
DEADLINE_S = 20.0
_PLENTY = "1000000.00"
_DEPOSIT = "0.10"


class Pay(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What to buy, from which account, and the name of the mistake to make, if any."""

    account: Annotated[int, Meta(ge=0)] = 0
    buys: Literal["quote", "market", "session"] = "quote"
    wrong: str = ""


class PageAnswer(Wire, frozen=True):
    """What came of it: the last answer's status, or None and why there is none.

    `payment` is what its lane is found by: the payment id, or the nonce of its authorization in
    hex; None if nothing was signed.
    """

    status: int | None
    said: str
    payment: str | None


async def pay(world: RunningWorld, asked: Pay, url: str) -> PageAnswer:
    """Pay the service at this URL over TCP, as any payer does; raises `Refused`."""
    require_service(world, "/ui/pay")
    if asked.account >= len(world.accounts.funded):
        raise bad_body(f"account: there are {len(world.accounts.funded)}, counted from 0")
    if asked.wrong and asked.wrong not in MISTAKES:
        raise bad_body(unknown("mistake", asked.wrong, MISTAKES))
    if asked.wrong and asked.buys == "session":
        raise bad_body("a mistake is made with a quote or the market, not with a session")
    network, clock = world.service.env.network, world.clock
    wallet, used = world.accounts.funded[asked.account], list[Authorization]()
    payments = list[str]()

    def draft(request: httpx.Request) -> Draft:
        return draft_of(request, wallet, network, clock.now_s())

    def sends(request: httpx.Request) -> None:
        if paid_in(request):
            sent = draft(request)
            payments.append(sent.payment_id or sent.auth.nonce.hex())

    def seen(request: httpx.Request, _: httpx.Response) -> None:
        if paid_in(request) and not used:
            used.append(draft(request).auth)

    def changed(request: httpx.Request) -> httpx.Request:
        right = draft(request)
        wrong = MISTAKES[asked.wrong].change(replace(right, auth=(*used, right.auth)[0]))
        return request_of(wrong, request)

    async def buy(change: Change | None) -> httpx.Response:
        payer = _payer(asked, wallet, network, clock)
        flow = Watched(
            choose=lambda _: payer, sends=sends, seen=seen, limits=payer.limits, change=change
        )
        if asked.buys == "market":
            return await http.get(MARKET, auth=flow)
        return await http.post(QUOTE, json=ORDER, auth=flow)

    # what answers there is this process, with a certificate of its own
    client = httpx.AsyncClient(base_url=url, trust_env=False, timeout=DEADLINE_S, verify=False)  # noqa: S501
    async with client as http:
        try:
            if asked.wrong == "replay":
                await buy(None)
            answer = await buy(changed if asked.wrong else None)
        except (PaymentFailed, httpx.HTTPError) as failed:
            return PageAnswer(None, str(failed) or repr(failed), next(reversed(payments), None))
    return PageAnswer(answer.status_code, answer.text[:1000], next(reversed(payments), None))


def _payer(asked: Pay, wallet: Wallet, network: Network, clock: Clock) -> FlowAuth:
    here: dict[str, Any] = {"network": network, "clock": clock, "deadline_s": DEADLINE_S}
    if asked.buys == "session":
        return SessionAuth(wallet, deposit=_DEPOSIT, **here)
    return PaymentAuth(wallet, max_amount=_PLENTY, max_total=_PLENTY, **here)
