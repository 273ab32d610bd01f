"""The live page without a browser: its files, what its stream tells, who may ask, payments from it."""

import asyncio
import json
import re
import shlex
from base64 import b64encode
from collections.abc import Iterator
from hashlib import sha256
from html import unescape
from importlib.resources import files
from pathlib import Path
from time import monotonic
from typing import Any
from unittest.mock import AsyncMock

import httpx
import pytest

from tests.cli.runner import run
from tests.serve.driver import PAY, QUOTE, SESSIONS, Server, started, until
from tests.serve.hosted import hosted
from x402sim import Journal, LocalServer, PaymentAuth, Settings, World
from x402sim.clock import Clock
from x402sim.events import TimeAdvanced
from x402sim.http.limits import MAX_EXCHANGES_BYTES
from x402sim.payer.mistakes import MISTAKES
from x402sim.report.page import FILES
from x402sim.service.store import Store
from x402sim.serving.page import MAX_BODY, PageFeed
from x402sim.serving.requests import Requests
from x402sim.world.scenario import shipped_names

pytestmark = pytest.mark.timeout(30)
STATIC = files("x402sim.report") / "static"


def next_message(lines: Iterator[str]) -> tuple[str, list[Any]]:
    """Return the next event of a stream: its name, and its lines as JSON."""
    name = next(line for line in lines if line.startswith("event: "))
    data = []
    while line := next(lines):
        data.append(json.loads(line.removeprefix("data: ")))
    return name.removeprefix("event: "), data


def gathered(lines: Iterator[str], *paths: str) -> tuple[list[Any], dict[str, Any]]:
    """Read a stream until requests with these paths have come; return the journal, and them."""
    entries, exchanges = [], {}
    while not exchanges.keys() >= set(paths):
        name, data = next_message(lines)
        if name == "journal":
            entries += data
        else:
            exchanges.update({each["path"]: each for each in data})
    return entries, exchanges


