"""Every decoder: whatever comes in, only the documented error comes out, and values come back."""

import base64
import json
from collections.abc import Callable
from functools import cache, partial
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings, strategies as st

from tests.campaign import at_length
from tests.hostile.inputs import VALUES
from tests.rig import ServiceRig
from tests.strategies import (
    addresses,
    json_values,
)
from x402sim.chain.base import Call, Reverted
from x402sim.protocol import abi, cronos, messages as kinds, money, x402
from x402sim.protocol.crypto import checksum, from_hex, parse_address, to_hex
from x402sim.protocol.header import decode_header, present
from x402sim.protocol.messages import BadMessage, Wire, decode
from x402sim.service.issue import RESOURCES, IssuedTerms
from x402sim.serving.control import messages as control_messages
from x402sim.serving.control.app import ACTIONS
from x402sim.serving.listen import origin
from x402sim.world.faults import read_fault

SPECIAL = [value for value in VALUES if isinstance(value, str) and len(value) < 500]
texts = st.one_of(
    st.text(max_size=80),
    st.text("0x123456789abcdefABCDEF.-+_eE ", max_size=70),
    st.sampled_from(SPECIAL),
    st.sampled_from(SPECIAL).flatmap(lambda it: st.text(max_size=3).map(lambda end: it + end)),
)
"""Any text, most of it close to a number, an address or an id."""
numbers = st.integers() | st.floats() | st.sampled_from([2**63, 2**64, 2**256, -(2**63) - 1])
anything = json_values | texts | numbers | st.sampled_from(VALUES)


# --- the tests ----------------------------------------------------------------------


def _structs(module: Any) -> list[type[msgspec.Struct]]:
    found = [each for each in vars(module).values() if isinstance(each, type)]
    return [each for each in found if issubclass(each, msgspec.Struct) and each is not Wire]


ACTION_KINDS = [kind for _, kind in ACTIONS.values() if kind is not Any]
KINDS = [
    *sorted({*_structs(kinds), *_structs(cronos), *_structs(control_messages)}, key=str),
    *ACTION_KINDS,
]
pytestmark = pytest.mark.timeout(at_length(120, 1200))
DRAWN = settings(max_examples=at_length(10, 100))


def or_raises(error: type[Exception], work: Callable[..., Any], *given_: Any) -> Any:
    """Return what a function returns; None if it raises this error."""
    try:
        return work(*given_)
    except error:
        return None


# --- messages ------------------------------------------------------------------------


@settings(max_examples=at_length(25, 1000))
@given(drawn=st.lists(st.tuples(st.integers(0, 99), anything), max_size=8))
def test_a_message_that_is_almost_right_is_a_message_or_a_bad_message(drawn):
    """Every name with any value, some names left out, some twice: what is drawn, for every kind."""
    for kind in KINDS:
        names = [field.encode_name for field in msgspec.structs.fields(kind)] + ["event", "x"]
        items = ((names[number % len(names)], value) for number, value in drawn)
        body = "{" + ", ".join(f"{json.dumps(name)}: {json.dumps(v)}" for name, v in items) + "}"
        read = or_raises(BadMessage, decode, body.encode("utf-8", "surrogatepass"), kind)
        assert read is None or isinstance(read, kind), kind


# --- money, hex, networks, origins, headers, faults ----------------------------------

encoded = st.binary(max_size=100) | anything.map(json.dumps).map(
    lambda it: it.encode("utf-8", "surrogatepass")
)
standard = texts | encoded.map(lambda raw: base64.b64encode(raw).decode())
hosts = texts.map("http://{}".format) | st.sampled_from(["http://[::1]:99999", "http://\ud800"])
FAULT = ("victim", "does", "path", "times", "chance", "after", "seconds", "status", "body", "x")
almost_faults = st.dictionaries(st.sampled_from(FAULT), anything, max_size=6).map(
    lambda it: {"victim": "service", "does": "lose answer", **it}
)


@cache
def issuer() -> Any:
    return ServiceRig().service.issuer


DECODERS: dict[str, tuple[Any, type[Exception], Any, Any]] = {
    "amount": (texts | st.just("१२३"), ValueError, money.parse_base,
        lambda text, it: str(it) == text and 0 <= it <= money.MAX_UINT256),
    **{f"tokens, {digits} digits": (texts, ValueError,
        partial(money.to_base, decimals=6, fraction_digits=digits),
        lambda text, it: it >= 0 and text.isascii()) for digits in (None, 2)},
    **{f"hex, {size} bytes": (texts, ValueError, partial(from_hex, size=size),
        lambda text, it: to_hex(it) == text.lower()) for size in (0, 1, 20, 32)},
    "address": (texts, ValueError, parse_address,
        lambda text, it: checksum(it).lower() == text.lower()),
    **{f"payment of version {version}": (standard, BadMessage, partial(x402.read_payment, version),
        None) for version in x402.VERSIONS},
    "402 of the standard": (standard, BadMessage, x402.read_required, None),
    "settlement of the standard": (standard, (), partial(x402.json_in, kind=x402.Settlement), None),
    "origin": (texts | hosts, ValueError, origin,
        lambda text, it: it.isascii() and origin(it) == it),
    "payment header": (texts | st.binary(max_size=60).map(to_hex), BadMessage, decode_header, None),
    "presented header": (texts | st.binary(max_size=60).map(to_hex), (), present,
        lambda text, it: it.text == text and (it.signed is None or decode_header(text))),
    "payment id": (texts | st.from_regex("pay_[A-Za-z0-9_-]{60}", fullmatch=True), (),
        lambda text: issuer().read(text),
        lambda text, it: False),
    "fault": (anything | almost_faults, ValueError, read_fault, None),
}  # fmt: skip
"""What is drawn, the error that may come out, the decoder, and what must hold of what is read."""


@pytest.mark.parametrize("name", DECODERS)
@DRAWN
@given(data=st.data())
def test_anything_is_read_or_its_error_comes_out(name, data):
    drawn, error, read, holds = DECODERS[name]
    given_ = data.draw(drawn)
    found = or_raises(error, read, given_)
    assert found is None or holds is None or holds(given_, found)


# --- the payment id ------------------------------------------------------------------


@DRAWN
@given(
    resource=st.sampled_from(sorted(RESOURCES)),
    amount=st.integers(0, 2**64 - 1),
    now_s=st.integers(0, 2**63),
    duration=st.integers(0, 2**32 - 1),
    at=st.integers(0, 63),
    to=st.characters(),
)
def test_an_issued_id_comes_back_and_no_other(resource, amount, now_s, duration, at, to):
    issued = issuer().issue(resource, amount, now_s, duration).payment_id
    assert issuer().read(issued) == IssuedTerms(resource, amount, now_s + 300, duration)
    if to != issued[at]:
        assert issuer().read(issued[:at] + to + issued[at + 1 :]) is None


# --- JSON-RPC ------------------------------------------------------------------------


SELECTORS = [it for it in vars(abi).values() if isinstance(it, bytes) and len(it) == 4]


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
    call, machine = Call(sender, chain.token, data), chain.machine
    or_raises(Reverted, lambda: machine.call(call, 1_800_000_000, machine.state))
