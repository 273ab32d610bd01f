"""`doctor` and `pay` work on the shops of other people: the guide's two, and those of version 1."""

import json
from collections.abc import Iterator
from contextlib import AbstractContextManager
from pathlib import Path

import pytest
from typer.testing import CliRunner

from tests.interop import programs
from tests.interop.table import THOROUGH
from tests.interop.test_guide import (
    EXPRESS,
    FACILITATOR,
    FASTAPI,
    LISTEN,
    TELL,
    UVICORN,
    in_node,
    in_python,
)
from x402sim import LocalServer
from x402sim.cli import app

pytestmark = THOROUGH
NAME = "base-sepolia"
MISTAKES = ("amount", "payee", "expired", "not-yet-valid", "signature", "domain", "funds", "replay")
SHOPS = {
    "fastapi": "PAYMENT-SIGNATURE",
    "express": "PAYMENT-SIGNATURE",
    "flask": "PAYMENT-SIGNATURE",
    "x402-express": "X-PAYMENT",
    "x402-hono": "X-PAYMENT",
}


@pytest.fixture(scope="module")
def server() -> Iterator[LocalServer]:
    with LocalServer(network=NAME) as server:
        yield server


def serving(server: LocalServer, shop: str, folder: Path) -> AbstractContextManager[str]:
    """Run a shop that lets our facilitator settle."""
    if shop == "fastapi":
        program = FASTAPI.replace(FACILITATOR, server.facilitator_url) + UVICORN
        return programs.serving(in_python(program, folder), {})
    if shop == "express":
        program = EXPRESS.replace(FACILITATOR, server.facilitator_url).replace(LISTEN, TELL)
        return programs.serving(in_node(program, folder), {})
    program, network = {"flask": ("sell.py", "eip155:84532")}.get(shop, ("npm_v1/sell.mjs", NAME))
    name, merchant = shop.removeprefix("x402-"), server.wallets[1].address
    sells = programs.sale(name, server.facilitator_url, merchant, network)
    return programs.serving(program, sells)


@pytest.mark.parametrize("shop", SHOPS)
def test_the_shop_is_examined_and_paid(server: LocalServer, shop: str, tmp_path: Path) -> None:
    run = CliRunner().invoke
    with serving(server, shop, tmp_path) as url:
        page = f"{url}/weather"
        looked = run(app, ["doctor", page, "--json"])
        assert looked.exit_code == 0, looked.stdout
        told = json.loads(looked.stdout)
        assert [each for each in told["findings"] if each["stops"]] == []
        assert told["payers"][3]["can_pay"]
        paid = run(app, ["pay", page])
        assert paid.exit_code == 0, paid.stderr
        assert json.loads(paid.stdout) == {"weather": "sunny"}
        assert f"3. Paid: GET /weather, {SHOPS[shop]}: ok" in paid.stderr
        assert "   transaction    0x" in paid.stderr
        for name in MISTAKES:
            wrong = run(app, ["pay", page, "--wrong", name])
            assert wrong.exit_code == 0, (name, wrong.stdout, wrong.stderr)
            assert wrong.stdout.startswith("Refused, as it should be.\n")
