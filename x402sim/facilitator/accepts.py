"""POST /accepts: which offers of a shop this facilitator settles, with their token's domain.

The standard does not have it; shops with `@faremeter/middleware` ask it before each 402.
"""

from collections.abc import Sequence
from typing import Any

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from x402sim.facilitator.engine import Facilitator
from x402sim.http import web
from x402sim.protocol.crypto import to_hex
from x402sim.protocol.networks import Network
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
        said = object_in(await web.read_body(request))
        listed = None if said is None else said.get("accepts")
        if said is None or not isinstance(listed, list):
            return web.error(400, "Invalid request", "a JSON object with `accepts`, a list")
        kept = [_completed(each, network) for each, network in _settled(listed, known)]
        return web.answer({**said, "accepts": kept})

    return Route(PATH, accepts, methods=["POST"])


def _settled(listed: list[Any], known: dict[str, Network]) -> list[tuple[dict[str, Any], Network]]:
    """Return the offers that can be settled here, each with its network."""
    found = []
    for each in listed:
        if not isinstance(each, dict) or each.get("scheme") != SCHEME:
            continue
        network = network_called(each.get("network"), known)
        if network and str(each.get("asset")).lower() == to_hex(network.asset):
            found.append((each, network))
    return found


def _completed(offer: dict[str, Any], network: Network) -> dict[str, Any]:
    """Return an offer whose `extra` names the token's domain, unless it says another itself."""
    extra = offer.get("extra")
    return offer | {"extra": domain_of(network) | (extra if isinstance(extra, dict) else {})}
