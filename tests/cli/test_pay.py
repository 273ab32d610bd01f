"""`pay`: pays any 402 and tells each step, makes mistakes on purpose, and says why it cannot pay."""

import json
import os
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import httpx
import msgspec
import pytest
from click.testing import Result

from tests.cli import runner
from tests.cli.shops import Asked, Reply, required, serving, wanted
from tests.cli.test_decode import SOLANA, USDC_V2, YEN
from tests.serve.driver import ORDER, QUOTE
from x402sim import Fault, LocalServer
from x402sim.payer.mistakes import MISTAKES
from x402sim.protocol.crypto import checksum
from x402sim.protocol.networks import NETWORKS, TESTNET
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
    assert wrong["server said"]["status"] == told["status"]
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
HASH = "0x" + "ab" * 32


def v1_shop(asked: Asked, settled: Callable[[], Reply]) -> Reply:
    """A shop of version 1 that takes every payment without looking at it."""
    if "x-payment" in asked.headers:
        return settled()
    accepts = [requirements_v1(WANTED, TESTNET, url=f"http://{asked.headers['host']}/page")]
    return Reply(402, RequiredV1(x402_version=1, accepts=accepts))


def served() -> Reply:
    paid = Settlement(success=True, transaction=HASH, network=TESTNET.name)
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
    assert f"transaction    {HASH}\n" in done.stderr
    assert done.stderr.endswith(f"x402sim: served, and paid (transaction {HASH})\n")
    assert seen[-1].headers["accept-language"] == "nl"
    signed = read_payment(1, seen[-1].headers["x-payment"]).signed.authorization
    assert signed.value == 10_000


def test_a_redirect_that_was_paid_is_told_and_a_new_start_pays_no_other(tmp_path: Path) -> None:
    payments = set[str]()

    def answers(asked: Asked) -> Reply:
        payments.update({asked.headers.get("x-payment", "")} - {""})
        return v1_shop(asked, lambda: Reply(303, b"", served().headers | {"location": "/job 1"}))

    with serving(answers) as url:
        told = [run(url + "/page", "--state-dir", str(tmp_path)).stderr for _ in range(2)]
    assert all("paid, and the server answered 303 and redirects to '/job 1'" in it for it in told)
    assert len(payments) == 1


def test_a_shop_that_takes_a_wrong_payment_fails() -> None:
    with serving(lambda asked: v1_shop(asked, served)) as url:
        done = run(url + "/page", "--wrong", "amount")
        assert done.exit_code == 1
        assert done.stdout.startswith("Not refused: the server accepted it.\n")
        assert "do             At the server: refuse it." in done.stdout
        told = run(url + "/page", "--wrong", "resource")
        assert told.exit_code == 2
        assert "cannot be done in x402 version 1" in told.stderr


@pytest.mark.parametrize(
    ("settled", "told"),
    [
        (Reply(None), "it is not known whether the payment was made"),
        (Reply(402, {"x402Version": 1, "accepts": [], "error": "no"}), "it is not known whether"),
        (
            Reply(402, {"x402Version": 1, "accepts": [], "error": "insufficient_funds"}),
            "the payment was refused",
        ),
    ],
)
def test_a_payment_in_vain_says_that_it_may_still_be_made(settled: Reply, told: str) -> None:
    with serving(lambda asked: v1_shop(asked, lambda: settled)) as url:
        done = run(url + "/page")
    assert done.exit_code == 1
    (line,) = [line for line in done.stderr.splitlines() if line.startswith("x402sim: not served")]
    assert told in line
    assert "paying again before then may pay twice" in line
    assert "Repeat the request" not in line


def test_a_lost_receipt_tells_how_to_get_the_goods(server: LocalServer) -> None:
    server.fault(Fault(victim="service", does="lose answer", path="/api/pay"))
    done = pay(server)
    assert done.exit_code == 1
    assert "It is paid (the chain has used its authorization); the request with" in done.stderr
    assert gets_the_goods(server, done.stderr.partition("the request with ")[2])


def test_a_payment_that_never_arrived_is_told_by_the_chain(server: LocalServer) -> None:
    server.fault(Fault(victim="service", does="lose request", path="/api/pay"))
    done = pay(server, "--json")
    told = json.loads(done.stdout)
    assert done.exit_code == 1
    assert "no receipt came, and the chain has not used it; it can be used until" in told["problem"]
    assert told["payment"]["used_on_chain"] is told["payment"]["seen_paid"] is False


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
    assert done.stderr.count(told) == 1
    assert "Signed" not in done.stderr


def test_a_server_of_tools_wants_the_name_of_one(server: LocalServer) -> None:
    done = run(f"{server.url}/mcp")
    assert done.exit_code == 2
    assert (
        "the server answered 405; a server of MCP sells tools: name a tool with --tool"
        in done.stderr
    )


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


def receipt(**fields: Any) -> dict[str, str]:
    said = {"success": True, "transaction": HASH, "network": "cronos-testnet"} | fields
    return {"X-PAYMENT-RESPONSE": to_base64(said)}


PENDING = receipt(success=False, errorReason="settlement_pending")


