"""What defects of payment share: texts of refusals, payment ids in place of others, an open gate."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import msgspec

from tests.mutants.changes import Change, all_of, overriding
from tests.mutants.messages import Answer, Request, Serve
from tests.mutants.middleware import Handler, middleware
from x402sim.protocol.eip3009 import Authorization
from x402sim.protocol.header import present
from x402sim.protocol.refusals import Refusal
from x402sim.protocol.routes import QUOTE
from x402sim.service.state import Service

ALREADY_SETTLED = Refusal.ALREADY_SETTLED.text
INVALID_SIGNATURE = Refusal.INVALID_SIGNATURE.text
NONCE_USED = Refusal.NONCE_USED.text
ORDER = {"pair": "BTC-USD", "side": "long", "leverage": 2, "sizeUsd": 100}
NO_PROOF: dict[str, str | None] = {"x_payment_id": None, "x_session_id": None}


def authorization(header: str) -> Authorization | None:
    """Return what a payment header authorizes; None if it cannot be read."""
    return present(header).authorization


def with_id(reply: Answer, payment_id: str) -> Answer:
    """Return a receipt, or a 402, with another payment id."""
    body: Any = reply.json
    return replace(reply, body=msgspec.json.encode({**body, "paymentId": payment_id}))


class OtherIds(dict[str, str]):
    """The payment ids as which others are served."""

    async def settled_anew(self, request: Request, serve: Serve) -> Answer:
        """Settle a payment of a quote under a new payment id, and hide that in the answer."""
        body = request.json
        unpaid = await serve(replace(request.having(**NO_PROOF).sending(ORDER), path=QUOTE))
        new = unpaid.json["paymentId"]
        reply = await serve(request.sending({**body, "paymentId": new}))
        if reply.status == 200:
            self[body["paymentId"]] = new
        return with_id(reply, body["paymentId"]) if reply.status == 200 else reply

    def of(self, request: Request) -> Request:
        """Return a request as it is served."""
        payment_id = request.payment_id
        return request.having(x_payment_id=self.get(payment_id, payment_id) or None)


# --- a gate that stands open -----------------------------------------------------------------


FREE = "pay_free-pass"


def free(request: Request) -> Request:
    """Return a request that passes the gate without payment, if it is `unlocked`."""
    return request.having(x_payment_id=FREE, x_session_id=None)


unlocked = overriding("entitlements", grants=lambda it, payment_id, *of: (
    payment_id == FREE or it.inner.grants(payment_id, *of)
))  # fmt: skip
"""A cache with one entitlement for everything."""


def opening(path: str) -> Callable[[Handler], Change]:
    """Let a handler deal with the requests for this path, and let in whom it makes `free`."""
    return lambda handler: all_of(unlocked, middleware(handler, path))


def let_in(path: str, when: Callable[[Service, Request], bool]) -> Change:
    """Let some requests for this path pass the gate without payment."""

    async def handler(service: Service, request: Request, serve: Serve) -> Answer:
        return await serve(free(request) if when(service, request) else request)

    return opening(path)(handler)
