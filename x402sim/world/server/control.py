"""/_sim: what only a simulated world offers. Accounts, money, time, blocks, and going back.

Whoever can reach it owns the world, so it takes requests from this machine's own
programs only: no foreign Host, no foreign Origin, and with a token only who knows it.
"""

import asyncio
import hmac
import sqlite3
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Annotated, Any

import msgspec
from msgspec import Meta
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route

from x402sim import web
from x402sim.chain.base import ChainError
from x402sim.protocol.crypto import parse_address
from x402sim.protocol.money import MAX_STORED, to_base
from x402sim.service import indexer, sessions
from x402sim.service.entitlements import Entitlement
from x402sim.service.reconcile import reconcile
from x402sim.web import Refused, bad_body
from x402sim.world.assembly.parts import Parts
from x402sim.world.server import interventions
from x402sim.world.server.interventions import Nothing, Reach, balance

LATEST_S = 221_845_392_000
"""The year 9000, in Unix seconds: later times have no date."""


class Faucet(msgspec.Struct, frozen=True):
    """Mint `amount` tokens, a decimal string."""

    address: str
    amount: str = "100.00"


class Advance(msgspec.Struct, frozen=True):
    """Move the clock forward."""

    seconds: Annotated[float, Meta(ge=0, le=10 * 366 * 86400)]


class Mine(msgspec.Struct, frozen=True):
    """Mine blocks."""

    blocks: Annotated[int, Meta(ge=1, le=1000)] = 1


class Mining(msgspec.Struct, frozen=True):
    """Mine every transaction at once, or only on demand."""

    automine: bool


class Reorg(msgspec.Struct, frozen=True):
    """Replace the newest blocks; the transactions in `drop` are forgotten."""

    depth: Annotated[int, Meta(ge=1)] = 1
    drop: list[str] = []


class Revert(msgspec.Struct, frozen=True):
    """Go back to a snapshot."""

    snapshot: int


@dataclass(frozen=True, slots=True)
class _Saved:
    """A snapshot of what is not on the chain."""

    database: sqlite3.Connection
    entitlements: list[Entitlement]


@dataclass(frozen=True, slots=True)
class Control(Reach):
    """The control plane of one world."""

    saved: dict[int, _Saved] = field(default_factory=dict)
    running: set[asyncio.Task[None]] = field(default_factory=set)


async def accounts(control: Control, _: Nothing) -> Any:
    """The ten funded accounts, with their private keys and balances in base units."""
    return [
        {
            "address": wallet.address,
            "privateKey": wallet.private_key,
            "balance": str(await balance(control.parts, wallet.address_bytes)),
        }
        for wallet in control.parts.accounts
    ]


async def state(control: Control, _: Nothing) -> Any:
    """Where the world stands: its clock, chain, database and cache."""
    parts = control.parts
    chain = parts.chain
    head = await chain.block(await chain.height())
    return {
        "now": parts.clock.now_ms(),
        "clockAdvancedSeconds": parts.clock.offset_s,
        "network": parts.service.settings.network.name,
        "chain": {
            "chainId": chain.chain_id,
            "height": head.number if head else None,
            "timestamp": head.timestamp_s if head else None,
            "automine": chain.automine,
            "waiting": await chain.waiting(),
            "supply": str(await chain.supply()),
        },
        "rows": parts.service.store.counts(),
        "pendingPayments": len(parts.service.store.payments.pending()),
        "cachedEntitlements": len(parts.service.entitlements),
        "snapshots": sorted(control.saved),
    }


async def faucet(control: Control, asked: Faucet) -> Any:
    """Mint tokens to an address: {"address": "0x…", "amount": "100.00"}.

    Where blocks come at their own pace, it is in one when this answers.
    """
    decimals = control.parts.service.settings.network.decimals
    try:
        account, amount_base = parse_address(asked.address), to_base(asked.amount, decimals)
    except ValueError as error:
        raise bad_body(str(error)) from error
    if not 0 < amount_base <= MAX_STORED:
        raise bad_body(f"cannot mint {amount_base} base units")
    await control.parts.chain.fund(account, amount_base)
    await interventions.come_to_a_block(control.parts)
    return {"address": asked.address, "balance": str(await balance(control.parts, account))}


async def advance(control: Control, asked: Advance) -> Any:
    """Move the clock forward, then end what is due: {"seconds": 300}.

    A block is mined at the new time (when automining). When it answers, expired sessions
    are refunded, old entitlements are gone from the cache and pending payments were
    looked at, or 2 seconds have passed; the indexer runs on its own schedule.
    """
    parts = control.parts
    if parts.clock.now() + asked.seconds > LATEST_S:
        raise bad_body("the clock cannot go past the year 9000")
    if not parts.chain.is_ours:
        raise ChainError("the chain is not ours: on it time is real")
    parts.clock.advance(asked.seconds)
    if parts.chain.automine:
        await parts.chain.mine()
    parts.service.entitlements.sweep(parts.clock.now_ms())
    due = asyncio.create_task(_end_what_is_due(parts))
    control.running.add(due)
    due.add_done_callback(control.running.discard)
    await asyncio.wait({due}, timeout=2)
    if due.done():
        due.result()  # a failure is told, not swallowed
    return {"now": parts.clock.now_ms()}


async def _end_what_is_due(parts: Parts) -> None:
    await sessions.expire(parts.service)
    await reconcile(parts.service)


