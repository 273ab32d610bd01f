"""Hostile input: a request that works goes in, one that is wrong in one way comes out.

Everything is drawn from the `random.Random` that is given, so a seed repeats a campaign.
"""

import base64
import json
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from random import Random
from typing import Any

LONG = 20_000
VALUES: list[Any] = [
    None, True, False, 0, -1, 1, 10_001, 2**31, 2**53 + 1, 2**63 - 1, 2**63, 2**64, 2**256 - 1,
    2**256, -(2**63), 1.5, 1e308, 5e-324, -0.0, "", " ", "\0", "0", "-1", "+1", "1e3", "1.", ".1",
    "1.000", "0x", "0x0", "0xg", "0X" + "f" * 64, "0x" + "00" * 20, "0x" + "ff" * 20,
    "0x" + "00" * 32, "0x" + "0" * LONG, "a" * 100, "a" * LONG, "9" * 5000, "é", "😀" * 50,
    "\u202e", "\ufffe", "NaN", "Infinity", "../../etc/passwd", "%00", "%s%n", "' OR 1=1 --",
    "{}", "\x1b[2J", "::error::x", "latest", "pending", "earliest", "१२३", "１２", "pay_", "session_",
    [], {}, [[]], {"a": {}}, [0] * 1000, ["x"], {"": ""}, {"__proto__": {}}, [None] * 5,
]  # fmt: skip
TOKENS = [
    "NaN", "Infinity", "-Infinity", "1e999", "-1e999", "9" * 5000, "-" + "9" * 400, "01", "+1",
    "0x10", "1_0", "1.", ".5", "tru", "nul", "'x'", '"\\ud800"', '"\\udc00\\ud800"', '"\\u0000"',
    '"\x01"', '"\\x"', "", "[", "{", "]", "[" * 500, '{"a":' * 500, "[" * 5000, "/**/1", "1,",
    '"a" "b"', "\u00a01", "\ufeff1",
]  # fmt: skip
HEADER_VALUES = [
    b"", b" ", b"\xff\xfe", b"a" * LONG, b"pay_" + b"A" * 60, b"pay_" + b"A" * 59, b"session_x",
    b"session_" + b"f" * 40, b"0", b"-1", b"null", b"a,b", b"\xc3\xa9", b"%00", b"' OR 1=1 --",
    b"Bearer ", b"Bearer x", b"gzip", b"deflate", b"chunked", b"identity", b"multipart/form-data",
    b"application/json; charset=utf-16", b"text/html", b"application/x-www-form-urlencoded",
    b"127.0.0.1:1", b"evil.example", b"http://evil.example", b"9" * 400, b"bytes=0-", b"*",
]  # fmt: skip
HEADER_NAMES = [
    b"content-type", b"content-encoding", b"transfer-encoding", b"content-length", b"accept",
    b"x-payment-id", b"x-session-id", b"authorization", b"origin", b"host", b"range", b"expect",
    b"x-forwarded-for", b"x402-version", b"if-none-match", b"x402sim-exchange", b"cookie",
]  # fmt: skip
METHODS = ["GET", "POST", "PUT", "DELETE", "PATCH", "HEAD", "OPTIONS", "TRACE", "PROPFIND", "get"]
PIECES = [
    "/", "//", "/..", "/%2e%2e", "%00", "%0a", "%ff", "?", "#", ";x=1", "/v1", ".md", "%252e",
    "\\", "é", "%F0%9F%98%80", "a" * 5000, "%", "%g", " ", "+", "*", "_", "session_", "pay_",
]  # fmt: skip
ENCODINGS = ["utf-16", "utf-32", "utf-8-sig", "utf-7", "cp037"]


@dataclass(frozen=True, slots=True)
class Sent:
    """A request: `target` is the path and query as they are on the wire."""

    part: str
    method: str
    target: str
    body: bytes = b""
    headers: tuple[tuple[bytes, bytes], ...] = ()
    kind: str = "valid"
    message: Any = field(default=None, compare=False)
    """The JSON of the body; None if it has none."""


