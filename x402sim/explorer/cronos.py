"""The dialect of the Cronos explorer: `/api/v1/ethproxy/get…?txHash=0x…`.

A bad hash is a 400; an `apikey` is ignored.
"""

from collections.abc import Awaitable, Callable

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from x402sim.explorer.index import Index
from x402sim.explorer.objects import BY_HASH, ByHash, block, execution_status, fields_of, ok
from x402sim.http import web
from x402sim.protocol.rpc_values import BadParams, Json, quantity, read_hash

_PATH = "/api/v1/ethproxy/get"
_STATUS_PATH = "/api/v1/transaction/getStatus"
_HASH = "txHash"
Answer = Callable[[Request], Awaitable[Response]]


def routes(index: Index) -> list[Route]:
    """Return the routes of this dialect."""

    async def height(_: Request) -> Response:
        return web.answer({"result": quantity(await index.height())})

    async def block_by_number(request: Request) -> Response:
        fields = await fields_of(request)
        is_full = fields.get("txDetail", "") == "true"
        try:
            return web.answer({"result": await block(index, fields.get("tag", ""), full=is_full)})
        except BadParams as wrong:
            raise web.Refused(400, "Invalid block tag", str(wrong)) from wrong

    def by_hash(ask: ByHash, wrap: Callable[[Json | None], Json]) -> Answer:
        async def answered(request: Request) -> Response:
            fields = await fields_of(request)
            try:
                tx_hash = read_hash(fields.get(_HASH, ""), _HASH)
            except BadParams as wrong:
                raise web.Refused(400, "Invalid transaction hash", str(wrong)) from wrong
            return web.answer(wrap(await ask(index, tx_hash)))

        return answered

    answers: dict[str, Answer] = {
        _PATH + "BlockNumber": height,
        _PATH + "BlockByNumber": block_by_number,
        _STATUS_PATH: by_hash(execution_status, ok),
        **{_PATH + name: by_hash(ask, lambda it: {"result": it}) for name, ask in BY_HASH.items()},
    }
    return [Route(path, answer, methods=["GET", "POST"]) for path, answer in answers.items()]
