"""The commands that steer a running `serve`, and count its payments."""

import json
from functools import partial

import httpx
import pytest

from tests.cli.runner import assert_misuse, run
from x402sim import LocalServer, PaymentAuth, PaymentFailed, Wallet

PATH = "/api/perp/market"


def test_faults_time_and_blocks(server: LocalServer) -> None:
    steer = partial(run, env={"X402SIM_CONTROL_TOKEN": ""})
    here = ("--world", server.url)
    added = steer("fault", "add", "service", "lose answer", "path=/api/pay", "times=2", *here)
    assert json.loads(added.stdout)["times"] == 2
    assert steer("fault", "list", *here).stdout == added.stdout
    cleared = steer("fault", "clear", *here)
    assert (cleared.stdout, cleared.stderr) == ("", "no faults\n")
    assert_misuse(steer("fault", "add", "service", *here), "name a victim and an effect")
    assert_misuse(steer("fault", "add", "service", "sing", *here), "sing")
    assert steer("advance", "1h", *here).stdout == "3600 s ahead of real time\n"
    assert_misuse(steer("advance", "soon", *here), "a time such as 90s")
    height = int(steer("mine", *here).stdout.removeprefix("block "))
    assert steer("mine", 3, *here).stdout == f"block {height + 3}\n"
    assert_misuse(steer("mine", "--world", "http://127.0.0.1:9"), "is `x402sim serve` running")


def test_exactly_one_payment_for_a_path(server: LocalServer) -> None:
    here = ("--world", server.url)
    server.reset()
    assert server.payments(PATH, times=0) == []
    assert run("payments", *here).stderr == "no payments\n"
    with httpx.Client(auth=PaymentAuth(server.wallets[0], clock=server.clock)) as http:
        http.get(server.url + PATH)
    (paid,) = server.payments(PATH, times=1)
    assert (paid.payer, paid.amount_base) == (server.wallets[0].address, "10000")
    assert run("payments", PATH, "--times", 1, *here).exit_code == 0
    in_one_step = PaymentAuth(server.wallets[1], version=2, clock=server.clock)
    httpx.get(server.url + PATH, auth=in_one_step)
    with pytest.raises(AssertionError, match=rf"wanted 1, and there are 2.*{paid.tx_hash}"):
        server.payments(PATH, times=1)
    done = run("payments", PATH, "--times", 1, *here)
    assert (done.exit_code, done.stdout.count(PATH)) == (1, 2)
    assert server.payments("/api/perp/quote", times=0) == []
    assert len(server.payments(f"{PATH.upper()}/?city=Paris", times=2)) == 2, "as it is sold"
    typo = run("payments", f"{PATH}x", "--times", 0, *here)
    assert f"no payment is for {PATH}x; those of the world: {PATH}" in typo.output
    assert_misuse(run("payments", PATH[1:], *here), "path: expected /weather")


def test_accounts_fail_as_they_say(server: LocalServer) -> None:
    server.reset()
    here = ("--world", server.url, "--json")
    assert len(json.loads(run("accounts", *here).stdout)) == 10
    listed = json.loads(run("accounts", "--failing", *here).stdout)
    assert json.loads(run("accounts", "--failing", *here).stdout) == listed, "made once"
    assert [each["fails"] for each in listed] == [
        "no balance", "blacklisted", "used nonce", "contract wallet",
    ]  # fmt: skip
    for each in (*listed[:2], listed[3]):
        auth = PaymentAuth(Wallet(each["privateKey"]), clock=server.clock)
        with pytest.raises(PaymentFailed, match=r"Insufficient|failed on-chain|signature"):
            httpx.get(server.url + PATH, auth=auth)
    assert server.payments(PATH) == []
    used = listed[2]
    call = f"0xe94a0102{used['address'][2:].lower():0>64}{used['nonce'][2:]}"
    body = {"jsonrpc": "2.0", "id": 1, "method": "eth_call",
            "params": [{"to": server.info.asset, "data": call}, "latest"]}  # fmt: skip
    assert int(httpx.post(server.rpc_url, json=body).json()["result"], 16) == 1
