"""The verdict of `doctor` on `PaymentAuth` equals the act of `PaymentAuth` with its defaults."""

import base64
import json
import time
from typing import Any

import httpx
import pytest

from x402sim import PaymentAuth, PaymentFailed, Wallet
from x402sim.payer.diagnosis import examine
from x402sim.protocol.crypto import checksum
from x402sim.protocol.networks import NETWORKS, Network
from x402sim.protocol.ways import MOST_WAYS

URL = "https://shop.example/page"
PAYEE = "0x" + "22" * 20


def offer(network: Network | str = "base-sepolia", **changes: Any) -> dict[str, Any]:
    on = NETWORKS[network] if isinstance(network, str) else network
    return {
        "scheme": "exact", "network": on.caip2, "amount": "10000", "asset": checksum(on.asset),
        "payTo": PAYEE, "maxTimeoutSeconds": 60,
        "extra": {"name": on.token_name, "version": on.token_version}, **changes,
    }  # fmt: skip


def older(network: str = "base-sepolia", **changes: Any) -> dict[str, Any]:
    said = offer(network) | {"network": network, "maxAmountRequired": "10000", "resource": URL}
    said |= {"description": "", "mimeType": ""}
    del said["amount"]
    return said | changes


def asking(*accepts: dict[str, Any]) -> httpx.Response:
    said = {"x402Version": 2, "error": "pay", "resource": {"url": URL}, "accepts": accepts}
    header = base64.b64encode(json.dumps(said).encode()).decode()
    return httpx.Response(402, headers={"PAYMENT-REQUIRED": header}, json={})


def asking_v1(*accepts: dict[str, Any]) -> httpx.Response:
    return httpx.Response(402, json={"x402Version": 1, "error": "pay", "accepts": accepts})


def asking_two_steps(network: str = "cronos-testnet", **changes: Any) -> httpx.Response:
    on = NETWORKS[network]
    wanted = {
        "scheme": "exact", "network": network, "payTo": PAYEE, "asset": checksum(on.asset),
        "maxAmountRequired": "10000", "maxTimeoutSeconds": 300, "resource": "/page",
        "description": "", "mimeType": "application/json",
    }  # fmt: skip
    said = {"error": "payment_required", "message": "", "network": network, "paymentId": "pay_1"}
    return httpx.Response(402, json=said | {"paymentRequirements": wanted | changes})


UPTO = {"scheme": "upto", "extra": {"facilitatorAddress": PAYEE}}
BY_PERMIT2 = {"extra": {"assetTransferMethod": "permit2"}}
MAIN = [name for name, each in NETWORKS.items() if not each.is_test]
CASES: list[tuple[httpx.Response, int | None]] = [
    *((asking(offer(name)), None if name in MAIN else 1) for name in NETWORKS),
    *((asking_v1(older(name)), None if name in MAIN else 1) for name in NETWORKS),
    *((asking_two_steps(name), None if name in MAIN else 1) for name in NETWORKS),
    (asking(offer("base"), offer()), 2),
    (asking(offer(), offer("avalanche-fuji")), 1),
    (asking(offer("avalanche-fuji", amount="100001"), offer()), 2),
    (asking(offer(amount="100000")), 1),
    (asking(offer(amount="100001")), None),
    (asking(offer(amount="0")), 1),
    (asking(offer(amount="0010000")), None),
    (asking(offer(amount="9" * 5000)), None),
    (asking(offer(amount=10000), offer()), 2),
    (asking(offer(extra=offer()["extra"] | {"paymentFlow": "upfront"}), offer()), 2),
    (asking(offer(maxTimeoutSeconds=1.5)), None),
    (asking(offer(asset=PAYEE), offer()), 2),
    (asking(offer(**UPTO)), None),
    (asking(offer(**UPTO), offer()), 2),
    (asking(offer(**BY_PERMIT2)), None),
    (asking(), None),
    (asking_v1(older(extra={"paymentId": "pay_1"})), None),
    (asking_two_steps(payTo="0x12"), None),
    (asking_two_steps(maxAmountRequired="many"), None),
    (asking_two_steps(maxAmountRequired="100001"), None),
    (asking_two_steps(resource="/other"), None),
]  # fmt: skip
OF_PERMIT2: list[tuple[httpx.Response, int | None]] = [
    (asking(offer(**BY_PERMIT2)), 1),
    (asking(offer(**UPTO), offer()), 2),
    (asking(offer("base", **UPTO)), None),
    (asking(offer("base", **UPTO), offer(**UPTO)), 2),
    (asking(offer(**UPTO, amount="100001")), None),
]


