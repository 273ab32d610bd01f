"""The command line: what it says when it cannot start, when it is ready, and when it stops."""

import json
import re
import shlex
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import product
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.cli.runner import run
from tests.house.reference import GUIDE
from tests.serve.driver import (
    PAY,
    PRICE,
    STOP_S,
    Running,
    Server,
    command,
    environment,
    header,
    refusal,
    started,
)
from tests.serve.hosted import gives_up, hosted, status_and_text
from x402sim import Wallet
from x402sim.protocol.crypto import checksum
from x402sim.protocol.networks import NETWORKS
from x402sim.protocol.refusals import Refusal
from x402sim.serving.listen import Listen
from x402sim.version import VERSION

READY_KEYS = ["event", "schema", "service", "facilitator", "explorer", "rpc", "control", "payTo"]
READY_KEYS += ["asset", "network", "chain", "chainId", "token", "accounts", "networks"]


# --- it cannot start ---------------------------------------------------------------------


def test_a_port_that_is_taken():
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        gives_up("--port", port, says=f"cannot listen on 127.0.0.1 port {port}")


def test_a_database_that_is_none_stays_as_it_is(tmp_path):
    db = tmp_path / "world.db"
    db.write_text("Dear diary,\nthis is no database.\n" * 100)
    gives_up("--db", str(db), says=f"cannot use the database {db}: file is not a database; give")
    assert not Path(f"{db}.chain").exists(), "nothing is left behind"
    assert db.read_text().startswith("Dear diary")


@pytest.mark.parametrize("host", ["127.0.0.1", "0.0.0.0"])
def test_an_empty_token_is_refused_on_any_host_from_the_environment_too(host, monkeypatch):
    """An unset shell variable gives an empty token: `Authorization: Bearer ` had every key."""
    monkeypatch.setenv("X402SIM_CONTROL_TOKEN", "")
    gives_up("--host", host, says="the control token is empty")


# --- it is ready -------------------------------------------------------------------------


def test_settings_of_the_facilitator():
    given = ["receipt_timeout_s=0.05", "simulates=false", "native=3", "servers=1"]
    given += ["service_time_s=0.2", "listing_delay_s=60"]
    with started(*(word for each in given for word in ("--facilitator", each))) as server:
        settings = server.sim("facilitator")
        assert settings == {
            "name": "facilitator", "receipt_timeout_s": 0.05, "simulates": False,
            "simulates_verify": True, "listing_delay_s": 60.0, "native": 3.0,
        }  # fmt: skip
        assert server.http.get("/facilitator/supported").elapsed.total_seconds() > 0.19


@pytest.mark.clause("2.8/networks")
@pytest.mark.parametrize("network", ["cronos-testnet", "base"])
def test_the_ready_line(network):
    chain_id, asset = NETWORKS[network].chain_id, checksum(NETWORKS[network].asset)
    with hosted(network=network) as server:
        ready = server.ready
        assert list(ready) == READY_KEYS
        url = ready["service"]
        assert re.fullmatch(r"http://127\.0\.0\.1:\d+", url)
        urls = [url, f"{url}/facilitator", f"{url}/explorer", f"{url}/rpc", f"{url}/_sim"]
        schema = json.loads((GUIDE / "serve.schema.json").read_text("utf-8"))["$id"]
        assert [ready[name] for name in READY_KEYS[:7]] == ["ready", schema, *urls]
        assert (ready["network"], ready["chainId"], ready["asset"]) == (network, chain_id, asset)
        assert re.fullmatch("0x[0-9a-fA-F]{40}", ready["payTo"])
        assert len(ready["accounts"]) == 10
        assert list(ready["accounts"][9]) == ["address", "privateKey", "balance", "balanceDecimal"]
        assert ready["accounts"][9]["balance"] == "1000000000" == str(server.account(9).balance)
        assert int(server.rpc("eth_chainId"), 16) == chain_id
        server.account(9).paid()


def test_the_end_of_stdin_stops_it_also_when_its_parent_is_killed():
    held = subprocess.Popen(
        [sys.executable, "-c", HOLDS], stdout=subprocess.PIPE, text=True, env=environment()
    )
    assert held.stdout is not None
    url = json.loads(held.stdout.readline())["service"]
    assert httpx.get(f"{url}/healthz", trust_env=False).is_success
    held.kill()
    held.wait()
    assert held.stdout.read() == ""  # the server, which has the pipe too, is gone
    held.stdout.close()
    with pytest.raises(httpx.ConnectError):
        httpx.get(f"{url}/healthz", trust_env=False)