def test_its_files_are_served_with_a_policy_that_runs_nothing_else(server: Server) -> None:
    assert {each.name for each in STATIC.iterdir()} == {*FILES, "index.html"}
    for path in ("/_sim/ui", *(f"/_sim/ui/{name}" for name in FILES)):
        answer = server.http.get(path)
        assert answer.status_code == 200
        policy = answer.headers["content-security-policy"]
        assert "default-src 'none'; script-src 'self'; style-src 'self'" in policy
        assert "unsafe" not in policy
    html = (STATIC / "index.html").read_text()
    assert not re.search(r"<script(?! type=\"module\" src=)|<style|\sstyle=|\son\w+=", html)
    script = "".join((STATIC / name).read_text() for name in FILES if name.endswith(".js"))
    assert not re.search(r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|eval\(", script)


def test_a_browser_at_the_root_finds_what_runs_here_and_a_program_what_it_did() -> None:
    with hosted() as server:
        page = server.http.get("/", headers={"Accept": "text/html,*/*"})
        assert page.headers["content-type"].startswith("text/html")
        for text in (f"POST {QUOTE}", "0.01 devUSDC.e", "cronos-testnet", server.ready["asset"]):
            assert text in page.text
        for link in set(re.findall(r'href="(/[^"]*)"', page.text)):
            assert server.http.get(link, follow_redirects=True).status_code == 200, link
        (pays,) = re.findall(r"(x402sim pay [^<]*)</code>", page.text)
        assert run(*shlex.split(unescape(pays))[1:]).exit_code == 0
        assert server.account(0).transfers == 1
        assert server.http.get("/").text == server.http.get("/llms.txt").text


def test_without_a_service_the_root_names_the_facilitator() -> None:
    with hosted(has_service=False) as server:
        page = server.http.get("/", headers={"Accept": "text/html"}).text
    assert f"{server.ready['rpc'].removesuffix('/rpc')}/facilitator" in page
    assert "/docs" not in page


def test_a_payment_is_told_with_its_requests(server: Server) -> None:
    early = server.account(0).paid()  # nobody looks
    with server.http.stream("GET", "/_sim/ui/events") as answer:
        assert answer.headers["content-type"].startswith("text/event-stream")
        lines = answer.iter_lines()
        name, (hello,) = next_message(lines)
        assert (name, hello["length"]) == ("hello", len(server.journal()))
        assert next_message(lines)[1][-1]["seq"] == hello["length"] - 1
        earlier = next_message(lines)[1]
        assert json.loads(earlier[0]["answered"]["body"])["paymentId"] == early, "payments are kept"
        payment_id = server.account(1).paid()
        entries, exchanges = gathered(lines, QUOTE, PAY)
    paid = next(each for each in entries if each["event"] == "payment settled")
    asked, seen = exchanges[QUOTE], exchanges[PAY]
    assert asked["n"] == earlier[-1]["n"] + 1
    assert (seen["method"], seen["status"]) == ("POST", 200)
    assert paid["seq"] in seen["seen"]
    assert json.loads(seen["sent"]["body"])["paymentId"] == payment_id == paid["payment_id"]
    assert json.loads(seen["answered"]["body"])["txHash"] == paid["tx_hash"]
    with server.http.stream("GET", f"/_sim/ui/events?since={paid['seq']}&after={seen['n']}") as it:
        lines = it.iter_lines()
        assert next_message(lines)[0] == "hello"
        assert next_message(lines)[1][0] == paid


def test_what_was_served_is_told_also_of_payments_whose_requests_are_forgotten(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("x402sim.serving.page.MAX_EXCHANGES", 1)
    monkeypatch.setattr("x402sim.serving.page.MOST_SERVED", 3)
    with hosted() as server:
        payer = server.account(1)
        ids = [payer.paid() for _ in range(4)]
        for each in ids:
            assert payer.quote(each).status_code == 200
        for order in ({}, {"pair": "?"}):
            assert payer.quote(payer.paid(), body=order).status_code == 400, "that was not served"
        with server.http.stream("GET", "/_sim/ui/events?since=999999") as answer:
            lines = answer.iter_lines()
            _, (hello,) = next_message(lines)
            assert next_message(lines)[0] == "exchanges"
            name, served = next_message(lines)
        assert (name, [each["payment_id"] for each in served]) == ("served", ids[1:])
        assert {each["path"] for each in served} == {QUOTE}
        entries = server.journal()
        (first,) = [each for each in entries if each.get("payment_id") == ids[0]]
        assert first["seq"] < hello["forgotten"] < served[0]["seq"]
        assert (hello["first"], hello["older"]) == (0, 0)


def test_the_payments_of_a_database_are_told_as_it_had_them(tmp_path: Path) -> None:
    """A payment in one step is marked there when it was served; of another one it is not known."""
    file = tmp_path / "world.db"
    with started("--quiet", "--db", str(file)) as server:
        two_steps = server.account(1).paid()
        payer = PaymentAuth(server.account(1).wallet, max_amount="1.00", version=2)
        assert httpx.get(f"{server.ready['service']}/api/perp/market", auth=payer).is_success
        opened = server.account(2).open()
    with started("--quiet", "--db", str(file)) as server:
        server.account(1).paid()
        with server.http.stream("GET", "/_sim/ui/events") as answer:
            lines = answer.iter_lines()
            _, (hello,) = next_message(lines)
            name, stored = next_message(lines)
    assert (name, hello["older"], len(stored)) == ("stored", 0, 3), "those when it started"
    assert stored[0]["payment_id"] == two_steps
    assert [each["served"] for each in stored] == [False, True, False]
    assert {each["status"] for each in stored} == {"settled"}
    session = stored[2]["session"]
    assert (session["session_id"], session["status"]) == (opened["sessionId"], "open")
    assert (stored[0]["session"], stored[0]["amount_base"]) == (None, "10000")
    store = Store(file)
    newest = [each.payment_id for each in store.payments.newest(2)]
    assert newest[0] == stored[2]["payment_id"]
    assert (len(newest), store.payments.count()) == (2, 4)
    store.close()


def test_what_is_told_of_a_request_has_no_secret_and_is_not_long(server: Server) -> None:
    with server.http.stream("GET", "/_sim/ui/events?since=999999") as answer:
        lines = answer.iter_lines()
        next_message(lines)
        secret = {"Authorization": "Bearer s3cret", "Cookie": "s3cret"}
        server.http.post(SESSIONS, headers=secret, content=b"x" * 100_000)
        server.http.post("/api/many", headers={f"X-{n}": b"\xff" * 8000 for n in range(7)})
        _, exchanges = gathered(lines, SESSIONS, "/api/many")
    assert "s3cret" not in json.dumps(exchanges)
    assert len(exchanges[SESSIONS]["sent"]["body"]) == MAX_BODY
    assert exchanges["/api/many"]["sent"]["headers"] == [["(headers)", "too long"]]


def test_a_server_stops_at_once_though_somebody_looks() -> None:
    with hosted() as server, server.http.stream("GET", "/_sim/ui/events") as answer:
        lines = answer.iter_lines()
        assert next_message(lines)[0] == "hello"
        began = monotonic()
        server.stop()
        assert monotonic() - began < 3
        assert list(lines) == []


def test_it_pays_rightly_and_wrongly(server: Server) -> None:
    before = server.account(2).transfers
    for body in ({}, {"buys": "GET /api/perp/market"}, {"session": True}):
        paid = server.http.post("/_sim/ui/pay", json={"account": 2, **body}).json()
        assert paid["status"] == 200, paid
    assert server.account(2).transfers == before + 3
    for name in MISTAKES:
        refused = server.http.post("/_sim/ui/pay", json={"account": 3, "wrong": name}).json()
        assert 400 <= refused["status"] < 500, (name, refused)
    for bad in (
        {"account": 10},
        {"wrong": "colour"},
        {"wrong": "amount", "session": True},
        {"buys": "GET /nothing"},
        {"path": "elsewhere"},
        {"fails": "never"},
    ):
        assert server.http.post("/_sim/ui/pay", json=bad).status_code == 400


REFUSED = {
    "no balance": (402, "Insufficient USDC balance"),
    "blacklisted": (502, "Settlement failed"),
    "used nonce": (409, "Nonce already used"),
    "contract wallet": (400, "Invalid signature"),
}


def test_accounts_that_fail_are_refused_each_in_its_way() -> None:
    with hosted() as server:
        assert list(server.http.get("/_sim/ui/words").json()["failing"]) == list(REFUSED)
        for name, (status, error) in REFUSED.items():
            said = server.http.post("/_sim/ui/pay", json={"fails": name}).json()
            assert (said["status"], json.loads(said["said"])["error"]) == (status, error)
        assert [each for each in server.journal() if each["event"] == "payment settled"] == []


def test_a_run_and_a_server_are_shown_in_a_frame_that_reaches_nothing() -> None:
    run = World().play("unpaid_request")
    with LocalServer() as server:
        url, shown_at = server.url, f'href="{server.url}/_sim/ui"'
        answer = httpx.post(url + QUOTE, headers={"User-Agent": "</script><b>"})
        shown = server.show()
        saved = httpx.get(f"{server.control_url}/ui/saved")
    assert answer.status_code == 402
    assert shown_at in shown._repr_html_()
    assert saved.headers["content-disposition"].startswith("attachment")
    assert "frame-ancestors 'none'" in saved.headers["content-security-policy"]
    for each in (run.show(), shown):
        html = each._repr_html_()
        assert 'sandbox="allow-scripts allow-downloads"' in html
        assert html.isascii()
        page = re.search(r'srcdoc="([^"]*)"', html)
        assert page
        assert unescape(page[1]) == each.page
        (policy,) = re.findall(r'http-equiv="Content-Security-Policy" content="([^"]+)"', each.page)
        (script,) = re.findall(r'<script type="module">(.*?)</script>', each.page, re.DOTALL)
        digest = b64encode(sha256(script.encode()).digest()).decode()
        assert f"default-src 'none'; script-src 'sha256-{digest}';" in policy
        assert "connect-src" not in policy
        (told,) = re.findall(r'id="tape">(.*?)</script>', each.page, re.DOTALL)
        assert json.loads(told)["words"]["live"] is False
    names = [name for name, _ in json.loads(told)["messages"]]
    assert names == ["hello", "stored", "journal", "exchanges", "served"]


@pytest.mark.parametrize("long", ["body", "header", "path"])
def test_what_is_kept_of_requests_is_bounded(long: str) -> None:
    journal, much = Journal(), 1 << 16
    requests = Requests(journal, Clock())
    feed = PageFeed(journal, requests)

    async def app(scope: Any, receive: Any, send: Any) -> None:
        await receive()

    async def main() -> None:
        sent = {"type": "http.request", "body": b"x" * (much if long == "body" else 0)}
        path = "/api/" + "x" * (much if long == "path" else 0)
        scope = {"type": "http", "method": "GET", "path": path, "query_string": b"a=1"}
        scope["headers"] = [(b"x-payment", b"e30=" + b"x" * (much if long == "header" else 0))]
        for _ in range(140):
            await requests.around(app)(scope, AsyncMock(return_value=sent), AsyncMock())

    asyncio.run(main())
    exchanges = dict(feed.messages())["exchanges"]
    kept = [json.loads(text) for text in exchanges]
    assert len(kept) == MAX_EXCHANGES_BYTES // much - 1
    assert kept[-1]["n"] == 140
    assert (kept[-1]["path"][-4:], kept[-1]["status"]) == ("?a=1", None)


def test_a_request_that_ends_while_a_message_is_written_is_told_next() -> None:
    journal = Journal()
    requests = Requests(journal, Clock())
    feed = PageFeed(journal, requests)

    async def app(scope: Any, receive: Any, send: Any) -> None:
        journal.record(1, TimeAdvanced(seconds=1))

    async def ask(path: str) -> None:
        scope = {"type": "http", "method": "GET", "path": path, "query_string": b""}
        scope["headers"] = [(b"x-payment-id", b"pay_1")]
        await requests.around(app)(scope, AsyncMock(), AsyncMock())

    async def main() -> list[str]:
        stream = feed.stream(0, 0)
        await anext(stream)  # hello
        await ask("/api/first")
        journal_told = await anext(stream)
        await ask("/api/second")
        told = [journal_told, *[await anext(stream) for _ in range(3)]]
        await stream.aclose()
        return [
            path for each in told for path in re.findall(r"/api/\w+(?=\",\"target)", each.decode())
        ]

    assert asyncio.run(main()) == ["/api/first", "/api/second"]


def test_the_scenarios_that_can_be_played_are_listed(server: Server) -> None:
    told = {each["name"]: each for each in server.http.get("/_sim/ui/play").json()}
    assert set(told) == set(shipped_names())
    assert (told["replay"]["takesTime"], told["session_exhaustion"]["takesTime"]) == (False, True)
    assert told["expired_window"]["lacks"] != []
    unknown = server.http.post("/_sim/ui/play", json={"scenario": "../evil"})
    assert unknown.status_code == 400


def test_a_reset_can_give_the_time_back_and_timers_go_on() -> None:
    settings = Settings(phase=0, indexer_interval_s=1)
    with hosted(service=settings) as server:
        server.advance(7200)
        assert server.state()["clockAdvancedSeconds"] == 7200
        server.http.post("/_sim/reset", json={"clock": True})
        assert server.state()["clockAdvancedSeconds"] == 0
        server.account(0).paid()
        until(lambda: any(it["event"] == "payment indexed" for it in server.journal()))
