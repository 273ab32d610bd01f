"""The facilitator's HTTP API, in the two versions of the x402 standard.

Both versions have the same three paths; the body of verify and settle says which it is. Refusals
are answered 200, with the standard's words (`protocol.x402_reasons`); only a body that is no JSON
object with the three fields is a 400. What was sent and is not mined in time is
"settlement_pending" with its hash; asked again, settle waits for the same transaction.
Decision: 4.1/standard-reasons.
"""

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import assert_never

import msgspec
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from x402sim.chain.base import Call, ChainError, ChainUnavailable
from x402sim.chain.reverts import Cause
from x402sim.facilitator import discovery, engine
from x402sim.facilitator.discovery import Catalogue
from x402sim.facilitator.engine import (
    Asked,
    Facilitator,
    InvalidPayment,
    NotTransferred,
    PendingTransfer,
    SettleResult,
    Transferred,
)
from x402sim.http import web
from x402sim.protocol import abi, x402, x402_reasons
from x402sim.protocol.crypto import checksum, to_hex
from x402sim.protocol.differences import times, too_late
from x402sim.protocol.discovery import BAZAAR
from x402sim.protocol.messages import BadMessage, RequiredPayment, decode
from x402sim.protocol.rules import StandardTerms
from x402sim.protocol.supported import SCHEME, Unsupported, unsupported_in
from x402sim.protocol.x402 import (
    AnyRequirements,
    RequirementsV1,
    RequirementsV2,
    StandardPayment,
    Version,
)

HEALTH_PATH, SUPPORTED_PATH = "/health", "/supported"
VERIFY_PATH = "/verify"
SETTLE_PATH = "/settle"
_FIELDS = ", ".join(field.encode_name for field in msgspec.structs.fields(x402.FacilitatorRequest))
WAITS = "it was sent, and is not mined yet: settle the same payment again to wait for it"
INDEX = f"""\
A facilitator of the x402 standard, versions 1 and 2.
GET  {HEALTH_PATH}
GET  {SUPPORTED_PATH}
GET  {discovery.PATH}   ?type=http&limit=20&offset=0
GET  {discovery.SEARCH_PATH}   ?query=market
POST {VERIFY_PATH}   {{{_FIELDS}}}
POST {SETTLE_PATH}   the same body
"""


class _Unread(msgspec.Struct, frozen=True):
    """A request with a part that cannot be read: the word for it, and what is wrong there."""

    reason: str
    message: str


class _Read(msgspec.Struct, frozen=True):
    """A request in one version."""

    version: Version
    asked: Asked
    payer: str
    payment: StandardPayment
    wanted: AnyRequirements


def routes(facilitators: Sequence[Facilitator], catalogue: Catalogue) -> list[Route]:
    """Return the routes of this dialect, for a facilitator on each of some networks."""

    async def supported(_: Request) -> Response:
        return web.answer(_supported(facilitators))

    async def verify(request: Request) -> Response:
        body = await _body(request)
        return web.answer(await _verified(_chosen(facilitators, body), body))

    async def settle(request: Request) -> Response:
        body = await _body(request)
        return web.answer(await _settled(_chosen(facilitators, body), body, catalogue))

    async def listed(look: Callable[[Mapping[str, str]], object], request: Request) -> Response:
        try:
            return web.answer(look(request.query_params))
        except ValueError as wrong:
            return web.error(400, "Invalid query", str(wrong))

    async def health(_: Request) -> Response:
        return web.answer({"status": "ok"})

    return [
        Route(HEALTH_PATH, health, methods=["GET"]),
        Route(SUPPORTED_PATH, supported, methods=["GET"]),
        Route(VERIFY_PATH, verify, methods=["POST"]),
        Route(SETTLE_PATH, settle, methods=["POST"]),
        Route(discovery.PATH, partial(listed, catalogue.page), methods=["GET"]),
        Route(discovery.SEARCH_PATH, partial(listed, catalogue.search), methods=["GET"]),
    ]


async def _body(request: Request) -> x402.FacilitatorRequest:
    """Read the body of verify or settle; raises `Refused` 400."""
    body: x402.FacilitatorRequest = web.parse(await web.read_body(request), x402.FacilitatorRequest)
    return body


