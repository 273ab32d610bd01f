"""`pay --permit2`: a metered shop over HTTP, whose facilitator and chain are a served world's."""

import base64
import json
from collections.abc import Iterator
from functools import partial
from typing import Any

import httpx
import pytest

from tests.cli import runner
from tests.cli.shops import SHOP, Asked, Reply, serving
from x402sim import LocalServer
from x402sim.protocol import abi
from x402sim.protocol.crypto import checksum, to_hex
from x402sim.protocol.networks import TESTNET
from x402sim.protocol.permit2 import PERMIT2
from x402sim.protocol.x402 import domain_of

run = partial(runner.run, "pay")
USED = "1858"


def encoded(message: dict[str, Any]) -> str:
    return base64.b64encode(json.dumps(message).encode()).decode()


class Metered:
    """A shop that settles what was used by the facilitator of a world."""

    def __init__(self, world: LocalServer) -> None:
        self.facilitator, self.paid = f"{world.url}/facilitator", 0
        self.used = USED
        kinds = httpx.get(f"{self.facilitator}/supported").json()["kinds"]
        announced = next(kind["extra"] for kind in kinds if kind["scheme"] == "upto")
        self.offer = {
            "scheme": "upto",
            "network": TESTNET.caip2,
            "amount": "20000",
            "asset": checksum(TESTNET.asset),
            "payTo": SHOP,
            "maxTimeoutSeconds": 60,
            "extra": domain_of(TESTNET) | announced,
        }

    def __call__(self, asked: Asked) -> Reply:
        text = asked.headers.get("payment-signature")
        if text is None:
            return self.required(402, "")
        self.paid += 1
        payment = json.loads(base64.b64decode(text))
        verified = self.ask("verify", payment, "20000")
        if not verified["isValid"]:
            reason = verified["invalidReason"]
            return self.required(412 if reason == "permit2_allowance_required" else 402, reason)
        settled = self.ask("settle", payment, self.used)
        return Reply(200, {"answer": 42}, {"PAYMENT-RESPONSE": encoded(settled)})

    def required(self, status: int, error: str) -> Reply:
        offer = {"x402Version": 2, "accepts": [self.offer], "error": error}
        return Reply(status, {}, {"PAYMENT-REQUIRED": encoded(offer)})

    def ask(self, path: str, payment: dict[str, Any], amount: str) -> dict[str, Any]:
        wanted = self.offer | {"amount": amount}
        body = {"x402Version": 2, "paymentPayload": payment, "paymentRequirements": wanted}
        answer: dict[str, Any] = httpx.post(f"{self.facilitator}/{path}", json=body).json()
        return answer


@pytest.fixture
def shop(server: LocalServer) -> Iterator[tuple[str, Metered]]:
    """The shop's URL, and the shop; Permit2 may take nothing yet."""
    approve(server, 0)
    metered = Metered(server)
    with serving(metered) as url:
        yield url, metered


def approve(server: LocalServer, amount_base: int) -> None:
    """Let account 0 approve Permit2, as the guide says."""
    call = {
        "from": server.wallets[0].address,
        "to": checksum(TESTNET.asset),
        "data": to_hex(abi.approve(PERMIT2, amount_base)),
    }
    sent = {"jsonrpc": "2.0", "id": 1, "method": "eth_sendTransaction", "params": [call]}
    assert "result" in httpx.post(f"{server.url}/rpc", json=sent).json()


def by(server: LocalServer) -> list[str]:
    return ["--key", server.wallets[0].private_key]


def test_it_signs_the_maximum_and_tells_what_was_settled(server: LocalServer, shop) -> None:
    url, _ = shop
    approve(server, 20_000)
    done = run(url, "--permit2", *by(server))
    assert (done.exit_code, json.loads(done.stdout)) == (0, {"answer": 42}), done.stderr
    assert "2. Signed a message of Permit2, off-chain: the amount at most: ok\n" in done.stderr
    assert "   amount         20000 = 0.02 devUSDC.e\n" in done.stderr
    assert "   settled        1858 = 0.001858 devUSDC.e\n" in done.stderr
    assert "served, and paid (transaction 0x" in done.stderr
    transfer = server.transfers()[-1]
    assert (transfer.to, transfer.amount_base) == (SHOP, USED)


def test_json_has_the_maximum_and_the_settled_amount(server: LocalServer, shop) -> None:
    approve(server, 20_000)
    told = json.loads(run(shop[0], "--permit2", "--json", *by(server)).stdout)
    payment = told["payment"]
    assert (payment["amount"]["base"], payment["settled"]["base"]) == ("20000", USED), payment
    assert payment["permit2"] is True


def test_without_the_flag_nothing_is_signed(server: LocalServer, shop) -> None:
    done = run(shop[0], *by(server))
    assert done.exit_code == 2
    assert "upto" in done.stderr
    assert shop[1].paid == 0


def test_without_an_approval_it_tells_how_much_and_approves_nothing(
    server: LocalServer, shop
) -> None:
    url, _ = shop
    done = run(url, "--permit2", *by(server))
    assert done.exit_code == 1
    assert f"approve Permit2 ({checksum(PERMIT2)}) for 20000 base units" in done.stderr
    asked = abi.allowance(server.wallets[0].address_bytes, PERMIT2)
    call = {"to": checksum(TESTNET.asset), "data": to_hex(asked)}
    read = {"jsonrpc": "2.0", "id": 1, "method": "eth_call", "params": [call, "latest"]}
    assert int(httpx.post(f"{server.url}/rpc", json=read).json()["result"], 16) == 0


def test_nothing_used_is_told_as_such(server: LocalServer, shop) -> None:
    approve(server, 20_000)
    url, metered = shop
    metered.used = "0"
    done = run(url, "--permit2", *by(server))
    assert done.exit_code == 0
    assert "not seen to be paid: the receipt says that nothing was used" in done.stderr


def test_max_bounds_the_maximum(server: LocalServer, shop) -> None:
    done = run(shop[0], "--permit2", "--max", "0.019", *by(server))
    assert done.exit_code == 2
    assert "--max allows 0.019" in done.stderr
    assert shop[1].paid == 0


@pytest.mark.parametrize("other", [["--session"], ["--wrong", "amount"], ["--steps", "2"]])
def test_it_does_not_go_with(other: list[str]) -> None:
    done = run("http://127.0.0.1:1/", "--permit2", *other)
    assert (done.exit_code, "omit --session, --steps 2 and --wrong" in done.stderr) == (2, True)
