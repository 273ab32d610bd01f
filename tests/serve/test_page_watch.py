"""The page of `watch` before another's shop: lanes, findings, copied tests."""

import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.serve.browser import AXE, EACH_LANE, Browser, picture, saved_run
from tests.serve.driver import Running, Server, command, environment, started, until
from tests.serve.test_page_browser import NO_SEARCH, copied
from tests.watch.said import (
    ALICE,
    NOW_S,
    exchange,
    offer,
    packed,
    paid,
    required,
    settled,
    signed,
    terms,
)  # fmt: skip
from tests.watch.test_recorder import recorded
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
        "--port", "0", "--json",
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
            until(lambda: _listens(port))
            browser.do("setViewport", {"width": 1400, "height": 900})
            browser.open(ready["page"], "watching")
            for args in ([], ["--wrong", "amount"]):
                assert _pay(world, f"{ready['service']}/weather", *args) == 0
            assert _pay(world, f"{ready['service']}/weather") == 1  # its answer is lost
            browser.sees(".lane .badge.served", "served")
            browser.sees(".lane.refused .why", "value_mismatch")
            browser.sees("#count", "3 of 3")  # a lane that comes moves the others below the mouse
            browser.do("click", ".lane.refused")
            browser.sees(
                "#detail", "wrong: value", "seen: 5000", "Sign exactly what the 402 requires"
            )
            browser.sees("#detail tr.odd", "5000 = 0.005")
            browser.sees(".lane .past", "fault: lose answer")
            assert browser.run("return page.$$eval('.lane', (all) => all.length)") == 3
            _send_again(browser)
            picture(browser, tmp_path, "watching")
            texts = copied(browser)
            assert all(what.endswith("a test") for what in texts), "no world has its scenarios"
            tests = dict.fromkeys(texts.values())
            assert len(tests) == 3, "two offers, and a purchase"
            for number, text in enumerate(tests):
                (tmp_path / f"test_{number}.py").write_text(text)
            tested = _tested(world, tmp_path)
            browser.do("goto", "about:blank")  # a page that is open asks a server that is gone
        finally:
            shop.kill()
            shop.wait()
            assert watch.end(signal.SIGINT) == 0, watch.errors()
    assert f"{len(tests)} passed" in tested, tested
    assert f"{len(tests)} failed" in _tested(world, tmp_path), "the shop is gone"
    (tmp_path / "run").mkdir()
    recording.rename(tmp_path / "run" / "journal.ndjson")
    with saved_run(browser, tmp_path / "run"):
        browser.sees(".lane .badge.served", "served")
        assert browser.run("return page.$$eval('.lane', (all) => all.length)") == 5, (
            "and one that was bought without the proxy"
        )


def _send_again(browser: Browser) -> None:
    """The refused request, as it was and without its payment; then it is another lane."""
    press = "all.find((it) => it.textContent.startsWith('Send')).click()"
    browser.run(f"await page.$$eval('#detail .copying button', (all) => {press})")
    browser.sees("form[aria-label='Send again']", "nothing is signed")
    assert browser.run(AXE) == []
    browser.do("click", "form[aria-label='Send again'] button")
    browser.sees("form[aria-label='Send again'] output", "402: {")
    browser.sees("#detail details:nth-of-type(3) summary", "402")
    without = (
        "it.value = it.value.split('\\n').filter((each) => !/^payment/i.test(each)).join('\\n')"
    )
    browser.run(f"await page.$eval('[name=headers]', (it) => {{ {without} }})")
    browser.run("await page.$eval('[name=target]', (it) => { it.value = '/weather?city=Oslo'; })")
    browser.do("click", "form[aria-label='Send again'] button")
    browser.sees(".lane .what", "/weather?city=Oslo")
    browser.sees(".lane .badge", "asked")


def _pay(world: Server, url: str, *args: str) -> int:
    key = world.ready["accounts"][2]["privateKey"]
    pay = command("pay", url, "--key", key, "--network", "base-sepolia", "--steps", "1", *args)
    return subprocess.run(pay, env=environment(), capture_output=True, check=False).returncode


