"""What the judge of services signs with the user's own key: `Wallets.sign` decides."""

import base64
import json
import time
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.cli.shops import SHOP, Asked, Reply, serving
from tests.suite.deployment import conformance
from tests.suite.test_engine import refuses_all, setting_for
from x402sim.payer.wallet import Wallet
from x402sim.protocol.crypto import checksum, parse_address, recover
from x402sim.protocol.eip3009 import transfer_digest
from x402sim.protocol.header import authorization_of
from x402sim.protocol.networks import BASE, NETWORKS, TESTNET, Network
from x402sim.suite.redact import ids_in, shortened
from x402sim.suite.service.answers import Challenge, TargetAnswer
from x402sim.suite.service.control_api import another_chain
from x402sim.suite.service.probe import Probe
from x402sim.suite.service.target import Target
from x402sim.suite.verdict import Lacking

PAYER = Wallet(b"\x01" * 32)
UNREADABLE = 3
"""How many requests are answered by a 402 without requirements: the preflight reads one of them."""
FUJI = NETWORKS["avalanche-fuji"]
CENTS = Network("cents", 777, b"\xcd" * 20, "Cents", "CENT", "1", 2)


def challenge(network: Network = TESTNET, amount: str = "10000") -> Challenge:
    wanted = {
        "scheme": "exact",
        "network": network.name,
        "payTo": SHOP,
        "asset": checksum(network.asset),
        "maxAmountRequired": amount,
        "maxTimeoutSeconds": 300,
        "resource": "/api/perp/quote",
    }
    answer = TargetAnswer(Target(), 402, httpx.Headers(), "", {"paymentRequirements": wanted}, str)
    return Challenge(answer, "pay_1", wanted)


def probe(**options: Any) -> Probe:
    return Probe(setting_for(refuses_all(), payer=PAYER, **{"budget_base": 10**9} | options))


@pytest.mark.parametrize(
    ("wanted", "changes", "options", "said"),
    [
        (challenge(FUJI), {"network": replace(FUJI, chain_id=43114)}, {}, "a main network"),
        (challenge(), {"network": BASE}, {"allow_mainnet": True}, "a main network"),
        (challenge(BASE), {}, {}, "give --allow-mainnet"),
        (challenge(), {}, {"pay_to": bytes(20)}, "is not --pay-to"),
        (challenge(), {"to": bytes(20)}, {"pay_to": parse_address(SHOP)}, "is not --pay-to"),
        (challenge(), {"window_s": (-60, 3600)}, {}, "more than 300 s"),
        (challenge(), {"window_s": (600, 900)}, {}, "more than 300 s"),
        (challenge(), {"valid_before": 2**40}, {}, "more than 300 s"),
        (challenge(amount="1000000001"), {}, {}, "the budget has 1000.00 left"),
        (
            challenge(CENTS),
            {},
            {"allow_mainnet": True, "networks": {"cents": CENTS}},
            "has 2 decimals",
        ),
    ],
)
def test_the_users_key_signs_for_nothing_that_the_user_has_not_allowed(
    wanted: Challenge, changes: dict[str, Any], options: dict[str, Any], said: str
) -> None:
    judge = probe(**options)
    with pytest.raises(Lacking, match=said):
        judge.wallets.sign(wanted, PAYER, **changes)
    with pytest.raises(Lacking, match=said):
        judge.wallets.sign(wanted, judge.wallets.stranger(), by=PAYER, **changes)
    assert judge.setting.signed_base == 0


def test_what_is_allowed_is_signed_for() -> None:
    judge = probe(pay_to=parse_address(SHOP), allow_mainnet=True)
    for wanted in challenge(), challenge(BASE), challenge(FUJI), challenge(BASE):
        auth, _ = authorization_of(judge.wallets.sign(wanted, PAYER))
        assert auth.valid_before <= time.time() + 300
    assert judge.setting.signed_base == 40_000
    with pytest.raises(Lacking, match="another main network, eip155:137"):
        judge.wallets.sign(challenge(NETWORKS["polygon"]), PAYER)


def test_a_price_that_rises_after_the_plan_is_not_paid() -> None:
    judge = probe()
    judge.setting.planned_base = 20_000
    judge.wallets.sign(challenge(), PAYER)
    with pytest.raises(Lacking, match=r"for what was planned, the budget has 0\.01 left"):
        judge.wallets.sign(challenge(amount="250000"), PAYER)


def test_a_proof_of_any_characters_is_shortened() -> None:
    answer = r'{"paymentId": "\u0070ay_\\1_secret", "sessionId": "ab.c[d]*e"}'
    shown = shortened(answer.upper(), ids_in(answer))
    assert [each for each in ("SECRET", "C[D]") if each in shown] == []


@pytest.mark.parametrize("network", NETWORKS.values(), ids=lambda each: each.name)
def test_another_chain_of_a_check_is_a_test_network(network: Network) -> None:
    other = replace(network, chain_id=another_chain(network))
    assert other.is_test
    assert other.chain_id != network.chain_id
    if network.is_test:
        probe().wallets.sign(challenge(network), PAYER, network=other)


@pytest.mark.parametrize(
    ("lie", "options", "said"),
    [
        ("price", [], "sign for 0.25; for what was planned, the budget has 0.03 left"),
        ("first", [], "sign for 0.01; for what was planned, the budget has 0.00 left"),
        ("payee", ["--pay-to", PAYER.address], "which is not --pay-to"),
    ],
)
def test_a_service_that_lies_gets_no_more_than_the_plan_says(
    lie: str, options: list[str], said: str, tmp_path: Path
) -> None:
    got, asked, paid, told = dict[bytes, int](), list[Asked](), set[str](), set[str]()

    def shop(request: Asked) -> Reply:
        asked.append(request)
        if request.path == "/api/pay":
            with suppress(ValueError, TypeError, KeyError):
                body = json.loads(request.body)
                auth, signature = authorization_of(body["paymentHeader"])
                if recover(transfer_digest(auth, TESTNET.domain), signature) == PAYER.address_bytes:
                    got[auth.nonce] = auth.value
                paid.add(body["paymentId"])
                r, s = signature[:32].hex(), signature[32:64].hex()
                told.update({r, s, base64.b64encode(signature).decode()})
                receipt = {"success": True, "paymentId": body["paymentId"]}
                receipt |= {"link": f"/api/payments/{body['paymentId'].upper()}"}
                return Reply(200, receipt | {"txHash": "0x" + "ab" * 32, "timestamp": 1})
            return Reply(400, {"error": "Invalid payment header", "seen": [*told]})
        if request.headers.get("x-payment-id") in paid:
            return Reply(200, {"quote": {"quoteId": "q1"}, "success": True})
        wanted: dict[str, Any] = {"paymentId": f"order-{len(asked):032x}", "network": TESTNET.name}
        if lie != "first" or len(asked) > UNREADABLE:
            amount = "250000" if lie == "price" and got else "10000"
            wanted["paymentRequirements"] = challenge(amount=amount).requirements
        return Reply(402, wanted)

    key, report = ["--payer-key", PAYER.private_key], tmp_path / "report.json"
    only = ["--only", "1/sign-settle-repeat,2.8/networks", "--report", str(report)]
    with serving(shop) as url:
        done = conformance(url, *key, *options, *only)
    shown = report.read_text() + done.all
    assert [each for each in ("order-0000", "ORDER-0000", *told) if each in shown] == []
    assert sum(got.values()) == (10_000 if lie == "price" else 0), done.all
    assert said in done.words
