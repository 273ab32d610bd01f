"""The programs of the guide's page about the standard facilitator run, and pay each other.

`doctor` and `pay` work on its shops, too, and on those of version 1.
"""

import json
import re
from collections.abc import Iterator
from contextlib import AbstractContextManager
from pathlib import Path

import httpx
import pytest
from typer.testing import CliRunner

from tests.interop import programs
from tests.interop.programs import NETWORKS
from tests.interop.table import PAGE, THOROUGH
from tests.serve.driver import PRICE, Server
from x402sim import BASE_SEPOLIA, LocalServer, PaymentAuth
from x402sim.cli import app
from x402sim.protocol import abi
from x402sim.protocol.crypto import checksum, to_hex
from x402sim.protocol.permit2 import PERMIT2

pytestmark = THOROUGH
PROGRAMS = PAGE.read_text(encoding="utf-8")
FASTAPI, METERED, PYTHON = re.findall(r"```python\n(.*?)```", PROGRAMS, re.DOTALL)
EXPRESS, FETCH = re.findall(r"```js\n(.*?)```", PROGRAMS, re.DOTALL)
FACILITATOR, SHOP = "http://127.0.0.1:4020/facilitator", "http://127.0.0.1:8000"
(PAY_TO,) = set(re.findall("0x[0-9a-fA-F]{40}(?![0-9a-fA-F])", FASTAPI + EXPRESS))
CLIENTS = {"python": PYTHON, "fetch": FETCH}
MISTAKES = ("amount", "payee", "expired", "not-yet-valid", "signature", "domain", "funds", "replay")
UVICORN = """
import socket

import uvicorn

listening = socket.create_server(("127.0.0.1", 0))
print("http://127.0.0.1:%d" % listening.getsockname()[1], flush=True)
uvicorn.Server(uvicorn.Config(app, log_level="warning")).run(sockets=[listening])
"""
LISTEN = 'app.listen(8000, "127.0.0.1");'
TELL = """const listening = app.listen(0, "127.0.0.1", () =>
  console.log(`http://127.0.0.1:${listening.address().port}`));"""


SHOPS = {
    "fastapi": FASTAPI + UVICORN,
    "metered": METERED + UVICORN,
    "express": EXPRESS.replace(LISTEN, TELL),
}


def guide_shop(shop: str, facilitator: str, folder: Path) -> AbstractContextManager[str]:
    """Run a shop of the guide that lets this facilitator settle."""
    folder.mkdir()
    runs = programs.in_node if shop == "express" else programs.in_python
    return programs.serving(runs(SHOPS[shop].replace(FACILITATOR, facilitator), folder), {})


@pytest.mark.parametrize(("shop", "client"), [("fastapi", "python"), ("express", "fetch")])
def test_a_client_pays_a_shop(server: Server, shop: str, client: str, tmp_path: Path) -> None:
    before = server.balance(PAY_TO)
    with guide_shop(shop, server.ready["facilitator"], tmp_path / "shop") as url:
        buys = (programs.in_python if client == "python" else programs.in_node)(
            CLIENTS[client].replace(SHOP, url), tmp_path
        )
        assert programs.run(buys, {}) == {"weather": "sunny"}
    assert server.balance(PAY_TO) - before == PRICE


# --- `doctor` and `pay` work on the shops of other people ---------------------------------


@pytest.fixture(scope="module")
def local() -> Iterator[LocalServer]:
    with LocalServer(network=NETWORKS[1]) as server:
        yield server


@pytest.mark.parametrize(
    ("shop", "header"),
    [
        *dict.fromkeys(("fastapi", "express", "flask"), "PAYMENT-SIGNATURE").items(),
        *dict.fromkeys(("x402-express", "x402-hono"), "X-PAYMENT").items(),
    ],
)
def test_a_shop_is_examined_and_paid(
    local: LocalServer, shop: str, header: str, tmp_path: Path
) -> None:
    run, seller = CliRunner().invoke, ("npm_v1/sell.mjs", NETWORKS[1])
    if shop == "flask":
        seller = "sell.py", NETWORKS[2]
    wanted = (shop.removeprefix("x402-"), local.facilitator_url, local.wallets[1].address)
    with (
        guide_shop(shop, local.facilitator_url, tmp_path / "shop")
        if shop in SHOPS
        else programs.serving(seller[0], programs.sale(*wanted, seller[1]))
    ) as url:
        page = f"{url}/weather"
        looked = run(app, ["doctor", page, "--json"])
        assert looked.exit_code == 0, looked.stdout
        told = json.loads(looked.stdout)
        assert [each for each in told["findings"] if each["stops"]] == []
        version = 1 if header == "X-PAYMENT" else 2
        of = [each for each in told["payers"] if each["name"].startswith(f"x402 v{version}")]
        assert all(each["can_pay"] for each in of), of
        paid = run(app, ["pay", page])
        assert paid.exit_code == 0, paid.stderr
        assert json.loads(paid.stdout) == {"weather": "sunny"}
        assert f"3. Paid: GET /weather, {header}: ok" in paid.stderr
        assert "   transaction    0x" in paid.stderr
        for name in MISTAKES:
            wrong = run(app, ["pay", page, "--wrong", name])
            assert wrong.exit_code == 0, (name, wrong.stdout, wrong.stderr)
            assert wrong.stdout.startswith("Refused, as it should be.\n")


def test_a_shop_sells_upto(local: LocalServer, tmp_path: Path) -> None:
    payer = local.wallets[0]
    data = to_hex(abi.approve(PERMIT2, 20_000))
    call = {"from": payer.address, "to": checksum(BASE_SEPOLIA.asset), "data": data}
    sent = {"jsonrpc": "2.0", "id": 1, "method": "eth_sendTransaction", "params": [call]}
    httpx.post(f"{local.url}/rpc", json=sent, trust_env=False)
    auth = PaymentAuth(payer, network=BASE_SEPOLIA, permit2=True)
    with guide_shop("metered", local.facilitator_url, tmp_path / "shop") as url:
        answer = httpx.get(f"{url}/ask", auth=auth, trust_env=False)
    assert (answer.status_code, answer.json()) == (200, "the sky is blue")
    assert (auth.signed_base, int(auth.settlements[0].amount)) == (20_000, 1500)