class _OnNetwork(msgspec.Struct, frozen=True):
    """The network in the requirements of a request."""

    network: str = ""


def _chosen(facilitators: Sequence[Facilitator], body: x402.FacilitatorRequest) -> Facilitator:
    """Return the facilitator on the network of the requirements; the first refuses any other."""
    if len(facilitators) > 1:
        with suppress(BadMessage):
            named: _OnNetwork = decode(bytes(body.payment_requirements), _OnNetwork)
            for each in facilitators:
                if named.network in (each.network.name, each.network.caip2):
                    return each
    return facilitators[0]


def _supported(facilitators: Sequence[Facilitator]) -> x402.Supported:
    kinds = [
        x402.SupportedKind(
            x402_version=version,
            scheme=SCHEME,
            network=x402.network_name(version, each.network),
        )
        for each in facilitators
        for version in x402.VERSIONS
    ]
    accounts = dict.fromkeys(checksum(each.account) for each in facilitators)
    signers = {"eip155:*": list(accounts)}
    return x402.Supported(kinds=kinds, extensions=[BAZAAR], signers=signers)


async def _verified(facilitator: Facilitator, body: x402.FacilitatorRequest) -> x402.Verified:
    read = _read(facilitator, body)
    if isinstance(read, _Unread):
        return x402.Verified(
            is_valid=False, invalid_reason=read.reason, invalid_message=read.message
        )
    try:
        refused = await engine.verify_and_simulate(facilitator, read.asked)
    except ChainUnavailable as error:
        reason = x402_reasons.UNEXPECTED_VERIFY
        return x402.Verified(
            is_valid=False, invalid_reason=reason, invalid_message=str(error), payer=read.payer
        )
    if refused is None:
        return x402.Verified(is_valid=True, payer=read.payer)
    return x402.Verified(
        is_valid=False,
        invalid_reason=_reason(read.version, refused),
        invalid_message=await _message(facilitator, read.asked, refused),
        payer=read.payer,
    )


async def _settled(
    facilitator: Facilitator, body: x402.FacilitatorRequest, catalogue: Catalogue
) -> x402.Settlement:
    read = _read(facilitator, body)
    if isinstance(read, _Unread):
        version: Version = 1 if _version(body) == 1 else 2
        return x402.Settlement(
            success=False,
            network=x402.network_name(version, facilitator.network),
            error_reason=read.reason,
            error_message=read.message,
        )
    try:
        outcome = await engine.settle(facilitator, read.asked)
    except ChainUnavailable as error:  # nothing was sent
        return _settlement(facilitator, read, x402_reasons.UNEXPECTED_SETTLE, message=str(error))
    if isinstance(outcome, Transferred):
        catalogue.add(read.payment, read.wanted)
    return await _outcome(facilitator, read, outcome)


async def _outcome(facilitator: Facilitator, read: _Read, outcome: SettleResult) -> x402.Settlement:
    match outcome:
        case Transferred(tx_hash=tx_hash):
            return _settlement(facilitator, read, None, transaction=to_hex(tx_hash))
        case PendingTransfer(tx_hash=tx_hash):
            return _settlement(
                facilitator, read, x402_reasons.PENDING, transaction=to_hex(tx_hash), message=WAITS
            )
        case NotTransferred() | InvalidPayment():
            mined = outcome.tx_hash if isinstance(outcome, NotTransferred) else None
            return _settlement(
                facilitator,
                read,
                _reason(read.version, outcome),
                transaction="" if mined is None else to_hex(mined),
                message=await _message(facilitator, read.asked, outcome),
            )
        case _:
            assert_never(outcome)


def _settlement(
    facilitator: Facilitator,
    read: _Read,
    reason: str | None,
    *,
    transaction: str = "",
    message: str | None = None,
) -> x402.Settlement:
    return x402.Settlement(
        success=reason is None,
        transaction=transaction,
        network=x402.network_name(read.version, facilitator.network),
        payer=read.payer,
        error_reason=reason,
        error_message=message,
    )


