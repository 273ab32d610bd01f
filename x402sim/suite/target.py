"""How a deployment differs where the specification leaves room, or an older one is spoken.

A target is a TOML file; what it leaves out is as in the default, the specification to
the letter. Places in a JSON answer are JSON pointers (RFC 6901); "" means there is none.
"""

import tomllib
from pathlib import Path
from typing import Any, Literal

import msgspec


class _Part(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A table of a target file; a key it does not know is an error."""


def _orders() -> list[dict[str, Any]]:
    """The bodies of section 4.2; the allowed values of side are not shown, so there are two."""
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
    """A protected endpoint. `bodies` are tried in order; the first one served is used.

    `content` is where an answer has what was paid for, and `fields` what that must hold.
    """

    path: str = "/api/perp/quote"
    method: str = "POST"
    bodies: list[dict[str, Any]] = msgspec.field(default_factory=_orders)
    amount_base: int = 10_000
    """The price in base units; 0 if it is open."""
    content: str = "/quote"
    fields: dict[str, Literal["string", "number"]] = msgspec.field(default_factory=_quote)


class PaymentRequiredShape(_Part, frozen=True, kw_only=True):
    """The body of a 402: where its parts are."""

    error: str = "/error"
    error_text: str = "Payment Required"
    payment_id: str = "/paymentId"
    requirements: str = "/paymentRequirements"
    message: str = "/message"
    network: str = "/network"
    max_timeout_s: int | None = 300


class PayEndpoint(_Part, frozen=True, kw_only=True):
    """The settlement endpoint, and which spelling of the payment header it takes."""

    path: str = "/api/pay"
    spelling: Literal["hex", "base64"] = "hex"


class ReceiptShape(_Part, frozen=True, kw_only=True):
    """The answer to a settlement: where its parts are, and which exist."""

    success: str = "/success"
    payment_id: str = "/paymentId"
    tx_hash: str = "/txHash"
    timestamp: str = "/timestamp"


class SessionsEndpoint(_Part, frozen=True, kw_only=True):
    """Session budgets. The session's id is the first string session_… in the answer."""

    exists: bool = True
    path: str = "/api/sessions/create"
    duration: int = 3600
    view: str = ""
    """The path of a session's state, with {sessionId}, if it can be read."""


class AgentsEndpoint(_Part, frozen=True, kw_only=True):
    """The list of agents."""

    exists: bool = True
    path: str = "/api/agents"


class LlmsIndex(_Part, frozen=True, kw_only=True):
    """The documentation index."""

    exists: bool = True
    path: str = "/llms.txt"


class RecordEndpoint(_Part, frozen=True, kw_only=True):
    """The stored payment, if it can be read: its path, with {paymentId}."""

    path: str = ""


class Target(_Part, frozen=True, kw_only=True):
    """A deployment under judgement.

    `statuses` are the HTTP statuses allowed for each settlement error's text; the
    specification names none, so a text that is not there may come with any 4xx or 5xx.
    `keeps` are clauses it is known not to keep, with the reason: those are skipped.
    """

    name: str = "spec"
    protected: ProtectedEndpoint = ProtectedEndpoint()
    payment_required: PaymentRequiredShape = PaymentRequiredShape()
    pay: PayEndpoint = PayEndpoint()
    receipt: ReceiptShape = ReceiptShape()
    statuses: dict[str, list[int]] = {}
    sessions: SessionsEndpoint = SessionsEndpoint()
    agents: AgentsEndpoint = AgentsEndpoint()
    llms: LlmsIndex = LlmsIndex()
    record: RecordEndpoint = RecordEndpoint()
    not_kept: dict[str, str] = {}


def load(file: Path) -> Target:
    """Return the target a TOML file describes; raises `ValueError` saying where it is wrong."""
    try:
        told = tomllib.loads(file.read_text(encoding="utf-8"))
        target = msgspec.convert(told, Target)
    except (tomllib.TOMLDecodeError, msgspec.ValidationError, UnicodeDecodeError) as error:
        raise ValueError(f"{file}: {error}") from error
    return target if "name" in told else msgspec.structs.replace(target, name=file.stem)


def at(body: Any, pointer: str) -> Any:
    """Return what stands at a JSON pointer; None if nothing does, or there is no pointer."""
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
