"""Section 7, and a demand of the kit itself: malformed input does not break the service.

For any input, the answer is no 5xx, shows no stack trace, and has no protected content
without proof of payment. A settlement may be refused with any status: section 7 shows none.
"""

import itertools
import json
import re
from collections.abc import Iterable, Iterator
from typing import Any

from x402sim.spec.ground import ours
from x402sim.spec.needs import Need
from x402sim.suite.answers import TargetAnswer
from x402sim.suite.check import check
from x402sim.suite.examples import examples
from x402sim.suite.expect import expect_not_served, expect_refused, expect_withheld, require
from x402sim.suite.probe import Probe

NO_HARM = ours(
    "The specification says nothing about malformed input. It should not break a service, nor "
    "make it show its insides."
)
TEXTS = (
    "Insufficient USDC balance",
    "Invalid signature",
    "Nonce already used",
    "Authorization expired",
    "Payment already settled",
)
TRACE = re.compile(
    r"Traceback \(most recent call last\)"  # Python
    r'|File \\?"[^"\n]+", line \d+'
    r"|\bat [^\n]{0,200}?\.(?:[cm]?[jt]sx?|java|kt|scala|cs):(?:line )?\d+"  # Node, Java, .NET
    r"|goroutine \d+ \[|\.go:\d+|panicked at |\.rs:\d+"  # Go, Rust
    r"|Stack trace:|\.php\(\d+\)|\.rb:\d+:in "  # PHP, Ruby
)
MIB = 1 << 20

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
NOT_IMPLEMENTED = 501
"""RFC 9110 allows this status for a method that the server does not know."""
METHODS = ("GET", "POST", "PUT", "PATCH", "DELETE", "HEAD", "OPTIONS")


def _stands(answer: TargetAnswer, sent: str) -> None:
    """Fail if the target answers 5xx, shows a stack trace, or serves the content."""
    has_broken = answer.status >= 500 and not any(text in answer.text for text in TEXTS)
    require(f"no 5xx for {sent}", not has_broken, answer.summary)
    _shows_no_trace(answer, sent)
    expect_withheld(answer)


def _shows_no_trace(answer: TargetAnswer, sent: str) -> None:
    shown = TRACE.search(answer.text) if answer.status >= 400 else None
    require(f"no stack trace for {sent}", not shown, answer.summary)


def _endpoints(probe: Probe) -> list[tuple[str, str]]:
    """Return method and path of every endpoint that takes a body."""
    target = probe.target
    found = [(target.protected.method, target.protected.path), ("POST", target.pay.path)]
    if target.sessions.exists:
        found.append(("POST", target.sessions.path))
    return [(method, path) for method, path in found if method != "GET"]


def _spread(probe: Probe, inputs: Iterable[str]) -> Iterator[tuple[str, tuple[str, str]]]:
    """Yield each input with the settlement endpoint, and with one of the other endpoints."""
    pay = ("POST", probe.target.pay.path)
    others = [each for each in _endpoints(probe) if each != pay]
    for number, each in enumerate(inputs):
        yield each, pay
        if others:
            yield each, others[number % len(others)]


