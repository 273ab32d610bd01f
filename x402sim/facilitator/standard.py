"""The facilitator's HTTP API, in the two versions of the x402 standard.

Both versions have the same three paths; the body of verify and settle names the version. A refusal
has status 200 and a reason of the standard (`protocol.x402_reasons`); only a body that is no JSON
object with the three fields is a 400. If a transaction is not mined in time, settle answers
"settlement_pending" with its hash; a second request waits for the same transaction.
Decision: 4.1/standard-reasons.

POST /accepts is not in the standard: the answer has the offers of a shop that this facilitator
settles, with the token's domain. Shops with `@faremeter/middleware` call it before each 402.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import msgspec
from msgspec.structs import replace
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from x402sim.chain.base import Call, ChainError, ChainUnavailable
from x402sim.chain.reverts import Cause
from x402sim.facilitator import discovery, engine, permit2
from x402sim.facilitator.discovery import AnyPayment, Catalogue
from x402sim.facilitator.engine import (
    Facilitator,
    InvalidPayment,
    PendingTransfer,
    Refused,
    Requested,
    Transferred,
)
from x402sim.http import web
from x402sim.protocol import abi, x402, x402_reasons
from x402sim.protocol.bazaar import BAZAAR
from x402sim.protocol.crypto import Hash, checksum, parse_address, to_hex
from x402sim.protocol.differences import SERVER_CLOCK, times, too_late
from x402sim.protocol.eip3009 import Authorization
from x402sim.protocol.messages import BadMessage, RequiredPayment, decode, decoded
from x402sim.protocol.money import parse_base
from x402sim.protocol.permit2_payments import (
    APPROVAL,
    FACILITATOR,
    SPONSORED_PERMIT,
    UPTO,
    is_permit2,
)
from x402sim.protocol.rpc_values import shown
from x402sim.protocol.rules import StandardTerms
from x402sim.protocol.ways import network_called, object_in

HEALTH_PATH, SUPPORTED_PATH = "/health", "/supported"
VERIFY_PATH = "/verify"
SETTLE_PATH = "/settle"
ACCEPTS_PATH = "/accepts"
_FIELDS = ", ".join(field.encode_name for field in msgspec.structs.fields(x402.FacilitatorRequest))
WAITS = "it was sent, and is not mined yet: settle the same payment again to wait for it"
MOST_DETAIL = 300
"""The most characters answered of a node's or a token's own words."""
INDEX = f"""\
A facilitator of the x402 standard, versions 1 and 2.
GET  {HEALTH_PATH}
GET  {SUPPORTED_PATH}
GET  {discovery.PATH}   ?type=http&limit=20&offset=0
GET  {discovery.SEARCH_PATH}   ?query=market
POST {VERIFY_PATH}   {{{_FIELDS}}}
POST {SETTLE_PATH}   the same body

Beside the standard, for shops of @faremeter/middleware.
POST {ACCEPTS_PATH}   {{x402Version, accepts}}; answers those of `accepts` that it settles
"""


class _Read(msgspec.Struct, frozen=True):
    """A request in one version."""

    requested: Requested
    payment: x402.StandardPayment
    wanted: x402.AnyRequirements


class _Judged(msgspec.Struct, frozen=True):
    """What verify or settle answers: a refusal's word and details, or else the paid offer."""

    reason: str | None = None
    message: str | None = None
    sent: Hash | None = None
    amount: str | None = None
    """The settled amount of the scheme `upto`."""
    paid: tuple[AnyPayment, x402.AnyRequirements] | None = None
    """The payment and the offer that the catalogue may list."""


