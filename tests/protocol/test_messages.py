import json
import sys
from contextlib import contextmanager
from typing import Any

import msgspec
import pytest

from tests.rig import ORDER
from tests.strategies import requirements
from x402sim.protocol import messages
from x402sim.protocol.messages import DEEPEST, MAX_BRACKETS, BadMessage, decode, encode


@pytest.mark.parametrize(("sent", "read"), [({}, msgspec.UNSET), ({"description": None}, None)])
def test_the_description_may_be_absent(sent, read):
    core = msgspec.to_builtins(requirements(description=msgspec.UNSET))
    assert decode(encode(core | sent), messages.PaymentRequirements).description is read


PAIRS = ["BTCUSD", "btc-usd", "-USD", "BTC-", "BTC-USD-X", "BTC-USD\n", "BTC/USD", "BTC-١"]
LIMITS = {
    "pair": (["1INCH-USDC", "A" * 20 + "-" + "B" * 20], [*PAIRS, "A" * 21 + "-USD"]),
    "leverage": ([1, 1000], [0.99, -5, 1000.01]),
    "sizeUsd": ([1e-9, 1e15], [0, -1, 1.1e15]),
    "duration": ([1, 31_536_000], [0, -1, 31_536_001, 10**30]),
}
"""What is taken and what is refused, by field of a quote or a session."""


@pytest.mark.parametrize("name", LIMITS)
def test_a_request_is_taken_within_its_limits(name):
    kind, sent = messages.QuoteRequest, ORDER
    if name == "duration":
        kind, sent = messages.SessionRequest, {"maxSpend": "1.00"}
    good, bad = LIMITS[name]
    for value in good:
        assert decode(json.dumps(sent | {name: value}).encode(), kind)
    for value in bad:
        with pytest.raises(BadMessage, match=name):
            decode(json.dumps(sent | {name: value}).encode(), kind)


IN_AN_UNKNOWN_FIELD = b'{"x":%s%s}'


@contextmanager
def recursion_limit(limit):
    before = sys.getrecursionlimit()
    sys.setrecursionlimit(limit)
    try:
        yield
    finally:
        sys.setrecursionlimit(before)


@pytest.mark.parametrize("limit", [1000, 10_000_000], ids=["usual-limit", "raised-limit"])
@pytest.mark.parametrize(
    "body",
    [
        b"[" * 200_000,
        b'{"a":' * 200_000,
        IN_AN_UNKNOWN_FIELD % (b"[" * 200_000, b"]" * 200_000),
        IN_AN_UNKNOWN_FIELD % (b"[" + b"[]," * 2000 + b"[]", b"]"),
    ],
    ids=["arrays", "objects", "in-an-unknown-field", "side-by-side"],
)
def test_json_of_too_many_brackets_is_refused_before_it_is_decoded(body, limit):
    """Other libraries in the process may raise the limit."""
    said = pytest.raises(BadMessage, match=f"more than the {MAX_BRACKETS} read")
    with recursion_limit(max(limit, sys.getrecursionlimit())), said:
        decode(body, messages.SettlementRequest)


@pytest.mark.parametrize(
    ("body", "is_read"),
    [
        (b"[" * DEEPEST + b"]" * DEEPEST, True),
        (b"[" * (DEEPEST + 1) + b"]" * (DEEPEST + 1), False),
        (b'["]",' * DEEPEST + b"[]" + b"]" * DEEPEST, False),
        (b'["' + b'[\\"' * DEEPEST + b'",{}]', True),
        (b"[" + b"[]," * DEEPEST + b"[]]", True),
    ],
)
def test_json_has_a_limit_of_levels(body: bytes, is_read: bool) -> None:
    if is_read:
        assert decode(body, Any) == json.loads(body)
    else:
        with pytest.raises(BadMessage, match="nested too deeply: more than 100 levels"):
            decode(body, Any)


def test_json_nested_deeper_than_the_recursion_limit_is_a_bad_message():
    body = IN_AN_UNKNOWN_FIELD % (b"[" * 1900, b"]" * 1900)
    # from 3.12 on C code has a limit of its own, which is higher, and reads to the end
    said = pytest.raises(BadMessage, match=r"nested too deeply|missing required field")
    with recursion_limit(1000), said:
        decode(body, messages.SettlementRequest)
