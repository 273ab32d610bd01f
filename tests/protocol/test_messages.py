import json
import sys
from contextlib import contextmanager
from typing import Any

import msgspec
import pytest
from msgspec import inspect

from x402sim.protocol import cronos, messages
from x402sim.protocol.messages import DEEPEST, MAX_BRACKETS, BadMessage, decode, encode

MESSAGES = {
    value
    for value in (*vars(messages).values(), *vars(cronos).values())
    if isinstance(value, type) and issubclass(value, msgspec.Struct)
} - {msgspec.Struct, messages.Wire}
every_message = pytest.mark.parametrize("kind", sorted(MESSAGES, key=lambda kind: kind.__name__))


def to_json(value: object) -> bytes:
    return json.dumps(value).encode()


def example(kind: Any) -> Any:
    """Return a value of a type, as JSON has it; the types of our messages have no other."""
    match kind:
        case inspect.StructType():
            tag = {kind.tag_field: kind.tag} if kind.tag_field else {}
            return {each.encode_name: example(each.type) for each in kind.fields} | tag
        case inspect.UnionType():
            return example(kind.types[0])
        case inspect.ListType():
            return [example(kind.item_type)]
        case inspect.TupleType():
            return [example(each) for each in kind.item_types]
        case inspect.LiteralType():
            return kind.values[0]
    simple = {inspect.StrType: "BTC-USD", inspect.IntType: 7, inspect.BoolType: True}
    return (simple | {inspect.FloatType: 7.5})[type(kind)]


def wire(kind: type) -> dict[str, Any]:
    return example(inspect.type_info(kind))


def wrong_values(value: object) -> list[object]:
    """Return values of other types: a number is not taken for a text, nor a text for a number."""
    if isinstance(value, str):
        return [[[]], 10_000, True]
    if isinstance(value, int | float) and not isinstance(value, bool):
        return [[[]], str(value), True, *([value + 0.5] if isinstance(value, int) else [])]
    return [[[]], "{}"]


@every_message
def test_a_message_takes_nothing_for_a_field_but_its_type(kind):
    """What is unknown is ignored; what is missing or of another type is refused by its name.

    The names themselves are in the tests of the endpoints, which compare whole answers.
    """
    sent = wire(kind)
    read = decode(to_json(sent), kind)
    assert json.loads(encode(read)) == sent
    assert decode(to_json(sent | {"unknownField": [1]}), kind) == read
    for field in inspect.type_info(kind).fields:
        name = field.encode_name
        bad = [sent | {name: wrong} for wrong in wrong_values(sent[name])]
        if field.required:
            bad.append({key: value for key, value in sent.items() if key != name})
        for each in bad:
            with pytest.raises(BadMessage, match=name):
                decode(to_json(each), kind)


@pytest.mark.parametrize(("sent", "read"), [({}, msgspec.UNSET), ({"description": None}, None)])
def test_the_description_may_be_absent(sent, read):
    core = wire(messages.RequiredPayment) | {"resource": "/api/perp/quote"}
    assert decode(to_json(core | sent), messages.PaymentRequirements).description is read


def test_the_event_field_distinguishes_the_answers_of_settle():
    for kind in (cronos.Settled, cronos.Failed):
        assert type(decode(to_json(wire(kind)), cronos.SettleAnswer)) is kind
    settled = wire(cronos.Settled)
    for wrong in ({"event": "payment.pending"}, {"event": None}):
        with pytest.raises(BadMessage, match="event"):
            decode(to_json(settled | wrong), cronos.SettleAnswer)
    del settled["event"]
    with pytest.raises(BadMessage, match="event"):
        decode(to_json(settled), cronos.SettleAnswer)


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
    kind = messages.SessionRequest if name == "duration" else messages.QuoteRequest
    good, bad = LIMITS[name]
    for value in good:
        assert decode(to_json(wire(kind) | {name: value}), kind)
    for value in bad:
        with pytest.raises(BadMessage, match=name):
            decode(to_json(wire(kind) | {name: value}), kind)


@pytest.mark.parametrize("number", [b"NaN", b"Infinity", b"-Infinity", b"1e400", b"9" * 5000])
def test_a_quote_for_no_finite_number_is_refused(number):
    body = b'{"pair":"BTC-USD","side":"long","leverage":%s,"sizeUsd":1}' % number
    with pytest.raises(BadMessage):
        decode(body, messages.QuoteRequest)


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
