"""The control API, /_sim: accounts, money, time, blocks, faults, snapshots.

The API controls the whole world, and so accepts requests from programs on this machine only: no
foreign Host, no foreign Origin; with a token, every request must present the token.

Each operation of the OpenAPI document is a row of the table of actions. The schemas come from the
parameters and the return annotation of the action, so document and action cannot differ.
"""

import hmac
import inspect
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import msgspec
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route

from x402sim import events
from x402sim.chain.base import ChainError, ChainUnavailable
from x402sim.http import web
from x402sim.http.web import Refused
from x402sim.protocol.messages import ErrorBody
from x402sim.serving.control import actions
from x402sim.version import VERSION
from x402sim.world.faults import Fault, fields_of, read_fault
from x402sim.world.running_world import RunningWorld

Action = Callable[..., Awaitable[Any]]


def _message(action: Action, *, is_strict: bool) -> Any:
    _, *taken = inspect.signature(action).parameters.values()
    if [each.name for each in taken] == ["fault"]:
        return Any
    fields = [
        (each.name, each.annotation, *([] if each.default is each.empty else [each.default]))
        for each in taken
    ]
    return msgspec.defstruct(
        action.__name__, fields, rename={"sender": "from"}, forbid_unknown_fields=is_strict
    )


TABLE: tuple[tuple[str, str, Action, str], ...] = (
    ("GET", "/accounts", actions.accounts, "The funded accounts of `serve`, with their private keys and balances in base units."),
    ("GET", "/accounts/failing", actions.made_failing_accounts, "List the accounts that fail in fixed ways, if they were made."),
    ("POST", "/accounts/failing", actions.failing_accounts, "Make the accounts that fail in fixed ways, and list them: no balance, blacklisted, and so on."),
    ("GET", "/payments", actions.payments, "List the settled payments: ?path=/api/perp/quote&times=1 demands exactly one for the path."),
    ("GET", "/state", actions.state, "Show the state of the world: clock, chain, database and cache."),
    ("POST", "/faucet", actions.faucet, 'Mint tokens to an address: {"address": "0x…", "amount": "100.00"}.'),
    ("POST", "/wallet", actions.wallet, 'Make a contract wallet, unless the wallet exists: {"owner": "0x…"}.'),
    ("POST", "/clock/advance", actions.advance, 'Move the clock forward, then run what is due: {"seconds": 300}.'),
    ("POST", "/mine", actions.mine, 'Mine blocks: {"blocks": 1}. The first includes every waiting transaction.'),
    ("POST", "/mining", actions.set_mining, 'Mine each transaction immediately, or only on demand: {"automine": false}.'),
    ("POST", "/reorg", actions.reorg, 'Replace the newest blocks: {"depth": 1, "drop": ["0x…"]}.'),
    ("POST", "/indexer/run", actions.run_indexer, "Run the payment indexer now; return its counts, all 0 if a crash cut it short."),
    ("POST", "/snapshot", actions.snapshot, 'Take a snapshot of chain, database and cache; answers {"snapshot": id}.'),
    ("POST", "/revert", actions.revert, 'Revert to a snapshot: {"snapshot": id}. It and all later ones are deleted.'),
    ("POST", "/reset", actions.reset, "Reset to block 0, an empty database and the initial balances."),
    ("GET", "/who", actions.who, "Describe the world: merchant, token, owner, network, capabilities."),
    ("GET", "/transfers", actions.transfers, "List the token's transfers, oldest first: ?account=0x… from or to this account only."),
    ("GET", "/explorer/queries", actions.explorer_queries, "The newest queries to the explorer about transactions, oldest first; ?since=MS later ones."),
    ("POST", "/balances", actions.balances, 'Read balances in base units: {"accounts": ["0x…"]}.'),
    ("POST", "/send", actions.send, 'Send a transaction of any account: {"from": "0x…", "to": "0x…", "data": "0x…"}.'),
    ("GET", "/faults", actions.faults, "List the active faults."),
    ("POST", "/faults", actions.add_fault, 'Inject a fault: {"victim": "facilitator", "does": "lose answer", "path": "/settle"}.'),
    ("POST", "/faults/clear", actions.clear_faults, "Reset faults, clock skews, the explorer's lag, forced reverts, mining and facilitators."),
    ("POST", "/clock/skew", actions.skew, "Skew an actor's clock: {\"actor\": \"service\", \"seconds\": -30}."),
    ("POST", "/explorer/lag", actions.lag_explorer, 'Make the explorer lag behind the chain: {"seconds": 600}.'),
    ("POST", "/facilitator", actions.set_facilitator, "Change a facilitator's settings: {\"receipt_timeout_s\": 0.5}."),
    ("POST", "/crash", actions.crash, "Kill the service; answers when it has restarted on its database, 1 second later."),
    ("POST", "/force-revert", actions.force_revert, 'Make the next calls of the token revert, or the next that name an account: {"calls": 1, "account": "0x…"}.'),
    ("POST", "/drop", actions.drop, "Drop every transaction from the mempool."),
    ("GET", "/journal", actions.journal, "What happened, and what was done here, as NDJSON; ?since=SEQ skips the rest."),
)  # fmt: skip
"""Every action, and the effect."""
ACTIONS: dict[tuple[str, str], tuple[Action, Any]] = {
    (method, path): (action, _message(action, is_strict=method == "POST"))
    for method, path, action, _ in TABLE
}
"""Every action, and the kind of message for the action."""