@pytest.mark.parametrize(
    ("reply", "code", "told"),
    [
        (Reply(200, {}, receipt()), 0, f"served, and paid (transaction {HASH})"),
        (Reply(200, {}), 0, "served, and signed, not seen to be paid: no receipt came; it can be"),
        (Reply(200, {}, receipt(transaction="")), 0, "the receipt names no hash of a transaction"),
        (Reply(200, {}, receipt(success=False)), 0, "not seen to be paid: the receipt says that"),
        (
            Reply(200, {}, PENDING),
            0,
            f"not seen to be paid: the receipt says that transaction {HASH}",
        ),
        (Reply(503, {}, receipt()), 1, "paid, and the server answered 503; correct the request"),
        (
            Reply(503, {}),
            1,
            "the server answered 503; signed, not seen to be paid: no receipt came",
        ),
        (Reply(503, {}, PENDING), 1, "is not mined yet; it can be used until"),
    ],
)
def test_its_last_line_says_what_is_known_of_the_payment(
    reply: Reply, code: int, told: str
) -> None:
    with serving(lambda asked: v1_shop(asked, lambda: reply)) as url:
        done, as_json = run(url + "/page"), run(url + "/page", "--json")
    last = done.stderr.splitlines()[-1]
    assert done.exit_code == as_json.exit_code == code
    assert last.startswith("x402sim: ")
    assert told in last
    assert ("is paid for" in last) <= ("paid, and the server" in last)
    payment = json.loads(as_json.stdout)["payment"]
    assert payment["signed"] is True
    assert payment["seen_paid"] == (reply.headers == receipt())
    assert payment["pending"] == (reply.headers == PENDING)
    assert ("X-PAYMENT: ok" in done.stderr) == (code == 0)
    assert ("Paid: GET /page" in done.stderr) == payment["seen_paid"]


USDC = msgspec.to_builtins(USDC_V2)
UPTO = USDC | {"scheme": "upto", "extra": {"facilitatorAddress": "0x" + "11" * 20}}


def v2_shop(paid: list[Asked], *accepts: dict[str, Any]) -> Callable[[Asked], Reply]:
    """A shop of version 2 that takes every payment without looking at it."""

    def answers(asked: Asked) -> Reply:
        if "payment-signature" in asked.headers:
            paid.append(asked)
            settled = {"success": True, "transaction": HASH, "network": "eip155:84532"}
            return Reply(200, {"page": 1}, {"PAYMENT-RESPONSE": to_base64(settled)})
        about = {"url": f"http://{asked.headers['host']}/page"}
        said = {"x402Version": 2, "resource": about, "accepts": accepts}
        return Reply(402, {}, {"PAYMENT-REQUIRED": to_base64(said)})

    return answers


@pytest.mark.parametrize(
    ("first", "why"),
    [
        (
            YEN,
            "offer 1: asset '0x431D5dfF03120AFA4bDf332c61A6e1766eF37BDB, JPY Coin' is not looked at",
        ),
        (SOLANA, "offer 1: network 'solana:5eykt4UsFv8P8NJdTREpY1vzqKqZKvdp' is not looked at"),
        (UPTO, "offer 1: upto by Permit2, paid only if told to"),
        (USDC | {"network": "eip155:1"}, "offer 1: network 'eip155:1' is not known"),
        (USDC | {"amount": "2000000"}, "offer 1: the 402 asks for 2.00 USDC; --max allows 0.10"),
        (USDC | {"amount": 10000}, "offer 1: amount is 10000"),
        (USDC | {"extra": {"name": "USDC", "version": "1"}}, "offer 1: extra.version is '1'"),
        (USDC | {"payTo": "me"}, "offer 1: payTo is 'me'"),
    ],
)
def test_it_pays_the_first_offer_that_it_can_and_says_why_not_those_before(
    first: dict[str, Any], why: str
) -> None:
    paid: list[Asked] = []
    with serving(v2_shop(paid, first, USDC)) as url:
        done = run(url + "/page")
    assert done.exit_code == 0, done.stderr
    signed = read_payment(2, paid[-1].headers["payment-signature"])
    assert signed.accepted is not None
    assert (signed.accepted.network, signed.accepted.amount) == ("eip155:84532", "10000")
    assert f"not taken {why}" in " ".join(done.stderr.split())
    assert "   offer          2\n" in done.stderr
    assert done.stderr.endswith(f"x402sim: served, and paid (transaction {HASH})\n")


def test_an_offer_by_permit2_comes_last_though_it_may_be_paid() -> None:
    """It is on another network: on one network, the payer itself takes the other offer."""
    paid, fuji = list[Asked](), NETWORKS["avalanche-fuji"]
    elsewhere = {"network": fuji.caip2, "asset": checksum(fuji.asset)}
    with serving(v2_shop(paid, UPTO | elsewhere, USDC)) as url:
        assert run(url + "/page", "--permit2").exit_code == 0
    signed = read_payment(2, paid[-1].headers["payment-signature"])
    assert (signed.accepted, signed.signed.authorization.value) == (USDC_V2, 10_000)


def test_if_no_offer_can_be_paid_it_says_why_for_each() -> None:
    with serving(v2_shop([], YEN, SOLANA)) as url:
        done = run(url + "/page")
    assert done.exit_code == 2
    assert "nothing was paid: offer 1: asset '0x431D" in done.stderr
    assert "; offer 2: network 'solana:" in done.stderr


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
        (Reply(402, {}, {"WWW-Authenticate": 'Payment id="x", method="tempo"'}), "scheme Payment"),
        (Reply(402, {"error": {"message": "Insufficient credits"}}), "Insufficient credits"),
    ],
)
def test_an_answer_that_cannot_be_paid(reply: Reply, told: str) -> None:
    with serving(lambda _: reply) as url:
        done = run(url)
    assert done.exit_code == 2
    assert told in done.stderr.partition("x402sim: nothing was paid: ")[2]