def request(part: str, method: str, target: str, message: Any = None, **headers: str) -> Sent:
    body = b"" if message is None else json.dumps(message).encode()
    given = [(name.replace("_", "-").encode(), v.encode()) for name, v in headers.items()]
    return Sent(part, method, target, body, tuple(given), "valid", message)


# --- JSON ----------------------------------------------------------------------------


def places(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Return the path of every value inside a JSON value, and of itself."""
    if not isinstance(value, dict | list):
        return [path]
    inner = value.items() if isinstance(value, dict) else enumerate(value)
    return [path, *(place for key, each in inner for place in places(each, (*path, key)))]


def replaced(value: Any, path: tuple[Any, ...], new: Any) -> Any:
    """Return a JSON value with another one in a place."""
    if not path:
        return new
    copy = dict(value) if isinstance(value, dict) else list(value)
    copy[path[0]] = replaced(value[path[0]], path[1:], new)
    return copy


def _with(sent: Sent, message: Any) -> Sent:
    return replace(sent, body=json.dumps(message).encode(), message=message)


def a_value(sent: Sent, rng: Random) -> Sent:
    """Put another value in one place."""
    place = rng.choice(places(sent.message))
    return _with(sent, replaced(sent.message, place, rng.choice(VALUES)))


def a_token(sent: Sent, rng: Random) -> Sent:
    """Put characters in one place that JSON does not have."""
    place = rng.choice(places(sent.message))
    text = json.dumps(replaced(sent.message, place, "@@")).replace('"@@"', rng.choice(TOKENS))
    return replace(sent, body=text.encode())


def structure(sent: Sent, rng: Random) -> Sent:
    """Leave a name out, say it twice, add one, or wrap everything."""
    if not isinstance(sent.message, dict) or not sent.message:
        return _with(sent, [sent.message] * rng.choice([1, 2, 200]))
    name = rng.choice(list(sent.message))
    rest = {key: value for key, value in sent.message.items() if key != name}
    match rng.randrange(5):
        case 0:
            return _with(sent, rest)
        case 1:
            twice = f"{{{json.dumps(name)}: {json.dumps(rng.choice(VALUES))}, "
            return replace(sent, body=twice.encode() + sent.body[1:])
        case 2:
            return _with(sent, {**sent.message, rng.choice(["", "x", "é", name.upper()]): "x"})
        case 3:
            return _with(sent, {**rest, name.upper(): sent.message[name]})
        case _:
            return _with(sent, [sent.message])


def nesting(sent: Sent, rng: Random) -> Sent:
    """Nest one place deeply."""
    deep: Any = "x"
    for _ in range(rng.choice([10, 400, 900])):
        deep = [deep] if rng.random() < 0.5 else {"a": deep}
    return _with(sent, replaced(sent.message, rng.choice(places(sent.message)), deep))


# --- bytes ---------------------------------------------------------------------------


def some_bytes(sent: Sent, rng: Random) -> Sent:
    """Cut, flip or insert bytes of the body."""
    body = bytearray(sent.body or b"{}")
    for _ in range(rng.choice([1, 1, 3, 20])):
        at = rng.randrange(len(body) + 1)
        match rng.randrange(4):
            case 0:
                del body[at:]
            case 1:
                body[at : at + 1] = bytes([rng.randrange(256)])
            case 2:
                body[at:at] = rng.randbytes(rng.choice([1, 4, 50]))
            case _:
                del body[at : at + 3]
    return replace(sent, body=bytes(body))


def encoding(sent: Sent, rng: Random) -> Sent:
    """Encode or compress the body otherwise."""
    text = sent.body.decode()
    name = rng.choice(ENCODINGS)
    header = (b"content-encoding", rng.choice([b"gzip", b"br", b"identity"]))
    return replace(sent, body=text.encode(name), headers=(*sent.headers, header))


def size(sent: Sent, rng: Random) -> Sent:
    """Send nothing, far too much, or much white space."""
    body = rng.choice([b"", b" ", b"a" * (1 << 20), b" " * 500_000 + sent.body, b"[" * 1_100_000])
    return replace(sent, body=body)


# --- heads ---------------------------------------------------------------------------


def headers(sent: Sent, rng: Random) -> Sent:
    """Add headers, up to many."""
    count = rng.choice([1, 1, 2, 500])
    added = [(rng.choice(HEADER_NAMES), rng.choice(HEADER_VALUES[4:])) for _ in range(count)]
    if count < 10:
        added = [(name, rng.choice(HEADER_VALUES)) for name, _ in added]
    return replace(sent, headers=(*sent.headers, *added))


def proofs(sent: Sent, rng: Random) -> Sent:
    """Present ids that prove nothing."""
    names = rng.sample([b"x-payment-id", b"x-session-id"], rng.choice([1, 2]))
    shown = [(name, rng.choice([*HEADER_VALUES, rng.randbytes(64)])) for name in names]
    return replace(sent, headers=tuple(shown))


def method(sent: Sent, rng: Random) -> Sent:
    """Use another method."""
    return replace(sent, method=rng.choice(METHODS))


def path(sent: Sent, rng: Random) -> Sent:
    at = rng.randrange(1, len(sent.target) + 1)
    cut = rng.choice([at, at, min(len(sent.target), at + 4)])
    return replace(sent, target=sent.target[:at] + rng.choice(PIECES) + sent.target[cut:])


def query(sent: Sent, rng: Random) -> Sent:
    """Change or add to the query."""
    name = rng.choice(["since", "txhash", "txHash", "module", "action", "x", "", "apikey"])
    value = rng.choice(["", "-1", "9" * 400, "0x", "0x" + "0" * 64, "%00", "%ff", "a" * 5000, "é"])
    joint = "&" if "?" in sent.target else "?"
    return replace(sent, target=f"{sent.target}{joint}{name}={value}")


# --- payments ------------------------------------------------------------------------


def payment_header(sent: Sent, rng: Random) -> Sent:
    """Change one thing in the payment header, before or after it is encoded."""
    text: str = sent.message["paymentHeader"]
    written = json.loads(bytes.fromhex(text[2:]))
    if rng.random() < 0.2:
        changed = text[: rng.randrange(len(text))] + rng.choice(["", "0", "g", "é", "=", "\0"])
        return _with(sent, {**sent.message, "paymentHeader": changed})
    place = rng.choice(places(written))
    raw = json.dumps(replaced(written, place, "@@"))
    new = rng.choice(TOKENS) if rng.random() < 0.3 else json.dumps(rng.choice(VALUES))
    raw_bytes = raw.replace('"@@"', new).encode()
    hexed, based = "0x" + raw_bytes.hex(), base64.b64encode(raw_bytes).decode()
    return _with(sent, {**sent.message, "paymentHeader": rng.choice([hexed, hexed, based])})


def payment_id(sent: Sent, rng: Random) -> Sent:
    text = list(sent.message["paymentId"])
    for _ in range(rng.choice([1, 1, 5])):
        text[rng.randrange(len(text))] = rng.choice("Aa0-_=+/ é\0")
    return _with(sent, {**sent.message, "paymentId": "".join(text)})


Mutation = Callable[[Sent, Random], Sent]
_ANY: list[Mutation] = [some_bytes, size, headers, proofs, method, path, query]
_WITH_MESSAGE: list[Mutation] = [a_value, a_value, a_value, a_token, structure, nesting, encoding]
KINDS = sorted({each.__name__ for each in [*_ANY, *_WITH_MESSAGE, payment_header, payment_id]})


def hostile(sent: Sent, rng: Random) -> Sent:
    """Return the request with one thing made wrong; `kind` names it."""
    choices = list(_ANY)
    if sent.message is not None:
        choices += _WITH_MESSAGE
        if isinstance(sent.message, dict) and "paymentHeader" in sent.message:
            choices += [payment_header] * 3
        if isinstance(sent.message, dict) and "paymentId" in sent.message:
            choices.append(payment_id)
    mutation = rng.choice(choices)
    return replace(mutation(sent, rng), kind=mutation.__name__)
