"""Every decoder: whatever comes in, only the documented error comes out, and values come back."""

import asyncio
import base64
import json
import os
from collections.abc import Callable
from typing import Any

import msgspec
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from tests.hostile.inputs import Sent
from tests.hostile.town import Town, town
from tests.hostile.values import anything, messages, texts
from tests.rig import ServiceRig
from tests.strategies import (
    addresses,
    authorizations,
    bytes32,
    headers_authorizations,
    json_values,
    uint256,
)
from x402sim.chain.base import Call, Reverted
from x402sim.chain.rpc import jsonrpc
from x402sim.http.web import Refused
from x402sim.journal import Journal
from x402sim.protocol import abi, cronos, money, rpc_values, x402
from x402sim.protocol import messages as kinds
from x402sim.protocol.crypto import checksum, from_hex, parse_address, to_hex
from x402sim.protocol.header import decode_header, encode_header, present, read_header
from x402sim.protocol.messages import BadMessage, Wire, decode, encode
from x402sim.protocol.networks import NETWORKS, TESTNET, network_named
from x402sim.protocol.rpc_values import BadParams
from x402sim.service.issue import RESOURCES, IssuedTerms
from x402sim.service.upstream.cronos import read_outcome, read_verdict
from x402sim.world.control import messages as control_messages
from x402sim.world.control.app import ACTIONS
from x402sim.world.server.origins import origin
from x402sim.world.transport.faults import read_fault


def _structs(module: Any) -> list[type[msgspec.Struct]]:
    found = [each for each in vars(module).values() if isinstance(each, type)]
    return [each for each in found if issubclass(each, msgspec.Struct) and each is not Wire]


