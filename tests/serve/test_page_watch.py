"""The page of `watch` before another's shop: its lanes, what is wrong in them, and what is copied."""

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.serve.browser import Browser, picture, saved_run
from tests.serve.driver import Running, Server, command, environment, started
from tests.serve.test_page_browser import copied
from x402sim import World
from x402sim.suite.started import free_port

pytestmark = [pytest.mark.thorough, pytest.mark.timeout(400)]  # npm installs Chromium, of 65 MB

SHOP = "0x70997970C51812dc3A010C7d01b50e0d17dc79C8"
FAULT = {"victim": "service", "does": "lose answer", "contains": "payment", "skip": 2}


@pytest.fixture
def world() -> Iterator[Server]:
    with started("--network", "base-sepolia", "--quiet", "--no-service") as running:
        yield running


def test_each_payment_of_a_shop_is_a_lane_and_can_be_copied(
    browser: Browser, world: Server, tmp_path: Path
) -> None:
    port, recording = free_port(), tmp_path / "shop.ndjson"
    with Running(
        "watch", "--upstream", f"http://127.0.0.1:{port}",
        "--facilitator", world.ready["facilitator"], "--rpc", world.ready["rpc"],
        "--port", "0", "--facilitator-port", "0", "--page-port", "0", "--json",
        "--fault", json.dumps(FAULT), "--out", str(recording),
    ) as watch:  # fmt: skip
        ready = json.loads(watch.first_line())
        (tmp_path / "shop").mkdir()
        shop = subprocess.Popen(
            [sys.executable, "-m", "tests.suite_server.shop"],
            env={
                **environment(),
                "PYTHONPATH": os.pathsep.join(filter(None, sys.path)),
                "FACILITATOR_URL": ready["facilitator"],
                "X402SIM_PAY_TO": SHOP,
                "X402SIM_STATE_DIR": str(tmp_path / "shop"),
                "PORT": str(port),
            },
        )
        try:
            _until_it_listens(port)
            browser.do("setViewport", {"width": 1400, "height": 900})
            browser.open(ready["page"], "watching")
            for args in ([], ["--wrong", "amount"]):
                assert _pay(world, f"{ready['service']}/weather", *args) == 0
            assert _pay(world, f"{ready['service']}/weather") == 1  # its answer is lost
            browser.sees(".lane .badge.served", "served")
            browser.sees(".lane.refused .why", "value_mismatch")
            browser.do("click", ".lane.refused")
            browser.sees(
                "#detail", "wrong: value", "seen: 5000", "Sign exactly what the 402 requires"
            )
            browser.sees("#detail tr.odd", "5000 = 0.005")
            browser.sees(".lane .past", "fault: lose answer")
            assert browser.run("return page.$$eval('.lane', (all) => all.length)") == 3
            picture(browser, tmp_path, "watching")
            texts = copied(browser)
            browser.do("goto", "about:blank")  # a page that is open asks a server that is gone
        finally:
            shop.kill()
            shop.wait()
            assert watch.end(signal.SIGINT) == 0, watch.errors()
    scenarios = {what: text for what, text in texts.items() if what.endswith("scenario")}
    assert len(scenarios) == len(texts) / 2 >= 6
    for number, text in enumerate(dict.fromkeys(scenarios.values())):
        file = tmp_path / f"play_{number}.py"
        file.write_text(text)
        assert World().play(str(file)).outcome == "passed", text
    tests = dict.fromkeys(text for what, text in texts.items() if what not in scenarios)
    for number, text in enumerate(tests):
        (tmp_path / f"test_{number}.py").write_text(text)
    pytest_ = [sys.executable, "-m", "pytest", "-q", "--rootdir", str(tmp_path), str(tmp_path)]
    tested = subprocess.run(pytest_, capture_output=True, text=True, check=False, cwd=tmp_path)
    assert f"{len(tests)} passed" in tested.stdout, tested.stdout
    (tmp_path / "run").mkdir()
    recording.rename(tmp_path / "run" / "journal.ndjson")
    with saved_run(browser, tmp_path / "run"):
        browser.sees(".lane .badge.served", "served")
        assert browser.run("return page.$$eval('.lane', (all) => all.length)") == 3


def _pay(world: Server, url: str, *args: str) -> int:
    key = world.ready["accounts"][2]["privateKey"]
    pay = command("pay", url, "--key", key, "--network", "base-sepolia", "--steps", "1", *args)
    return subprocess.run(pay, env=environment(), capture_output=True, check=False).returncode


def _until_it_listens(port: int) -> None:
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        try:
            socket.create_connection(("127.0.0.1", port)).close()
        except ConnectionRefusedError:
            time.sleep(0.05)
        else:
            return
    raise AssertionError("the shop did not start")