class Shop:
    """Answers 402 until it is paid; `paid` is the requirements of the payment, or its id."""

    def __init__(self, asked: httpx.Response) -> None:
        self.asked, self.paid = asked, None

    def __call__(self, request: httpx.Request) -> httpx.Response:
        proof = request.headers.get("payment-signature") or request.headers.get("x-payment")
        if proof is not None:
            said = json.loads(base64.b64decode(proof))
            self.paid = said.get("accepted", said)
        elif request.url.path == "/api/pay":
            self.paid = json.loads(request.content)["paymentRequirements"]
            receipt = {"success": True, "paymentId": "pay_1", "txHash": "0x1", "timestamp": 1}
            return httpx.Response(200, json=receipt)
        elif "x-payment-id" not in request.headers:
            return httpx.Response(402, headers=self.asked.headers, content=self.asked.content)
        return httpx.Response(200, json={})


def check(asked: httpx.Response, number: int | None, name: str, payer: PaymentAuth) -> None:
    found = examine(httpx.Request("GET", URL), asked, NETWORKS, now_s=int(time.time()))
    (said,) = (each for each in found.payers if each.name == name)
    shop, why = Shop(asked), ""
    with httpx.Client(transport=httpx.MockTransport(shop)) as http:
        try:
            http.get(URL, auth=payer)
        except PaymentFailed as failed:
            why = str(failed)
    assert (said.can_pay, said.offer) == (number is not None, number)
    assert (shop.paid is not None) == said.can_pay
    if shop.paid is None:
        assert said.why in (why, "no offer")
    elif number is not None and "network" in shop.paid:
        assert shop.paid["network"] == found.ways[number - 1].fields["network"]
        if "amount" in shop.paid:
            assert shop.paid == found.ways[number - 1].fields


@pytest.mark.parametrize(("asked", "number"), CASES)
def test_the_verdict_on_our_payer_is_what_it_does(
    asked: httpx.Response, number: int | None
) -> None:
    check(asked, number, "httpx, PaymentAuth", PaymentAuth(Wallet.create()))


@pytest.mark.parametrize(("asked", "number"), OF_PERMIT2)
def test_so_is_the_verdict_on_a_payer_by_permit2(asked: httpx.Response, number: int | None) -> None:
    payer = PaymentAuth(Wallet.create(), permit2=True)
    check(asked, number, "the same, permit2=True", payer)


def test_the_error_for_real_money_names_the_way() -> None:
    found = examine(httpx.Request("GET", URL), asking(offer("base")), NETWORKS, now_s=0)
    assert found.payers[-1].why.endswith(
        "it asks for real money, on base; network='base' allows that"
    )


def test_an_offer_behind_many_unreadable_offers_is_not_numbered() -> None:
    asked = asking(*[offer(amount=1)] * MOST_WAYS, offer())
    found = examine(httpx.Request("GET", URL), asked, NETWORKS, now_s=0)
    assert (found.payers[-1].can_pay, found.payers[-1].offer) == (True, None)


def test_a_choice_signs_nothing() -> None:
    payer = PaymentAuth(Wallet.create())
    request = httpx.Request("GET", URL)
    assert payer.choose(request, asking(offer())).amount_base == 10000  # type: ignore[union-attr]
    assert payer.signed_base == 0
    with pytest.raises(PaymentFailed, match="the 402 is the HTTP authentication scheme Payment"):
        payer.choose(request, httpx.Response(402, headers={"WWW-Authenticate": 'Payment id="x"'}))
