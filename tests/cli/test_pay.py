"""`pay`: pays any 402 and tells each step, makes mistakes on purpose, and says why it cannot pay."""

import json
import os
from collections.abc import Callable
from functools import partial

import httpx
import msgspec
import pytest
from click.testing import Result

from tests.cli import runner
from tests.cli.shops import Asked, Reply, required, serving, wanted
from tests.serve.driver import ORDER, QUOTE, SESSIONS
from x402sim import Fault, LocalServer
from x402sim.payer.mistakes import MISTAKES
from x402sim.protocol.networks import TESTNET
from x402sim.protocol.ways import Dialect
from x402sim.protocol.x402 import RequiredV1, Settlement, read_payment, requirements_v1, to_base64

BODY = json.dumps(ORDER)
STEPS = {1: "Paid: POST /api/perp/quote, PAYMENT-SIGNATURE: ok", 2: "Paid: POST /api/pay: ok"}


run = partial(runner.run, "pay")


def pay(server: LocalServer, *options: str) -> Result:
    return run(server.url + QUOTE, "-d", BODY, *options)


def gets_the_goods(server: LocalServer, told: str) -> bool:
    """Whether an order with the header that is told in quotes is served."""
    name, _, proof = told.split("-H '")[1].split("'")[0].partition(": ")
    return httpx.post(server.url + QUOTE, json=ORDER, headers={name: proof}).status_code == 200


def longest(text: str) -> int:
    return max(len(line) for line in text.splitlines() if "0x" not in line and "pay_" not in line)


@pytest.mark.parametrize("steps", [None, 1, 2])
def test_it_pays_and_tells_each_step(server: LocalServer, steps: int | None) -> None:
    before = len(server.transfers())
    done = pay(server, *(["--steps", str(steps)] if steps else []))
    assert done.exit_code == 0
    assert json.loads(done.stdout)["quote"]["pair"] == "BTC-USD"
    titles = [line for line in done.stderr.splitlines() if line[0].isdigit()]
    expected = ["Asked: POST /api/perp/quote: ok"]
    expected += ["Signed an EIP-3009 authorization, off-chain: ok", STEPS[steps or 2]]
    if steps != 1:
        expected += ["Repeated with X-Payment-Id: POST /api/perp/quote: ok"]
    assert titles == [f"{number}. {title}" for number, title in enumerate(expected, 1)]
    (transfer,) = server.transfers()[before:]
    assert transfer.sender == server.wallets[0].address
    assert f"   transaction    {transfer.tx_hash}\n" in done.stderr
    assert "   price          10000 = 0.01 devUSDC.e\n" in done.stderr
    assert longest(done.stderr) <= 80


def test_another_account_or_key_pays(server: LocalServer) -> None:
    for options, number in ((["--account", "3"], 3), (["--key", server.wallets[4].private_key], 4)):
        assert pay(server, *options).exit_code == 0
        assert server.transfers()[-1].sender == server.wallets[number].address


def test_it_pays_a_server_whose_clock_is_ahead() -> None:
    with LocalServer() as server:
        server.advance(86_400)
        assert pay(server).exit_code == 0


def test_json_holds_the_steps_and_the_body(server: LocalServer) -> None:
    done = pay(server, "--json")
    told = json.loads(done.stdout)
    assert done.stderr == ""
    assert told["ok"]
    assert told["status"] == 200
    assert told["body"]["quote"]["pair"] == "BTC-USD"
    assert told["steps"][2]["facts"]["transaction"] == server.transfers()[-1].tx_hash


@pytest.mark.parametrize("steps", [1, 2])
@pytest.mark.parametrize("name", MISTAKES)
def test_a_mistake_is_made_and_explained(server: LocalServer, name: str, steps: int) -> None:
    before = len(server.transfers())
    done = pay(server, "--wrong", name, "--steps", str(steps), "--json")
    if (Dialect.V2 if steps == 1 else Dialect.TWO_STEPS) not in MISTAKES[name].dialects:
        assert done.exit_code == 2
        assert f"--wrong {name} cannot be done in x402 version 2, only in two" in done.stderr
        return
    assert done.exit_code == 0
    told = json.loads(done.stdout)
    wrong = told["wrong"]
    assert wrong["sent"] != wrong["wanted"]
    assert wrong["server said"].startswith(str(told["status"]))
    assert len(server.transfers()) - before == (name == "replay")


