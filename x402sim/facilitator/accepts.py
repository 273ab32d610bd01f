"""POST /accepts: which offers of a shop this facilitator settles, with their token's domain.

The standard does not have it; shops with `@faremeter/middleware` ask it before each 402.
"""

from collections.abc import Sequence

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from x402sim.facilitator.engine import Facilitator
from x402sim.http import web
from x402sim.protocol.crypto import to_hex
from x402sim.protocol.ways import network_called, object_in
from x402sim.protocol.x402 import SCHEME, domain_of

PATH = "/accepts"
INDEX = f"""\
Beside the standard, for shops of @faremeter/middleware.
POST {PATH}   {{x402Version, accepts}}; answers those of `accepts` that it settles
"""


def route(facilitators: Sequence[Facilitator]) -> Route:
    """Return the route, for a facilitator on each of some networks."""
    known = {each.network.name: each.network for each in facilitators}

    async def accepts(request: Request) -> Response:
        fields = object_in(await web.read_body(request))
        listed = None if fields is None else fields.get("accepts")
        if fields is None or not isinstance(listed, list):
            return web.error(400, "Invalid request", "a JSON object with `accepts`, a list")
        kept = []
        for each in listed:
            if not isinstance(each, dict) or each.get("scheme") != SCHEME:
                continue
            network = network_called(each.get("network"), known)
            if network and str(each.get("asset")).lower() == to_hex(network.asset):
                extra = each.get("extra")  # what it says itself of the token's domain counts
                own = extra if isinstance(extra, dict) else {}
                kept.append(each | {"extra": domain_of(network) | own})
        return web.answer({**fields, "accepts": kept})

    return Route(PATH, accepts, methods=["POST"])
