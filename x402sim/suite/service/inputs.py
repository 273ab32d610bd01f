"""Inputs of checks: bad requests with their answers, random inputs, other orders.

A bad request to the protected endpoint is sent once in a run, for two checks: was the content given
away, and does the service still answer?
"""

import base64
import json
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import msgspec

from x402sim.protocol.crypto import HALF_ORDER, to_hex
from x402sim.protocol.header import Spelling
from x402sim.rng import Rng, Stream
from x402sim.suite.service.answers import TargetAnswer
from x402sim.suite.service.probe import JSON, Probe
from x402sim.suite.verdict import as_json

MIB = 1 << 20
LARGE = 1 << 16
"""In bytes. A service may close the connection on a body of this size, without reading it."""

BODIES: dict[str, bytes] = {
    "nothing": b"",
    "a blank": b" ",
    "half an object": b'{"pair": "BTC',
    "no JSON": b"pair=BTC-USD&side=long",
    "two objects": b"{}{}",
    "a comma too many": b'{"pair": "BTC-USD",}',
    "single quotes": b"{'pair': 'BTC-USD'}",
    "null": b"null",
    "true": b"true",
    "a string": b'"pair"',
    "a number": b"1e999",
    "not a number": b'{"leverage": NaN, "sizeUsd": -Infinity}',
    "a huge number": b'{"leverage": 1' + b"0" * 5000 + b', "duration": 1' + b"0" * 400 + b"}",
    "an array": b"[[], {}]",
    "an empty object": b"{}",
    "the same key twice": b'{"pair": "BTC-USD", "pair": 7}',
    "deep arrays": b"[" * 100_000,
    "deep objects": b'{"a":' * 50_000,
    "no UTF-8": b"\xc3\x28{}",
    "half a surrogate": rb'{"pair": "\ud800", "paymentId": "\udfff"}',
    "a zero character": rb'{"pair": "\u0000", "paymentId": "pay_\u0000"}',
    "UTF-16": '{"pair": "BTC-USD"}'.encode("utf-16"),
    "a byte order mark": b"\xef\xbb\xbf{}",
    "a mebibyte": b'{"pair": "' + b"A" * MIB + b'"}',
    "names of the language": b'{"__proto__": {"paid": true}, "constructor": {"prototype": {}}}',
}
CONTENT_TYPES = (
    *("text/plain", "application/x-www-form-urlencoded", "application/xml", "a/b/c", ""),
    *("multipart/form-data", "application/json; charset=utf-7", "application/json; charset=x"),
)
INSTEAD_OF_A_NUMBER: tuple[Any, ...] = (
    *(None, True, 0, -1, -1.5, 10**30, 1e308, "", "1e400", ["x"], {}),
)
INSTEAD_OF_A_STRING: tuple[Any, ...] = (
    *(None, 0, True, "", "A" * 10_000, "\0", "1e400", "9" * 20 + ".00", ["x"], {}),
)
"""Values of the wrong type or size."""

PROOFS: tuple[str | bytes, ...] = (
    *("", "null", "0", "pay_", "session_", "pay_%00", "{}", "[]", "a,b", ";", '"', "a\tb"),
    *("pay_" + "A" * 5000, b"pay_\xff\xfe", "pay_é".encode(), b"\x80" * 64),
)


@dataclass(frozen=True, slots=True)
class SentInput:
    """A bad request, described in words, its size in bytes, and its answer."""

    label: str
    size: int
    answer: TargetAnswer
    lives: bool = True
    """Whether the service answers a request after the bad request."""

    @property
    def is_answered(self) -> bool:
        """Whether an answer came; a large body may be refused by closing the connection."""
        is_closed = not self.answer.is_late
        return not self.answer.broken or (is_closed and self.size >= LARGE)


async def send_bad(
    probe: Probe,
    label: str,
    method: str,
    path: str,
    *,
    content: bytes,
    headers: Mapping[str, str | bytes] = JSON,
) -> SentInput:
    """Send a bad request; repeat a small request that is not answered."""
    size = len(content) + sum(map(len, headers.values()))
    about = f"{label}, {method} {path}" + (f", {size} bytes" if size > 1000 else "")
    answer = await probe.send(method, path, content=content, headers=headers, may_break=True)
    if answer.broken and not answer.is_late and size < LARGE:
        answer = await probe.send(method, path, content=content, headers=headers, may_break=True)
    if not answer.broken:
        return SentInput(about, size, answer)
    after = await probe.ask(may_break=True)
    return SentInput(about, size, answer, lives=not after.broken)


# --- to the protected endpoint, without proof ---------------------------------------------


async def sent(probe: Probe, group: str) -> list[SentInput]:
    """Return the requests of one group, which are sent once in a run."""
    known, endpoint = probe.setting.malformed, probe.target.protected
    if group not in known:
        takes_it = group == "proofs" or endpoint.method != "GET"
        requests = bad_requests(group, probe.usual_body) if takes_it else ()
        known[group] = [
            await send_bad(
                probe, label, endpoint.method, endpoint.path, content=content, headers=headers
            )
            for label, content, headers in requests
        ]
    return list(known[group])


Bad = tuple[str, bytes, Mapping[str, str | bytes]]
"""A bad request, described in words, its body and its headers."""


def bad_requests(name: str, usual: dict[str, Any]) -> Iterator[Bad]:
    """Yield the bad requests of a group; `usual` is a good body."""
    match name:
        case "unreadable":
            yield from ((label, content, JSON) for label, content in BODIES.items())
        case "content types":
            for kind in CONTENT_TYPES:
                yield f"Content-Type {kind!r}", msgspec.json.encode(usual), {"Content-Type": kind}
        case "wrong types":
            for label, body in twisted(usual):
                yield label, msgspec.json.encode(body), JSON
        case "made up":
            yield from (
                (f"the body {quote(content[:80])}", content, JSON) for content in made_up(8)
            )
        case "proofs":
            for header, proofs in (("X-Payment-Id", PROOFS), ("X-Session-Id", PROOFS[::2])):
                for proof in (*proofs, "A" * MIB):
                    label = f"{header}: {quote(proof[:40])}"
                    yield label, msgspec.json.encode(usual), {**JSON, header: proof}
        case _:
            raise ValueError(f"no such group of bad requests: {name}")


