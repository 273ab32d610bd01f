"""The dialect of the Cronos explorer: `/api/v1/ethproxy/get…?txHash=0x…`.

A bad hash is a 400; an `apikey` is ignored.
"""

from collections.abc import Awaitable, Callable

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from x402sim import web
from x402sim.chain.rpc.jsonrpc import BadParams, quantity, read_hash
from x402sim.explorer.index import Index
from x402sim.explorer.objects import BY_HASH, ByHash

_PATH = "/api/v1/ethproxy/get"
_HASH = "txHash"


def routes(index: Index) -> list[Route]:
    """Return the routes of this dialect."""

    async def height(_: Request) -> Response:
        return web.answer({"result": quantity(await index.height())})

    by_hash = [Route(_PATH + name, _by_hash(index, ask)) for name, ask in BY_HASH.items()]
    return [Route(_PATH + "BlockNumber", height), *by_hash]


def _by_hash(index: Index, ask: ByHash) -> Callable[[Request], Awaitable[Response]]:
    async def by_hash(request: Request) -> Response:
        try:
            tx_hash = read_hash(request.query_params.get(_HASH, ""), _HASH)
        except BadParams as wrong:
            raise web.Refused(400, "Invalid transaction hash", str(wrong)) from wrong
        return web.answer({"result": await ask(index, tx_hash)})

    return by_hash
