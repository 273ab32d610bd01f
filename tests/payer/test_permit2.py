"""`PaymentAuth` pays `upto`, and `exact` by Permit2, at a shop whose facilitator is ours."""

import base64
import json
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.chain.helpers import ALICE, NOW_S, SHOP
from tests.facilitator.test_facilitator import Desk
from tests.facilitator.test_permit2 import allow
from x402sim import PaymentAuth, SpendingCapExceeded
from x402sim.clock import Clock
from x402sim.payer.core import PaymentFailed
from x402sim.protocol.crypto import checksum, to_hex
from x402sim.protocol.money import MAX_UINT256
from x402sim.protocol.networks import BASE_SEPOLIA, TESTNET
from x402sim.protocol.permit2 import EXACT_PROXY, PERMIT2, UPTO_PROXY
from x402sim.protocol.x402 import domain_of

URL = "http://shop.test/answer"
COMMON = {
    "network": TESTNET.caip2,
    "asset": checksum(TESTNET.asset),
    "payTo": SHOP.address,
    "maxTimeoutSeconds": 120,
}
PLAIN = COMMON | {"scheme": "exact", "amount": "30000", "extra": domain_of(TESTNET)}
PERMIT2_OFFER = PLAIN | {"extra": domain_of(TESTNET) | {"assetTransferMethod": "permit2"}}


class Shop:
    """Sells an answer for what it used: verifies before the work, settles after it."""

    def __init__(self, *offers: dict[str, Any], used: int = 1_858, lost: bool = False) -> None:
        self.desk, self.used, self.lost = Desk(), used, lost
        self.lacks = 412
        self.extensions: dict[str, Any] = {}
        self.said: Any = None
        """What the node answers, whatever it is asked; None for the truth."""
        supported = self.desk.request("GET", "/supported").json()["kinds"]
        announced = next(kind["extra"] for kind in supported if kind["scheme"] == "upto")
        self.upto = COMMON | {
            "scheme": "upto",
            "amount": "20000",
            "extra": domain_of(TESTNET) | announced,
        }
        self.offers = list(offers)
        self.paid: list[dict[str, Any]] = []

    def read(self, method: str, params: list[Any], **_: Any) -> str:
        """Answer as the chain's node."""
        if method == "eth_chainId":
            return hex(TESTNET.chain_id)
        assert params[0]["to"] == checksum(TESTNET.asset).lower()
        return to_hex(self.desk.driver.view(bytes.fromhex(params[0]["data"][2:])))

    def __call__(self, request: httpx.Request) -> httpx.Response:
        if request.url.host == "node.test":
            asked = json.loads(request.content)
            return httpx.Response(200, json={"result": self.said or self.read(**asked)})
        text = request.headers.get("PAYMENT-SIGNATURE")
        if text is None:
            return self.required()
        payment = json.loads(base64.b64decode(text))
        self.paid.append(payment)
        terms = payment["accepted"]
        verified = self.ask("/verify", payment, terms)
        if not verified["isValid"]:
            reason = verified["invalidReason"]
            lacks = reason == "permit2_allowance_required"
            return self.required(self.lacks if lacks else 402, reason)
        amount = terms["amount"] if terms["scheme"] == "exact" else str(self.used)
        settled = self.ask("/settle", payment, terms | {"amount": amount})
        if self.lost:
            self.lost = False
            raise httpx.ReadError("lost", request=request)
        headers = {"PAYMENT-RESPONSE": base64.b64encode(json.dumps(settled).encode()).decode()}
        if not settled["success"]:
            return self.required(402, settled["errorReason"], headers)
        return httpx.Response(200, json={"answer": 42}, headers=headers)

    def ask(self, path: str, payment: dict[str, Any], wanted: dict[str, Any]) -> dict[str, Any]:
        body = {"x402Version": 2, "paymentPayload": payment, "paymentRequirements": wanted}
        answer: dict[str, Any] = self.desk.post(path, body)
        return answer

    def required(
        self, status: int = 402, error: str = "", headers: dict[str, str] | None = None
    ) -> httpx.Response:
        offer = {"x402Version": 2, "accepts": self.offers or [self.upto], "error": error}
        offer |= {"extensions": self.extensions} if self.extensions else {}
        text = base64.b64encode(json.dumps(offer).encode()).decode()
        return httpx.Response(status, json={}, headers={"PAYMENT-REQUIRED": text} | (headers or {}))

    @property
    def authorization(self) -> dict[str, Any]:
        """The only authorization that was sent."""
        each: dict[str, Any]
        (each,) = {
            json.dumps(payment["payload"], sort_keys=True): payment["payload"]
            for payment in self.paid
        }.values()
        message: dict[str, Any] = each["permit2Authorization"]
        return message


def payer(**settings: Any) -> PaymentAuth:
    given = {"permit2": True, "network": TESTNET, "clock": Clock(lambda: float(NOW_S))}
    return PaymentAuth(ALICE, **(given | settings))