def test_a_mistake_is_made_with_a_body_that_can_be_read_once(server: LocalServer) -> None:
    reader, writer = os.pipe()
    os.write(writer, BODY.encode())
    os.close(writer)
    done = run(server.url + QUOTE, "-d", f"@/dev/fd/{reader}", "--wrong", "replay")
    os.close(reader)
    assert done.stderr.count("Repeated with X-Payment-Id: POST /api/perp/quote: ok\n") == 1
    assert "Paid: POST /api/pay: refused\n" in done.stderr
    assert done.stdout.startswith("Refused, as it should be.\n")


WANTED = wanted()


def v1_shop(asked: Asked, settled: Callable[[], Reply]) -> Reply:
    """A shop of version 1 that takes every payment without looking at it."""
    if "x-payment" in asked.headers:
        return settled()
    accepts = [requirements_v1(WANTED, TESTNET, url=f"http://{asked.headers['host']}/page")]
    return Reply(402, RequiredV1(x402_version=1, accepts=accepts))


def served() -> Reply:
    paid = Settlement(success=True, transaction="0xabc", network=TESTNET.name)
    return Reply(200, {"page": 1}, {"x-payment-response": to_base64(paid)})


def test_it_pays_a_shop_of_version_1() -> None:
    seen: list[Asked] = []

    def answers(asked: Asked) -> Reply:
        seen.append(asked)
        return v1_shop(asked, served)

    with serving(answers) as url:
        done = run(url + "/page", "--header", "Accept-Language: nl")
    assert done.exit_code == 0
    assert done.stdout == '{"page":1}\n'
    assert "3. Paid: GET /page, X-PAYMENT: ok\n" in done.stderr
    assert "transaction    0xabc\n" in done.stderr
    assert seen[-1].headers["accept-language"] == "nl"
    signed = read_payment(1, seen[-1].headers["x-payment"]).signed.authorization
    assert signed.value == 10_000


def test_a_shop_that_takes_a_wrong_payment_fails() -> None:
    with serving(lambda asked: v1_shop(asked, served)) as url:
        done = run(url + "/page", "--wrong", "amount")
        assert done.exit_code == 1
        assert done.stdout.startswith("Not refused: the server took it.\n")
        assert "do             At the server: refuse it." in done.stdout
        told = run(url + "/page", "--wrong", "resource")
        assert told.exit_code == 2
        assert "cannot be done in x402 version 1" in told.stderr


@pytest.mark.parametrize(
    ("settled", "told"),
    [
        (Reply(None), "it is not known whether the payment was made"),
        (Reply(402, {"x402Version": 1, "accepts": [], "error": "no"}), "the payment was refused"),
    ],
)
def test_a_payment_in_vain_says_that_it_may_still_be_made(settled: Reply, told: str) -> None:
    with serving(lambda asked: v1_shop(asked, lambda: settled)) as url:
        done = run(url + "/page")
    assert done.exit_code == 1
    (line,) = [line for line in done.stderr.splitlines() if line.startswith("x402sim: not served")]
    assert told in line
    assert "whoever pays again before may pay twice" in line
    assert "Repeat the request" not in line


def test_a_lost_receipt_tells_how_to_get_the_goods(server: LocalServer) -> None:
    server.fault(Fault(victim="service", does="lose answer", path="/api/pay"))
    done = pay(server)
    assert done.exit_code == 1
    assert gets_the_goods(server, done.stderr.partition("the request with ")[2])


@pytest.mark.parametrize(("contains", "option"), [("payment", ()), ("session", ("--session",))])
def test_lost_goods_tell_how_to_get_them(
    server: LocalServer, contains: str, option: tuple[str, ...]
) -> None:
    server.fault(Fault(victim="service", does="lose answer", path=QUOTE, contains=contains))
    done = pay(server, *option)
    assert done.exit_code == 1
    assert gets_the_goods(server, done.stderr.partition(f"It was paid: POST {QUOTE} with ")[2])


