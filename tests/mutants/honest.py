"""Honest services, in which the suite must find nothing: each keeps the specification, in its way.

Our own service, each of its decisions switched, a slow one, and services as others could
have written them: other spellings, other bodies, other habits where the specification is
silent. A failure or a doubt about one of these is a false alarm.

`FORMS` are forms that a service's answers may have, where the specification names an effect only:
another status, place, number of transfers, spelling.
"""

import json
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, fields, replace
from typing import Any
from uuid import UUID

import msgspec

from tests.mutants.changes import Change, all_of, collaborator, overriding, setting, settlement_rule
from tests.mutants.malformed import unreadable_if
from tests.mutants.messages import JSON, Answer, Request, Serve
from tests.mutants.middleware import answers, middleware, paths, replies, requests
from tests.mutants.reconciliation import ForgetsRefusals
from tests.mutants.required import ids, requirements
from tests.mutants.session import Refunds, a_dearer_market
from x402sim import Settings, World
from x402sim.durations import constant
from x402sim.protocol.crypto import keccak256
from x402sim.protocol.header import PresentedPayment, json_of_header, present
from x402sim.protocol.refusals import Refusal
from x402sim.protocol.routes import AGENTS, PAY, QUOTE, SESSIONS
from x402sim.service.state import Service
from x402sim.service.upstream.calls import Unavailable
from x402sim.service.upstream.chain import NonceState
from x402sim.service.upstream.facilitator import NotMoved
from x402sim.spec.decisions import Decisions, alternatives
from x402sim.suite.service.engine import folder
from x402sim.suite.service.target import Target, load


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

FORMS["many forms at once"] = tuple(
    change
    for name, changes in FORMS.items()
    if not name.startswith(("a failed settlement has", "a deposit has"))
    for change in changes
)


# --- all of them -----------------------------------------------------------------------------


