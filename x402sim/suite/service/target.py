"""Target files, which describe how a deployment differs from the specification's examples.

A target is a TOML file; every key has a default of the specification. Places in a JSON answer are
JSON pointers (RFC 6901); "" means that the answer has no such field.

A value that departs from a sentence of the specification is no choice of a service. A demand judged
by such a value is not kept, even if the service behaves as the file says: the id is observed, and
names the sentence. `target init` writes such a value as a comment, and the checks judge the
service.
"""

import json
import re
import textwrap
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import msgspec

from x402sim.protocol import routes
from x402sim.protocol.header import Spelling
from x402sim.spec.ground import Sentence, sentence
from x402sim.suite.subject import as_server
from x402sim.text.toml_file import read_toml
from x402sim.text.words import printable


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
    """The price in base units; 0 if the price is open."""
    content: str = "/quote"
    fields: dict[str, Literal["string", "number"]] = msgspec.field(default_factory=_quote)
    resource: str = ""
    """The resource that a 402 must name; empty: the path."""
    second_pair: str = ""
    """Another quoted pair; empty without a second pair."""


class SecondEndpoint(_Part, frozen=True, kw_only=True):
    """A second path for sale: a payment for one path must not open the other."""

    path: str | None = None
    """Empty without a second path; None if unknown."""
    method: str = "GET"
    body: dict[str, Any] = {}
    """The body of a request other than GET; empty: the protected endpoint's."""


class PaymentRequiredShape(_Part, frozen=True, kw_only=True):
    """The body of a 402: the places of the fields.

    `requirements` may lead to a list, of which `asset` names the token to pay with; without
    `asset`, the first payable entry is taken.
    """

    error: str = "/error"
    error_text: str = "Payment Required"
    payment_id: str = "/paymentId"
    requirements: str = "/paymentRequirements"
    message: str = "/message"
    network: str = "/network"
    max_timeout_s: int | None = 300
    description: bool = True
    """Whether the requirements have a description: 2.1 says "optional", and "present"."""
    asset: str = ""


class PayEndpoint(_Part, frozen=True, kw_only=True):
    """The settlement endpoint, and the encoding of the payment header."""

    path: str = routes.PAY
    spelling: Spelling = "hex"


class ReceiptShape(_Part, frozen=True, kw_only=True):
    """The places of the fields in the answer to a settlement."""

    success: str = "/success"
    payment_id: str = "/paymentId"
    tx_hash: str = "/txHash"
    timestamp: str = "/timestamp"


class SessionsEndpoint(_Part, frozen=True, kw_only=True):
    """Session budgets.

    `claim` is how a payer gets the id of a paid session: `repeat` the request with X-Payment-Id,
    `get` the id from `claim_path`, or read the `receipt` of the deposit. `id` is the place of the
    id in the answer: a JSON pointer, or the name of a header (of a URL, the last segment counts);
    without a place, the first string session_… is taken.
    """

    exists: bool = True
    path: str = routes.SESSIONS
    duration: int = 3600
    smallest: str = "0.01"
    """The smallest accepted deposit, in tokens."""
    claim: Literal["repeat", "get", "receipt"] = "repeat"
    claim_path: str = ""
    """With {paymentId}, for `claim = "get"`."""
    id: str = ""
    shortest: int = 3
    """The shortest accepted duration: checks wait for the end of such a session."""
    duration_unit_s: int = 0
    """The seconds in one unit of duration; 0 if unknown."""
    refund_within_s: int = 0
    """The most seconds from the end of a session to its refund; 0 if unknown."""
    view: str = ""
    """The path of a session's state, with {sessionId}, if it can be read."""
    header: str = "X-Session-Id"
    """The header of a request paid from a session."""


class AgentsEndpoint(_Part, frozen=True, kw_only=True):
    """The list of agents."""

    exists: bool = True
    path: str = routes.AGENTS
    list: str = ""
    """The place of the list in the answer; empty if unknown."""


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
    names none, so a text without an entry may have any 4xx or 5xx.
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


SPEC = Target()
"""The target of the specification, with the default of every key."""


def load(file: Path) -> Target:
    """Load a target file; raises `ValueError` with the file and the wrong key.

    A file without `pay.path` describes a server of the x402 standard; its error names the command
    that judges servers.
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
    """Return msgspec's error about a table in the words of a target file."""
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


