"""The page beside a shop that is not ours: what its facilitator sees of a payment, and no more."""

from collections.abc import Iterator
from typing import Any

import pytest

from tests.serve.browser import Browser
from tests.serve.driver import Payer, Server, started
from tests.serve.paying import URL, asked_of_facilitator
from x402sim import BASE_SEPOLIA
from x402sim.protocol.x402 import Version

pytestmark = [pytest.mark.thorough, pytest.mark.timeout(400)]  # npm installs Chromium, of 65 MB

STEPS = "return page.$$eval('.lane:first-of-type .step', (all) => all.map((it) => it.innerText))"


@pytest.fixture
def server() -> Iterator[Server]:
    with started("--no-service", "--network", "base-sepolia", "--quiet") as running:
        yield running


def asked_of(server: Server, payer: Payer, version: Version = 2, **wrong: Any) -> dict[str, Any]:
    return asked_of_facilitator(payer.wallet, BASE_SEPOLIA, server.now_s(), version, **wrong)


def sold(server: Server, asked: dict[str, Any], *steps: str) -> Any:
    answers = [server.http.post(f"/facilitator/{each}", json=asked) for each in steps]
    return answers[-1].json()


@pytest.mark.parametrize("version", [1, 2])
def test_its_payment_is_named_and_has_the_steps_that_can_be_seen(
    browser: Browser, server: Server, version: Version
) -> None:
    browser.open(f"{server.ready['control']}/ui")
    settled = sold(server, asked_of(server, server.account(1), version), "verify", "settle")
    assert settled["success"], settled
    browser.sees(".lane .badge.paid", "paid")
    browser.sees(".lane .what", URL)
    browser.sees(".lane .amount", "0.01 USDC")
    assert browser.run(STEPS) == ["signed", "verified", "settled", "block"]
    browser.run("await page.$eval('.lane', (it) => it.click())")
    browser.sees("#detail", "Copy link", URL, settled["transaction"])
    stages = "return page.$eval('#detail .stages', (it) => it.innerText)"
    assert "not seen" not in browser.run(stages)
    assert "served" not in browser.run(stages)
    browser.do("goto", "about:blank")


def test_its_refusal_has_its_clause_its_advice_and_a_link(browser: Browser, server: Server) -> None:
    asked = asked_of(server, server.account(1), value=5000)
    assert not sold(server, asked, "verify")["isValid"]
    nonce = asked["paymentPayload"]["payload"]["authorization"]["nonce"]
    browser.open(f"{server.ready['control']}/ui#payment={nonce}")
    browser.sees("#detail .refusal", "5/exact-amount", "Do: Sign exactly the amount of the 402")
    browser.sees(".lane .step.no", "verified")
    browser.sees("#detail dl", "Copy link")
    browser.do("goto", "about:blank")


@pytest.mark.parametrize("options", [("--no-service",), ()])
def test_its_payments_stay_after_a_reload_though_their_requests_are_forgotten(
    browser: Browser, options: tuple[str, ...]
) -> None:
    """Also beside a service of ours, whose payments have all their steps."""
    with started(*options, "--network", "base-sepolia", "--quiet") as server:
        payer = server.payer()
        ours = [payer.paid() for _ in range(2)] if not options else []
        for _ in range(260):
            assert sold(server, asked_of(server, payer), "verify", "settle")["success"]
        count = 260 + len(ours)
        browser.open(f"{server.ready['control']}/ui")
        browser.sees("#count", f"{count} of {count}")
        browser.do("select", "#status", "paid")
        browser.sees("#count", f"{count} of {count}")
        assert browser.run(STEPS) == ["signed", "verified", "settled", "block"]
        if ours:
            browser.do("type", "#search", ours[0].lower())
            browser.sees("#count", f"1 of {count}")
            assert browser.run(STEPS)[-2:] == ["served", "indexed"]
            return
        browser.press("#lanes", "End")
        browser.sees("#detail", "0.01 USDC", "The server no longer has them", "Copy link")
        browser.do("goto", "about:blank")
