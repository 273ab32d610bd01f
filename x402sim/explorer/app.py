"""The chain explorer's HTTP application: the routes of each dialect it speaks.

A new dialect is a file with `routes` like `etherscan.py`, and one entry here.
"""

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from x402sim.explorer import blockscout, cronos, etherscan
from x402sim.explorer.index import Index
from x402sim.http import page, web

DIALECTS = (etherscan, cronos, blockscout)
INDEX = f"""\
# A chain explorer

Each dialect has more actions than its example; POST takes the same fields.

    GET  /api?module=proxy&action=eth_getTransactionByHash&txhash=0x...   Etherscan
    GET  /api/v1/ethproxy/getTransactionByHash?txHash=0x...   Cronos
    GET  {blockscout.PATH}?module=transaction&action=gettxinfo&txhash=0x...   Blockscout
"""


def explorer_app(index: Index) -> Starlette:
    """Return the ASGI application of an explorer."""

    async def listed(request: Request) -> Response:
        return page.answer(request, INDEX, {}, media_type="text/plain")

    routes = [route for dialect in DIALECTS for route in dialect.routes(index)]
    return web.Application([Route("/", listed, methods=["GET"]), *routes])