class _Api:
    """The endpoints of a facilitator on each of some networks."""

    def __init__(self, facilitators: Sequence[Facilitator], catalogue: Catalogue) -> None:
        self._facilitators, self._catalogue = facilitators, catalogue
        self._networks = {each.network.name: each.network for each in facilitators}

    async def health(self, _: Request) -> Response:
        return web.answer({"status": "ok"})

    async def supported(self, _: Request) -> Response:
        kinds = [
            x402.SupportedKind(
                x402_version=version,
                scheme=x402.SCHEME,
                network=x402.network_name(version, each.network),
            )
            for each in self._facilitators
            for version in x402.VERSIONS
        ]
        metering = [each for each in self._facilitators if await permit2.offers_upto(each)]
        metered = [
            x402.SupportedKind(
                x402_version=2,
                scheme=UPTO,
                network=each.network.caip2,
                extra={FACILITATOR: checksum(each.account)},
            )
            for each in metering
        ]
        permits = [each for each in metering if await permit2.takes_permits(each)]
        extensions = [BAZAAR] + [SPONSORED_PERMIT] * bool(permits) + [APPROVAL] * bool(metering)
        accounts = dict.fromkeys(checksum(each.account) for each in self._facilitators)
        signers = {"eip155:*": list(accounts)}
        return web.answer(
            x402.Supported(kinds=kinds + metered, extensions=extensions, signers=signers)
        )

    async def verify(self, request: Request) -> Response:
        facilitator, body = await self._addressed(request)
        judged = await _judged(facilitator, body, settles=False)
        headers = self._catalogue.note(*judged.paid, is_settled=False) if judged.paid else {}
        verdict = x402.Verified(
            is_valid=judged.reason is None,
            invalid_reason=judged.reason,
            invalid_message=judged.message,
            payer=_named_payer(body),
        )
        return web.answer(verdict, headers=headers)

    async def settle(self, request: Request) -> Response:
        facilitator, body = await self._addressed(request)
        judged = await _judged(facilitator, body, settles=True)
        delay_s = facilitator.settings.listing_delay_s
        headers = self._catalogue.note(*judged.paid, delay_s=delay_s) if judged.paid else {}
        settled = x402.Settlement(
            success=judged.reason is None,
            transaction=to_hex(judged.sent) if judged.sent else "",
            network=x402.network_name(1 if _version(body) == 1 else 2, facilitator.network),
            payer=_named_payer(body),
            amount=judged.amount,
            error_reason=judged.reason,
            error_message=judged.message,
        )
        return web.answer(settled, headers=headers)

    async def listed(self, look: Callable[[Mapping[str, str]], Any], request: Request) -> Response:
        try:
            return web.answer(look(request.query_params))
        except ValueError as wrong:
            return web.error(400, "Invalid query", str(wrong))

    async def accepts(self, request: Request) -> Response:
        fields = object_in(await web.read_body(request))
        offers = None if fields is None else fields.get("accepts")
        if fields is None or not isinstance(offers, list):
            return web.error(400, "Invalid request", "a JSON object with `accepts`, a list")
        kept = []
        for each in offers:
            if not isinstance(each, dict) or each.get("scheme") != x402.SCHEME:
                continue
            network = network_called(each.get("network"), self._networks)
            if network and str(each.get("asset")).lower() == to_hex(network.asset):
                extra = each.get("extra")  # the offer's own words of the token's domain count
                own = extra if isinstance(extra, dict) else {}
                kept.append(each | {"extra": x402.domain_of(network) | own})
        return web.answer({**fields, "accepts": kept})

    async def _addressed(self, request: Request) -> tuple[Facilitator, x402.FacilitatorRequest]:
        """Read a body, and choose the facilitator on its network; the first refuses any other."""
        body: x402.FacilitatorRequest
        body = web.parse(await web.read_body(request), x402.FacilitatorRequest)
        first, *others = self._facilitators
        sent = object_in(bytes(body.payment_requirements)) if others else None
        named = network_called((sent or {}).get("network"), self._networks)
        return next((each for each in others if each.network == named), first), body


def routes(facilitators: Sequence[Facilitator], catalogue: Catalogue) -> list[Route]:
    """Return the routes of this dialect, for a facilitator on each of some networks."""
    api = _Api(facilitators, catalogue)
    return [
        Route(HEALTH_PATH, api.health, methods=["GET"]),
        Route(SUPPORTED_PATH, api.supported, methods=["GET"]),
        Route(VERIFY_PATH, api.verify, methods=["POST"]),
        Route(SETTLE_PATH, api.settle, methods=["POST"]),
        Route(discovery.PATH, partial(api.listed, catalogue.page), methods=["GET"]),
        Route(discovery.SEARCH_PATH, partial(api.listed, catalogue.search), methods=["GET"]),
        Route(ACCEPTS_PATH, api.accepts, methods=["POST"]),
    ]


def _named_payer(body: x402.FacilitatorRequest) -> str | None:
    """Return the payer that a payment names, read or not; None without one.

    The texts' examples of answers all have the payer, and the Python SDK of version 1 reads no
    other answer.
    """
    sent: Any = object_in(bytes(body.payment_payload)) or {}
    payload = sent.get("payload")
    known = payload if isinstance(payload, dict) else {}
    names = ["authorization", "permit2Authorization"]
    if _is_permit2(body):
        names.reverse()
    auth = known.get(names[0], known.get(names[1]))
    named = auth.get("from") if isinstance(auth, dict) else None
    try:
        return checksum(parse_address(named)) if isinstance(named, str) else None
    except ValueError:
        return None


