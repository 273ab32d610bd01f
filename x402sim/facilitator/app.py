"""The facilitator's HTTP API, as the public Cronos facilitator documents it.

A refusal is an answer, not an error: verify and settle say no in a 200. Only a body
that is no request at all is a 400, and a transaction that is still not mined a 504.
"""

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route

from x402sim import web
from x402sim.facilitator import engine
from x402sim.facilitator.engine import Facilitator
from x402sim.protocol.messages import VerifyRequest

INDEX = """\
A facilitator, as the public Cronos facilitator documents it.
GET  healthcheck
GET  v2/x402/supported
POST v2/x402/verify   {"x402Version": 1, "paymentHeader": "0x...", "paymentRequirements": {...}}
POST v2/x402/settle   the same body
"""


def facilitator_app(facilitator: Facilitator) -> Starlette:
    """Return the ASGI application of a facilitator."""

    async def index(_: Request) -> Response:
        return PlainTextResponse(INDEX)

    async def healthcheck(_: Request) -> Response:
        uptime_s = facilitator.clock.now() - facilitator.started_s
        results = {
            "uptime": round(uptime_s, 2),
            "responseTime": [int(uptime_s), int(uptime_s % 1 * 1e9)],
            "message": "OK",
            "timestamp": facilitator.clock.now_ms(),
        }
        return web.answer({"status": "success", "results": results})

    async def supported(_: Request) -> Response:
        kind = {"x402Version": 1, "scheme": "exact", "network": facilitator.network.name}
        return web.answer({"kinds": [kind]})

    async def verify(request: Request) -> Response:
        return web.answer(engine.verify(facilitator, await _read(request)))

    async def settle(request: Request) -> Response:
        asked = await _read(request)
        try:
            return web.answer(await engine.settle(facilitator, asked))
        except TimeoutError:
            return web.error(504, "Settlement timed out", "the transaction is not mined yet")

    return web.application(
        [
            Route("/", index, methods=["GET"]),
            Route("/healthcheck", healthcheck, methods=["GET"]),
            Route("/v2/x402/supported", supported, methods=["GET"]),
            Route("/v2/x402/verify", verify, methods=["POST"]),
            Route("/v2/x402/settle", settle, methods=["POST"]),
        ]
    )


async def _read(request: Request) -> VerifyRequest:
    asked: VerifyRequest = web.parse(await web.read_body(request), VerifyRequest)
    if asked.x402_version != 1:
        raise web.Refused(400, "Unsupported x402Version", f"wanted 1, got {asked.x402_version}")
    return asked
