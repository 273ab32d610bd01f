"""The facilitator's HTTP API, in the dialect of the public Cronos facilitator.

`verify` and `settle` refuse a payment with a 200. A body that cannot be read is a 400, and a
transaction that is not mined in time a 504.
"""

from typing import assert_never

import msgspec
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from x402sim.chain.base import ChainUnavailable
from x402sim.chain.reverts import Cause
from x402sim.facilitator import engine
from x402sim.http import web
from x402sim.protocol import cronos
from x402sim.protocol.cronos import SettleError
from x402sim.protocol.crypto import checksum, to_hex
from x402sim.protocol.header import present
from x402sim.protocol.rules import InvalidReason
from x402sim.text.words import iso

_FIELDS = ", ".join(
    field.encode_name for field in msgspec.structs.fields(cronos.FacilitatorRequest)
)
INDEX = f"""\
A facilitator, as the public Cronos facilitator documents it.
GET  {cronos.HEALTH_PATH}
GET  {cronos.SUPPORTED_PATH}
POST {cronos.VERIFY_PATH}   {{{_FIELDS}}}
POST {cronos.SETTLE_PATH}   the same body
"""
_ERRORS = {
    Cause.NONCE: SettleError.USED,
    Cause.LATE: SettleError.EXPIRED,
    Cause.EARLY: SettleError.EARLY,
    Cause.SIGNATURE: SettleError.SIGNATURE,
    Cause.BALANCE: SettleError.BALANCE,
}
"""The answers of settle if the token refuses the transfer; any other cause failed on the chain."""


_UNREAD = engine.InvalidPayment(InvalidReason.HEADER)


def routes(facilitator: engine.Facilitator) -> list[Route]:
    """Return the routes of this dialect."""

    async def healthcheck(_: Request) -> Response:
        uptime_s = facilitator.clock.now() - facilitator.started_s
        results = cronos.Uptime(
            uptime=round(uptime_s, 2),
            response_time=(int(uptime_s), int(uptime_s % 1 * 1e9)),
            message="OK",
            timestamp=facilitator.clock.now_ms(),
        )
        return web.answer(cronos.Health(status="success", results=results))

    async def supported(_: Request) -> Response:
        kind = cronos.SupportedKind(
            x402_version=cronos.VERSION, scheme="exact", network=facilitator.network.name
        )
        return web.answer(cronos.Supported(kinds=[kind]))

    async def verify(request: Request) -> Response:
        requested = await _requested(request)
        rejected = await engine.verify(facilitator, requested) if requested else _UNREAD
        reason = cronos.invalid_reason(rejected.why, rejected.value) if rejected else None
        return web.answer(cronos.VerifyAnswer(is_valid=reason is None, invalid_reason=reason))

    async def settle(request: Request) -> Response:
        requested = await _requested(request)
        outcome = await engine.settle(facilitator, requested) if requested else _UNREAD
        if not isinstance(outcome, engine.PendingTransfer):
            return web.answer(_settle_answer(facilitator, outcome))
        if outcome.unavailable:
            raise ChainUnavailable(outcome.unavailable)
        return web.error(504, "Settlement timed out", "the transaction is not mined yet")

    return [
        Route(cronos.HEALTH_PATH, healthcheck, methods=["GET"]),
        Route(cronos.SUPPORTED_PATH, supported, methods=["GET"]),
        Route(cronos.VERIFY_PATH, verify, methods=["POST"]),
        Route(cronos.SETTLE_PATH, settle, methods=["POST"]),
    ]


async def _requested(request: Request) -> engine.Requested | None:
    """Read the header X402-Version and the body of verify or settle; raises `Refused` 400. None for
    a payment header that cannot be decoded.

    Decision: 2.3/version-header.
    """
    named = web.header(request, cronos.VERSION_HEADER.lower().encode())
    if named is not None and named != str(cronos.VERSION):
        wanted = f"wanted {cronos.VERSION}, got {named[:40]}"
        raise web.Refused(400, f"Unsupported {cronos.VERSION_HEADER}", wanted)
    body: cronos.FacilitatorRequest = web.parse(
        await web.read_body(request), cronos.FacilitatorRequest
    )
    if body.x402_version != cronos.VERSION:
        wanted = f"wanted {cronos.VERSION}, got {body.x402_version}"
        raise web.Refused(400, "Unsupported x402Version", wanted)
    signed = present(body.payment_header).signed
    return engine.Requested(signed, body.payment_requirements) if signed else None


def _settle_answer(
    facilitator: engine.Facilitator,
    outcome: engine.Transferred | engine.NotTransferred | engine.InvalidPayment,
) -> cronos.SettleAnswer:
    match outcome:
        case engine.Transferred():
            auth = outcome.authorization
            return cronos.Settled(
                x402_version=cronos.VERSION,
                tx_hash=to_hex(outcome.tx_hash),
                from_=checksum(auth.from_),
                to=checksum(auth.to),
                value=str(auth.value),
                block_number=outcome.block_number,
                network=facilitator.network.name,
                timestamp=iso(facilitator.clock.now_ms()),
            )
        case engine.NotTransferred():
            error = _ERRORS.get(outcome.why, SettleError.FAILED).value
        case engine.InvalidPayment(why=InvalidReason.SIGNATURE):
            # settle and verify have different texts for it
            error = SettleError.SIGNATURE.value
        case engine.InvalidPayment():
            error = cronos.invalid_reason(outcome.why, outcome.value)
        case _:
            assert_never(outcome)
    return cronos.Failed(
        x402_version=cronos.VERSION,
        network=facilitator.network.name,
        timestamp=iso(facilitator.clock.now_ms()),
        error=error,
    )
