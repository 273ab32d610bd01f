"""The log of `serve`: what each request came to, and what it caused, on stderr."""

import json
import os
import re
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest

from tests.cli.runner import run
from tests.fork_server import Forked
from tests.serve.driver import ORDER, QUOTE, Server, environment, started
from tests.suite.deployment import Deployment
from x402sim import Fault, LocalServer, PaymentAuth, PaymentFailed, Wallet
from x402sim.protocol.bazaar import declaration
from x402sim.protocol.money import to_decimal
from x402sim.serving.log import Form

GUIDE = Path(__file__).parents[2] / "x402sim" / "guide" / "server.md"
POOR = Wallet("0x" + "17" * 32)
MASKS = (
    (r"\d\d:\d\d:\d\d ", "12:00:00 "),
    (r" +\d+ ms", "      1 ms"),
    (r"pay_[\w-]{6}…", "pay_abcdef…"),
    (r", 0x[0-9a-f]{4}…[0-9a-f]{4}$", ", 0x1234…abcd"),
)


def masked(text: str) -> str:
    """Return a log with one time, one duration, one id and one hash for all."""
    for pattern, mask in MASKS:
        text = re.sub(pattern, mask, text, flags=re.MULTILINE)
    return text


def unfolded(text: str) -> str:
    """Return a log without its line breaks and their indents."""
    return re.sub(r"\n +", "", text)


def log_of(server: Server) -> str:
    """Stop a server; return what it has logged."""
    server.stop()
    return server.errors()


TOKEN = "not-to-be-shown"
SESSION = """\
12:00:00 127.0.0.1    POST /api/perp/quote            402      1 ms  pay_abcdef…
12:00:00 account 0    POST /api/pay                   200      1 ms  pay_abcdef…
         transfer: 0.01 devUSDC.e, account 0 to merchant, 0x1234…abcd
12:00:00 account 0    POST /api/perp/quote            200      1 ms  pay_abcdef…
12:00:00 127.0.0.1    POST /api/perp/quote            402      1 ms  pay_abcdef…
12:00:00 account 0    POST /api/pay                   400      1 ms  pay_abcdef…
         Invalid signature: Invalid amount: 5000; value: wanted 10000, got 5000
"""
REST = """\
12:00:00 127.0.0.1    POST /api/perp/quote            402      1 ms  pay_abcdef…
12:00:00 account 0    POST /api/pay                   200      1 ms  pay_abcdef…
         transfer: 0.01 devUSDC.e, account 0 to merchant, 0x1234…abcd
12:00:00 account 0    POST /api/pay                   409      1 ms  pay_abcdef…
         Payment already settled
12:00:00 127.0.0.1    POST /_sim/clock/advance        200      1 ms
         clock: +3600 s, now 3600 s ahead of real time
12:00:00 127.0.0.1    GET /nowhere\\x1b[31mred         404      1 ms
         Not found: GET /nowhere\\x1b[31mred
"""
"""What comes after it."""


def test_a_session_reads_line_by_line() -> None:
    with started() as server:
        for path in ("/healthz", "/docs", "/llms.txt", "/_sim/state"):  # left out
            assert server.http.get(path).status_code == 200
        server.rpc("eth_blockNumber")
        alice = server.account()
        alice.quote(alice.paid())
        asked = alice.ask()
        wrong = {**asked["paymentRequirements"], "maxAmountRequired": "5000"}
        alice.pay(asked, alice.sign(wrong))
        asked = alice.ask()
        alice.pay(asked)
        alice.pay(asked)
        server.advance(3600)
        server.http.get("/nowhere%1b[31mred")
        found = log_of(server)
    assert masked(found) == SESSION + REST
    assert max(map(len, found.splitlines())) <= 80


def test_the_guides_excerpt_is_the_beginning_of_that_session() -> None:
    assert f"```console\n{SESSION}```" in GUIDE.read_text(encoding="utf-8")


ALONE = re.sub(r"(?m)^ +transfer: .*\n", "", SESSION).replace("account 0    ", "0xf39F…2266  ")


def test_a_service_alone_has_a_log_too() -> None:
    deployment = Deployment()
    try:
        for wrong in ((), ("--wrong", "amount")):
            url, key = deployment.url + QUOTE, deployment.key
            assert run("pay", url, "-d", json.dumps(ORDER), "--key", key, *wrong).exit_code == 0
        assert deployment.service.end(signal.SIGINT) == 0
        assert masked(deployment.service.errors()) == ALONE
    finally:
        deployment.close()