def test_a_shop_without_sessions_got_no_deposit() -> None:
    shop = {"POST": lambda asked: Reply(404), "GET": lambda asked: v1_shop(asked, served)}
    with serving(lambda asked: shop[asked.method](asked)) as url:
        done = run(url + "/page", "--session")
    assert done.exit_code == 2
    assert done.stderr.endswith("No deposit was signed; if it has no sessions, pay each request\n")


def test_a_shop_that_takes_a_payment_and_asks_again() -> None:
    receipt = {"success": True, "paymentId": "pay_abc", "txHash": "0xabc", "timestamp": 1}

    def answers(asked: Asked) -> Reply:
        return Reply(200, receipt) if asked.path == "/api/pay" else Reply(402, required(WANTED))

    with serving(answers) as url:
        done = run(url + "/page")
    assert done.exit_code == 1
    assert "4. Repeated with X-Payment-Id: GET /page: FAILED\n" in done.stderr
    assert "(transaction 0xabc), and answers 402 again" in done.stderr


@pytest.mark.parametrize("options", [(), ("--session", "--max", "0.02")])
def test_an_error_that_was_paid_for_names_its_proof(
    server: LocalServer, options: tuple[str, ...]
) -> None:
    done = run(server.url + QUOTE, "-d", "{}", *options)
    assert done.exit_code == 1
    assert "paid, and the server answered 400; correct the request, and send it with" in done.stderr
    assert gets_the_goods(server, done.stderr)


@pytest.mark.parametrize(
    ("options", "told"),
    [
        (["--max", "0.001"], "the 402 asks for 0.01 devUSDC.e; --max allows 0.001"),
        (["--session", "--max", "0.123"], "--max 0.123: expected exactly 2 fraction digits"),
        (["--header", "a b: c"], "the request cannot be sent: Illegal header name b'a b'"),
        (["--method", "PUT"], "the server answered 405; it allows POST"),
    ],
)
def test_wrong_options_say_what_is_wanted(
    server: LocalServer, options: list[str], told: str
) -> None:
    done = pay(server, *options)
    assert done.exit_code == 2
    assert told in done.stderr
    assert "Signed" not in done.stderr


def test_a_key_of_the_environment_is_called_so(server: LocalServer) -> None:
    env = {"X402SIM_KEY": "0x12", "X402SIM_PAYER_KEY": "0x12"}
    for arguments, variable in ((["pay"], "X402SIM_KEY"), (["conformance"], "X402SIM_PAYER_KEY")):
        done = runner.run(*arguments, server.url, env=env)
        assert (done.exit_code, done.stdout) == (2, "")
        assert done.stderr.startswith(f"x402sim: {variable}: a private key is 0x and 64 hex")


def test_tls_to_a_server_without_it(server: LocalServer) -> None:
    done = run(server.url.replace("http:", "https:"))
    assert done.exit_code == 2
    assert "it does not speak TLS; give the URL with http://\n" in done.stderr


def test_a_session_cannot_be_paid_in_one_step(server: LocalServer) -> None:
    body = '{"maxSpend": "1.00", "duration": 60}'
    done = run(server.url + SESSIONS, "-d", body, "--steps", "1")
    assert done.exit_code == 2
    assert "--steps 1: the 402 offers only two steps; leave it out" in done.stderr


ON_THE_MOON = msgspec.to_builtins(required(msgspec.structs.replace(WANTED, network="moon")))


@pytest.mark.parametrize(
    ("reply", "told"),
    [
        (Reply(200, {"free": 1}), "the server answered 200 without asking for a payment"),
        (Reply(404), "the server answered 404, not 402: correct the URL"),
        (
            Reply(301, b"", {"location": "/there"}),
            "the server answered 301 and redirects to /there: give that URL",
        ),
        (Reply(402, b"pay!"), "the 402 has no payment requirements; `doctor URL` looks closer"),
        (Reply(402, {"x402Version": 1, "accepts": []}), "the 402 has no payment requirements"),
        (Reply(402, ON_THE_MOON), "the 402 asks for a payment on 'moon'; known are cronos-testnet"),
    ],
)
def test_an_answer_that_cannot_be_paid(reply: Reply, told: str) -> None:
    with serving(lambda _: reply) as url:
        done = run(url)
    assert done.exit_code == 2
    assert f"x402sim: nothing was paid: {told}" in done.stderr