OWN = "x402sim.toml"
"""The target file of our own service, which says where its records can be read."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Honest:
    """A service that keeps every clause."""

    name: str
    own_target: bool = False
    seed: int = 1
    changes: tuple[Change, ...] = ()

    @property
    def target(self) -> Target:
        """The target file that the suite gets."""
        return own_target() if self.own_target else Target()

    @property
    def world(self) -> World:
        """The world it is judged in."""
        return all_of(*self.changes)(World(seed=self.seed))


def honest(name: str, *changes: Change, **how: Any) -> Honest:
    """Return a service with these changes, judged in this way."""
    return Honest(name=name, changes=changes, **how)


def sweeping(every_s: float) -> Change:
    """Look for expired sessions and pending payments at this interval."""
    return setting(session_sweep_s=every_s, reconcile_interval_s=every_s)


def own_target() -> Target:
    return load(folder("service") / "targets" / OWN)


def everywhere(change: Callable[[Any], Any]) -> Change:
    """Change every JSON body, whatever its status."""
    return answers(None, "/", lambda it: change(it) if isinstance(it, dict) else None)


def reversed_keys(it: Any) -> Any:
    """Return a body with all its keys in the opposite order."""
    if isinstance(it, dict):
        return {name: reversed_keys(it[name]) for name in reversed(it)}
    return [reversed_keys(each) for each in it] if isinstance(it, list) else it


def as_problem(it: Any) -> Any:
    """Return an error as a body of RFC 9457; anything else stays."""
    if "error" not in it or "paymentId" in it:
        return None
    return {"type": "about:blank", "title": it["error"], "detail": it.get("reason", "")}


def as_object(it: Any) -> Any:
    """Return an error as an object with a code and a message."""
    if "error" not in it or "paymentId" in it:
        return None
    return {"success": False, "error": {"code": "E42", "message": it["error"]}}


def switched() -> Iterator[Honest]:
    """Yield our own service with each of its decisions on the alternative, one at a time."""
    other = alternatives()
    for each in fields(Decisions):
        decisions = Decisions(**{each.name: getattr(other, each.name)})
        yield honest(f"decision {each.name}", setting(decisions=decisions))


def nothing_beside(request: Request) -> Request:
    """Return a settlement that is refused, if its body has unknown fields."""
    body = request.json
    wanted = {"paymentId", "paymentHeader", "paymentRequirements"}
    is_more = isinstance(body, dict) and not body.keys() <= wanted
    return request.sending(None) if is_more else request


async def ignoring_what_comes_back(service: Service, request: Request, serve: Serve) -> Answer:
    """Settle what was issued under a payment id, whatever the requirements sent back are."""
    body: Any = request.json
    terms = service.issuer.read(request.field("paymentId"))
    if terms is None:
        return await serve(request)
    issued = msgspec.to_builtins(service.issuer.requirements(terms.resource, terms.amount_base))
    return await serve(request.sending({**body, "paymentRequirements": issued}))


def asked_afterwards(world: World) -> World:
    """Ask the chain about an authorization only once it is claimed, as the service did before.

    So one that others have submitted is served.
    """
    claimed: set[tuple[bytes, bytes]] = set()  # it outlives a crash, as a database does

    def insert_pending(it: Any, claim: Any) -> Any:
        """Note which nonce a service claims."""
        if claim.nonce is not None:
            claimed.add((it.service.env.secret, claim.nonce))
        return it.inner.insert_pending(claim)

    async def nonce_state(it: Any, authorizer: Any, nonce: bytes) -> Any:
        """Ask about no other nonce, but about refunds."""
        if (it.service.env.secret, nonce) in claimed or authorizer == it.service.env.wallet:
            return await it.inner.nonce_state(authorizer, nonce)
        return NonceState(height=0, head_s=0, is_used=False, use=None)

    claims = overriding("payments", insert_pending=insert_pending)
    return overriding("rpc", nonce_state=nonce_state)(claims(world))


def every_refusal_is_final(it: Any) -> None:
    """Say of a refused payment that it will never be charged, unless it was sent."""
    if it.get("final") is False and it["error"] != Refusal.PENDING.text:
        it.update(final=True, reason="nothing was charged")


def nothing_more_is_said(it: Any) -> None:
    """Say no more of an error than its text."""
    it.pop("final", None)
    it.pop("reason", None)


async def else_by_the_node(it: Any, tx_hash: str) -> Any:
    """Ask the node for a transaction of which the explorer tells no block."""
    with suppress(Unavailable):
        if found := await it.inner.transaction(tx_hash):
            return found
    return await it.service.rpc.transaction(tx_hash)


BEFORE = (
    collaborator(payments=ForgetsRefusals),
    asked_afterwards,
    answers(None, PAY, every_refusal_is_final),
)
"""Our own service as it was: it kept no claim after a refusal, and asked the chain afterwards."""


def slow(*parts: str) -> Change:
    """Let these parts answer 200 ms late."""
    return lambda world: replace(world, latency=dict.fromkeys(parts, constant(0.1)))


HONEST: dict[str, Honest] = {each.name: each for each in (
    honest("to the letter", sweeping(Settings.session_sweep_s)),
    honest("with its own target", own_target=True),
    *switched(),
    honest("every decision switched", setting(decisions=alternatives())),
    honest("200 ms a request", slow("service")),
    honest("200 ms a request, and the world too", slow("service", "facilitator", "explorer", "rpc")),
    *(honest(f"seed {seed}", seed=seed) for seed in (2, 3, 4)),
    honest("more fields", everywhere(lambda it: {"apiVersion": 3, **it})),
    honest("keys in another order", everywhere(reversed_keys)),
    honest("errors as problem details", everywhere(as_problem)),
    honest("errors as objects", everywhere(as_object)),
    honest("addresses in lower case", requirements(payTo=str.lower, asset=str.lower)),
    honest("ids as UUIDs", ids(lambda luck, *_: f"pay_{UUID(bytes=luck[:16])}")),
    honest("ids that begin with the time",
        ids(lambda luck, expires_s, n: f"pay_{expires_s:x}{luck[:10].hex()}")),
    honest("ids that begin alike",
        ids(lambda luck, *_: f"pay_live_eyJhbGciOiJIUzI1NiJ9.{luck[:16].hex()}")),
    honest("session under another name", answers(201, "/api/sessions",
        lambda it: {"data": {"session": {"id": it["sessionId"]}}})),
    honest("a bare list of agents", answers(200, "/api/agents", lambda it: it["agents"])),
    honest("a list of agents' names", answers(200, "/api/agents",
        lambda it: {"agents": [each["name"] for each in it["agents"]]})),
    honest("any description may come back", settlement_rule("2.1/description", lambda case: True)),
    honest("no other fields taken", requests(PAY, nothing_beside)),
    honest("hex headers only", unreadable_if(prefix=False)),
    honest("whole prices", answers(200, "/api/perp/quote", lambda it: it["quote"].update(
        entryPrice=int(it["quote"]["entryPrice"]) + 1, fundingRate=0))),
    honest("in no hurry", sweeping(300)),
    honest("refusals are final", answers(None, PAY, every_refusal_is_final)),
    honest("errors are texts only", answers(None, PAY, nothing_more_is_said)),
    honest("no claim after a refusal", collaborator(payments=ForgetsRefusals)),
    honest("the chain is asked afterwards", asked_afterwards),
    honest("as it was before", *BEFORE, own_target=True),
    honest("the explorer is asked until a block is deep",
        overriding("rpc", transaction=lambda it, tx_hash: it.service.explorer.transaction(tx_hash))),
    honest("the node is asked for what the explorer does not tell",
        overriding("explorer", transaction=else_by_the_node)),
    honest("a dearer market", a_dearer_market),
    honest("any block is deep", setting(final_depth=0)),
    honest("blocks are deep late", setting(final_depth=90)),
    honest("what is sent back is ignored", middleware(ignoring_what_comes_back, PAY)),
    *(honest(name, *changes) for name, changes in FORMS.items()),
    honest("records and sessions inside",
        answers(200, "/api/payments/", lambda it: {"data": [it]}),
        answers(200, "/api/sessions/", lambda it: {"session": it}), own_target=True),
    *(honest(f"any {field} may come back", settlement_rule(f"2.1/{field}", lambda case: True))
      for field in ("timeout", "resource")),
)}  # fmt: skip
"""Every honest service, by its name."""

TOGETHER: tuple[tuple[str, ...], ...] = (
    ("errors as problem details", "ids as UUIDs", "a bare list of agents",
     "session under another name", "addresses in lower case", "any description may come back",
     "any block is deep", "more fields"),
    ("errors as objects", "ids that begin with the time", "a list of agents' names",
     "keys in another order", "any timeout may come back", "in no hurry", "whole prices"),
    ("errors are texts only", "ids that begin alike", "no other fields taken",
     "hashes in upper case", "a dearer market", "blocks are deep late"),
    ("402s are problems", "headers are packed anew", "any resource may come back",
     "refusals are final", "the explorer is asked until a block is deep"),
    ("a failed settlement is a 200", "what is sent back is ignored", "times as 300.0",
     "a refund is two transfers", "the node is asked for what the explorer does not tell"),
    ("a failed settlement is a 202", "a session is at a location", "hex headers only",
     "no claim after a refusal"),
    ("a failed settlement is a redirect", "no session is a 200", "everything has moved",
     "the chain is asked afterwards"),
    ("a failed settlement has no flag", "deposits have a limit",
     "a slash at its end is the same path", "a deposit has no receipt",
     "words that begin like a session's id"),
)  # fmt: skip
"""Choices that one service can make, so that CI judges them in one run; what is in none is judged
alone, but for what another run has: a decision alone, a seed, our own target, one slow part."""
ALONE = (
    "to the letter", "every decision switched", "200 ms a request, and the world too",
    "many forms at once", "as it was before", "records and sessions inside",
)  # fmt: skip


def together(names: tuple[str, ...]) -> Honest:
    return honest(", ".join(names), *(change for name in names for change in HONEST[name].changes))
