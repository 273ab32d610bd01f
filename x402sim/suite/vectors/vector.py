"""The vectors of `conformance/vectors`: operations, files, and the comparison of answers.

A vector is an input of one operation with the expected result. An adapter performs operations with
any implementation of x402: the adapter reads a `Request` as one line of JSON, and writes an
`Answer` as one line. `conformance/vectors/README.md` describes the files for programs of any
language.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import Any, Literal

import msgspec

from x402sim.protocol import header, x402
from x402sim.protocol.crypto import BadSignature, from_hex, parse_address, recover
from x402sim.protocol.messages import BadMessage, decoded
from x402sim.spec.clauses import Level
from x402sim.spec.ground import Ground, GroundType, Sentence, folder
from x402sim.suite.verdict import as_json

CAPABILITIES = "capabilities"
"""The operation that every adapter has: name and operations of the adapter."""
INVALID, UNSUPPORTED = "invalid", "unsupported"
SPEC = "spec"
"""Stands for the version in messages of the specification of x402sim (payments in two steps)."""


# --- the lines of an adapter -----------------------------------------------------------------


class Request(msgspec.Struct, frozen=True):
    """A line that an adapter reads: the number of the line, an operation, and its input."""

    id: int
    op: str
    input: dict[str, Any] = {}


class Failure(msgspec.Struct, frozen=True, omit_defaults=True):
    """Why an operation has no result: the input is invalid, or the adapter cannot do that."""

    code: Literal["invalid", "unsupported"]
    message: str = ""


class Answer(msgspec.Struct, frozen=True, omit_defaults=True):
    """A line that an adapter writes: the number of the request, and a result or an error."""

    id: int
    result: dict[str, Any] | None = None
    error: Failure | None = None

    @property
    def brief(self) -> dict[str, Any]:
        """The answer in the form of `Vector.expect`."""
        return {"error": self.error.code} if self.error else self.result or {}


class Capabilities(msgspec.Struct, frozen=True):
    """The result of the operation `capabilities`."""

    operations: list[str]
    name: str = ""


# --- operations ------------------------------------------------------------------------------

Json = dict[str, Any]
Compare = Callable[[Json, Json, Json], bool]
"""Compares an expected result with a result, given the input."""


def _plain(value: Any) -> Any:
    """Return a value for comparison: hex in small letters, no fields that are null."""
    match value:
        case str():
            return value.lower() if value[:2] in ("0x", "0X") else value
        case list():
            return [_plain(each) for each in value]
        case dict():
            return {name: _plain(each) for name, each in value.items() if each is not None}
        case _:
            return value


def _same(_: Json, expected: Json, result: Json) -> bool:
    return all(name in result and _equal(result[name], each) for name, each in expected.items())


def _equal(got: Any, expected: Any) -> bool:
    """Compare as JSON does: true is no number."""
    one, other = _plain(got), _plain(expected)
    return bool(one == other) and isinstance(one, bool) == isinstance(other, bool)


def _holds(got: Any, expected: Any) -> bool:
    """Tell whether each expected field is there; further fields do not matter."""
    match expected:
        case dict():
            its = got if isinstance(got, dict) else {}
            return all(_holds(its.get(name), each) for name, each in expected.items())
        case list():
            if not isinstance(got, list) or len(got) != len(expected):
                return False
            return all(_holds(*pair) for pair in zip(got, expected, strict=True))
        case _:
            return type(got) is type(expected) and got == expected


def _same_text(given: Json, expected: Json, result: Json) -> bool:
    """Compare the JSON in a written header or body; order and spaces do not matter."""
    return _holds(json_of(given, str(result.get("text"))), expected["value"])


def json_of(given: Mapping[str, Any], text: str) -> Any:
    """Return the JSON in the text of a message; None without JSON.

    The 402 of version 1, and all but the payment of the specification, are bodies.
    """
    try:
        match given["version"], given["message"]:
            case (1, "required") | ("spec", "required" | "receipt"):
                return decoded(text.encode())
            case ("spec", _):
                return decoded(header.json_of_header(text))
            case _:
                return decoded(x402.from_base64(text))
    except BadMessage:
        return None


def _recovers(_: Json, expected: Json, result: Json) -> bool:
    """Tell whether a signature is of the signer, in the token's form; any k is right."""
    signature = str(result.get("signature"))
    try:
        signer = recover(from_hex(expected["digest"], 32), from_hex(signature, 65))
    except (BadSignature, ValueError):
        return False
    return signer == parse_address(expected["signer"])


@dataclass(frozen=True, slots=True)
class Operation:
    """An operation: its input and result by name, and how a result is compared."""

    about: str
    takes: str
    gives: str
    compare: Compare = field(default=_same)