async def mine(control: Control, asked: Mine) -> Any:
    """Mine blocks: {"blocks": 1}. The first takes all waiting transactions."""
    return {"height": await control.parts.chain.mine(asked.blocks)}


async def mining(control: Control, asked: Mining) -> Any:
    """Mine every transaction at once, or only on demand: {"automine": false}."""
    await control.parts.chain.set_automine(asked.automine)
    return {"automine": asked.automine}


async def reorg(control: Control, asked: Reorg) -> Any:
    """Replace the newest blocks: {"depth": 1, "drop": ["0x…"]}. The rest is mined again."""
    drop = [interventions.tx_hash(text) for text in asked.drop]
    await control.parts.chain.reorg(asked.depth, drop)
    return {"height": await control.parts.chain.height()}


async def run_indexer(control: Control, _: Nothing) -> Any:
    """Run the payment indexer now; answers what it did."""
    return await indexer.run(control.parts.service)


async def snapshot(control: Control, _: Nothing) -> Any:
    """Remember chain, database and cache: answers {"snapshot": id}. The clock goes on."""
    service = control.parts.service
    number = await control.parts.chain.snapshot()
    control.saved[number] = _Saved(service.store.copy(), service.entitlements.all())
    return {"snapshot": number}


async def revert(control: Control, asked: Revert) -> Any:
    """Go back to a snapshot: {"snapshot": id}. It and all later ones are used up."""
    saved = control.saved.get(asked.snapshot)
    if saved is None:
        known = ", ".join(map(str, sorted(control.saved))) or "none"
        raise Refused(404, "Unknown snapshot", f"got {asked.snapshot}, there are: {known}")
    await control.parts.chain.revert(asked.snapshot)
    service = control.parts.service
    service.store.restore(saved.database)
    service.entitlements.clear()
    for entitlement in saved.entitlements:
        service.entitlements.add(entitlement)
    for number in [n for n in control.saved if n >= asked.snapshot]:
        control.saved.pop(number).database.close()
    return {"reverted": asked.snapshot}


async def reset(control: Control, _: Nothing) -> Any:
    """Begin again: block 0, an empty database, full accounts. The clock stays where it is."""
    await control.parts.chain.reset()
    control.parts.service.store.clear()
    control.parts.service.entitlements.clear()
    for saved in control.saved.values():
        saved.database.close()
    control.saved.clear()
    return {"reset": True}


Action = Callable[[Control, Any], Awaitable[Any]]
ACTIONS: dict[tuple[str, str], tuple[Action, type[Any]]] = {
    ("GET", "/accounts"): (accounts, Nothing),
    ("GET", "/state"): (state, Nothing),
    ("POST", "/faucet"): (faucet, Faucet),
    ("POST", "/clock/advance"): (advance, Advance),
    ("POST", "/mine"): (mine, Mine),
    ("POST", "/mining"): (mining, Mining),
    ("POST", "/reorg"): (reorg, Reorg),
    ("POST", "/indexer/run"): (run_indexer, Nothing),
    ("POST", "/snapshot"): (snapshot, Nothing),
    ("POST", "/revert"): (revert, Revert),
    ("POST", "/reset"): (reset, Nothing),
    **interventions.ACTIONS,
}
"""Every action but the journal, which is a stream of lines."""


def control_app(parts: Parts, token: str | None) -> Starlette:
    """Return the ASGI application of the control plane; with a token it must be presented."""
    control = Control(parts)

    def route(method: str, path: str, action: Action, kind: type[Any]) -> Route:
        async def endpoint(request: Request) -> Response:
            _require_token(request, token)
            body = await web.read_body(request) if method == "POST" else b""
            return web.answer(await action(control, web.parse(body or b"{}", kind)))

        return Route(path, endpoint, methods=[method])

    async def journal(request: Request) -> Response:
        """Answer the journal's events as NDJSON, from ?since=SEQ on."""
        _require_token(request, token)
        since = request.query_params.get("since", "0")
        if not since.isdecimal() or len(since) > 18:
            raise Refused(400, "Invalid query", f"since: expected a number, got {since[:40]!r}")
        lines = b"".join(msgspec.json.encode(e) + b"\n" for e in parts.journal.since(int(since)))
        return Response(lines, media_type="application/x-ndjson")

    async def index(_: Request) -> Response:
        return PlainTextResponse(usage())

    routes = [route(*key, *action) for key, action in ACTIONS.items()]
    return web.application(
        [
            Route("/", index, methods=["GET"]),
            Route("/journal", journal, methods=["GET"]),
            *routes,
        ],
        {ChainError: _on_chain_error},
    )


def usage() -> str:
    """Return what the control plane offers, a line each."""
    lines = [
        f"{method:4} /_sim{path:<15} {(action.__doc__ or '').splitlines()[0]}"
        for (method, path), (action, _) in ACTIONS.items()
    ]
    lines.append(f"GET  /_sim{'/journal':<15} What happened, as NDJSON; ?since=SEQ skips the rest.")
    return "\n".join(lines) + "\n"


def _require_token(request: Request, token: str | None) -> None:
    if token is None:
        return
    given = request.headers.get("authorization", "")
    if not hmac.compare_digest(given.encode(), f"Bearer {token}".encode()):
        raise Refused(401, "Control token needed", "send Authorization: Bearer TOKEN")


async def _on_chain_error(_: Request, error: Any) -> Response:
    return web.error(409, "The chain refused", str(error))
