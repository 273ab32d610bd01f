"""Bad input: a clear 4xx in JSON, nothing moved, nothing stored, and the server lives on."""

import http.client
import json
import math
from collections.abc import Iterator
from contextlib import closing
from typing import Any

import pytest
from msgspec.structs import fields

from tests.hostile.town import CONTROL
from tests.serve.driver import ORDER, PAY, QUOTE, SESSIONS, Server, refusal
from tests.serve.hosted import status_and_text
from x402sim.protocol.refusals import RequestError
from x402sim.serving.control.app import ACTIONS

MIB = 1 << 20


@pytest.fixture(scope="module")
def prepared(server: Server) -> dict[str, Any]:
    """One payer, a paid id, and an id that was asked for and not paid."""
    payer = server.payer()
    return {"payer": payer, "paid": payer.paid(), "asked": payer.ask()}


@pytest.fixture(autouse=True)
def nothing_changes(server: Server, prepared: dict[str, Any]) -> Iterator[None]:
    """After every test: healthy, no row added, no block mined, no money moved."""
    before = _standing(server)
    yield
    assert server.http.get("/healthz").status_code == 200
    assert _standing(server) == before


def _standing(server: Server) -> tuple[Any, ...]:
    state = server.state()
    return state["rows"], state["chain"]["height"], state["pendingPayments"], server.transfers()


@pytest.fixture(scope="module")
def valid(server: Server, prepared: dict[str, Any]) -> dict[str, Any]:
    """What each endpoint would take; the tests take one thing away or put one in."""
    settlement = prepared["payer"].settlement(prepared["asked"])
    return {
        PAY: settlement,
        QUOTE: ORDER,
        SESSIONS: {"maxSpend": "1.00", "duration": 60},
        **CONTROL,
    }


MESSAGES = (PAY, QUOTE, SESSIONS, *CONTROL)
FLOATS = ("leverage", "sizeUsd", "seconds")
OPTIONAL = {
    (f"/_sim{path}", each.encode_name)
    for (_, path), (_, kind) in ACTIONS.items()
    for each in (() if kind is Any else fields(kind))
    if not each.required
}
NO_NUMBERS = ["1", "10", "1e3", "", True, None, [], {}, [1], math.nan, -math.inf]
WRONG: dict[str, list[Any]] = {
    "str": [1, 1.5, True, None, [], {}, ["x"], "\ud800"],
    "int": [*NO_NUMBERS, 1.5],
    "float": NO_NUMBERS,
    "bool": ["true", 1, 0, None, [], {}],
    "dict": ["x", 1, None, [], [{}], {}, True],
    "list": ["x", 1, None, {}, [1], True],
}
NO_JSON = ("01", "0x10", "+1", "1_0", "1e999", "-1e999", "9" * 5000, "True", "'x'", '"a\nb"')


def _send(server: Server, prepared: dict[str, Any], path: str, body: bytes) -> Any:
    headers = {"Content-Type": "application/json"}
    if path == QUOTE:
        headers["X-Payment-Id"] = prepared["paid"]
    return server.http.post(path, content=body, headers=headers)


def _with(body: dict[str, Any], name: str, *value: Any) -> bytes:
    """Return a body in which one field, dotted from the top, has another value, or is left out."""
    place = changed = json.loads(json.dumps(body))
    *outer, last = name.split(".")
    for part in outer:
        place = place[part]
    del place[last]
    for each in value:
        place[last] = each
    return json.dumps(changed).encode()


def _assert_refused(answer: Any, sent: object) -> None:
    assert refusal(answer) == status_and_text(RequestError.INVALID_BODY), sent
    assert answer.json()["reason"]
    assert len(answer.text) < 2000, "the reason does not repeat the body"


# --- bodies ------------------------------------------------------------------------------


@pytest.mark.clause("4.1/validate")
@pytest.mark.parametrize("path", MESSAGES)
def test_a_field_that_is_missing_or_of_the_wrong_type_is_400(server, prepared, valid, path):
    for name, kind in _fields(valid[path]):
        for value in WRONG[kind]:
            body = _with(valid[path], name, value)
            _assert_refused(_send(server, prepared, path, body), (name, value))
        if (path, name) not in OPTIONAL:
            answer = _send(server, prepared, path, _with(valid[path], name))
            _assert_refused(answer, name)
            assert name.split(".")[-1] in answer.json()["reason"]


def _fields(message: dict[str, Any], within: str = "") -> Iterator[tuple[str, str]]:
    """Yield each field, dotted from the top, with its type."""
    for name, value in message.items():
        yield within + name, "float" if name in FLOATS else type(value).__name__
        if isinstance(value, dict):
            yield from _fields(value, f"{name}.")


def test_a_value_that_is_no_json_is_400(server, prepared):
    for text in NO_JSON:
        body = f'{{"blocks": {text}}}'.encode()
        _assert_refused(_send(server, prepared, "/_sim/mine", body), text)


def test_a_body_over_1_mib_is_413_announced_or_not(server, prepared):
    big = b'{"a": "' + b"x" * MIB + b'"}'
    headers = {"X-Payment-Id": prepared["paid"]}

    def chunks() -> Iterator[bytes]:
        for start in range(0, len(big), 50_000):
            yield big[start : start + 50_000]

    for path in (*MESSAGES, "/rpc"):
        for body in (big, chunks()):
            answer = server.http.post(path, content=body, headers=headers)
            assert refusal(answer) == status_and_text(RequestError.BODY_TOO_LARGE)