# --- bad values ---------------------------------------------------------------------------


def twisted(
    body: dict[str, Any], at_most: int = 99, first: int = 0
) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield an object with one field missing or of a wrong type, for each field.

    Each field gets at most `at_most` of the values, and the next field goes on with the next value.
    """
    for number, (name, value) in enumerate(body.items(), first):
        yield f"no {name}", {key: body[key] for key in body if key != name}
        wrong = INSTEAD_OF_A_STRING if isinstance(value, str) else INSTEAD_OF_A_NUMBER
        for turn in range(min(at_most, len(wrong))):
            each = wrong[(at_most * number + turn) % len(wrong)]
            yield f"{name} = {as_json(each)[:40]}", {**body, name: each}
        if isinstance(value, dict):
            for path, inner in twisted(value, max(at_most // 2, 1), number):
                yield f"{name}: {path}", {**body, name: inner}


def quote(text: str | bytes) -> str:
    """Return sent bytes or text in quotation marks."""
    text = text.decode("utf-8", "backslashreplace") if isinstance(text, bytes) else text
    return f"'{text}'"


# --- forms of a signature and of a header -------------------------------------------------


def high_s(signature: bytes) -> bytes:
    """Return the other signature of the same message by the same key."""
    s = 2 * HALF_ORDER + 1 - int.from_bytes(signature[32:64])
    return signature[:32] + s.to_bytes(32) + bytes([55 - signature[64]])


def low_v(signature: bytes) -> bytes:
    """Return a signature with v of 0 or 1, the form of some libraries."""
    return signature[:64] + bytes([signature[64] - 27])


def one_bit_changed(signature: bytes) -> bytes:
    """Return a signature by nobody."""
    return bytes([signature[0] ^ 1]) + signature[1:]


def upper(text: str) -> str:
    """Return 0x and hex digits with the digits in upper case."""
    return "0x" + text[2:].upper()


def in_header(text: bytes, spelling: Spelling) -> str:
    """Return a payment header with this text."""
    return to_hex(text) if spelling == "hex" else base64.b64encode(text).decode()


# --- random inputs, and other orders -----------------------------------------------------

_SEED = 402
_TEXT = "pay_0xAZ09{}[]\"\\'<$>%/.:,;- \0\n\u00e9\u20ac\U0001f4b6"
T = TypeVar("T")


def examples(name: str, count: int, draw: Callable[[Stream], T]) -> list[T]:
    """Return `count` random inputs: the same in every process, whatever else is imported."""
    stream = Rng(_SEED).stream(name)
    return [draw(stream) for _ in range(count)]


def random_text(stream: Stream, letters: str, longest: int, shortest: int = 0) -> str:
    """Return a text of `letters`, with `shortest` to `longest` characters."""
    return "".join(stream.choices(letters, k=stream.randint(shortest, longest)))


def random_json(stream: Stream, names: Sequence[str] = (), depth: int = 3) -> Any:
    """Return JSON with at most `depth` levels, and with fields of `names` if there are any."""
    kind = stream.randrange(8 if depth else 5)
    match kind:
        case 0:
            return stream.choice([None, True, False])
        case 1:
            return stream.choice([0, -1, stream.randint(0, 10**7), stream.randint(-(2**70), 2**70)])
        case 2:
            return stream.choice([0.5, -0.0, 1e308, math.nan, math.inf, stream.random()])
        case 3 | 4:
            return random_text(stream, _TEXT, 20)
        case 5:
            return [random_json(stream, names, depth - 1) for _ in range(stream.randrange(4))]
        case _:
            chosen = (stream.choice(names or [random_text(stream, _TEXT, 12)]) for _ in range(3))
            return {name: random_json(stream, names, depth - 1) for name in chosen}


def made_up(count: int) -> list[bytes]:
    """Return random JSON, with fields of a settlement and of a session."""
    names = ["pair", "leverage", "paymentId", "paymentHeader", "maxSpend"]
    found = examples("made up", count, lambda stream: random_json(stream, names))
    return [json.dumps(each).encode() for each in found]


OTHER_SIDE = {"long": "short", "short": "long", "buy": "sell", "sell": "buy"}


def other_orders(probe: Probe) -> list[dict[str, Any]]:
    """Return orders of another size, leverage, side and pair; a target may refuse them.

    The orders show what a service derives from the first order alone.
    """
    endpoint = probe.target.protected
    order = probe.usual_body
    others: list[dict[str, Any]] = []
    size, leverage = order.get("sizeUsd"), order.get("leverage")
    if isinstance(size, int | float) and not isinstance(size, bool):
        others += [{**order, "sizeUsd": each} for each in (size * 2, size * 250, size / 8, 1)]
    if isinstance(leverage, int | float) and not isinstance(leverage, bool):
        others += [{**order, "leverage": each} for each in (1, leverage + 2, 50)]
    if order.get("side") in OTHER_SIDE:
        others.append({**order, "side": OTHER_SIDE[order["side"]]})
    base, dash, quote = str(order.get("pair")).partition("-")
    if endpoint.second_pair and "pair" in order:
        others.append({**order, "pair": endpoint.second_pair})
    elif dash:
        others.append({**order, "pair": f"{'BTC' if base == 'ETH' else 'ETH'}-{quote}"})
    return others