def _is_permit2(body: x402.FacilitatorRequest) -> bool:
    sent: Any = object_in(bytes(body.payment_payload)) or {}
    return is_permit2(sent.get("payload")) and x402.version_in(_version(body)) == 2


async def _judged(
    facilitator: Facilitator, body: x402.FacilitatorRequest, *, settles: bool
) -> _Judged:
    """Verify or settle a payment, by Permit2 or by an authorization of EIP-3009."""
    judge = _by_permit2 if _is_permit2(body) else _by_authorization
    try:
        return await judge(facilitator, body, settles=settles)
    except Refused as refused:
        return _Judged(refused.reason, refused.message[:MOST_DETAIL], refused.tx_hash)
    except ChainUnavailable as error:  # nothing was sent
        unexpected = x402_reasons.UNEXPECTED_SETTLE if settles else x402_reasons.UNEXPECTED_VERIFY
        return _Judged(unexpected, str(error)[:MOST_DETAIL])


async def _by_permit2(
    facilitator: Facilitator, body: x402.FacilitatorRequest, *, settles: bool
) -> _Judged:
    payment, wanted = bytes(body.payment_payload), bytes(body.payment_requirements)
    requested = permit2.read(payment, wanted, settles=settles)
    if not settles:
        await permit2.verify(facilitator, requested)
        return _Judged(paid=(requested.payment, requested.wanted))
    outcome = await permit2.settle(facilitator, requested)
    if isinstance(outcome, PendingTransfer):
        return _Judged(x402_reasons.PENDING, WAITS, outcome.tx_hash)
    amount = requested.wanted.amount if requested.wanted.scheme == UPTO else None
    # the offer has the maximum
    offered = replace(requested.wanted, amount=str(requested.auth.amount))
    paid = (requested.payment, offered) if outcome else None
    return _Judged(sent=outcome, amount=amount, paid=paid)


async def _by_authorization(
    facilitator: Facilitator, body: x402.FacilitatorRequest, *, settles: bool
) -> _Judged:
    read = _read(facilitator, body)
    outcome: engine.SettleResult | None
    if settles:
        outcome = await engine.settle(facilitator, read.requested)
    else:
        outcome = await engine.verify_and_simulate(facilitator, read.requested)
    sent = None if outcome is None or isinstance(outcome, InvalidPayment) else outcome.tx_hash
    reason, message = await _why(facilitator, read, outcome)
    paid = (read.payment, read.wanted) if reason is None else None
    return _Judged(reason, message, sent, paid=paid)


async def _why(
    facilitator: Facilitator, read: _Read, outcome: engine.SettleResult | None
) -> tuple[str | None, str | None]:
    """Return the standard's reason for a refusal, None without one, and a message with the wanted
    and the given value; a balance is read from the chain.
    """
    if outcome is None or isinstance(outcome, Transferred):
        return None, None
    if isinstance(outcome, PendingTransfer):
        return x402_reasons.PENDING, WAITS
    if isinstance(outcome, InvalidPayment):
        if odd := _wrong_form(read.wanted, read.requested.network):  # no payment could fit these
            return x402_reasons.INVALID_REQUIREMENTS, odd
        return x402_reasons.invalid_reason(read.payment.version, outcome.why), outcome.difference
    auth, compared = read.payment.signed.authorization, facilitator.clock.now_s()
    clock = SERVER_CLOCK
    if outcome.block_s is not None:
        compared, clock = outcome.block_s, "the block's time is"
    match outcome.why:
        case Cause.BALANCE:
            return x402_reasons.FUNDS, await _balance(facilitator, auth)
        case Cause.NONCE:
            detail = f"nonce: {to_hex(auth.nonce)} is used or cancelled already"
            return x402_reasons.NONCE_USED[read.payment.version], detail
        case Cause.EARLY:
            return x402_reasons.VALID_AFTER, times("validAfter", auth.valid_after, compared, clock)
        case Cause.LATE:
            return x402_reasons.VALID_BEFORE, too_late(auth.valid_before, compared, clock)
        case Cause.SIGNATURE:
            return x402_reasons.SIGNATURE, outcome.why.value
        case other:
            return x402_reasons.STATE, outcome.detail[:MOST_DETAIL] or other.value


async def _balance(facilitator: Facilitator, auth: Authorization) -> str:
    """Return how much the payer lacks, if the chain reports it."""
    chain = facilitator.chain
    reads = Call(facilitator.account, chain.token, abi.balance_of(auth.from_))
    try:
        held = int.from_bytes(await chain.call(reads), "big")
    except ChainError:
        return str(Cause.BALANCE.value)
    return f"balance of {checksum(auth.from_)}: wanted {auth.value}, got {held}"


