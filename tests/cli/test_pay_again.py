"""`pay` as a supervisor starts it: told by the environment, and started again until it has bought."""

import json
import os
import stat
import subprocess
import sys
import threading
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import httpx
import pytest
from click.testing import Result

from tests.cli import runner
from tests.cli.shops import Asked, Reply, required, serving, wanted
from tests.serve.driver import Running, command, environment
from x402sim.commands.purchase import kept_in
from x402sim.payer.stored import Taken
from x402sim.payer.tools import tool_request
from x402sim.protocol.messages import encode
from x402sim.protocol.networks import BASE, TESTNET, Network
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
    network: Network = TESTNET

    def __call__(self, asked: Asked) -> Reply:
        self.asked.append(asked)
        if (text := asked.headers.get("x-payment")) is None:
            url = f"http://{asked.headers['host']}{asked.path}"
            offer = requirements_v1(wanted(self.network, asked.path), self.network, url=url)
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
    """The unfinished purchases in a folder."""
    kept = sorted(folder.glob("*.json"))
    return [each for each in kept if json.loads(each.read_text() or "{}").get("bought") is None]


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


@pytest.mark.parametrize(
    "failure", [LOST, BUSY, NO, Reply(200, b"x", {"Content-Encoding": "unknown"})]
)
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


def test_equal_arguments_of_a_tool_are_one_purchase(tmp_path: Path) -> None:
    one, equal, other = (
        kept_in(tmp_path, tool_request("http://shop/mcp", "forecast", arguments))
        for arguments in ({"a": 1, "b": 2}, {"b": 2.0, "a": 1}, {"a": 1, "b": 3})
    )
    with one.alone(0):
        with pytest.raises(Taken), equal.alone(0):
            pass
        with other.alone(0):
            pass


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


def test_real_money_is_allowed_to_each_start_anew(tmp_path: Path) -> None:
    shop = Shop([LOST, NO], network=BASE)
    with serving(shop) as url:
        assert starts(url, tmp_path, NETWORK="base")().exit_code == 1
        done = run(url + "/page", "--key", KEY, "--state-dir", tmp_path)
    runner.assert_misuse(done, "an earlier start has signed", "--network base allows that")
    assert len(shop.nonces) == 1


def age(folder: Path) -> None:
    """Let what a folder holds have expired, as after some minutes."""
    (file,) = files(folder)
    kept = json.loads(file.read_text())
    for each in kept["unfinished"]["sent"]:
        each["auth"]["valid_before"] -= 10_000
    file.write_text(json.dumps(kept))


def test_all_starts_together_sign_no_more_than_the_most(tmp_path: Path) -> None:
    """A shop may settle what it seems to refuse, so what has expired counts."""
    shop = Shop([NO], price="20000")
    with serving(shop) as url:
        for _ in range(5):
            last = starts(url, tmp_path)()
            age(tmp_path)
        assert len(set(shop.nonces)) == 2  # of 0.05
        assert "0.01 devUSDC.e is left of --max 0.05" in last.stderr
        starts(url, tmp_path, MAX_AMOUNT="0.06")()
    assert len(set(shop.nonces)) == 3


def test_a_link_is_not_written_through(tmp_path: Path) -> None:
    shop, victim = Shop([LOST]), tmp_path / "victim"
    victim.write_text("precious")
    with serving(shop) as url:
        start = starts(url, tmp_path / "kept")
        start()
        (file,) = files(tmp_path / "kept")
        file.with_suffix(".new").symlink_to(victim)
        start()
    assert victim.read_text() == "precious"


# --- several starts at once ---------------------------------------------------------------


@pytest.mark.parametrize("first", [GOODS, LOST])
def test_several_starts_at_once_sign_one_payment(tmp_path: Path, first: Reply) -> None:
    shop = Shop([first, GOODS])
    with serving(shop) as url, ExitStack() as stack:
        many = [Running("pay", env=contract(url, tmp_path)) for _ in range(4)]
        starts = [stack.enter_context(each) for each in many]
        ended = [(each.process.wait(120), "".join(each.rest()), each.errors()) for each in starts]
    assert len(set(shop.nonces)) == 1, ended
    sold = [json.loads(out) for code, out, _ in ended if code == 0]
    assert sold == [{"data": "goods"}] * (4 if first is GOODS else 3)
    told = [" ".join(err.split()) for _, _, err in ended]
    waited = sum("bought by another start of this command" in t for t in told)
    assert waited == (3 if first is GOODS else 2)
    assert len(shop.nonces) == (1 if first is GOODS else 2)