# --- departures from the specification -------------------------------------------------------


SHAPE = tuple(
    f"payment_required.{key}" for key in ("error", "error_text", "payment_id", "requirements")
)
"""The keys for the places of a 402's parts, and for its text."""


@dataclass(frozen=True, slots=True)
class Deviation:
    """A key of a target file ("pay.spelling"), a value, and the sentence that the value departs
    from."""

    key: str
    value: Any
    sentence: Sentence

    def __str__(self) -> str:
        """Return the key, its value and the sentence."""
        return f"{self.key} = {json.dumps(self.value)}; {self.sentence}"


Legal = Callable[[Any, Target], bool]


def _is_no_quote(_: Any, target: Target) -> bool:
    """Accept any value for another endpoint than the quote, the only endpoint of section 4.2."""
    return target.protected.path != SPEC.protected.path


_LEGAL: dict[str, Legal] = {
    "protected.amount_base": lambda value, target: value == 0 or _is_no_quote(value, target),
    "protected.content": _is_no_quote,
    "protected.fields": _is_no_quote,
    # the path, also with the prefix of a gateway
    "protected.resource": lambda value, target: (
        str(value).startswith("/") and str(value).endswith(target.protected.path)
    ),
    "payment_required.max_timeout_s": lambda value, _: value is None,
    # query parameters: section 4.3 does not show them
    "agents.path": lambda value, _: str(value).partition("?")[0] == SPEC.agents.path,
}
"""Tells for a key which other values are legal."""
_SENTENCES = {
    "protected.amount_base": "8: Quote price",
    "protected.content": "4.2: Proof of payment accepted",
    "protected.fields": "4.2: Proof of payment accepted",
    "protected.resource": "4.2: Its resource",
    "payment_required.error": "2.2: error",
    "payment_required.error_text": "2.2: error",
    "payment_required.payment_id": "2.2: paymentId",
    "payment_required.requirements": "2.2: paymentRequirements",
    "payment_required.message": "2.2: message",
    "payment_required.network": "2.2: network",
    "payment_required.max_timeout_s": "8: maxTimeoutSeconds",
    "pay.spelling": "2.3: An opaque hex string",
    "receipt.success": "4.1: success",
    "receipt.payment_id": "4.1: paymentId | string",
    "receipt.tx_hash": "4.1: txHash",
    "receipt.timestamp": "4.1: timestamp",
    "sessions.exists": "1: Alternatively, a client funds",
    "sessions.header": "2.6: A session is identified by an id",
    "agents.exists": "1: The service also lists agents",
    "agents.path": "1: The service also lists agents",
    "llms.exists": "4.5: A plain-text index",
    "llms.path": "4.5: A plain-text index",
}
"""Each key, and the sentence with its default."""


def deviations(target: Target) -> dict[str, Deviation]:
    """Return the keys of a target file that depart from a sentence, in the order of the file."""
    found = {}
    for key, name in _SENTENCES.items():
        value, is_legal = value_of(target, key), _LEGAL.get(key)
        is_other = value != value_of(SPEC, key)
        if is_other and not (is_legal and is_legal(value, target)):
            found[key] = Deviation(key, value, sentence(name))
    return found


# --- writing a target file -------------------------------------------------------------------


WIDTH = 80
NEEDED = (
    "payment_required.payment_id",
    "payment_required.requirements",
    "pay.spelling",
    "sessions.header",
)
"""Keys that are written even if they depart: without them nothing can be read or paid."""


@dataclass(frozen=True, slots=True)
class FoundKey:
    """A key of a target file: the value, and how the value was found; no value if not found."""

    key: str
    value: Any
    how: str
    is_sure: bool = True


@dataclass(frozen=True, slots=True)
class Looked:
    """The findings of a look: the base URL, and the keys of each table of a target file."""

    base_url: str
    tables: dict[str, list[FoundKey]]


_OWNERS = {
    "sessions.duration_unit_s": "the seconds in one unit of duration",
    "sessions.refund_within_s": "the seconds from the end of a session to its refund, at most",
    "indexer.interval_s": "the seconds between two runs of the payment indexer",
}
"""The keys that only the owner knows; without them, much is not judged."""