HOLDS = """
import subprocess, sys, time
serve = [sys.executable, "-m", "x402sim", "serve", "--port", "0", "--json", "--stop-with-stdin"]
server = subprocess.Popen(serve, stdin=subprocess.PIPE)
time.sleep(60)
"""
"""A program that starts a server, and never stops it."""


@pytest.fixture(scope="module")
def banner() -> Iterator[str]:
    """What a person sees, and a server that is up while they read it."""
    with Running("serve", "--port", "0") as running:
        lines = []
        while not (lines and lines[-1].startswith("Ctrl-C")):
            lines.append(running.line())
            assert lines[-1], running.errors()
        yield "".join(lines)
        assert running.end(signal.SIGINT) == 0
        assert running.rest() == ["stopped\n"]
        assert "Traceback" not in running.errors()


def test_the_banner_shows_ten_accounts_with_their_keys(banner):
    keys = re.findall("^ *(0x[0-9a-f]{64})$", banner, re.MULTILINE)
    addresses = re.findall("^\\(\\d\\) (0x[0-9a-fA-F]{40})  1000.00 tokens$", banner, re.MULTILINE)
    assert len(keys) == 10
    assert [Wallet(key).address for key in keys] == addresses
    assert "\x1b" not in banner, "no colours where nobody sees them"


def test_the_curl_line_of_the_banner_works_when_pasted(banner):
    line = next(line for line in banner.splitlines() if line.startswith("curl -i "))
    program, _, url, _, content_type, _, order = shlex.split(line)
    name, value = content_type.split(": ")
    assert program == "curl"
    answer = httpx.post(url, content=order, headers={name: value}, trust_env=False)
    assert answer.status_code == 402
    pay = next(line for line in banner.splitlines() if line.startswith("x402sim pay "))
    paid = run(*shlex.split(pay)[1:])
    assert (paid.exit_code, "3. Paid: POST /api/pay: ok" in paid.output) == (0, True)
    control = next(line for line in banner.splitlines() if re.match("curl http", line))
    assert httpx.get(shlex.split(control)[1], trust_env=False, follow_redirects=True).is_success


# --- who may control it ------------------------------------------------------------------


def test_on_another_host_there_is_no_control_without_a_token():
    with started("--host", "0.0.0.0") as server:
        assert server.ready["control"] is None
        assert re.fullmatch(r"http://127\.0\.0\.1:\d+", server.ready["service"])
        for method, path in [("GET", "/_sim"), ("GET", "/_sim/accounts"), ("POST", "/_sim/reset")]:
            for headers in ({}, {"Authorization": "Bearer"}, {"Authorization": "Bearer None"}):
                answer = server.http.request(method, path, headers=headers)
                assert refusal(answer) == (403, "The control API is off")
        unlocked = server.ready["accounts"][0]["address"]
        send = {"from": unlocked, "to": server.ready["asset"], "data": "0x"}
        call = {"jsonrpc": "2.0", "id": 1, "method": "eth_sendTransaction", "params": [send]}
        for path in ("/rpc", "/rpc/"):
            assert "unlocked" in server.http.post(path, json=call).json()["error"]["message"]
        payer = server.account()
        asked = payer.ask()
        signed = header(payer.wallet, asked["paymentRequirements"], int(time.time()))
        assert payer.pay(asked, signed).status_code == 200, "the service itself is open"


PAGES = ("http://localhost:3000", "https://app.example", "tauri://localhost")
METAMASK = "chrome-extension://nkbihfbeogaeaoehlefnkodbefgpgknn"
FIREFOX = "moz-extension://0c2fe4ba-5a4e-4b0d-9c1c-2f6a3b1f7e11"
PAGE_OF_WALLET = "http://localhost:5000"
WITH_TOKEN = {"Authorization": "Bearer open sesame"}


@pytest.fixture(scope="module")
def guarded() -> Iterator[Server]:
    """A server with a control token from the environment, and origins that it admits."""
    options = [part for page in PAGES for part in ("--allow-origin", page)]
    for wallet in (METAMASK, "moz-extension://*", PAGE_OF_WALLET):
        options += ["--rpc-origin", wallet]
    with pytest.MonkeyPatch.context() as patch:
        given = environment() | {"X402SIM_CONTROL_TOKEN": "open sesame"}
        patch.setattr("tests.serve.driver.environment", lambda: given)
        server = Server("--host", "localhost", *options)
    with server:
        yield server
        server.stop()