def _tested(world: Server, folder: Path) -> str:
    key = world.ready["accounts"][3]["privateKey"]
    pytest_ = [sys.executable, "-m", "pytest", "-q", "--rootdir", str(folder), str(folder)]
    environ = {**environment(), "X402SIM_PRIVATE_KEY": key}
    done = subprocess.run(
        pytest_, capture_output=True, text=True, cwd=folder, env=environ, check=False
    )
    return done.stdout


SEARCHES = {
    "status:refused": 2, "status:refused -nonce_already": 1, "path:/odd": 1, "-path:/odd": 4,
    "amount>0.01": 1, "error:nonce": 1, "payer:0x19e7": 4, "payer:0x19e7 amount<0.01": 0,
}  # fmt: skip


def test_a_lane_says_what_the_log_says(browser: Browser, tmp_path: Path) -> None:
    """Refused by a header alone, refused without a reason, served and sent again, charged."""
    said, header, value = required(), signed(NOW_S), {"value": 5000}
    again = {"PAYMENT-REQUIRED": packed(said | {"error": "nonce_already_used"})}
    other = terms() | {"asset": ALICE.address, "amount": "77"}
    receipt = {"PAYMENT-RESPONSE": packed(settled(transaction="0x" + "cd" * 32))}
    goods = {"PAYMENT-REQUIRED": packed(said | {"accepts": [other]})}
    run = recorded(
        offer(1), paid(2, header),
        offer(3), paid(4, header, status=402, answered=again, answer=b"{}"),
        offer(5), paid(6, signed(NOW_S, **value), status=402, answered={}, answer=b"{}"),
        offer(7), paid(8, signed(NOW_S), status=500, answered=receipt, answer=b""),
        exchange(9, status=402, target="/odd", answered=goods, answer=b"{}"),
    )  # fmt: skip
    (tmp_path / "journal.ndjson").write_bytes(run.journal.ndjson())
    with saved_run(browser, tmp_path):
        browser.sees(".badge", "served")
        lanes = [text.split("\n") for text, _ in browser.run(EACH_LANE)]
        assert [(lane[1], lane[4]) for lane in lanes] == [
            ("asked", "77 base units"), ("charged, not served", "0.01 USDC"),
            ("refused", "0.005, asked 0.01 USDC"), ("refused", "0.01 USDC"), ("served", "0.01 USDC"),
        ]  # fmt: skip
        reasons = browser.run("return page.$$eval('.why', (all) => all.map((it) => it.innerText))")
        assert reasons[1:] == [
            "answer: 500, and a receipt",
            "402, without a reason",
            "nonce_already_used",
        ]
        colour = "(all) => all.map((it) => getComputedStyle(it).color)"
        odd, good = (
            browser.run(f"return page.$$eval('.badge.{each}', {colour})")
            for each in ("charged", "served")
        )
        assert (len(odd), len(good), odd != good) == (1, 1, True)
        curls = copied(browser, "curl").values()
        assert len(curls) >= 5  # equal ones are one
        assert all(" 'https://shop/" in each for each in curls), curls
        for search, count in SEARCHES.items():
            browser.do("type", "#search", search)
            browser.sees("#count", f"{count} of 5")
            browser.run(f"await {NO_SEARCH}")
        browser.do("click", ".lane:has(.badge.served)")
        browser.do("click", "#detail button[title^=Until]")
        browser.sees("#count", "4 of 5")
        browser.press("#moment", "Home", "End")
        browser.sees("#count", "4 of 5")
        browser.do("select", "#status", "refused")
        browser.sees("#count", "2 of 5")
        browser.view("state")
        browser.sees("#state", "watch --rpc URL")


def _listens(port: int) -> bool:
    with socket.socket() as to:
        return to.connect_ex(("127.0.0.1", port)) == 0