def get(shop: Shop, auth: PaymentAuth) -> httpx.Response:
    with httpx.Client(transport=httpx.MockTransport(shop), auth=auth) as client:
        return client.get(URL)


def test_upto_signs_the_maximum_and_pays_what_was_used():
    shop, auth = Shop(), payer()
    allow(shop.desk, 20_000)
    assert get(shop, auth).json() == {"answer": 42}
    assert shop.desk.driver.balance(SHOP) == 1_858
    assert auth.signed_base == 20_000, "the maximum counts, for good"
    assert auth.settlements[0].amount == "1858"
    message = shop.authorization
    assert message["permitted"] == {"token": checksum(TESTNET.asset), "amount": "20000"}
    assert message["spender"] == checksum(UPTO_PROXY)
    assert message["witness"]["to"] == SHOP.address
    assert message["deadline"] == str(NOW_S + 120 - 1)


def test_exact_by_permit2_is_paid():
    shop, auth = Shop(PERMIT2_OFFER), payer()
    allow(shop.desk, 30_000)
    assert get(shop, auth).is_success
    assert shop.desk.driver.balance(SHOP) == 30_000
    message = shop.authorization
    assert message["spender"] == checksum(EXACT_PROXY)
    assert "facilitator" not in message["witness"]


def test_nothing_of_permit2_is_signed_unless_the_user_allows_it():
    shop = Shop()
    with pytest.raises(PaymentFailed, match="upto by Permit2, paid only if told to: permit2=True"):
        get(shop, payer(permit2=False))
    with pytest.raises(PaymentFailed, match="exact by Permit2, paid only if told to"):
        get(Shop(PERMIT2_OFFER), payer(permit2=False))
    assert shop.paid == []


def test_an_offer_by_eip_3009_comes_first():
    shop = Shop(PERMIT2_OFFER, PLAIN)
    assert get(shop, payer()).is_success
    assert "authorization" in shop.paid[0]["payload"]


@pytest.mark.parametrize(
    ("caps", "message"),
    [
        ({"max_amount": "0.019999"}, "max_amount allows 0.019999"),
        ({"max_total": "0.03"}, "0.01 devUSDC.e is left of max_total 0.03"),
    ],
)
def test_the_caps_count_the_maximum(caps: dict[str, str], message: str):
    """What was used before leaves no more room: the signed maximum counts."""
    shop, auth = Shop(used=1), payer(**caps)
    allow(shop.desk)
    if "max_total" in caps:
        assert get(shop, auth).is_success
    with pytest.raises(SpendingCapExceeded, match=message):
        get(shop, auth)


LIES: list[tuple[dict[str, Any], str]] = [
    ({"asset": checksum(PERMIT2)}, "asset is"),
    ({"network": "eip155:1"}, "network is"),
    ({"extra": {"name": "Another", "version": "1"}}, "the token's domain is"),
    ({"extra": {}}, "extra.facilitatorAddress, who settles"),
    ({"extra": {"facilitatorAddress": "nobody"}}, "extra.facilitatorAddress, who settles"),
    ({"amount": "-1"}, "base units"),
    ({"payTo": "shop"}, "0x and 40 hex digits"),
    ({"maxTimeoutSeconds": 0}, "allows 0 seconds to pay"),
    ({"scheme": "batch-settlement"}, "scheme is"),
]


@pytest.mark.parametrize(("lie", "message"), LIES)
def test_an_offer_that_does_not_fit_is_not_signed(lie: dict[str, Any], message: str):
    shop = Shop()
    shop.offers = [shop.upto | lie]
    auth = payer()
    with pytest.raises(PaymentFailed, match=message):
        get(shop, auth)
    assert (shop.paid, auth.signed_base) == ([], 0)


@pytest.mark.parametrize("status", [412, 402])
def test_without_an_approval_the_payer_is_told_how_much_and_then_sends_the_same(status: int):
    """The official servers answer 402 where the text says 412."""
    shop, auth = Shop(), payer()
    shop.lacks = status
    with pytest.raises(PaymentFailed) as told:
        get(shop, auth)
    advice = f"approve Permit2 ({checksum(PERMIT2)}) for 20000 base units"
    assert str(status) in str(told.value)
    assert advice in str(told.value)
    allow(shop.desk, 20_000)
    assert get(shop, auth).is_success
    assert shop.authorization["from"] == ALICE.address, "one authorization, sent twice"
    assert auth.signed_base == 20_000


def test_a_lost_answer_signs_no_second_authorization(tmp_path: Path):
    shop = Shop(lost=True)
    allow(shop.desk)
    with pytest.raises(httpx.ReadError):
        get(shop, payer(state_dir=tmp_path))
    again = payer(state_dir=tmp_path)  # after a restart
    with pytest.raises(PaymentFailed) as paid:
        get(shop, again)
    assert "nonceBitmap(" in str(paid.value), "the server reports the nonce as used"
    assert shop.authorization["from"] == ALICE.address
    assert shop.desk.driver.balance(SHOP) == 1_858
    assert again.signed_base == 20_000


