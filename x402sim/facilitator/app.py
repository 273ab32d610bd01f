"""The facilitator's HTTP application: the routes of each dialect it speaks.

A new dialect is a file with `routes` and `INDEX` like `cronos.py`, and one entry here.
"""

from typing import Any

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route

from x402sim.chain.base import ChainUnavailable
from x402sim.facilitator import cronos, standard
from x402sim.facilitator.discovery import Catalogue
from x402sim.facilitator.engine import Facilitator
from x402sim.http import web

DIALECTS = (standard, cronos)


def facilitator_app(
    facilitator: Facilitator, *others: Facilitator, catalogue: Catalogue | None = None
) -> Starlette:
    """Return the ASGI application of a facilitator, which may settle on several networks.

    Each network has a `Facilitator`; the dialect of Cronos has the first only. Without a
    `catalogue` an empty catalogue begins.
    """
    catalogue = catalogue or Catalogue(facilitator.clock)

    async def index(_: Request) -> Response:
        return PlainTextResponse("\n".join(dialect.INDEX for dialect in DIALECTS))

    return web.Application(
        [
            Route("/", index, methods=["GET"]),
            *standard.routes((facilitator, *others), catalogue),
            *cronos.routes(facilitator),
        ],
        {ChainUnavailable: _on_chain_unavailable},
    )


async def _on_chain_unavailable(_: Request, error: Any) -> Response:
    return web.error(503, "Chain unavailable", str(error))