def _reason(version: Version, refused: InvalidPayment | NotTransferred) -> str:
    """Return the standard's word for a refusal."""
    if isinstance(refused, InvalidPayment):
        return x402_reasons.invalid_reason(version, refused.why)
    match refused.why:
        case Cause.BALANCE:
            return x402_reasons.FUNDS
        case Cause.NONCE:
            return x402_reasons.nonce_used(version)
        case Cause.SIGNATURE:
            return x402_reasons.SIGNATURE
        case Cause.EARLY:
            return x402_reasons.VALID_AFTER
        case Cause.LATE:
            return x402_reasons.VALID_BEFORE
        case _:
            return x402_reasons.STATE


async def _message(
    facilitator: Facilitator, asked: Asked, refused: InvalidPayment | NotTransferred
) -> str | None:
    """Return a refusal with both values; the chain is asked for the payer's balance."""
    if isinstance(refused, InvalidPayment) or asked.payment is None:
        return refused.difference if isinstance(refused, InvalidPayment) else None
    auth, chain = asked.payment.authorization, facilitator.chain
    if refused.why is Cause.BALANCE:
        reads = Call(facilitator.account, chain.token, abi.balance_of(auth.from_))
        try:
            held = int.from_bytes(await chain.call(reads), "big")
        except ChainError:
            return str(refused.why.value)
        return f"balance of {checksum(auth.from_)}: wanted {auth.value}, got {held}"
    if refused.why is Cause.EARLY:
        return times("validAfter", auth.valid_after, facilitator.clock.now_s())
    if refused.why is Cause.LATE:
        return too_late(auth.valid_before, facilitator.clock.now_s())
    if refused.why is Cause.NONCE:
        return f"nonce: {to_hex(auth.nonce)} is used or cancelled already"
    return str(refused.why.value)


# --- reading -------------------------------------------------------------------------


def _read(facilitator: Facilitator, body: x402.FacilitatorRequest) -> _Read | _Unread:
    """Read the parts of a request, in the version that it names."""
    named = _version(body)
    version = next((each for each in x402.VERSIONS if each == named), None)
    if version is None:
        return _Unread(x402_reasons.INVALID_VERSION, f"x402Version: wanted 1 or 2, got {named}")
    try:
        payment = x402.payment_of(version, bytes(body.payment_payload))
    except Unsupported as other:
        return _Unread(other.reason, str(other))
    except BadMessage as wrong:
        return _Unread(x402_reasons.INVALID_PAYLOAD, str(wrong))
    try:
        wanted = _requirements(version, bytes(body.payment_requirements))
    except BadMessage as wrong:
        return _Unread(x402_reasons.INVALID_REQUIREMENTS, str(wrong))
    if (asked_for := unsupported_in(wanted.extra)) is not None:
        return _Unread(asked_for.reason, str(asked_for))
    signed = payment.signed
    if version == 1:  # a payment of version 1 does not name its token: its signature binds it
        signed = msgspec.structs.replace(signed, asset=wanted.asset)
    asked = Asked(
        signed,
        _common(wanted),
        x402.network_name(version, facilitator.network),
        StandardTerms(
            may_exceed=version == 1, domain=wanted.extra or {}, now_s=facilitator.clock.now_s()
        ),
    )
    return _Read(version, asked, checksum(signed.authorization.from_), payment, wanted)


def _version(body: x402.FacilitatorRequest) -> int | None:
    """Return the version that a request names, or else the payment in it."""
    if body.x402_version is not None:
        return body.x402_version
    try:
        named: x402.Versioned = decode(bytes(body.payment_payload), x402.Versioned)
    except BadMessage:
        return None
    return named.x402_version


def _requirements(version: Version, body: bytes) -> RequirementsV1 | RequirementsV2:
    kind = RequirementsV1 if version == 1 else RequirementsV2
    wanted: RequirementsV1 | RequirementsV2 = decode(body, kind)
    return wanted


def _common(wanted: RequirementsV1 | RequirementsV2) -> RequiredPayment:
    """Return the requirements as the engine reads them."""
    match wanted:
        case RequirementsV1(max_amount_required=amount) | RequirementsV2(amount=amount):
            pass
    return RequiredPayment(
        scheme=wanted.scheme,
        network=wanted.network,
        pay_to=wanted.pay_to,
        asset=wanted.asset,
        max_amount_required=amount,
        max_timeout_seconds=wanted.max_timeout_seconds,
    )
