"""`pay --permit2`: what a served world sells by the amount used."""

import json
from collections.abc import Iterator
from functools import partial

import httpx
import pytest

from tests.cli import runner
from tests.serve.paying import approve
from x402sim import LocalServer
from x402sim.protocol import abi
from x402sim.protocol.crypto import checksum, to_hex
from x402sim.protocol.networks import TESTNET
from x402sim.protocol.permit2 import PERMIT2

USED = {"USED": "0.001858", "NOTHING": "0.00"}


@pytest.fixture
def server() -> Iterator[LocalServer]:
    """A server that sells, for at most 0.02, what its path says was used."""
    with LocalServer(sells={"GET /chat/{used} upto 0.02": chat}) as server:
        yield server


async def chat(request: httpx.Request) -> tuple[dict[str, int], str]:
    return {"answer": 42}, USED[request.url.path.rpartition("/")[2]]


run = partial(runner.run, "pay")


def test_it_signs_the_maximum_and_tells_what_was_settled(server: LocalServer) -> None:
    approve(server, 20_000)
    done = run(f"{server.url}/chat/USED", "--permit2")
    assert (done.exit_code, json.loads(done.stdout)) == (0, {"answer": 42}), done.stderr
    assert "2. Signed a message of Permit2, off-chain: the amount at most: ok\n" in done.stderr
    assert "   amount         20000 = 0.02 devUSDC.e\n" in done.stderr
    assert "   settled        1858 = 0.001858 devUSDC.e\n" in done.stderr
    assert "served, and paid (transaction 0x" in done.stderr
    transfer = server.transfers()[-1]
    assert (transfer.to, transfer.amount_base) == (server.info.pay_to, "1858")


def test_json_has_the_maximum_and_the_settled_amount(server: LocalServer) -> None:
    approve(server, 20_000)
    told = json.loads(run(f"{server.url}/chat/USED", "--permit2", "--json").stdout)
    payment = told["payment"]
    assert (payment["amount"]["base"], payment["settled"]["base"]) == ("20000", "1858"), payment
    assert payment["permit2"] is True


def test_without_an_approval_it_tells_how_much_and_approves_nothing(server: LocalServer) -> None:
    done = run(f"{server.url}/chat/USED", "--permit2")
    assert done.exit_code == 1
    assert f"approve Permit2 ({checksum(PERMIT2)}) for 20000 base units" in done.stderr
    asked = abi.allowance(server.wallets[0].address_bytes, PERMIT2)
    call = {"to": checksum(TESTNET.asset), "data": to_hex(asked)}
    read = {"jsonrpc": "2.0", "id": 1, "method": "eth_call", "params": [call, "latest"]}
    assert int(httpx.post(f"{server.url}/rpc", json=read).json()["result"], 16) == 0


def test_nothing_used_is_told_as_such(server: LocalServer) -> None:
    approve(server, 20_000)
    done = run(f"{server.url}/chat/NOTHING", "--permit2")
    assert done.exit_code == 0, done.stderr
    assert "not seen to be paid: the receipt says that nothing was used" in done.stderr


@pytest.mark.parametrize(
    ("options", "says"), [((), "upto"), (("--permit2", "--max", "0.019"), "--max allows 0.019")]
)
def test_what_is_not_allowed_is_not_signed(
    server: LocalServer, options: tuple[str, ...], says: str
) -> None:
    done = run(f"{server.url}/chat/USED", *options)
    assert done.exit_code == 2
    assert says in done.stderr
    assert "Signed" not in done.stderr
