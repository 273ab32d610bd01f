"""The control API, /_sim: accounts, money, time, blocks, faults, snapshots.

It controls the whole world, so it accepts requests from programs on this machine only: no foreign
Host, no foreign Origin, and with a token only requests that present it.
"""

import hmac
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route

from x402sim.chain.base import ChainError, ChainUnavailable
from x402sim.http import web
from x402sim.http.web import Refused
from x402sim.world.control import blocks, clocks, faults, look, money, snapshots
from x402sim.world.control.context import Context, Nothing, number_in
from x402sim.world.control.recorder import Recorder

Action = Callable[[Context, Any], Awaitable[Any]]
ACTIONS: dict[tuple[str, str], tuple[Action, type[Any]]] = {
    ("GET", "/accounts"): (look.accounts, Nothing),
    ("GET", "/state"): (look.state, Nothing),
    ("POST", "/faucet"): (money.faucet, money.Faucet),
    ("POST", "/wallet"): (money.wallet, money.SmartWallet),
    ("POST", "/clock/advance"): (clocks.advance, clocks.Advance),
    ("POST", "/mine"): (blocks.mine, blocks.Mine),
    ("POST", "/mining"): (blocks.set_mining, blocks.Mining),
    ("POST", "/reorg"): (blocks.reorg, blocks.Reorg),
    ("POST", "/indexer/run"): (faults.run_indexer, Nothing),
    ("POST", "/snapshot"): (snapshots.snapshot, Nothing),
    ("POST", "/revert"): (snapshots.revert, snapshots.Revert),
    ("POST", "/reset"): (snapshots.reset, snapshots.Reset),
    ("GET", "/who"): (look.who, Nothing),
    ("GET", "/transfers"): (money.transfers, money.OfAccount),
    ("GET", "/explorer/queries"): (look.queries, look.Since),
    ("POST", "/balances"): (money.balances, money.Accounts),
    ("POST", "/send"): (money.send, money.Send),
    ("GET", "/faults"): (faults.standing, Nothing),
    ("POST", "/faults"): (faults.add, Any),
    ("POST", "/faults/clear"): (faults.clear, faults.Clear),
    ("POST", "/clock/skew"): (clocks.skew, clocks.Skew),
    ("POST", "/explorer/lag"): (clocks.lag, clocks.Lag),
    ("POST", "/crash"): (faults.crash, Nothing),
    ("POST", "/force-revert"): (blocks.force_revert, blocks.ForceRevert),
    ("POST", "/drop"): (blocks.drop, Nothing),
}
"""Every action except the journal, which is NDJSON."""


def control_app(
    context: Context,
    token: str | None,
    *,
    recorder: Recorder | None = None,
    pages: Sequence[Route] = (),
) -> Starlette:
    """Return the ASGI application of the control API; a `token` is required of every request.

    `?network=NAME` acts on another network than the first. `recorder` writes to the journal what
    was done here; a story does so itself. `pages` are more routes, which look at the token
    themselves.
    """
    parts = context.parts

    def route(method: str, path: str, action: Action, kind: type[Any]) -> Route:
        async def endpoint(request: Request) -> Response:
            require_token(request, token)
            if method == "GET":
                asked = web.parse_query(request, kind)
            else:
                asked = web.parse(await web.read_body(request) or b"{}", kind)
            network = request.query_params.get("network")
            done = await action(context.on(network) if network else context, asked)
            if recorder is not None and method == "POST":
                recorder.done(path, asked)
            return web.answer(done)

        return Route(path, endpoint, methods=[method])

    async def journal(request: Request) -> Response:
        """Answer the journal as NDJSON: its header, and the entries from ?since=SEQ on."""
        require_token(request, token)
        entries = parts.journal.ndjson(number_in(request, "since"))
        return Response(entries, media_type="application/x-ndjson")

    async def index(_: Request) -> Response:
        return PlainTextResponse(usage())

    routes = [route(*key, *action) for key, action in ACTIONS.items()]
    return web.application(
        [
            Route("/", index, methods=["GET"]),
            Route("/journal", journal, methods=["GET"]),
            *routes,
            *pages,
        ],
        {ChainError: _on_chain_error, ChainUnavailable: _on_chain_unavailable},
    )


def usage() -> str:
    """Return the list of actions, one line each."""
    lines = [
        f"{method:4} /_sim{path:<18} {(action.__doc__ or '').splitlines()[0]}"
        for (method, path), (action, _) in ACTIONS.items()
    ]
    told = "What happened, and what was done here, as NDJSON; ?since=SEQ skips the rest."
    lines.append(f"GET  /_sim{'/journal':<18} {told}")
    return "\n".join(lines) + "\n"


def require_token(request: Request, token: str | None) -> None:
    """Raise `Refused` 401 unless a request presents the token, if there is one."""
    if not has_token(request.headers.get("authorization", ""), token):
        raise Refused(401, "Control token needed", "send Authorization: Bearer TOKEN")


def has_token(authorization: str, token: str | None) -> bool:
    """Whether a request's Authorization presents the token, if there is one."""
    if token is None:
        return True
    return hmac.compare_digest(authorization.encode(), f"Bearer {token}".encode())


async def _on_chain_error(_: Request, error: Any) -> Response:
    return web.error(409, "The chain refused", str(error))


async def _on_chain_unavailable(_: Request, error: Any) -> Response:
    return web.error(503, "Chain unavailable", str(error))
