import json
import sys
from contextlib import contextmanager

import msgspec
import pytest

from x402sim.protocol import cronos, messages
from x402sim.protocol.messages import MAX_BRACKETS, BadMessage, decode, encode

UPTIME = {"uptime": 1.5, "responseTime": [1, 500], "message": "OK", "timestamp": 1_700}
PAY_TO, ASSET = "0x" + "22" * 20, "0x" + "33" * 20
CORE = {
    "scheme": "exact",
    "network": "cronos-testnet",
    "payTo": PAY_TO,
    "asset": ASSET,
    "maxAmountRequired": "10000",
    "maxTimeoutSeconds": 300,
}
REQUIREMENTS = CORE | {"resource": "/api/perp/quote"}
PAYLOAD = {
    "from": "0x" + "11" * 20,
    "to": PAY_TO,
    "value": "10000",
    "validAfter": 1_700_000_000,
    "validBefore": 1_700_000_360,
    "nonce": "0x" + "44" * 32,
    "signature": "0x" + "55" * 65,
    "asset": ASSET,
}

# every message, as sections 2 and 4 (and the facilitator's documentation) write it
MARKET_PAIR = {"pair": "BTC-USD", "price": 64210.5, "fundingRate": 0.0001, "bestVenue": "Helios"}
KIND = {"x402Version": 1, "scheme": "exact", "network": "cronos-testnet"}
AGENT = {
    "id": "quotes",
    "name": "Quotes",
    "description": "Sells quotes",
    "resource": "/api/perp/quote",
    "price": "10000",
    "payTo": PAY_TO,
    "reputation": 3,
}
WIRE = {
    messages.PaymentRequirements: REQUIREMENTS,
    messages.PaymentRequired: {
        "error": "Payment Required",
        "paymentId": "pay_1",
        "paymentRequirements": REQUIREMENTS | {"description": "A quote"},
        "message": "10000 base units required",
        "network": "cronos-testnet",
    },
    messages.SettlementRequest: {
        "paymentId": "pay_1",
        "paymentHeader": "0x7b7d",
        "paymentRequirements": REQUIREMENTS,
    },
    messages.Receipt: {
        "success": True,
        "paymentId": "pay_1",
        "txHash": "0x" + "66" * 32,
        "timestamp": 1_700_000_000_000,
    },
    messages.ErrorBody: {"error": "Invalid signature", "reason": "why"},
    messages.QuoteRequest: {"pair": "BTC-USD", "side": "long", "leverage": 5.0, "sizeUsd": 1000.5},
    messages.Quote: {
        "pair": "BTC-USD",
        "entryPrice": 1.5,
        "liquidationPrice": 1.2,
        "fundingRate": 0.0001,
        "bestVenue": "Alpha",
    },
    messages.SessionRequest: {"maxSpend": "1.00", "duration": 3600},
    messages.SessionView: {
        "sessionId": "session_1",
        "deposited": "1000000",
        "released": "0",
        "remaining": "1000000",
        "expiresAt": 1_700_000_000_000,
        "status": "refunded",
        "refundTxHash": "0x" + "66" * 32,
    },
    messages.PaymentRecord: {
        "payment_id": "pay_1",
        "tx_hash": "0x" + "66" * 32,
        "from_address": "0x" + "11" * 20,
        "to_address": PAY_TO,
        "amount": "10000",
        "resource_url": "/api/perp/quote",
        "status": "settled",
        "block_number": None,
        "timestamp": 1_700_000_000_000,
    },
    messages.MarketPair: MARKET_PAIR,
    messages.Market: {"market": [MARKET_PAIR]},
    messages.Agent: AGENT,
    messages.AgentList: {"agents": [AGENT]},
    messages.RequiredPayment: CORE,
    cronos.FacilitatorRequest: {
        "x402Version": 1,
        "paymentHeader": "e30=",
        "paymentRequirements": CORE,
    },
    cronos.VerifyAnswer: {"isValid": True, "invalidReason": None},
    cronos.Settled: {
        "event": "payment.settled",
        "x402Version": 1,
        "txHash": "0x" + "66" * 32,
        "from": "0x" + "11" * 20,
        "to": PAY_TO,
        "value": "10000",
        "blockNumber": 17352,
        "network": "cronos-testnet",
        "timestamp": "2025-11-04T20:19:11.000Z",
    },
    cronos.Failed: {
        "event": "payment.failed",
        "x402Version": 1,
        "network": "cronos-testnet",
        "timestamp": "2025-11-04T20:19:11.000Z",
        "error": "Authorization already used",
    },
    cronos.Kind: KIND,
    cronos.Supported: {"kinds": [KIND]},
    cronos.Uptime: UPTIME,
    cronos.Health: {"status": "success", "results": UPTIME},
    messages.HeaderPayload: PAYLOAD,
    messages.PaymentHeader: KIND | {"payload": PAYLOAD},
}
every_message = pytest.mark.parametrize(
    ("kind", "wire"), WIRE.items(), ids=[kind.__name__ for kind in WIRE]
)