def test_an_offer_of_another_network_comes_before_permit2() -> None:
    """Also if the network of the first offer takes Permit2 only."""
    shop = Shop()
    elsewhere = PLAIN | {
        "network": BASE_SEPOLIA.caip2,
        "asset": checksum(BASE_SEPOLIA.asset),
        "extra": domain_of(BASE_SEPOLIA),
    }
    shop.offers = [shop.upto, elsewhere]
    auth = PaymentAuth(ALICE, permit2=True, clock=Clock(lambda: float(NOW_S)))
    http = httpx.Client(transport=httpx.MockTransport(shop), auth=auth)
    with http, pytest.raises(PaymentFailed):  # the desk knows one network
        http.get(URL)
    assert [each["accepted"]["network"] for each in shop.paid] == [BASE_SEPOLIA.caip2]


THIEF = checksum(b"\x09" * 20)
GREEDY = {"spender": THIEF, "amount": str(MAX_UINT256), "nonce": "9", "deadline": str(2**40)}
"""What a 402 may ask of a permit."""
SPONSORS = {"eip2612GasSponsoring": {"info": {"description": "gas"} | GREEDY, "schema": {}}}
NODE = {"rpc_url": "http://node.test/rpc"}


def permit_in(shop: Shop) -> dict[str, Any]:
    """The payer's permit in the newest payment; empty without one."""
    info: dict[str, Any] = shop.paid[-1]["extensions"]["eip2612GasSponsoring"]["info"]
    return info if "signature" in info else {}


@pytest.mark.parametrize("greed", [{}, {"maxTimeoutSeconds": 10**9}])
@pytest.mark.parametrize("scheme", ["upto", "exact"])
def test_a_permit_of_the_amount_is_signed_for_who_sponsors_it(scheme: str, greed: dict[str, Any]):
    """Whatever the 402 says of spender, amount and deadline, and again for the next payment."""
    shop, auth = Shop(), payer(approve="0.03", **NODE)
    shop.extensions = SPONSORS
    shop.offers = [(shop.upto if scheme == "upto" else PERMIT2_OFFER) | greed]
    for number in range(2):
        assert get(shop, auth).is_success
        permit, message = permit_in(shop), shop.paid[-1]["payload"]["permit2Authorization"]
        assert (permit["from"], permit["spender"]) == (ALICE.address, checksum(PERMIT2))
        assert permit["amount"] == message["permitted"]["amount"] == shop.offers[0]["amount"]
        assert (permit["nonce"], permit["asset"]) == (str(number), checksum(TESTNET.asset))
        assert permit["deadline"] == message["deadline"]
        assert (permit["description"], permit["version"]) == ("gas", "1"), "what servers compare"
        assert int(permit["deadline"]) < NOW_S + 300


def test_who_has_approved_enough_signs_no_permit():
    """A permit would take the rest of the approval away."""
    shop, auth = Shop(), payer(approve="0.03", **NODE)
    shop.extensions = SPONSORS
    allow(shop.desk, 20_000)
    assert get(shop, auth).is_success
    assert permit_in(shop) == {}


@pytest.mark.parametrize(
    "settings", [{}, {"approve": "0.019999", **NODE}, {"approve": "0", **NODE}]
)
def test_no_permit_is_signed_that_is_not_allowed(settings: dict[str, Any]):
    shop = Shop()
    shop.extensions = SPONSORS
    with pytest.raises(PaymentFailed, match="approve Permit2"):
        get(shop, payer(**settings))
    assert permit_in(shop) == {}


@pytest.mark.parametrize("said", ["0x14a34", "-0x1", "0x", "0x1\n", hex(2**256), 338, ["0x152"]])
def test_a_node_of_another_chain_or_without_a_number_stops_the_payer(said: Any):
    shop, auth = Shop(), payer(approve="0.03", **NODE)
    shop.extensions, shop.said = SPONSORS, said
    chain_id = 84532 if said == "0x14a34" else None
    with pytest.raises(PaymentFailed, match=f"a node of the chain {chain_id}, and the payment is"):
        get(shop, auth)
    assert (shop.paid, auth.signed_base) == ([], 0)
    no_url = payer(approve="0.03", rpc_url="http://[::/key")
    with pytest.raises(PaymentFailed, match="the node does not answer") as failed:
        get(shop, no_url)
    assert "key" not in str(failed.value)
    for missing in ({"permit2": False}, {"network": None}, {"rpc_url": ""}):
        with pytest.raises(ValueError, match="approve: give permit2=True"):
            payer(**({"approve": "0.03", **NODE} | missing))