# --- reading -------------------------------------------------------------------------


def _read(facilitator: Facilitator, body: x402.FacilitatorRequest) -> _Read:
    """Read the parts of a request, in the named version; raises `Refused`."""
    named = _version(body)
    version = x402.version_in(named)
    if version is None:
        wrong_version = f"x402Version: wanted 1 or 2, got {shown(named)}"
        raise Refused(x402_reasons.INVALID_VERSION, wrong_version)
    ours = x402.network_name(version, facilitator.network)
    payment = _payment(version, bytes(body.payment_payload), ours)
    kind = _RequestedV1 if version == 1 else x402.RequirementsV2
    try:
        wanted: x402.AnyRequirements = decode(bytes(body.payment_requirements), kind)
    except BadMessage as wrong:
        raise Refused(x402_reasons.INVALID_REQUIREMENTS, str(wrong)) from None
    accepted = payment.accepted
    if accepted is not None and accepted != wanted and (odd := _wrong_form(accepted, ours)):
        raise Refused(x402_reasons.INVALID_PAYLOAD, odd)
    if wanted.max_timeout_seconds < 1:
        raise Refused(x402_reasons.INVALID_REQUIREMENTS, _wrong_form(wanted, ours))
    if (unsupported := x402.unsupported_in(wanted.extra)) is not None:
        raise Refused(unsupported.reason, str(unsupported))
    signed = payment.signed
    if wanted.amount == "0" and not signed.authorization.value:
        # anybody can sign payments of nothing, without a token, and the gas would be ours
        raise Refused(x402_reasons.INVALID_REQUIREMENTS, "amount: wanted more than 0")
    if version == 1:  # a payment of version 1 names no token: the signature binds the token
        signed = msgspec.structs.replace(signed, asset=wanted.asset)
    requested = Requested(
        signed,
        RequiredPayment(
            scheme=wanted.scheme,
            network=wanted.network,
            pay_to=wanted.pay_to,
            asset=wanted.asset,
            max_amount_required=wanted.amount,
            max_timeout_seconds=wanted.max_timeout_seconds,
        ),
        ours,
        StandardTerms(
            may_exceed=version == 1, domain=wanted.extra or {}, now_s=facilitator.clock.now_s()
        ),
    )
    return _Read(requested, payment, wanted)


class _RequestedV1(x402.RequirementsV1, frozen=True):
    """Requirements of version 1, with every field that the text of version 1 demands."""

    resource: str
    description: str


def _payment(version: x402.Version, sent: bytes, ours: str) -> x402.StandardPayment:
    """Read the payment in a request; raises `Refused`.

    An unreadable payment of another network is refused for the network.
    """
    try:
        return x402.payment_of(version, sent)
    except x402.Unsupported as other:
        raise Refused(other.reason, str(other)) from None
    except BadMessage as wrong:
        terms: Any = object_in(sent) or {}
        terms = terms if version == 1 else terms.get("accepted")
        network = terms.get("network") if isinstance(terms, dict) else None
        if isinstance(network, str) and network != ours:
            detail = f"network: wanted {ours}, got {network[:80]}"
            raise Refused(x402_reasons.NETWORK, detail) from None
        raise Refused(x402_reasons.INVALID_PAYLOAD, str(wrong)) from None


def _wrong_form(wanted: x402.AnyRequirements, ours: str | None) -> str:
    """Return which amount, time or address of some requirements is malformed; "" if none is.

    Requirements of another scheme or network may have other forms, and are refused by name.
    """
    if wanted.max_timeout_seconds < 1:
        return f"maxTimeoutSeconds: wanted at least 1, got {shown(wanted.max_timeout_seconds)}"
    if wanted.scheme != x402.SCHEME or wanted.network != ours:
        return ""
    amount_name = "maxAmountRequired" if isinstance(wanted, x402.RequirementsV1) else "amount"
    for name, parse, value in (
        (amount_name, parse_base, wanted.amount),
        ("payTo", parse_address, wanted.pay_to),
        ("asset", parse_address, wanted.asset),
    ):
        try:
            parse(value)
        except ValueError as wrong:
            return f"{name}: {wrong}"
    return ""


def _version(body: x402.FacilitatorRequest) -> Any:
    """Return the version that a request names, or else the payment in it."""
    if body.x402_version is not None:
        return body.x402_version
    named: x402.Versioned | None = decoded(bytes(body.payment_payload), x402.Versioned)
    return None if named is None else named.x402_version
