"""The chain explorer's HTTP application: the routes of each dialect it speaks.

A new dialect is a file with `ANSWERS` like `etherscan.py`, an entry of `DIALECTS`, and a line of
`INDEX`. Its paths are fixed; the query names what is requested.
"""

from urllib.parse import parse_qsl

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from x402sim.explorer import cronos, etherscan
from x402sim.explorer.index import Answer, Index
from x402sim.http import page, web

DIALECTS = (etherscan, cronos)
INDEX = """\
# A chain explorer

Each dialect has more actions than its example; POST takes the same fields.

    GET  /api?module=proxy&action=eth_getTransactionByHash&txhash=0x...   Etherscan
    GET  /api/v1/ethproxy/getTransactionByHash?txHash=0x...   Cronos
"""


def explorer_app(index: Index) -> Starlette:
    """Return the ASGI application of an explorer."""

    async def listed(request: Request) -> Response:
        return page.answer(request, INDEX, {}, media_type="text/plain")

    def route(path: str, reply: Answer) -> Route:
        async def answered(request: Request) -> Response:
            fields = dict(request.query_params)
            if request.method == "POST":  # the fields of a form replace those of the URL
                body = await web.read_body(request)
                try:
                    fields |= dict(parse_qsl(body.decode(), keep_blank_values=True))
                except ValueError as wrong:
                    raise web.bad_body(f"expected a form: {wrong}") from wrong
            return web.answer(await reply(index, fields))

        return Route(path, answered, methods=["GET", "POST"])

    routes = [route(*each) for dialect in DIALECTS for each in dialect.ANSWERS.items()]
    return web.Application([Route("/", listed, methods=["GET"]), *routes])