EVENTS: dict[str, Callable[..., events.StoryEvent]] = {
    "/clock/advance": lambda seconds: events.TimeAdvanced(seconds=seconds),
    "/clock/skew": lambda actor, seconds: events.ClockSkewed(victim=actor, seconds=seconds),
    "/explorer/lag": lambda seconds: events.ExplorerLagged(seconds=seconds),
    "/facilitator": lambda **given: events.Note(
        name="facilitator set", data={key: it for key, it in given.items() if it is not None}
    ),
    "/faults": lambda fault: events.FaultInjected(**fields_of(read_fault(fault))),
    "/faults/clear": lambda keep: events.Note(name="faults cleared", data={"keep": list(keep)}),
    "/drop": lambda: events.MempoolDropped(),
    "/force-revert": lambda calls, account: events.RevertsForced(
        calls=calls, account=account or msgspec.UNSET
    ),
    "/revert": lambda snapshot: events.Note(name="reverted", data={"snapshot": snapshot}),
    "/reset": lambda clock: events.Note(name="reset", data={"clock": True} if clock else {}),
}
"""The events of actions that change the world, by path, made from the action's parameters.

Recorded once the action is done. A crash, a reorganisation and a switch of mining have effects that
are recorded meanwhile: these three actions write the event themselves, before the effects.
"""


class Recorder:
    """Writes the actions of a server's control API and each striking fault to the journal.

    A scenario records actions itself.
    """

    def __init__(self, world: RunningWorld) -> None:
        self._journal, self._clock = world.journal, world.clock
        world.faults.on_inject.append(self._fault_injected)

    def done(self, path: str, given: dict[str, Any]) -> None:
        """Record a finished action, unless the events of the chain show the effect."""
        if path in EVENTS:
            self._record(EVENTS[path](**given))

    def _fault_injected(self, victim: str, fault: Fault, path: str) -> None:
        data = {"victim": victim, "does": fault.does, "path": path, "contains": fault.contains}
        if fault.caller is not msgspec.UNSET:
            data["caller"] = fault.caller
        self._record(events.Note(name="fault struck", data=data))

    def _record(self, event: events.StoryEvent) -> None:
        self._journal.record(self._clock.now_ms(), event)


def control_app(
    world: RunningWorld,
    token: str | None,
    *,
    recorder: Recorder | None = None,
    pages: Sequence[Route] = (),
) -> Starlette:
    """Return the ASGI application of the control API; a `token` is required of every request.

    `?network=NAME` acts on another network than the first. `recorder` writes the actions to the
    journal; a scenario writes its own. `pages` are more routes, which check the token themselves.
    """

    def route(method: str, path: str, action: Action, kind: Any) -> Route:
        async def endpoint(request: Request) -> Response:
            require_token(request, token)
            if method == "GET":
                message = web.parse_query(request, kind)
            else:
                message = web.parse(await web.read_body(request) or b"{}", kind)
            network = request.query_params.get("network")
            given = {"fault": message} if kind is Any else msgspec.structs.asdict(message)
            done = await action(actions.on_network(world, network) if network else world, **given)
            if recorder is not None and method == "POST":
                recorder.done(path, given)
            return done if isinstance(done, Response) else web.answer(done)

        return Route(path, endpoint, methods=[method])

    async def index(_: Request) -> Response:
        return PlainTextResponse(usage())

    async def described(_: Request) -> Response:
        return web.answer(openapi())

    routes = [route(*key, *action) for key, action in ACTIONS.items()]
    about = [Route("/", index, methods=["GET"]), Route("/openapi.json", described)]
    return web.Application([*about, *routes, *pages], {ChainError: _on_chain_error})