_WITHOUT_IT = "without it, 3/expiry-refund is judged in part"
_UNSEEN = {
    "protected.second_pair": "another pair that is quoted",
    "sessions.claim_path": "where a paid session is claimed, with {paymentId}",
    "sessions.id": "where the session id is: a JSON pointer or a header; empty: anywhere",
    "sessions.shortest": "the shortest duration that is accepted; its end is waited for",
    **{
        key: f"{_OWNERS[key]}; {_WITHOUT_IT}"
        for key in ("sessions.duration_unit_s", "sessions.refund_within_s")
    },
    "sessions.view": "the path of a session's state, with {sessionId}",
    "sessions.header": "the header that a request is paid with from a session",
    "record.path": "the path of a stored payment, with {paymentId}",
    "indexer.interval_s": _OWNERS["indexer.interval_s"],
}
"""The keys that no request shows, with their meaning."""


NO_SECOND = 'another path that is sold; set it, or set "" if there is none'
"""The comment where no second path was found: without the key, 5/resource-binding is open."""


def to_ask(looked: Looked) -> str:
    """Return the keys that the owner should set; empty without any."""
    lines = [
        f"  second.path: {NO_SECOND}"
        for each in looked.tables.get("second", ())
        if each.key == "path" and not each.is_sure
    ]
    if any(each.key == "path" for each in looked.tables.get("sessions", ())):
        lines += [f"  {key}: {meaning}" for key, meaning in _OWNERS.items()]
    return "\n".join(["only the owner knows, so set in the file:", *lines]) if lines else ""


def as_toml(looked: Looked, name: str) -> str:
    """Return a target file of the findings; an unsure or departing value is a comment."""
    tables = _with_unseen(looked.tables)
    sure = {
        table: {each.key: each.value for each in findings if each.is_sure}
        for table, findings in tables.items()
    }
    departing = deviations(msgspec.convert(sure, Target))
    lines = [
        f"# What could be found out about {looked.base_url} without paying, and how.",
        "# A line that begins with # was not seen, or departs from the specification: the",
        "# comment says which. All keys: README.md in x402sim/conformance/service.",
        "",
        f"name = {json.dumps(name)}",
    ]
    for table, findings in tables.items():
        lines += ["", f"[{table}]"]
        for each in findings:
            lines += _written(each, departing.get(f"{table}.{each.key}"))
    return "\n".join(lines) + "\n"


def _with_unseen(tables: dict[str, list[FoundKey]]) -> dict[str, list[FoundKey]]:
    """Return the tables with the keys that no request shows, except sessions' without sessions."""
    full = {table: list(findings) for table, findings in tables.items()}
    has_sessions = any(each.key == "path" for each in full.get("sessions", ()))
    for key, meaning in _UNSEEN.items():
        table, name = key.split(".")
        is_seen = any(each.key == name for each in full.get(table, ()))
        if not is_seen and (has_sessions or table != "sessions"):
            found = FoundKey(name, value_of(SPEC, key), meaning, False)
            full.setdefault(table, []).append(found)
    return full


def _written(found: FoundKey, deviation: Deviation | None) -> Iterator[str]:
    line, how = f"{found.key} = {_toml(found.value)}", printable(found.how)
    if deviation is None:
        line = line if found.is_sure else f"# {line}"
        if max(len(line), 36) + len(how) + 3 <= WIDTH:
            yield f"{line:36} # {how}"
            return
        yield from _comment(how)
        yield line
    elif deviation.key in NEEDED:
        yield from _comment(
            f"{how}; this departs from {deviation.sentence} It is set, because nothing can be read "
            "or paid without it."
        )
        yield line
    else:
        yield from _comment(f"{how}; left out, because it departs from {deviation.sentence}")
        yield f"# {line}"


def _comment(text: str) -> list[str]:
    return [f"# {line}" for line in textwrap.wrap(text, WIDTH - 2, break_on_hyphens=False)]


def _toml(value: Any) -> str:
    """Return a value in TOML, on one line."""
    match value:
        case dict():
            inner = ", ".join(f"{json.dumps(key)} = {_toml(each)}" for key, each in value.items())
            return "{ " + inner + " }" if inner else "{}"
        case list():
            return f"[{', '.join(_toml(each) for each in value)}]"
        case str():
            text = json.dumps(value, ensure_ascii=False)
            return "".join(c if c.isprintable() else f"\\U{ord(c):08x}" for c in text)
        case _:
            return json.dumps(value)
