"""Which forms may a service's answers have, where the specification names an effect only?

Each is our own service with another habit: a status, a place, a number of transfers, a spelling.
What moves on the ledger and what is granted stays the same, so the suite must find nothing.
"""

import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import msgspec

from tests.mutants.change import Change, Service
from tests.mutants.middleware import (
    JSON,
    Answer,
    Request,
    Serve,
    answers,
    middleware,
    paths,
    replies,
    requests,
)
from tests.mutants.paying import AGENTS, PAY, QUOTE, SESSIONS
from tests.mutants.required import requirements
from tests.mutants.session import Refunds
from tests.mutants.wrapper import collaborator, overriding
from x402sim.protocol.crypto import keccak256
from x402sim.protocol.header import PresentedPayment, json_of_header, present
from x402sim.protocol.refusals import Refusal
from x402sim.service.upstream.facilitator import NotMoved


def refused(status: int, body: Callable[[str], Any], kind: str = JSON, path: str = PAY) -> Change:
    """Refuse a settlement with this status, and with a body made of the error's text."""

    def changed(_: Request, it: Answer) -> Answer:
        if it.status < 400 or it.status == 402 or not isinstance(it.error, str):
            return it
        return replace(it, status=status, body=msgspec.json.encode(body(it.error)), media_type=kind)

    return replies(path, changed)


def deposits(change: Callable[[Answer], Answer]) -> Change:
    """Change what is answered to a deposit: to its settlement, and to its claim."""

    async def handler(service: Service, request: Request, serve: Serve) -> Answer:
        reply = await serve(request)
        body = reply.json
        if reply.status == 200 and "txHash" in (body or {}):
            stored = service.store.payments.get(body["paymentId"])
            is_deposit = stored is not None and stored.resource_url == SESSIONS
            return change(reply) if is_deposit else reply
        return change(reply) if "sessionId" in (body or {}) else reply

    return middleware(handler)


def without_a_receipt(it: Answer) -> Answer:
    """Return the answer to a deposit as a session that was made, with nothing of a receipt."""
    body = {name: each for name, each in it.json.items() if name not in ("success", "txHash")}
    return replace(it, status=201, body=msgspec.json.encode(body))


def at_a_location(it: Answer) -> Answer:
    """Return the answer to a deposit with the session's id in the header Location only."""
    if "sessionId" not in it.json:
        return it
    there = (b"location", f"/api/sessions/{it.json['sessionId']}?v=1".encode())
    return replace(it, body=b'{"state":"session_opened"}', headers=(*it.headers, there))


class RefundsInTwo(Refunds):
    """Sends a refund in two transfers."""

    async def settle(self, payment: PresentedPayment, requirements: Any) -> Any:
        auth = payment.authorization
        whole = auth.value if auth else 0
        first = self._signed(payment, keccak256(auth.nonce if auth else b""), whole // 2)
        if first is None or whole < 2:
            return await self.inner.settle(payment, requirements)
        rest = self._signed(payment, auth.nonce if auth else b"", whole - whole // 2)
        for part, amount in ((first, whole // 2), (rest, whole - whole // 2)):
            asked = msgspec.structs.replace(requirements, max_amount_required=str(amount))
            outcome = await self.inner.settle(part, asked)
            if isinstance(outcome, NotMoved) and outcome.refusal is not Refusal.NONCE_USED:
                break  # it is tried again; a part that has moved stays used
        return outcome


def _packed_anew(payment: PresentedPayment) -> PresentedPayment:
    if payment.authorization is None:
        return payment
    body = json.loads(json_of_header(payment.text))
    payload = {name: str(body["payload"][name]).lower() for name in ("from", "to", "asset")}
    body["payload"] |= payload
    return present("0x" + json.dumps(body).encode().hex())


async def moved(_: Service, request: Request, serve: Serve) -> Answer:
    """Redirect to the same path below /v2, where everything is."""
    if request.path in (PAY, QUOTE, SESSIONS, AGENTS):
        there = (b"location", f"/v2{request.path}".encode())
        return Answer(307, b"", headers=(there,))
    return await serve(replace(request, path=request.path.removeprefix("/v2")))


def at_most(cents: int) -> Change:
    """Refuse larger deposits."""

    def changed(request: Request, it: Answer) -> Answer:
        required = (it.json or {}).get("paymentRequirements", {})
        is_large = int(required.get("maxAmountRequired", 0)) > cents * 10_000
        return Answer(409, b'{"error":"too large a deposit"}') if is_large else it

    return replies(SESSIONS, changed)


def of_type(kind: str) -> Change:
    """Give the body of every 402 another media type."""
    return replies("/", lambda _, it: replace(it, media_type=kind) if it.status == 402 else it)


def in_whole_seconds(request: Request) -> Request:
    """Return a settlement with a time of 300.0 as 300."""
    body: Any = request.json
    sent = body.get("paymentRequirements") if isinstance(body, dict) else None
    seconds = sent.get("maxTimeoutSeconds") if isinstance(sent, dict) else None
    if not isinstance(seconds, float):
        return request
    whole = {**sent, "maxTimeoutSeconds": int(seconds)}
    return request.sending({**body, "paymentRequirements": whole})


def upper(it: Any) -> None:
    """Write the transaction's hash in upper case."""
    it.update(txHash="0x" + it["txHash"][2:].upper())


FORMS: dict[str, tuple[Change, ...]] = {
    "a failed settlement is a 200": (refused(200, lambda text: {"success": False, "error": text}),),
    "a failed settlement is a 202":
        (refused(202, lambda text: {"success": False, "error": {"message": f"No: {text}."}}),),
    "a failed settlement is a redirect": (refused(303, lambda text: {"detail": [{"msg": text}]}),),
    "a failed settlement has no flag":
        (refused(200, lambda text: {"title": text, "txHash": None}, "application/problem+json"),),
    "no session is a 200":
        (refused(200, lambda text: {"success": False, "error": text}, path=SESSIONS),),
    "a refund is two transfers": (collaborator(facilitator=RefundsInTwo),),
    "headers are packed anew": (overriding("facilitator",
        verify=lambda it, payment, *of: it.inner.verify(_packed_anew(payment), *of),
        settle=lambda it, payment, *of: it.inner.settle(_packed_anew(payment), *of)),),
    "a deposit has no receipt": (deposits(without_a_receipt),),
    "a session is at a location": (deposits(at_a_location),),
    "words that begin like a session's id": (answers(None, "/", lambda it:
        {"type": "session_deposit", **it} if dict(it) else None),),
    "deposits have a limit": (at_most(500),),
    "402s are problems": (of_type("application/problem+json"),),
    "hashes in upper case": (answers(200, PAY, lambda it: upper(it) if "txHash" in it else None),),
    "times as 300.0": (requirements(maxTimeoutSeconds=float), requests(PAY, in_whole_seconds)),
    "everything has moved": (middleware(moved),),
    "a slash at its end is the same path":
        (paths(lambda path: QUOTE if path == QUOTE + "/" else path),),
}  # fmt: skip
"""Every form, by its name, and the changes that make it."""

TOGETHER = tuple(
    name for name in FORMS if not name.startswith(("a failed settlement has", "a deposit has"))
)
FORMS["many forms at once"] = tuple(change for name in TOGETHER for change in FORMS[name])