def usage() -> str:
    """Return the list of actions, one line each."""
    lines = [f"{method:4} /_sim{path:<18} {does}" for method, path, _, does in TABLE]
    return "\n".join(lines) + "\n"


def require_token(request: Request, token: str | None) -> None:
    """Raise `Refused` 401 unless a request presents the token, if any."""
    if not has_token(request.headers.get("authorization", ""), token):
        raise Refused(401, "Control token needed", "send Authorization: Bearer TOKEN")


def has_token(authorization: str, token: str | None) -> bool:
    """Whether a request's Authorization presents the token, if any."""
    if token is None:
        return True
    return hmac.compare_digest(authorization.encode(), f"Bearer {token}".encode())


async def _on_chain_error(_: Request, error: Any) -> Response:
    if isinstance(error, ChainUnavailable):
        return web.error(503, "Chain unavailable", str(error))
    return web.error(409, "The chain refused", str(error))


# --- its document -----------------------------------------------------------------------

Json = dict[str, Any]
_NETWORK = "The network of the server to act on, by name; default the first."
_LINES = {"schema": {"type": "string", "description": "One JSON object a line."}}


def openapi() -> Json:
    """Return the OpenAPI 3.1 document of the actions."""
    answers = [inspect.signature(action).return_annotation for _, _, action, _ in TABLE]
    takes = [Fault if kind is Any else kind for _, kind in ACTIONS.values()]
    kinds = [*takes, ErrorBody, *(each for each in answers if each is not Response)]
    template = "#/components/schemas/{name}"
    found, schemas = unindented(msgspec.json.schema_components(kinds, ref_template=template))
    schema_of = dict(zip(kinds, found, strict=True))
    paths: dict[str, Json] = {}
    for (method, path, action, does), taken, answer in zip(TABLE, takes, answers, strict=True):
        fields = schemas[taken.__name__] if taken is Fault else schemas.pop(taken.__name__)
        media = {"application/json": {"schema": schema_of.get(answer)}}
        content = {"application/x-ndjson": _LINES} if answer is Response else media
        operation: Json = {
            "operationId": camel(action.__name__),
            "summary": does,
            "parameters": [{"$ref": "#/components/parameters/network"}],
            "responses": {
                "200": {"description": "It is done.", "content": content},
                "default": {"$ref": "#/components/responses/Refused"},
            },
        }
        required = fields.get("required", [])
        if method == "GET":
            operation["parameters"] += [
                {"name": name, "in": "query", "required": name in required, "schema": schema}
                for name, schema in fields["properties"].items()
            ]
        else:
            sent = {"schema": schema_of[Fault] if taken is Fault else fields}
            body = {"required": bool(required), "content": {"application/json": sent}}
            operation["requestBody"] = body
        paths.setdefault(path, {})[method.lower()] = operation
    return {
        "openapi": "3.1.1",
        "info": {"title": "x402sim's control API", "version": VERSION},
        "servers": [{"url": "/_sim"}],
        "security": [{}, {"token": []}],
        "paths": paths,
        "components": {
            "schemas": schemas,
            "parameters": {
                "network": {
                    "name": "network",
                    "in": "query",
                    "description": _NETWORK,
                    "schema": {"type": "string"},
                }
            },
            "responses": {
                "Refused": {
                    "description": "It is refused, and why.",
                    "content": {"application/json": {"schema": schema_of[ErrorBody]}},
                }
            },
            "securitySchemes": {
                "token": {
                    "type": "http",
                    "scheme": "bearer",
                    "description": "Needed if the server has a --control-token.",
                }
            },
        },
    }


def camel(name: str) -> str:
    """Return a name of Python as JSON and JavaScript write it."""
    first, *rest = name.split("_")
    return first + "".join(map(str.capitalize, rest))


def unindented(schema: Any) -> Any:
    """Return a schema whose descriptions have no indentation of the source.

    Python before 3.13 keeps indentation in a docstring, and Markdown reads indented text as code.
    """
    match schema:
        case dict():
            return {
                name: inspect.cleandoc(value)
                if name == "description" and isinstance(value, str)
                else unindented(value)
                for name, value in schema.items()
            }
        case list() | tuple():
            return [unindented(each) for each in schema]
        case _:
            return schema