def _twisted(
    body: dict[str, Any], at_most: int = 99, first: int = 0
) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield an object with one field missing or of a wrong type, for each field.

    Each field gets `at_most` some of the values, and the next field the next ones.
    """
    for number, (name, value) in enumerate(body.items(), first):
        yield f"no {name}", {key: body[key] for key in body if key != name}
        wrong = INSTEAD_OF_A_STRING if isinstance(value, str) else INSTEAD_OF_A_NUMBER
        for turn in range(min(at_most, len(wrong))):
            each = wrong[(at_most * number + turn) % len(wrong)]
            yield f"{name} = {str(each)[:40]!r}", {**body, name: each}
        if isinstance(value, dict):
            for path, inner in _twisted(value, max(at_most // 2, 1), number):
                yield f"{name}: {path}", {**body, name: inner}


# --- bodies --------------------------------------------------------------------------


@check("7/malformed-body", document="kit", ground=NO_HARM, baseline="unpaid")
async def a_body_that_cannot_be_read(probe: Probe) -> None:
    """A body that is not a JSON object, too large or too deep gets no 5xx and no content."""
    for name, (method, path) in _spread(probe, BODIES):
        content = BODIES[name]
        answer = await probe.send(
            method, path, content=content, headers=_JSON, may_break=len(content) >= MIB
        )
        _stands(answer, f"{name}, {method} {path}")


_JSON = {"Content-Type": "application/json"}


@check("7/malformed-body", document="kit", ground=NO_HARM, baseline="unpaid")
async def a_body_of_another_type(probe: Probe) -> None:
    """A body with another Content-Type gets no 5xx and no content."""
    for content_type, (method, path) in _spread(probe, CONTENT_TYPES):
        headers = {"Content-Type": content_type}
        answer = await probe.send(method, path, content=b'{"pair": "A-B"}', headers=headers)
        _stands(answer, f"Content-Type {content_type!r}, {method} {path}")


@check("7/malformed-body", document="kit", ground=NO_HARM, baseline="unpaid")
async def a_request_of_the_wrong_types(probe: Probe) -> None:
    """A request for the resource or a session with any field wrong gets no 5xx."""
    target = probe.target
    order = probe.state.body or target.protected.bodies[0]
    if target.protected.method != "GET":
        some = 99 if probe.setting.missing(Need.FUNDS) else 4  # else 7/malformed-paid sends them
        for name, body in _twisted(order, some):
            _stands(await probe.ask(body=body), name)
    if target.sessions.exists:
        for name, body in _twisted({"maxSpend": "0.02", "duration": target.sessions.duration}):
            _stands(await probe.send("POST", target.sessions.path, json=body), name)


@check("7/malformed-body", document="kit", ground=NO_HARM, baseline="unpaid")
async def a_settlement_of_the_wrong_types(probe: Probe) -> None:
    """A settlement with any field wrong, also in the requirements, gets no 5xx."""
    challenge = await probe.challenge()
    body = {
        "paymentId": challenge.payment_id,
        "paymentHeader": probe.money.sign(challenge, probe.money.stranger()),
        "paymentRequirements": challenge.to_send,
    }
    for name, twisted in _twisted(body, 4):
        _stands(await probe.send("POST", probe.target.pay.path, json=twisted), name)


@check("7/malformed-body", document="kit", ground=NO_HARM, baseline="unpaid")
async def a_body_made_up(probe: Probe) -> None:
    """Random JSON gets no 5xx and no content."""

    def anything(st: Any) -> Any:
        text = st.text(alphabet="aZ0-_.:/%$<>{}[]'\"\\ \0\n\u00e9\u2603\U0001f600", max_size=20)
        leaves = st.none() | st.booleans() | st.integers() | st.floats() | text
        names = st.sampled_from(["pair", "leverage", "paymentId", "paymentHeader", "maxSpend"])
        return st.recursive(leaves, lambda each: st.lists(each) | st.dictionaries(names, each))

    for example, (method, path) in zip(
        examples(20, anything), itertools.cycle(_endpoints(probe)), strict=False
    ):
        content = json.dumps(example).encode()
        answer = await probe.send(method, path, content=content, headers=_JSON)
        _stands(answer, f"{content[:80]!r}, {method} {path}")


# --- proofs of payment, payment headers, methods -------------------------------------


@check("7/malformed-proof", document="kit", ground=NO_HARM, baseline="unpaid")
async def a_proof_that_is_none(probe: Probe) -> None:
    """Malformed values of X-Payment-Id and X-Session-Id get no 5xx and no content."""
    endpoint, body = probe.target.protected, probe.state.body or probe.target.protected.bodies[0]
    for header, proofs in (("X-Payment-Id", PROOFS), ("X-Session-Id", PROOFS[::2])):
        for proof in proofs:
            answer = await probe.send(
                endpoint.method, endpoint.path, json=body, headers={header: proof}
            )
            _stands(answer, f"{header}: {proof[:40]!r}")
        huge = {header: "A" * MIB}
        answer = await probe.send(
            endpoint.method, endpoint.path, json=body, headers=huge, may_break=True
        )
        _stands(answer, f"{header} of a mebibyte")


def malformed_headers() -> Iterator[str]:
    """Yield payment headers that no client library produces."""
    yield from ("", "0x", "0X", "0x123", "0xzz", "not base64!", "e30=", "bnVsbA==", "é")
    for text in ("null", "[]", "{}", '"x"', "NaN", '{"x402Version":1}', "\ufeff{}", "[" * 5000):
        yield "0x" + text.encode().hex()
    yield "0x" + b"\xff\xfe{}".hex()
    yield "0x" + "00" * 100_000
    header = {"x402Version": 1, "scheme": "exact", "network": "cronos-testnet", "payload": {}}
    payload: dict[str, Any] = {
        "from": "0x",
        "to": None,
        "value": -1,
        "validAfter": 1e99,
        "nonce": [],
        "asset": {},
    }
    inners: list[Any] = [{}, None, [], "x", payload, {**payload, "signature": "0x" + "zz" * 65}]
    for inner in inners:
        yield "0x" + json.dumps({**header, "payload": inner}).encode().hex()


@check("7/malformed-header", document="kit", ground=NO_HARM, baseline="unpaid")
async def a_payment_header_that_is_none(probe: Probe) -> None:
    """A malformed payment header settles nothing, and gets no 5xx."""
    challenge = await probe.challenge()
    for header in malformed_headers():
        answer = await probe.settle(challenge, header)
        _stands(answer, f"the payment header {header[:60]!r}")
        expect_refused(answer)
    expect_not_served(await probe.ask(payment_id=challenge.payment_id), is_402=True)


@check("7/malformed-header", document="kit", ground=NO_HARM, baseline="unpaid")
async def a_window_without_end(probe: Probe) -> None:
    """An authorization with an enormous validBefore, which the token allows, gets no 5xx."""
    challenge = await probe.challenge()
    for valid_before in (2**53, 2**63, 2**64, 2**256 - 1):
        header = probe.money.sign(challenge, probe.money.stranger(), valid_before=valid_before)
        _stands(await probe.settle(challenge, header), f"validBefore {valid_before}")


@check("7/other-methods", document="kit", ground=NO_HARM, baseline="unpaid")
async def another_method(probe: Probe) -> None:
    """No HTTP method gets content without proof of payment, or a 5xx."""
    target = probe.target
    paths = [target.protected.path, *(path for _, path in _endpoints(probe))]
    paths += [each.path for each in (target.agents, target.llms) if each.exists]
    for path in dict.fromkeys([*paths, "/", "/no/such/path"]):
        for method in METHODS if path in paths[:3] else METHODS[::2]:
            answer = await probe.send(method, path)
            if answer.status != NOT_IMPLEMENTED:
                _stands(answer, f"{method} {path}")


@check("7/malformed-paid", document="kit", ground=NO_HARM, needs="funds", pays=1)
async def a_bad_body_with_a_good_proof(probe: Probe) -> None:
    """A paid request with a malformed body gets no 5xx."""
    paid, endpoint = await probe.buy(), probe.target.protected
    proof = {**_JSON, "X-Payment-Id": paid.challenge.payment_id}
    for name, content in list(BODIES.items())[::2]:
        answer = await probe.send(
            endpoint.method, endpoint.path, content=content, headers=proof, may_break=True
        )
        require(f"no 5xx for {name}", answer.status < 500, answer.summary)
        _shows_no_trace(answer, name)
    if endpoint.method == "GET":
        return
    for name, twisted in _twisted(probe.state.body or endpoint.bodies[0]):
        answer = await probe.send(endpoint.method, endpoint.path, json=twisted, headers=proof)
        require(f"no 5xx for {name}", answer.status < 500, answer.summary)
        _shows_no_trace(answer, name)