def test_verbose_has_headers_and_bodies_without_secrets() -> None:
    with started("--verbose", "--control-token", TOKEN) as server:
        server.rpc("eth_blockNumber")
        bearer = {"Authorization": f"Bearer {TOKEN}"}
        told = server.http.get("/_sim/accounts", headers=bearer).text
        found = log_of(server)
    assert server.ready["accounts"][0]["privateKey"] in told
    assert not any(each["privateKey"] in unfolded(found) for each in server.ready["accounts"])
    assert TOKEN not in found
    assert "POST /rpc " in found
    assert "> content-type: application/json" in found
    assert '> {"jsonrpc":"2.0","id":1,"method":"eth_blockNumber","params":[]}' in found
    assert "< " in found


def test_json_has_one_object_a_request_with_whole_ids() -> None:
    with started("--log", "json") as server:
        payment_id = server.account().paid()
        lines = [json.loads(line) for line in log_of(server).splitlines()]
    assert [(line["path"], line["status"]) for line in lines] == [
        ("/api/perp/quote", 402), ("/api/pay", 200),
    ]  # fmt: skip
    assert {line["paymentId"] for line in lines} == {payment_id}
    assert lines[1]["notes"][0].startswith(f"transfer: {to_decimal(10_000, 6)} ")


@contextmanager
def logged(
    lines: list[bytes], *, is_json: bool = False
) -> Iterator[tuple[LocalServer, httpx.Client]]:
    server = LocalServer(seed=1)
    server.log_form = Form(lines.append, is_json=is_json)
    with server, httpx.Client(base_url=server.url, trust_env=False) as client:
        yield server, client


def test_a_payment_that_is_sent_again_is_told_from_a_header_at_a_free_page() -> None:
    lines: list[bytes] = []
    with logged(lines) as (server, client):
        auth = PaymentAuth(server.wallets[0], version=2, clock=server.clock)
        server.fault(Fault(victim="service", does="lose answer", contains="payment"))
        with pytest.raises(httpx.TransportError) as lost:
            client.post(QUOTE, json=ORDER, auth=auth)
        name = "PAYMENT-SIGNATURE"
        header = {name: lost.value.request.headers[name]}
        again = client.post(QUOTE, json=ORDER, headers=header)
        free = client.get("/api/agents", headers=header)
    assert (again.status_code, free.status_code) == (200, 200)
    log = b"".join(lines).decode()
    assert log.count("transfer: ") == 1
    assert log.count("this authorization has paid before: nothing was charged again") == 1
    assert log.index("has paid before") < log.index("/api/agents")


def test_why_discovery_does_not_list_a_resource_is_noted() -> None:
    lines: list[bytes] = []
    with logged(lines) as (_, client):
        paid = {"extensions": declaration("GET", 1), "resource": {"url": "http://shop.test/"}}
        for version in (1, 2):
            sent = {"x402Version": version, "paymentPayload": paid, "paymentRequirements": {}}
            client.post("/facilitator/settle", json=sent)
    log = " ".join(b"".join(lines).decode().split())
    assert log.count("no index lists the resource") == 1
    assert "extensions.bazaar: in version 1, which has no extensions" in log


def test_a_refused_payment_in_one_step_has_the_id_of_its_answer() -> None:
    lines: list[bytes] = []
    answers: list[httpx.Response] = []
    with logged(lines, is_json=True) as (server, client):
        client.event_hooks["response"] = [answers.append]
        auth = PaymentAuth(POOR, version=2, clock=server.clock)
        with pytest.raises(PaymentFailed, match="insufficient"):
            client.post(QUOTE, json=ORDER, auth=auth)
    told = [json.loads(line) for line in b"".join(lines).splitlines()]
    assert [line["status"] for line in told] == [402, 402]
    ids = [answer.json()["paymentId"] for answer in answers]
    assert [line["paymentId"] for line in told] == ids
    assert len(set(ids)) == 2


@pytest.mark.parametrize("leaves", [True, False])
def test_a_reader_who_leaves_or_never_reads_holds_nothing_up(leaves: bool) -> None:
    reads, writes = os.pipe()
    with open(reads) as reader, open(writes, "w") as writer:
        words = ("-m", "x402sim", "serve", "--port", "0", "--json", "-v")
        process = Forked(*words, stderr=writer, env=environment())
        writer.close()
        with process.stdout:
            try:
                url = json.loads(process.stdout.readline())["service"]
                if leaves:
                    reader.close()
                with httpx.Client(base_url=url, trust_env=False) as http:
                    for _ in range(100):  # more than a pipe holds
                        assert http.get("/docs").status_code == 200
                process.send_signal(signal.SIGTERM)
                assert process.wait(10) == 0
            finally:
                process.kill()