NO_AMOUNTS = ("0.00", "-1.00", "1e3", "NaN", " 1", "0.0000001", "9" * 30, "9" * 9999)
COMMANDS = [
    *(("faucet", {"address": a, "amount": "1.00"}, 400) for a in ("0x12", "0x" + "zz" * 20)),
    *(("faucet", {"address": "0x" + "11" * 20, "amount": a}, 400) for a in NO_AMOUNTS),
    *(("clock/advance", {"seconds": s}, 400) for s in (-1, -0.001, 1e12)),
    *(("mine", {"blocks": n}, 400) for n in (0, -1, 10_001, 10**30)),
    *(("reorg", {"depth": n}, 400) for n in (0, -1)),
    *(("reorg", {"depth": n}, 409) for n in (10**6, 10**18)),
    ("clock/skew", {"actor": "moon", "seconds": 1}, 400),
    ("clock/skew", {"actor": "service", "seconds": 1e12}, 400),
    ("explorer/lag", {"seconds": -1}, 400),
    *(("facilitator", {"receipt_timeout_s": s}, 400) for s in (0, -1, 1e12, "1")),
    *(("facilitator", each, 400) for each in ({"name": "moon"}, {"simulates": 1}, {"native": 1})),
    *(("force-revert", each, 400) for each in ({"calls": -1}, {"account": "0x12"})),
    ("balances", {"accounts": ["0x12"]}, 400),
    ("balances", {}, 400),
    ("mining", {"automine": True, "automin": False}, 400),
    ("send", {"from": "0x12", "to": "0x34"}, 400),
    ("send", {"from": "0x" + "12" * 20, "to": "0x" + "34" * 20, "data": "0xzz"}, 400),
    *(("revert", {"snapshot": n}, 404) for n in (-1, 0, 999, 2**63, 2**64 - 1)),
]


def test_a_command_out_of_range_is_refused(server):
    for path, body, status in COMMANDS:
        answer = server.http.post(f"/_sim/{path}", json=body)
        assert refusal(answer)[0] == status, (path, body)
        assert len(answer.text) < 2000
    for since in ("-1", "x", "", "1.5", "²", "9" * 5000):
        for path in ("journal", "ui/events"):
            answer = server.http.get(f"/_sim/{path}", params={"since": since})
            assert refusal(answer) == (400, "Invalid query"), since


# --- methods, paths, headers -------------------------------------------------------------


GETS = ["/api/agents", "/llms.txt", "/docs", "/openapi.json", "/healthz", "/_sim/state"]
GETS += ["/_sim/accounts", "/_sim/journal", "/facilitator/v2/x402/supported", "/api/payments/x"]


METHODS = [
    *((method, path) for path in MESSAGES for method in ("GET", "PUT", "DELETE", "PATCH")),
    *((method, path) for path in GETS for method in ("POST", "PUT", "DELETE", "OPTIONS")),
    ("PUT", "/rpc"),
    ("DELETE", "/rpc"),
]


def test_a_wrong_method_is_405_and_says_which_is_right(server):
    for method, path in METHODS:
        answer = server.http.request(method, path)
        assert refusal(answer) == status_and_text(RequestError.METHOD_NOT_ALLOWED), (method, path)
        allowed = {name.strip() for name in answer.headers["allow"].split(",")}
        assert allowed & {"GET", "POST"}
        assert method not in allowed


TARGETS = [
    *("/nothing", "/api", "/api/", "/API/pay", "/api/pay/", "/api/pay//", "/api//pay"),
    *("//api/pay", "/api/perp/quote/", "/api/sessions/create/", "/api/agents/", "/llms.txt/"),
    *("/api/pay;a=b", "/api/pay%20", "/api/pay%00", "/api/../api/pay", "/./api/pay", "/%2e/x"),
    *("/api/sessions/", "/api/payments/", "/api/payments/a/b", "/docs/x", "/docs/..%2f..%2fx"),
    *("/docs/%2e%2e", "/facilitator//v2/x402/verify"),
    *("/facilitator/v2/x402/verify/", "/explorer/x", "/explorer/api/", "/rpc/x"),
    *("/_sim//state", "/_sim/state/", "/_sim/nothing", "/_SIM/state", "/_simx", "/rpcx"),
    *("/%ff%fe", "/api/payments/%ff", "/api/sessions/%00", "/%E2%98%83", "/" + "a" * 8000),
]
READ_ONLY = ("/api/payments/", "/api/sessions/", "/docs/")


def test_an_unknown_path_is_404_and_no_redirect(server):
    for target in TARGETS:
        for method in ("GET",) if target.startswith(READ_ONLY) else ("GET", "POST"):
            answer, body = _ask(server, method, target)
            assert answer.status == 404, (method, target)
            assert answer.headers["Content-Type"] == "application/json"
            assert answer.headers["Location"] is None
            assert set(json.loads(body)) <= {"error", "reason"}


def test_a_percent_encoded_path_is_the_path_it_spells(server):
    """Nothing is gained by it: the 402 still names the one resource."""
    answer, body = _ask(server, "POST", "/api/perp%2Fquote")
    assert answer.status == 402
    assert json.loads(body)["paymentRequirements"]["resource"] == QUOTE
    answer, _ = _ask(server, "GET", "/%5fsim/state", {"Origin": "http://elsewhere.example"})
    assert answer.status == 403, "an encoded path does not get around the guard"


def _ask(
    server: Server, method: str, target: str, headers: dict[str, str] | None = None
) -> tuple[http.client.HTTPResponse, bytes]:
    """Send a request whose target nobody tidies up."""
    with closing(http.client.HTTPConnection(*server.address, timeout=10)) as connection:
        connection.request(method, target, headers=headers or {})
        answer = connection.getresponse()
        return answer, answer.read()