ACTION_KINDS = sorted({kind for _, kind in ACTIONS.values() if kind is not Any}, key=str)
KINDS = sorted(
    {*_structs(kinds), *_structs(cronos), *_structs(control_messages), *ACTION_KINDS}, key=str
)
EXAMPLES = int(os.environ.get("X402SIM_DECODER_EXAMPLES", "10"))
"""How many examples each decoder gets; `python -m tests.hostile` gives more."""
DRAWN = settings(max_examples=EXAMPLES)
SLOW = settings(DRAWN, suppress_health_check=[HealthCheck.too_slow])
FEW = settings(max_examples=max(2, EXAMPLES // 4))
each_kind = pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)


def or_raises(error: type[Exception], work: Callable[..., Any], *given_: Any) -> Any:
    """Return what a function returns; None if it raises this error."""
    try:
        return work(*given_)
    except error:
        return None


def test_there_are_kinds():
    assert len(KINDS) >= 40


# --- messages ------------------------------------------------------------------------


@each_kind
@DRAWN
@given(body=st.binary(max_size=200))
def test_bytes_are_a_message_or_a_bad_message(kind, body):
    read = or_raises(BadMessage, decode, body, kind)
    assert read is None or isinstance(read, kind)


@each_kind
@DRAWN
@given(data=st.data())
def test_a_message_that_is_almost_right_is_a_message_or_a_bad_message(kind, data):
    """Every name with any value, some names left out, some twice."""
    names = [field.encode_name for field in msgspec.structs.fields(kind)] + ["event", "x"]
    items = data.draw(st.lists(st.tuples(st.sampled_from(names), anything), max_size=8))
    body = "{" + ", ".join(f"{json.dumps(name)}: {json.dumps(v)}" for name, v in items) + "}"
    read = or_raises(BadMessage, decode, body.encode("utf-8", "surrogatepass"), kind)
    assert read is None or isinstance(read, kind)


@each_kind
@SLOW
@given(data=st.data())
def test_a_message_comes_back_as_it_was(kind, data):
    try:
        message = data.draw(messages(kind))
    except (ValueError, Refused):  # it has a condition of its own
        return
    assert decode(encode(message), kind) == message


# --- money, hex, networks, origins ---------------------------------------------------


@DRAWN
@given(text=texts)
@example(text="१२३")
def test_any_text_is_an_amount_or_a_value_error(text):
    amount = or_raises(ValueError, money.parse_base, text)
    assert amount is None or (str(amount) == text and 0 <= amount <= money.MAX_UINT256)
    for digits in (None, 2):
        spent = or_raises(
            ValueError,
            lambda: money.to_base(text, 6, fraction_digits=digits),  # noqa: B023
        )
        assert spent is None or (spent >= 0 and text.isascii())


@DRAWN
@given(text=texts, size=st.integers(0, 40))
def test_any_text_is_hex_or_a_value_error(text, size):
    raw = or_raises(ValueError, from_hex, text, size)
    assert raw is None or (len(raw) == size and to_hex(raw) == text.lower())
    address = or_raises(ValueError, parse_address, text)
    assert address is None or checksum(address).lower() == text.lower()


@DRAWN
@given(raw=st.binary(max_size=40), address=addresses)
def test_hex_comes_back(raw, address):
    assert from_hex(to_hex(raw), len(raw)) == raw
    assert parse_address(checksum(address)) == address


@DRAWN
@given(text=texts)
def test_any_text_is_a_network_or_a_value_error(text):
    network = or_raises(ValueError, network_named, text)
    assert network is None or network.name == text


@DRAWN
@given(text=texts, body=st.binary(max_size=100) | anything.map(json.dumps))
def test_any_text_is_a_message_of_the_standard_or_a_bad_message(text, body):
    raw = body if isinstance(body, bytes) else body.encode("utf-8", "surrogatepass")
    for spelled in (text, base64.b64encode(raw).decode()):
        for version in x402.VERSIONS:
            or_raises(BadMessage, x402.read_payment, version, spelled)
        or_raises(BadMessage, x402.read_required, spelled)
        or_raises(BadMessage, x402.read_settlement, spelled)


@DRAWN
@given(auth=authorizations, signature=st.binary(max_size=100))
def test_a_payment_of_the_standard_comes_back(auth, signature):
    common = {"scheme": "exact", "asset": checksum(TESTNET.asset), "pay_to": checksum(auth.to)}
    first = x402.RequirementsV1(
        **common, network="cronos-testnet", max_amount_required="1", max_timeout_seconds=300
    )
    second = x402.RequirementsV2(
        **common, network=TESTNET.caip2, amount="1", max_timeout_seconds=300
    )
    for version, accepted in ((1, first), (2, second)):
        text = x402.encode_payment(auth, signature, accepted)
        signed = x402.read_payment(version, text).signed
        assert (signed.authorization, signed.signature) == (auth, signature)


def test_a_network_comes_back():
    assert all(network_named(each.name) == each for each in NETWORKS.values())


@DRAWN
@given(text=texts | texts.map("http://{}".format))
@example(text="http://[::1]:99999")
@example(text="http://\ud800")
def test_any_text_is_an_origin_or_a_value_error(text):
    sent = or_raises(ValueError, origin, text)
    assert sent is None or (sent.isascii() and origin(sent) == sent)


# --- the payment header --------------------------------------------------------------


@DRAWN
@given(text=texts | st.binary(max_size=60).map(to_hex))
def test_any_text_is_a_header_or_a_bad_message(text):
    header = or_raises(BadMessage, decode_header, text)
    shown = present(text)
    assert shown.text == text
    assert shown.signed is None or header is not None


@DRAWN
@given(
    auth=headers_authorizations,
    signature=st.binary(max_size=70),
    spelling=st.sampled_from(["hex", "base64"]),
    data=st.data(),
)
def test_a_header_with_one_wrong_value_is_a_payment_or_a_bad_message(
    auth, signature, spelling, data
):
    text = encode_header(auth, signature, TESTNET, spelling)
    assert present(text).authorization == auth
    assert present(text).signed.signature == signature
    written = msgspec.to_builtins(decode_header(text))
    place = data.draw(st.sampled_from([*written["payload"], *written]))
    inner = written["payload"] if place in written["payload"] else written
    inner[place] = data.draw(anything)
    changed = to_hex(json.dumps(written).encode("utf-8", "surrogatepass"))
    or_raises(BadMessage, read_header, changed)


# --- the payment id ------------------------------------------------------------------


@pytest.fixture(scope="module")
def issuer() -> Any:
    return ServiceRig().service.issuer


@DRAWN
@given(text=texts | st.from_regex("pay_[A-Za-z0-9_-]{60}", fullmatch=True))
def test_no_text_is_an_id_that_was_issued(issuer, text):
    assert issuer.read(text) is None


@DRAWN
@given(
    resource=st.sampled_from(sorted(RESOURCES)),
    amount=st.integers(0, 2**64 - 1),
    now_s=st.integers(0, 2**63),
    duration=st.integers(0, 2**32 - 1),
    at=st.integers(0, 63),
    to=st.characters(),
)
def test_an_issued_id_comes_back_and_no_other(issuer, resource, amount, now_s, duration, at, to):
    issued = issuer.issue(resource, amount, now_s, duration).payment_id
    assert issuer.read(issued) == IssuedTerms(resource, amount, now_s + 300, duration)
    if to != issued[at]:
        assert issuer.read(issued[:at] + to + issued[at + 1 :]) is None


# --- what a facilitator answers, faults, journals ------------------------------------


@DRAWN
@given(body=st.binary(max_size=200) | anything.map(lambda it: json.dumps(it).encode()))
def test_any_answer_of_a_facilitator_is_read_or_a_bad_message(body):
    or_raises(BadMessage, read_verdict, body)
    or_raises(BadMessage, read_outcome, body)


FAULT = st.sampled_from(
    ["victim", "does", "path", "times", "chance", "after", "seconds", "status", "body", "x"]
)


@DRAWN
@given(
    asked=anything
    | st.dictionaries(FAULT, anything, max_size=6).map(
        lambda it: {"victim": "service", "does": "lose answer", **it}
    )
)
def test_anything_is_a_fault_or_a_value_error(asked):
    or_raises(ValueError, read_fault, asked)


@DRAWN
@given(
    text=st.binary(max_size=200)
    | json_values.map(lambda it: b'{"journal":"x402sim","version":2}\n' + json.dumps(it).encode())
)
def test_any_bytes_are_a_journal_or_a_value_error(text):
    or_raises(ValueError, Journal.load, text)


# --- JSON-RPC ------------------------------------------------------------------------

READERS: list[Callable[[Any], Any]] = [
    rpc_values.read_hash,
    rpc_values.read_address,
    rpc_values.read_quantity,
    rpc_values.read_bytes,
    lambda value: rpc_values.read_bool(value, "it"),
    lambda value: rpc_values.read_object(value, "it"),
    lambda value: jsonrpc.read_block_number(value, 10),
    jsonrpc.read_call,
    jsonrpc.read_addresses,
    jsonrpc.read_topics,
]
CALL = st.dictionaries(
    st.sampled_from(["from", "to", "data", "input", "value", "gas", "nonce", "chainId"]),
    anything,
    max_size=6,
)


@pytest.mark.parametrize("read", range(len(READERS)))
@DRAWN
@given(value=anything | CALL | st.lists(anything, max_size=5))
def test_any_parameter_is_read_or_a_bad_parameter(read, value):
    or_raises(BadParams, READERS[read], value)


@DRAWN
@given(number=uint256, raw=st.binary(max_size=80), hashed=bytes32, address=addresses)
def test_a_parameter_comes_back(number, raw, hashed, address):
    assert rpc_values.read_quantity(rpc_values.quantity(number)) == number
    assert rpc_values.read_bytes(to_hex(raw)) == raw
    assert rpc_values.read_hash(to_hex(hashed)) == hashed
    assert rpc_values.read_address(to_hex(address)) == address
    sent = {"from": to_hex(address), "to": to_hex(address), "data": to_hex(raw), "value": "0x1"}
    assert jsonrpc.read_call(sent) == Call(address, address, raw, 1)


@DRAWN
@given(request=anything | st.dictionaries(st.sampled_from(["jsonrpc", "id", "method"]), anything))
def test_any_request_is_valid_or_says_why_not(request):
    assert isinstance(jsonrpc.why_invalid(request), str | None)


SELECTORS = [value for name, value in vars(abi).items() if name.isupper() and len(value) == 4]


@pytest.fixture(scope="module")
def chain() -> Any:
    return ServiceRig().parts.chain


@DRAWN
@given(
    data=st.binary(max_size=40)
    | st.tuples(st.sampled_from(SELECTORS), st.binary(max_size=400)).map(b"".join),
    sender=addresses,
)
def test_any_calldata_is_run_or_reverted(chain, data, sender):
    or_raises(Reverted, lambda: chain.machine.call(Call(sender, chain.token, data), 1_800_000_000))


@DRAWN
@given(auth=authorizations, signature=st.binary(max_size=100), sender=addresses)
def test_any_authorization_is_run_or_reverted(chain, auth, signature, sender):
    data = abi.transfer_with_authorization(auth, signature)
    or_raises(Reverted, lambda: chain.machine.call(Call(sender, chain.token, data), 1_800_000_000))


# --- whole endpoints -----------------------------------------------------------------

ENDPOINTS = [
    "/api/perp/quote",
    "/api/pay",
    "/api/sessions/create",
    "/facilitator/v2/x402/verify",
    "/facilitator/v2/x402/settle",
    "/facilitator/verify",
    "/facilitator/settle",
    "/explorer/api",
    "/explorer/blockscout/api",
    "/rpc",
    *(f"/_sim{path}" for method, path in ACTIONS if method == "POST"),
]


@pytest.mark.parametrize("path", ENDPOINTS)
@FEW
@given(bodies=st.lists(st.binary(max_size=100) | anything.map(json.dumps), max_size=5))
def test_any_body_is_no_5xx(path, bodies):
    async def story() -> None:
        async with town() as world:
            for body in bodies:
                raw = body if isinstance(body, bytes) else body.encode("utf-8", "surrogatepass")
                answer = await world.send(Sent("", "POST", path, raw))
                assert answer.status < 500, answer.body

    asyncio.run(story())


@FEW
@given(
    queries=st.lists(
        st.tuples(
            st.sampled_from(
                [
                    "/explorer/api?module=proxy&action=eth_getTransactionByHash&txhash=",
                    "/explorer/api?module=",
                    "/explorer/api?module=proxy&action=",
                    "/explorer/api/v1/ethproxy/getTransactionReceipt?txHash=",
                    "/explorer/api?module=proxy&action=eth_getBlockByNumber&tag=",
                    "/explorer/api?module=transaction&action=getstatus&txhash=",
                    "/explorer/api/v1/ethproxy/getBlockByNumber?tag=",
                    "/explorer/api/v1/transaction/getStatus?txHash=",
                    "/explorer/blockscout/api?module=transaction&action=gettxinfo&txhash=",
                    "/api/payments/",
                    "/api/sessions/session_",
                    "/docs/",
                    "/_sim/journal?since=",
                ]
            ),
            texts,
        ),
        max_size=10,
    )
)
def test_any_path_and_query_is_no_5xx(queries):
    async def story() -> None:
        async with town() as world:
            await _ask_all(world, [start + text for start, text in queries])

    asyncio.run(story())


async def _ask_all(world: Town, targets: list[str]) -> None:
    for target in targets:
        answer = await world.send(Sent("", "GET", target))
        assert answer.status < 500, (target, answer.body)