def test_a_start_that_is_killed_leaves_its_payment_to_the_one_that_waits(tmp_path: Path) -> None:
    has_paid, is_over = threading.Event(), threading.Event()
    shop = Shop([GOODS])

    def answers(asked: Asked) -> Reply:
        reply = shop(asked)
        if shop.nonces and not has_paid.is_set():
            has_paid.set()
            is_over.wait(60)
        return reply

    with serving(answers) as url, Running("pay", env=contract(url, tmp_path)) as first:
        assert has_paid.wait(60)
        with Running("pay", "--json", env=contract(url, tmp_path)) as second:
            with pytest.raises(subprocess.TimeoutExpired):
                second.process.wait(1)
            first.close()
            is_over.set()
            second.process.wait(60)
            out = "".join(second.rest())
    assert json.loads(out)["body"] == {"data": "goods"}
    assert "Resumed the authorization of an earlier start" in out
    assert (len(shop.nonces), len(set(shop.nonces))) == (2, 1)


def test_what_was_bought_and_not_printed_is_printed_by_the_next_start(tmp_path: Path) -> None:
    shop = Shop([Reply(200, b"g" * 900_000)])
    with serving(shop) as url:
        env, pipe = environment() | contract(url, tmp_path), subprocess.PIPE
        with subprocess.Popen(command("pay"), env=env, stdout=pipe, stderr=pipe) as first:
            os.read(first.stdout.fileno(), 1)  # the rest fills the pipe
            first.kill()
        start = starts(url, tmp_path)
        assert start().stdout == "g" * 900_000 + "\n"
        assert len(shop.nonces) == 1
        start()  # another purchase
    assert len(shop.nonces) == 2


@pytest.mark.parametrize(
    ("shell", "code", "told"),
    [
        ('"$@" >/dev/full', 1, "cannot print on stdout: No space left on device"),
        pytest.param('"$@" >&-', 1, "on stdout: stdout is closed", marks=pytest.mark.thorough),
        pytest.param(
            *('ulimit -f 40; "$@"', 0, "the next start may print the goods again, or send the"),
            marks=pytest.mark.thorough,
        ),
    ],
)
@pytest.mark.skipif(sys.platform != "linux", reason="/dev/full is of Linux")
def test_goods_survive_a_full_disk(tmp_path: Path, shell: str, code: int, told: str) -> None:
    goods = "g" * 100_000
    shop = Shop([Reply(200, goods.encode())])
    with serving(shop) as url:
        words = ["sh", "-c", shell, "sh", *command("pay")]
        env = environment() | contract(url, tmp_path)
        first = subprocess.run(words, env=env, capture_output=True, text=True, timeout=60)
        assert (first.returncode, first.stdout.strip()) == (code, "" if code else goods)
        assert told in first.stderr
        assert "Traceback" not in first.stderr
        assert "Exception" not in first.stderr
        assert starts(url, tmp_path)().stdout.strip() == goods
    assert len(set(shop.nonces)) == 1


def test_a_body_that_drips_ends_and_what_came_is_printed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("x402sim.commands.purchase.DEADLINE_S", 1.5)
    shop = Shop([Reply(200, b"g" * 1000, pause_s=0.05), GOODS])
    with serving(shop) as url:
        start = starts(url, tmp_path)
        done = start()
        assert done.exit_code == 1
        assert set(done.stdout.strip()) == {"g"}
        assert "not served: no complete answer within" in done.stderr
        assert "needs longer. It was paid: GET /page with -H" in done.stderr
        assert len(files(tmp_path)) == 1
        assert json.loads(start().stdout) == {"data": "goods"}
    assert len(set(shop.nonces)) == 1


def test_a_start_does_not_wait_for_ever(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("x402sim.commands.pay.DEADLINE_S", 0.1)
    shop = Shop([GOODS])
    with serving(shop) as url:
        request = httpx.Request("GET", url + "/page")
        with kept_in(tmp_path, request).alone(1):
            done = starts(url, tmp_path)()
            assert starts(url + "/other", tmp_path)().exit_code == 0
    assert done.exit_code == 75
    assert "nothing was signed here: another start of this command has not ended" in done.stderr
    assert len(shop.nonces) == 1
