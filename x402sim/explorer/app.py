"""The chain explorer's HTTP application: the routes of each dialect it speaks.

A new dialect is a file with `routes` like `etherscan.py`, and one entry here.
"""

from starlette.applications import Starlette

from x402sim.explorer import blockscout, cronos, etherscan
from x402sim.explorer.index import Index
from x402sim.http import web

DIALECTS = (etherscan, cronos, blockscout)


def explorer_app(index: Index) -> Starlette:
    """Return the ASGI application of an explorer."""
    return web.application([route for dialect in DIALECTS for route in dialect.routes(index)])
