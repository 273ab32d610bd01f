"""Target files, which describe how a deployment differs from the specification's examples.

A target is a TOML file; every key has a default, which follows the specification. Places in
a JSON answer are JSON pointers (RFC 6901); "" means that the answer has no such field.
"""

import re
from pathlib import Path
from typing import Any, Literal

import msgspec

from x402sim.protocol import routes
from x402sim.suite.subjects import as_server
from x402sim.text.toml_file import read_toml


class _Part(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A table of a target file; an unknown key is an error."""


def _orders() -> list[dict[str, Any]]:
    """The body of section 4.2, twice: the specification does not show the values of `side`."""
    order = {"pair": "BTC-USD", "leverage": 10, "sizeUsd": 1000}
    return [{**order, "side": "long"}, {**order, "side": "buy"}]


def _quote() -> dict[str, Literal["string", "number"]]:
    return {
        "pair": "string",
        "entryPrice": "number",
        "liquidationPrice": "number",
        "fundingRate": "number",
        "bestVenue": "string",
    }


class ProtectedEndpoint(_Part, frozen=True, kw_only=True):
    """A protected endpoint. `bodies` are tried in order; the first that is served is used.

    `content` points to the paid content in an answer; `fields` are its fields and types.
    """

    path: str = routes.QUOTE
    method: str = "POST"
    bodies: list[dict[str, Any]] = msgspec.field(default_factory=_orders)
    amount_base: int = 10_000
    """The price in base units; 0 if it is open."""
    content: str = "/quote"
    fields: dict[str, Literal["string", "number"]] = msgspec.field(default_factory=_quote)
    resource: str = ""
    """The resource that a 402 must name; empty: the path."""
    second_pair: str = ""
    """Another pair that is quoted, if there is one."""


class SecondEndpoint(_Part, frozen=True, kw_only=True):
    """A second path that is sold: what is paid for one must not open the other."""

    path: str | None = None
    """Empty if there is none; None if that is not known."""
    method: str = "GET"
    body: dict[str, Any] = {}
    """Its body, unless it is a GET; empty: that of the protected endpoint."""


class PaymentRequiredShape(_Part, frozen=True, kw_only=True):
    """The body of a 402: where its fields are.

    `requirements` may lead to a list, of which `asset` names the token to pay with; without it,
    the first that can be paid is taken.
    """

    error: str = "/error"
    error_text: str = "Payment Required"
    payment_id: str = "/paymentId"
    requirements: str = "/paymentRequirements"
    message: str = "/message"
    network: str = "/network"
    max_timeout_s: int | None = 300
    description: bool = True
    """Whether its requirements have a description: 2.1 says "optional", and "present"."""
    asset: str = ""


class PayEndpoint(_Part, frozen=True, kw_only=True):
    """The settlement endpoint, and the encoding of the payment header."""

    path: str = routes.PAY
    spelling: Literal["hex", "base64"] = "hex"


class ReceiptShape(_Part, frozen=True, kw_only=True):
    """The answer to a settlement: where its fields are."""

    success: str = "/success"
    payment_id: str = "/paymentId"
    tx_hash: str = "/txHash"
    timestamp: str = "/timestamp"


class SessionsEndpoint(_Part, frozen=True, kw_only=True):
    """Session budgets.

    `claim` is how the id of a paid session is asked for: `repeat` the request with X-Payment-Id,
    `get` it from `claim_path`, or it is in the `receipt` of the deposit. `id` is where it is then:
    a JSON pointer, or the name of a header (of a URL, the last segment); without it, the first
    string session_… is taken.
    """

    exists: bool = True
    path: str = routes.SESSIONS
    duration: int = 3600
    smallest: str = "0.01"
    """The smallest deposit that it accepts, in tokens."""
    claim: Literal["repeat", "get", "receipt"] = "repeat"
    claim_path: str = ""
    """With {paymentId}, for `claim = "get"`."""
    id: str = ""
    shortest: int = 3
    """The shortest duration that is accepted: a session of it is waited for."""
    duration_unit_s: int = 0
    """How many seconds one unit of duration is; 0 if that is not known."""
    refund_within_s: int = 0
    """How long after its end a session is refunded at the latest; 0 if that is not known."""
    view: str = ""
    """The path of a session's state, with {sessionId}, if it can be read."""
    header: str = "X-Session-Id"
    """The header of a request that is paid from a session."""


class AgentsEndpoint(_Part, frozen=True, kw_only=True):
    """The list of agents."""

    exists: bool = True
    path: str = routes.AGENTS
    list: str = ""
    """Where the list is in the answer; empty if it is not known."""


class LlmsIndex(_Part, frozen=True, kw_only=True):
    """The documentation index."""

    exists: bool = True
    path: str = "/llms.txt"


class Indexer(_Part, frozen=True, kw_only=True):
    """The payment indexer, which a deployment for tests may run more often."""

    interval_s: int = 300


class RecordEndpoint(_Part, frozen=True, kw_only=True):
    """The stored payment, if it can be read: its path, with {paymentId}."""

    path: str = ""


class Target(_Part, frozen=True, kw_only=True):
    """A deployment to check.

    `statuses` are the HTTP statuses allowed for each settlement error's text; the specification
    names none, so a text without an entry may have any 4xx or 5xx. `not_kept` are clauses that it
    is known to break, with the reason: they are skipped.
    """

    name: str = "spec"
    protected: ProtectedEndpoint = ProtectedEndpoint()
    second: SecondEndpoint = SecondEndpoint()
    payment_required: PaymentRequiredShape = PaymentRequiredShape()
    pay: PayEndpoint = PayEndpoint()
    receipt: ReceiptShape = ReceiptShape()
    statuses: dict[str, list[int]] = {}
    sessions: SessionsEndpoint = SessionsEndpoint()
    agents: AgentsEndpoint = AgentsEndpoint()
    llms: LlmsIndex = LlmsIndex()
    record: RecordEndpoint = RecordEndpoint()
    indexer: Indexer = Indexer()
    not_kept: dict[str, str] = {}


SPEC = Target()
"""The target that the specification shows, with the default of every key."""


def load(file: Path) -> Target:
    """Load a target file; raises `ValueError` with the file and the key that is wrong.

    Older files of servers of the x402 standard, which have no `pay.path`, are refused with the
    command that judges those.
    """
    try:
        table = read_toml(file)
        target = msgspec.convert(table, Target)
    except msgspec.ValidationError as error:
        raise ValueError(f"{file}: {_wrong(str(error))}") from error
    except ValueError as error:
        raise ValueError(f"{file}: {error}") from error
    if not target.pay.path:
        sold = target.protected
        raise ValueError(
            f"{file}: pay.path is empty, so it describes a server of the x402 standard: "
            + as_server((sold.method, sold.path, sold.bodies[0] if sold.bodies else None))
        )
    return target if "name" in table else msgspec.structs.replace(target, name=file.stem)


_WRONG = re.compile(r"(?P<what>.*?)(?: - at `\$\.?(?P<key>.*)`)?")
_KINDS = {
    "int": "a whole number", "str": "a text", "bool": "true or false", "object": "a table",
    "array": "a list", "float": "a number",
}  # fmt: skip


def _wrong(message: str) -> str:
    """Return what msgspec tells of a table in the words of a target file."""
    found = _WRONG.fullmatch(message)
    assert found is not None
    what, key = found["what"], (found["key"] or "").replace("[...]", "")
    if unknown_key := re.fullmatch("Object contains unknown field `(.*)`", what):
        return f"{'.'.join(filter(None, [key, unknown_key[1]]))} is no key of a target file"
    if kinds := re.fullmatch("Expected `(.*?)(?: \\| null)?`, got `(.*)`", what):
        wanted, seen = (_KINDS.get(kind, kind) for kind in kinds.groups())
        return f"{key}: expected {wanted}, got {seen}"
    return f"{key}: {what[0].lower()}{what[1:]}"


def value_of(target: Target, key: str) -> Any:
    """Return the value of a key, such as "pay.spelling"."""
    table, name = key.split(".")
    return getattr(getattr(target, table), name)


def at(body: Any, pointer: str) -> Any:
    """Return the value at a JSON pointer; None without a value or a pointer."""
    if not pointer:
        return None
    for part in pointer.split("/")[1:]:
        key = part.replace("~1", "/").replace("~0", "~")
        if isinstance(body, list) and key.isdecimal() and int(key) < len(body):
            body = body[int(key)]
        elif isinstance(body, dict):
            body = body.get(key)
        else:
            return None
    return body