OPERATIONS: Mapping[str, Operation] = {
    "decode": Operation(
        "reads a header or a body: its JSON, if that is the message",
        "version message text",
        "value",
        lambda _, expected, result: _holds(result.get("value"), expected["value"]),
    ),
    "encode": Operation(
        "writes a message as a header or a body",
        "version message value",
        "text",
        _same_text,
    ),
    "match": Operation(
        "finds the offer that a payment has accepted; null without one", "accepts accepted", "index"
    ),
    "amount": Operation("reads an amount of base units", "text", "base"),
    "units": Operation("turns tokens into base units", "text decimals", "base"),
    "domain": Operation("hashes an EIP-712 domain: the separator", "domain", "hash"),
    "struct": Operation(
        "hashes a typed message of EIP-3009, EIP-2612 or Permit2", "type message", "hash"
    ),
    "digest": Operation("makes the 32 bytes to sign", "domain type message", "hash"),
    "sign": Operation(
        "signs with a private key", "domain type message privateKey", "signature", _recovers
    ),
    "recover": Operation("finds the signer", "domain type message signature", "address"),
    "unwrap": Operation(
        "opens an EIP-6492 wrapper; factory and call are null for another signature",
        "signature",
        "factory call signature",
    ),
    "calldata": Operation(
        "writes the call of transferWithAuthorization", "message signature", "data"
    ),
    "verify": Operation(
        "judges a payment as a facilitator does, in a given state of the chain",
        "version payment requirements state",
        "isValid invalidReason",
    ),
}
"""Every operation; the table of the guide and the schema of the lines are made of this table."""


# --- vectors ---------------------------------------------------------------------------------


class Grounds(msgspec.Struct, frozen=True, omit_defaults=True):
    """The ground of a vector: names in the file's table of sentences, and the step from these."""

    kind: GroundType
    sentences: tuple[str, ...] = ()
    why: str = ""


class Vector(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A vector.

    expect
        The fields of the result, or {"error": "invalid"}. Without `expect` the texts leave the
        answer open, and `answers` has those of the implementations.
    word, word_sentence
        The word of section 9 for an invalid payment, as a SHOULD, and its sentence by name.
    confirmed
        The implementations with the expected answer, by their keys in the file's table; "x402sim"
        alone means "ours alone".
    answers
        The other answers of implementations: of `decode` and `encode` "taken" or "refused".
    """

    id: str
    op: str
    about: str
    input: Json
    expect: Json | None = None
    word: str = ""
    word_sentence: str = ""
    level: Level
    ground: Grounds
    confirmed: tuple[str, ...] = ()
    answers: Json = {}


class Text(msgspec.Struct, frozen=True):
    """A sentence of a public text: the section with file and revision, and the words."""

    source: str
    text: str


class File(msgspec.Struct, frozen=True, kw_only=True):
    """A file of vectors: a family."""

    schema: str = msgspec.field(name="$schema", default="./vectors.schema.json")
    family: str
    about: str
    license: str = "MIT"
    made_by: str = "python -m tests.renew --only vectors"
    implementations: dict[str, str] = {}
    sentences: dict[str, Text]
    vectors: tuple[Vector, ...]


FAMILIES = {
    "headers": "Headers and bodies: 402, payment, receipt",
    "offers": "The accepted offer",
    "amounts": "Amounts and decimals",
    "typed-data": "EIP-712: domain, struct, digest, signature, call",
    "signatures": "Signatures: recovery, forms, wrappers",
    "permit2": "Permit2 for exact and upto, and EIP-2612 permits",
    "facilitator": "A facilitator's verdict on a payment",
}
"""The files, each a section of ids, and their titles."""


@cache
def files() -> tuple[File, ...]:
    """Return the files of vectors."""
    found = (folder("vectors") / f"{family}.json" for family in FAMILIES)
    return tuple(msgspec.json.decode(each.read_bytes(), type=File) for each in found)


WORD_GROUND = (
    "shops and payers act by the word: section 9 has one for this reason; any other tells them "
    "nothing, or something else"
)


def ground_of(vector: Vector, file: File) -> Ground:
    """Return the ground, with the sentences themselves."""
    its = vector.ground
    return Ground(its.kind, tuple(quoted(file, name) for name in its.sentences), its.why)


def ground_of_word(vector: Vector, file: File) -> Ground:
    """Return the ground of a vector's word."""
    return Ground(GroundType.OURS, (quoted(file, vector.word_sentence),), WORD_GROUND)


def quoted(file: File, name: str) -> Sentence:
    """Return the sentence that has a name in a file."""
    return Sentence(file.sentences[name].source, file.sentences[name].text)


def agrees(vector: Vector, answer: Answer) -> bool:
    """Tell whether an answer is the expected one, without a look at the word.

    A facilitator may refuse a payment by an exception, too: then the error is as good as a verdict.
    """
    expected = vector.expect or {}
    if answer.error is not None and expected == {"isValid": False}:
        return answer.error.code == INVALID
    if answer.error is not None or "error" in expected:
        return answer.brief == {"error": expected.get("error")}
    return OPERATIONS[vector.op].compare(vector.input, expected, answer.result or {})


def shown(value: Any) -> str:
    """Return an answer for people, cut."""
    text = as_json(value)
    return text if len(text) <= 300 else f"{text[:300]}…"
