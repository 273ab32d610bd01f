"""`pay` as a supervisor starts it: told by the environment, and started again until it has bought."""

import json
import stat
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import pytest
from click.testing import Result

from tests.cli import runner
from tests.cli.shops import Asked, Reply, required, serving, wanted
from x402sim.protocol.messages import encode
from x402sim.protocol.networks import TESTNET
from x402sim.protocol.x402 import RequiredV1, read_payment, requirements_v1

KEY = "0x" + "11" * 32
run = partial(runner.run, "pay")
GOODS = Reply(200, {"data": "goods"})
LOST, BUSY, NO = Reply(None), Reply(502, {"error": "busy"}), Reply(402, {"error": "no"})


@dataclass
class Shop:
    """A shop of version 1; `answers` are what it says to payments, the last one from then on."""

    answers: list[Reply]
    asked: list[Asked] = field(default_factory=list)
    nonces: list[bytes] = field(default_factory=list)
    price: str = "10000"

    def __call__(self, asked: Asked) -> Reply:
        self.asked.append(asked)
        if (text := asked.headers.get("x-payment")) is None:
            url = f"http://{asked.headers['host']}{asked.path}"
            offer = requirements_v1(wanted(resource=asked.path), TESTNET, url=url)
            body = json.loads(encode(RequiredV1(x402_version=1, accepts=[offer])))
            body["accepts"][0]["maxAmountRequired"] = self.price
            return Reply(402, body)
        self.nonces.append(read_payment(1, text).signed.authorization.nonce)
        return self.answers[min(len(self.nonces), len(self.answers)) - 1]


def contract(url: str, folder: Path, **more: str) -> dict[str, str]:
    """The environment that `conformance payer` gives."""
    own = {
        "URL": url + "/page",
        "METHOD": "GET",
        "PRIVATE_KEY": KEY,
        "NETWORK": TESTNET.caip2,
        "MAX_AMOUNT": "0.05",
        "STATE_DIR": str(folder),
    }
    return {f"X402SIM_{name}": value for name, value in (own | more).items()}


Start = Callable[[], Result]


def starts(url: str, folder: Path, **more: str) -> Start:
    return partial(run, env=contract(url, folder, **more))


def files(folder: Path) -> list[Path]:
    return sorted(folder.iterdir())


def test_the_environment_says_what_to_buy(tmp_path: Path) -> None:
    shop = Shop([GOODS])
    with serving(shop) as url:
        done = starts(url, tmp_path, METHOD="PUT", BODY='{"a":1}')()
    assert done.exit_code == 0
    assert json.loads(done.stdout) == {"data": "goods"}
    last = shop.asked[-1]
    assert (last.method, last.path, last.body) == ("PUT", "/page", b'{"a":1}')
    assert files(tmp_path) == []


def test_options_have_priority_over_the_environment(tmp_path: Path) -> None:
    shop = Shop([GOODS])
    with serving(shop) as url:
        done = run(url + "/other", "--max", "0.001", env=contract(url, tmp_path))
        assert done.exit_code == 2
        assert "--max allows 0.001" in done.stderr
    assert {asked.path for asked in shop.asked if asked.path[:2] != "/_"} == {"/other"}
    assert shop.nonces == []


@pytest.mark.parametrize("failure", [LOST, BUSY, NO])
def test_a_second_start_sends_the_same_authorization(tmp_path: Path, failure: Reply) -> None:
    shop = Shop([failure, failure, GOODS])
    with serving(shop) as url:
        start = starts(url, tmp_path)
        for _ in range(2):
            assert start().exit_code == 1
            (file,) = files(tmp_path)
            if sys.platform != "win32":
                assert stat.S_IMODE(file.stat().st_mode) == 0o600
        done = start()
        assert done.exit_code == 0
        assert "Resumed the authorization of an earlier start: ok" in done.stderr
        assert json.loads(done.stdout) == {"data": "goods"}
        assert (len(shop.nonces), len(set(shop.nonces))) == (3, 1)
        assert files(tmp_path) == []
        assert start().exit_code == 0  # another purchase
    assert len(set(shop.nonces)) == 2


def test_another_price_is_not_signed_while_the_first_may_be_used(tmp_path: Path) -> None:
    shop = Shop([LOST, NO])
    with serving(shop) as url:
        start = starts(url, tmp_path)
        start()
        shop.price = "20000"
        done = start()
    assert done.exit_code == 1
    assert "signed, not seen to be paid" in done.stderr
    assert len(set(shop.nonces)) == 1


def test_purchases_are_kept_apart(tmp_path: Path) -> None:
    shop = Shop([LOST])
    with serving(shop) as url:
        starts(url, tmp_path)()
        starts(url + "/other", tmp_path)()
        assert len(files(tmp_path)) == len(set(shop.nonces)) == 2


def test_in_two_steps_a_payment_that_is_made_is_shown_again(tmp_path: Path) -> None:
    shown: list[str] = []
    settled: list[bytes] = []

    def shop(asked: Asked) -> Reply:
        if asked.path == "/api/pay":
            settled.append(asked.body)
            paid = {"success": True, "paymentId": "pay_abc", "txHash": "0x" + "1" * 64}
            return Reply(200, paid | {"timestamp": 1})
        if (proof := asked.headers.get("x-payment-id")) is None:
            return Reply(402, required(wanted()))
        shown.append(proof)
        return BUSY if len(shown) < 3 else GOODS

    with serving(shop) as url:
        start = starts(url, tmp_path)
        assert [start().exit_code for _ in range(2)] == [1, 1]
        done = start()
    assert done.exit_code == 0
    assert json.loads(done.stdout) == {"data": "goods"}
    assert shown == ["pay_abc"] * 3
    assert len(settled) == 1
    assert files(tmp_path) == []


def test_a_file_that_cannot_be_read_stops_it_before_it_signs(tmp_path: Path) -> None:
    shop = Shop([LOST])
    with serving(shop) as url:
        start = starts(url, tmp_path)
        start()
        (file,) = files(tmp_path)
        file.write_text("{")
        done = start()
    runner.assert_misuse(done, "--state-dir", str(file), "can still be used")
    assert len(shop.nonces) == 1


def test_what_cannot_be_written_down_is_not_sent(tmp_path: Path) -> None:
    folder = tmp_path / "file"
    folder.write_text("")
    shop = Shop([GOODS])
    with serving(shop) as url:
        done = starts(url, folder)()
    assert done.exit_code != 0
    assert "--state-dir" in done.stderr
    assert shop.nonces == []


def test_what_is_free_is_bought_when_a_folder_is_given(tmp_path: Path) -> None:
    with serving(lambda asked: GOODS) as url:
        assert starts(url, tmp_path)().exit_code == 0
        assert run(url + "/page").exit_code == 2


def test_it_pays_on_the_network_that_it_may_pay_on(tmp_path: Path) -> None:
    shop = Shop([GOODS])
    with serving(shop) as url:
        done = starts(url, tmp_path, NETWORK="eip155:84532")()
        assert done.exit_code == 2
        assert "known are base-sepolia" in done.stderr
        assert starts(url, tmp_path, NETWORK=TESTNET.name)().exit_code == 0
        runner.assert_misuse(starts(url, tmp_path, NETWORK="no")(), "--network")
    assert len(shop.nonces) == 1


def test_a_session_is_not_kept(tmp_path: Path) -> None:
    done = run("http://127.0.0.1:1/x", "--session", "--state-dir", tmp_path)
    runner.assert_misuse(done, "--session and --state-dir")