def test_control_needs_the_token_if_there_is_one(guarded):
    for given in (None, "", "open sesame", "Bearer", "Bearer open", "Basic open sesame"):
        headers = {} if given is None else {"Authorization": given}
        for path in ("accounts", "journal", "ui/events", "ui/words", "POST mine", "POST ui/pay"):
            method, _, name = path.rpartition(" ")
            answer = guarded.http.request(method or "GET", f"/_sim/{name}", headers=headers)
            assert refusal(answer) == (401, "Control token needed"), (given, path)
    assert guarded.http.get("/_sim/ui").status_code == 200, "the page itself holds nothing"
    assert guarded.http.post("/_sim/mine", headers=WITH_TOKEN).json() == {"height": 1}
    assert len(guarded.http.get("/_sim/accounts", headers=WITH_TOKEN).json()) == 10
    assert guarded.http.get("/_sim/journal", headers=WITH_TOKEN).status_code == 200


NO_ORIGINS = [
    ("null", "sandboxed"),
    ("*", "every web page"),
    ("localhost:3000", "http://localhost:3000"),
    ("http://localhost:3000,http://localhost:4000", "repeat --allow-origin"),
    ("http://localhost:3000/app", "write http://localhost:3000"),
    ("http://me:pw@localhost:3000", "write http://localhost:3000"),
    ("HTTP://localhost:3000", "write http://localhost:3000"),
    ("https://localhost:443/", "write https://localhost"),
    ("http://bücher.example", "write http://xn--bcher-kva.example"),
    ("http://*.example.com", "is no web origin"),
    ("http://localhost:99999", "is no web origin"),
    ("http://[::1", "is no web origin"),
    ("file:///page.html", "is no web origin"),
    ("http://local\x1bhost", "is no web origin"),
]


NO_TOKENS = (" ", " open", "open ", "open\nsesame", "ópen", "a\x7fb", "a\0")
NOT_WILD = ("*", "chrome-extension://", "http://*", "safari-extension://*")
REFUSED = [
    *((f"--allow-origin.*{re.escape(says)}", {"allow_origins": (it,)}) for it, says in NO_ORIGINS),
    *(("token cannot be sent in a header", {"control_token": each}) for each in NO_TOKENS),
    *(("--rpc-origin", {"rpc_origins": (each,)}) for each in NOT_WILD),
    ("--allow-origin", {"allow_origins": ("chrome-extension://*",)}),
]


@pytest.mark.parametrize(("says", "given"), REFUSED)
def test_origins_and_tokens_that_no_browser_sends_are_refused_with_the_reason(says, given):
    with pytest.raises(ValueError, match=says):
        Listen(**given)


def test_several_pages_are_let_in_and_no_other(guarded):
    for page in PAGES:
        answer = guarded.http.get("/_sim/state", headers={**WITH_TOKEN, "Origin": page})
        assert answer.status_code == 200
        assert answer.headers["access-control-allow-origin"] == page
    for page in ("http://localhost:4000", "null", "http://app.example"):
        answer = guarded.http.get("/_sim/state", headers={**WITH_TOKEN, "Origin": page})
        assert refusal(answer) == (403, "Not for web pages")
        assert "access-control-allow-origin" not in answer.headers


def test_wallets_of_a_browser_may_use_the_rpc_and_nothing_else(guarded):
    asks = {"Access-Control-Request-Method": "POST", "Access-Control-Request-Headers": "x"}
    call = {"jsonrpc": "2.0", "id": 1, "method": "eth_chainId"}
    for wallet in (METAMASK, FIREFOX, PAGE_OF_WALLET):
        headers = {**WITH_TOKEN, "Origin": wallet}
        answer = guarded.http.post("/rpc", json=call, headers=headers)
        assert answer.json()["result"] == "0x152"
        assert answer.headers["access-control-allow-origin"] == wallet
        assert guarded.http.options("/rpc", headers={**headers, **asks}).status_code == 200
        refused = guarded.http.get("/_sim/state", headers=headers)
        assert refusal(refused) == (403, "Not for web pages")
        assert "--rpc-origin" in refused.json()["reason"]
        assert "access-control-allow-origin" not in refused.headers
    for other in (METAMASK[:-1] + "o", METAMASK + "n", "moz-extension://a.b", FIREFOX + "/x"):
        answer = guarded.http.post("/rpc", json=call, headers={"Origin": other})
        assert refusal(answer) == (403, "Not for web pages")
        assert "access-control-allow-origin" not in answer.headers


