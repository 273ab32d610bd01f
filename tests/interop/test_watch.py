"""`watch` before the shops of other people, with their clients: each lane is right.

`tests/watch/test_proxy.py` has the bytes that pass.
"""

import json
import signal
import subprocess
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.interop import programs
from tests.interop.conftest import base_sepolia
from tests.interop.programs import NETWORKS, buy
from tests.interop.table import THOROUGH
from tests.interop.test_guide import CLIENTS, SHOP, guide_shop
from tests.serve.driver import ORDER, Running, command, environment, started
from x402sim.report.run import Run

pytestmark = [THOROUGH, pytest.mark.waits]


class Watched:
    """A `watch` before a URL."""

    def __init__(self, option: str, url: str, file: Path, stack: ExitStack, *more: str) -> None:
        self.file = file
        words = ("watch", option, url, "--port", "0", "--json", "--out", str(file), *more)
        self._running = stack.enter_context(Running(*words))
        ready = json.loads(self._running.first_line())
        self.url = ready["service"] or ready["facilitator"]

    def stop(self) -> Run:
        """Stop it; return what it has seen."""
        assert self._running.end(signal.SIGINT) == 0, self._running.errors()
        return Run.load(self.file)


@pytest.mark.parametrize(("shop", "client"), [("fastapi", "python"), ("express", "fetch")])
def test_before_the_shops_of_the_guide(shop: str, client: str, tmp_path: Path) -> None:
    with ExitStack() as stack:
        server = stack.enter_context(base_sepolia("ledger"))
        asked = Watched("--facilitator", server.ready["facilitator"], tmp_path / "f.ndjson", stack)
        url = stack.enter_context(guide_shop(shop, asked.url, tmp_path / "shop"))
        sold = Watched(
            "--upstream", url, tmp_path / "s.ndjson", stack, "--rpc", server.ready["rpc"]
        )
        runs = programs.in_python if client == "python" else programs.in_node
        program = CLIENTS[client].replace(SHOP, sold.url)
        assert programs.run(runs(program, tmp_path), {}) == {"weather": "sunny"}
        run = sold.stop()
        assert_sold(run, "/weather")
        steps = asked.stop().steps
    # what the shop asked its facilitator
    sent = {each for each in _paths(asked.file) if each.endswith(("verify", "settle"))}
    assert sent == {"/facilitator/verify", "/facilitator/settle"}
    assert steps.empty  # a shop is no payer


@pytest.mark.parametrize("version", [1, 2])
def test_before_an_express_shop_of_each_version(version: int, tmp_path: Path) -> None:
    with ExitStack() as stack:
        server = stack.enter_context(base_sepolia("ledger"))
        network = NETWORKS[version]
        page, merchant = stack.enter_context(
            programs.selling(server, f"npm_v{version}/sell.mjs", "express", network)
        )
        base = page.removesuffix("/weather")
        sold = Watched("--upstream", base, tmp_path / "s.ndjson", stack)
        payer = server.payer()
        answer = buy(f"npm_v{version}/buy.mjs", payer, "fetch", f"{sold.url}/weather")
        programs.assert_paid(payer, merchant, answer, network)
        assert_sold(sold.stop(), "/weather")


def test_before_a_cronos_shop(tmp_path: Path) -> None:
    with ExitStack() as stack:
        server = stack.enter_context(started())
        payer = server.payer()
        sold = Watched("--upstream", server.ready["service"], tmp_path / "s.ndjson", stack)
        told = {"base": sold.url, "key": payer.wallet.private_key, "order": ORDER}
        assert programs.run("npm_v2/cronos.cjs", told)["status"] == 200
        assert_sold(sold.stop(), "/api/perp/quote")


def test_before_an_mcp_server(tmp_path: Path) -> None:
    with ExitStack() as stack:
        server = stack.enter_context(base_sepolia("ledger"))
        payer = server.payer()
        sold = Watched("--upstream", server.ready["service"], tmp_path / "s.ndjson", stack)
        told = {"url": f"{sold.url}/mcp", "key": payer.wallet.private_key, "tool": "market"}
        programs.run("mcp_client.py", {**told, "arguments": {}})
        assert payer.transfers == 1
        sold.stop()
    assert _paths(sold.file).count("mcp://tool/market") == 3


@pytest.mark.parametrize("args", [(), ("--steps", "1"), ("--session", "--max", "0.10")])
def test_before_serve_itself(args: tuple[str, ...], tmp_path: Path) -> None:
    with ExitStack() as stack:
        server = stack.enter_context(base_sepolia("ledger"))
        sold = Watched("--upstream", server.ready["service"], tmp_path / "s.ndjson", stack)
        pay = command("pay", f"{sold.url}/api/perp/market", *args)
        done = subprocess.run(pay, env=environment(), capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        run = sold.stop()
    if not args or args[0] == "--steps":
        assert_sold(run, "/api/perp/market")


def assert_sold(run: Run, path: str) -> None:
    """One order, paid and served, and nothing wrong that stops a payment."""
    orders = run.orders[run.orders["resource"] == path]
    assert list(orders["charged"]) == [True], orders
    assert list(orders["served"]) == [True], orders
    notes = [
        each.event.data for each in run.journal if getattr(each.event, "name", "") == "finding"
    ]
    assert [each for each in notes if each["stops"]] == []


def _paths(file: Path) -> list[str]:
    notes = [each.event for each in Run.load(file).journal]
    return [each.data["path"] for each in notes if getattr(each, "name", "") == "exchange"]