def to_json(value: object) -> bytes:
    return json.dumps(value).encode()


def test_every_message_has_an_example_here():
    defined = {
        value
        for value in (*vars(messages).values(), *vars(cronos).values())
        if isinstance(value, type) and issubclass(value, msgspec.Struct)
    } - {msgspec.Struct, messages.Wire}
    assert defined == set(WIRE)


OPTIONAL = {"description", "reason", "refundTxHash"}


def wrong_values(value: object) -> list[object]:
    """Return values of other types: a number is not taken for a text, nor a text for a number."""
    if isinstance(value, str):
        return [[[]], 10_000, True]
    if isinstance(value, int | float) and not isinstance(value, bool):
        return [[[]], str(value), True, *([value + 0.5] if isinstance(value, int) else [])]
    return [[[]]] if value is None else [[[]], "{}"]


@every_message
def test_a_message_has_exactly_the_names_and_types_of_the_specification(kind, wire):
    """What is unknown is ignored; what is missing or of another type is refused by its name."""
    read = decode(to_json(wire), kind)
    assert json.loads(encode(read)) == wire
    assert decode(to_json(wire | {"unknownField": [1]}), kind) == read
    for name in wire.keys() - {"event"}:  # the tag of a struct decoded by itself may be left out
        bad = [wire | {name: wrong} for wrong in wrong_values(wire[name])]
        if kind is messages.Agent or name not in OPTIONAL:
            bad.append({key: value for key, value in wire.items() if key != name})
        for each in bad:
            with pytest.raises(BadMessage, match=name):
                decode(to_json(each), kind)


@pytest.mark.parametrize(("sent", "read"), [({}, msgspec.UNSET), ({"description": None}, None)])
def test_the_description_may_be_absent(sent, read):
    assert decode(to_json(REQUIREMENTS | sent), messages.PaymentRequirements).description is read


def test_the_event_field_distinguishes_the_answers_of_settle():
    for kind in (cronos.Settled, cronos.Failed):
        assert type(decode(to_json(WIRE[kind]), cronos.SettleAnswer)) is kind
    with pytest.raises(BadMessage, match="event"):
        decode(to_json(WIRE[cronos.Settled] | {"event": "payment.pending"}), cronos.SettleAnswer)
    with pytest.raises(BadMessage, match="event"):
        decode(
            to_json({k: v for k, v in WIRE[cronos.Settled].items() if k != "event"}),
            cronos.SettleAnswer,
        )


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
        assert decode(to_json(WIRE[kind] | {name: value}), kind)
    for value in bad:
        with pytest.raises(BadMessage, match=name):
            decode(to_json(WIRE[kind] | {name: value}), kind)


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


def test_json_nested_deeper_than_the_recursion_limit_is_a_bad_message():
    body = IN_AN_UNKNOWN_FIELD % (b"[" * 1900, b"]" * 1900)
    # from 3.12 on C code has a limit of its own, which is higher, and reads to the end
    said = pytest.raises(BadMessage, match=r"nested too deeply|missing required field")
    with recursion_limit(1000), said:
        decode(body, messages.SettlementRequest)