FOREIGN = [
    {"Origin": "http://elsewhere.example"},
    {"Origin": "null"},
    {"Origin": "http://127.0.0.1:1"},
    {"Host": "elsewhere.example"},
    {"Host": "127.0.0.1.elsewhere.example"},
    {"Host": "elsewhere.example", "Origin": "http://elsewhere.example"},
]


def test_web_pages_are_kept_out_and_other_names_of_this_machine_let_in(banner):
    url = re.search(r"^service +(http\S+)", banner, re.MULTILINE)[1]
    call = {"jsonrpc": "2.0", "id": 1, "method": "eth_accounts", "params": []}
    actions = [f"GET /_sim{path}" for path in ("", "/accounts", "/ui/events", "/ui/words")]
    actions += ["POST /rpc", "POST /_sim/reset", "POST /_sim/ui/pay"]
    for action, headers in product(actions, FOREIGN):
        method, _, path = action.partition(" ")
        answer = httpx.request(method, url + path, headers=headers, json=call, trust_env=False)
        assert refusal(answer) == (403, "Not for web pages"), headers
    port = url.rsplit(":", 1)[1]
    for headers in (
        {"Origin": url},
        {"Host": f"localhost:{port}"},
        {"Host": "localhost"},
        {"Host": f"[::1]:{port}"},
        {"Host": f"localhost:{port}", "Origin": f"http://localhost:{port}"},
    ):
        answer = httpx.get(f"{url}/_sim/state", headers=headers, trust_env=False)
        assert answer.status_code == 200, headers


# --- it stops ----------------------------------------------------------------------------


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_payment_in_flight_is_answered_before_it_stops(tmp_path, number):
    """A pay waits for its block, and the server waits for it."""
    db = str(tmp_path / "world.db")
    with started("--db", db, "--block-time", "0.8") as server:
        asked = server.account().ask()
        body = server.account().settlement(asked)
        answer = _pay_and(server, body, lambda: server.process.send_signal(number))
        server.stop(None)  # a second signal kills a process that has almost ended
    assert isinstance(answer, httpx.Response), answer
    assert answer.status_code == 200, answer.text
    with hosted(file=db) as server:
        payer = server.account()
        assert payer.quote(asked["paymentId"]).status_code == 200
        assert (payer.transfers, payer.balance) == (1, 1_000_000_000 - PRICE)


@pytest.mark.clause("3/pending-resolved")
def test_a_payment_that_takes_too_long_is_resolved_after_the_restart(tmp_path, monkeypatch):
    """No block comes: after the grace time the server goes, and leaves nothing undecided."""
    monkeypatch.setattr("x402sim.serving.serve.GRACE_S", 1)
    db = tmp_path / "world.db"
    with hosted(file=db, block_time_s=3600) as server:
        asked = server.account().ask()
        body = server.account().settlement(asked)
        answer = _pay_and(server, body, server.stop)
        assert not isinstance(answer, httpx.Response) or answer.status_code >= 500
    with hosted(file=db) as server:
        payer = server.account()
        again = server.http.post(PAY, json=body)
        settled = status_and_text(Refusal.ALREADY_SETTLED)
        assert again.status_code == 200 or refusal(again) == settled
        assert payer.quote(asked["paymentId"]).status_code == 200
        assert (payer.transfers, payer.balance) == (1, 1_000_000_000 - PRICE)


def _pay_and(server: Server, body: dict[str, Any], act: Callable[[], object]) -> Any:
    """Send a payment, act once it waits for a block; return the answer, or the error."""

    def pay() -> Any:
        try:
            return httpx.post(server.ready["service"] + PAY, json=body, timeout=30)
        except httpx.HTTPError as error:
            return error

    with ThreadPoolExecutor(1) as pool:
        paying = pool.submit(pay)
        while not paying.done() and not server.state()["chain"]["waiting"]:
            time.sleep(0.005)
        act()
        return paying.result(STOP_S)


# --- the other commands ------------------------------------------------------------------


def test_the_demo_pays_and_says_so():
    done = run("demo")
    assert (done.exit_code, done.stderr) == (0, "")
    assert done.stdout.endswith("Paid, served and indexed.\n")
    assert "FAILED" not in done.stdout
    shown = json.loads(run("demo", "--json").stdout)
    assert shown["ok"] is True
    assert [step["ok"] for step in shown["steps"]] == [True] * 8


def test_the_program_itself_runs():
    done = subprocess.run(
        command("--version"), capture_output=True, text=True, env=environment(), check=False
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, f"x402sim {VERSION}\n", "")
