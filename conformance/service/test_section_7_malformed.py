"""Section 7, and a demand of the kit itself: malformed input does not break the service.

For any input, the answer is no 5xx, shows no stack trace, and has no protected content
without proof of payment. A settlement may be refused with any status: section 7 shows none.
"""

import json
import re
from collections.abc import Iterator
from typing import Any

from x402sim.spec.ground import ours
from x402sim.suite.service import expect
from x402sim.suite.service.answers import TargetAnswer
from x402sim.suite.service.case import paid_case, unpaid_case
from x402sim.suite.service.inputs import (
    BODIES,
    LARGE,
    SentInput,
    bad_requests,
    quote,
    send_bad,
    sent,
    twisted,
)
from x402sim.suite.service.probe import JSON, Probe

NO_HARM = ours(because="Malformed input should not break a service, nor show its insides.")
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
NOT_IMPLEMENTED = 501
"""RFC 9110 allows this status for a method that the server does not know."""
METHODS = ("GET", "POST", "PUT", "PATCH", "DELETE", "HEAD", "OPTIONS")


def _stands(answer: TargetAnswer, said: str) -> None:
    """Fail if the target answers 5xx, shows a stack trace, or serves the content."""
    has_broken = answer.status >= 500 and not any(text in answer.text for text in TEXTS)
    expect.holds(f"no 5xx for {said}", not has_broken, answer.summary, answer.show)
    _shows_no_trace(answer, said)
    expect.withheld(answer, said)


def _stood(bad: SentInput) -> None:
    """Fail if the target does not answer, nor afterwards, or answers with forbidden contents."""
    answer = bad.answer
    expect.holds(f"an answer to {bad.label}", bad.is_answered, answer.summary, answer.show)
    what = f"a service that answers after {bad.label}"
    expect.holds(what, bad.lives, "it does not answer any more", answer.show)
    _stands(answer, bad.label)


def _shows_no_trace(answer: TargetAnswer, said: str) -> None:
    shown = TRACE.search(answer.text) if answer.status >= 400 else None
    expect.holds(f"no stack trace for {said}", not shown, answer.summary, answer.show)


# --- bodies --------------------------------------------------------------------------


@unpaid_case(
    "7/malformed-body",
    title="A body that is no JSON object of bounded size, or has a wrong field, gets no 5xx.",
    ground=NO_HARM,
)
async def a_body_that_cannot_be_read(probe: Probe) -> None:
    for group in ("unreadable", "content types", "wrong types", "made up"):
        for each in await sent(probe, group):
            _stood(each)
    sessions = probe.target.sessions
    paths = [probe.target.pay.path, *([sessions.path] if sessions.exists else [])]
    for group in ("unreadable", "content types", "made up"):
        for number, (label, content, headers) in enumerate(bad_requests(group, {"pair": "A-B"})):
            for path in paths[: 1 + number % 2]:
                bad = await send_bad(probe, label, "POST", path, content=content, headers=headers)
                _stood(bad)
    if sessions.exists:
        for name, body in twisted({"maxSpend": "0.02", "duration": sessions.duration}):
            _stands(await probe.send("POST", sessions.path, json=body), name)


@unpaid_case(
    "7/malformed-body",
    title="A settlement with any field wrong, also in the requirements, gets no 5xx.",
    ground=NO_HARM,
)
async def a_settlement_of_the_wrong_types(probe: Probe) -> None:
    challenge = await probe.challenge()
    body = challenge.settlement(probe.wallets.sign(challenge, probe.wallets.stranger()))
    for name, wrong in twisted(body, 4):
        _stands(await probe.send("POST", probe.target.pay.path, json=wrong), name)


# --- proofs of payment, payment headers, methods -------------------------------------


@unpaid_case(
    "7/malformed-proof",
    title="Malformed values of X-Payment-Id and X-Session-Id get no 5xx and no content.",
    ground=NO_HARM,
)
async def a_proof_that_is_none(probe: Probe) -> None:
    for each in await sent(probe, "proofs"):
        _stood(each)


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


@unpaid_case(
    "7/malformed-header",
    title="A malformed payment header, or one with an enormous validBefore, gets no 5xx.",
    ground=NO_HARM,
)
async def a_payment_header_that_is_none(probe: Probe) -> None:
    challenge = await probe.challenge()
    for header in malformed_headers():
        answer = await probe.settle(challenge, header, may_break=len(header) >= LARGE)
        said = f"the payment header {quote(header[:60])} of {len(header)} characters"
        expect.holds(f"an answer to {said}", not answer.is_late, answer.summary, answer.show)
        _stands(answer, said)
        if not answer.broken:
            expect.refused(answer)
    expect.not_served(await probe.ask(payment_id=challenge.payment_id), is_402=True)
    for valid_before in (2**53, 2**63, 2**64, 2**256 - 1):  # the token allows these
        header = probe.wallets.sign(challenge, probe.wallets.stranger(), valid_before=valid_before)
        _stands(await probe.settle(challenge, header), f"validBefore {valid_before}")


@unpaid_case(
    "7/other-methods",
    title="No HTTP method gets content without proof of payment, or a 5xx.",
    ground=NO_HARM,
)
async def another_method(probe: Probe) -> None:
    target = probe.target
    paths = [target.protected.path, target.pay.path]
    paths += [target.sessions.path] if target.sessions.exists else []
    paths += [each.path for each in (target.agents, target.llms) if each.exists]
    for path in dict.fromkeys([*paths, "/", "/no/such/path"]):
        for method in METHODS if path in paths[:3] else METHODS[::2]:
            answer = await probe.send(method, path)
            if answer.status != NOT_IMPLEMENTED:
                _stands(answer, f"{method} {path}")


@paid_case(
    "7/malformed-paid",
    title="A paid request with a malformed body gets no 5xx.",
    ground=NO_HARM,
)
async def a_bad_body_with_a_good_proof(probe: Probe) -> None:
    paid, endpoint = await probe.buy(), probe.target.protected
    proof = {**JSON, "X-Payment-Id": paid.challenge.payment_id}
    for name, content in list(BODIES.items())[::2]:
        answer = await probe.send(
            endpoint.method, endpoint.path, content=content, headers=proof, may_break=True
        )
        expect.holds(f"an answer to {name}", not answer.is_late, answer.summary)
        expect.holds(f"no 5xx for {name}", answer.status < 500, answer.summary)
        _shows_no_trace(answer, name)
    if endpoint.method == "GET":
        return
    for name, wrong in twisted(probe.usual_body):
        answer = await probe.send(endpoint.method, endpoint.path, json=wrong, headers=proof)
        expect.holds(f"no 5xx for {name}", answer.status < 500, answer.summary)
        _shows_no_trace(answer, name)
