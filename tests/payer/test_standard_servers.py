"""`PaymentAuth` pays servers of the x402 standard, versions 1 and 2, in one step."""

import base64
import json
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import httpx
import pytest

from tests.bounded.hostile_peer import wanted
from tests.payer.shop import LOST, URL, ask
from tests.protocol.test_advice import UNKNOWN
from tests.strategies import requirements
from x402sim import PaymentAuth, SessionAuth, SpendingCapExceeded, Wallet
from x402sim.clock import Clock
from x402sim.payer.core import PaidNotServed, PaymentFailed
from x402sim.payer.signing import StandardOffer, proof
from x402sim.protocol.crypto import checksum, recover
from x402sim.protocol.eip3009 import transfer_digest
from x402sim.protocol.messages import encode
from x402sim.protocol.networks import BASE_SEPOLIA
from x402sim.protocol.x402 import (
    PAYMENT_HEADERS,
    PAYMENT_IDENTIFIER,
    REQUIRED_HEADER,
    RESPONSE_HEADERS,
    RequiredV1,
    RequiredV2,
    RequirementsV1,
    RequirementsV2,
    Resource,
    Settlement,
    StandardPayment,
    Version,
    domain_of,
    read_payment,
    requirements_v2,
    to_base64,
)
from x402sim.protocol.x402_reasons import NONCE_USED, SIGNATURE, STATE

VERSIONS = pytest.mark.parametrize("version", [1, 2])

NOW_S = 1_800_000_000
PAY_TO = "0x" + "be" * 20
OFFER = {
    "scheme": "exact",
    "network": "eip155:84532",
    "amount": "10000",
    "asset": checksum(BASE_SEPOLIA.asset),
    "pay_to": PAY_TO,
    "max_timeout_seconds": 60,
    "extra": domain_of(BASE_SEPOLIA),
}
NAMES = {"eip155:84532": "base-sepolia"}
Reply = tuple[int, Settlement | None]


@dataclass
class StandardShop:
    """A server of one version, which checks what it is paid; `answers` says what it does then."""

    version: Version
    offers: list[dict[str, Any]] = field(default_factory=lambda: [OFFER])
    answers: Callable[[int], Reply | Exception] = lambda count: (200, PAID)
    paid: list[StandardPayment] = field(default_factory=list)
    error: str | None = None
    extensions: dict[str, Any] | None = None
    extensions_paid: list[Any] = field(default_factory=list)

    def __call__(self, request: httpx.Request) -> httpx.Response:
        text = request.headers.get(PAYMENT_HEADERS[self.version])
        if text is None:
            return self.required()
        self.paid.append(read_payment(self.version, text))
        self.extensions_paid.append(json.loads(base64.b64decode(text)).get("extensions"))
        answer = self.answers(len(self.paid))
        if isinstance(answer, Exception):
            raise answer
        status, settlement = answer
        response = self.required() if status == 402 else httpx.Response(status, json={"data": 1})
        if settlement is not None:
            response.headers[RESPONSE_HEADERS[self.version]] = to_base64(settlement)
        return response

    def required(self) -> httpx.Response:
        if self.version == 2:
            accepts = [RequirementsV2(**each) for each in self.offers]
            second = RequiredV2(
                x402_version=2,
                accepts=accepts,
                resource=Resource(url=URL),
                error=self.error,
                extensions=self.extensions,
            )
            return httpx.Response(402, json={}, headers={REQUIRED_HEADER: to_base64(second)})
        first = RequiredV1(
            x402_version=1,
            accepts=[
                RequirementsV1(
                    **{k: v for k, v in each.items() if k not in ("amount", "network")},
                    max_amount_required=each["amount"],
                    network=NAMES.get(each["network"], each["network"]),
                    resource=URL,
                )
                for each in self.offers
            ],
            error=self.error,
        )
        return httpx.Response(402, content=encode(first))

    @property
    def nonces(self) -> set[bytes]:
        return {each.signed.authorization.nonce for each in self.paid}


PAID = Settlement(success=True, transaction="0x" + "11" * 32, network="eip155:84532", payer="0x1")


def payer(now: list[float] | None = None, **options: Any) -> PaymentAuth:
    at = now or [float(NOW_S)]
    options = {"network": BASE_SEPOLIA, "clock": Clock(lambda: at[0])} | options
    return PaymentAuth(Wallet.create(), **options)


@VERSIONS
def test_each_request_is_paid_within_the_window_of_the_libraries(version: Version) -> None:
    shop, auth = StandardShop(version), payer()
    assert [ask(shop, auth) for _ in range(2)] == [200, 200]
    assert len(shop.nonces) == len(shop.paid) == 2
    signed = shop.paid[0].signed
    authorization = signed.authorization
    assert (authorization.value, checksum(authorization.to)) == (10_000, checksum(b"\xbe" * 20))
    window = authorization.valid_after - NOW_S, authorization.valid_before - NOW_S
    assert window == (-600, 60)
    digest = transfer_digest(authorization, BASE_SEPOLIA.domain)
    assert recover(digest, signed.signature) == authorization.from_ == auth.wallet.address_bytes
    if version == 2:
        assert shop.paid[0].accepted == RequirementsV2(**OFFER)
        assert shop.paid[0].resource == Resource(url=URL)
    assert [each.transaction for each in auth.settlements] == [PAID.transaction] * 2
    assert auth.signed_base == 20_000


OTHERS: dict[str, tuple[dict[str, Any], str]] = {
    "another network": ({"network": "eip155:8453"}, "network is "),
    "another scheme": ({"scheme": "batch"}, "scheme is 'batch'"),
    "another token": ({"asset": "0x" + "11" * 20}, "asset is "),
    "another domain": ({"extra": {"name": "USD Coin", "version": "2"}}, "the token's domain is "),
    "no domain": ({"extra": None}, "the token's domain is "),
    "another transfer": (
        {"extra": domain_of(BASE_SEPOLIA) | {"assetTransferMethod": "other"}},
        "assetTransferMethod: 'other'; supported: eip3009",
    ),
    "another flow": (
        {"extra": domain_of(BASE_SEPOLIA) | {"paymentFlow": "escrow"}},
        "extra.paymentFlow: 'escrow'; supported: authorization and upfront",
    ),
    "too much": ({"amount": "1000000"}, "max_amount allows"),
    "no amount": ({"amount": "0.01"}, ""),
    "no payee": ({"pay_to": "0x1"}, ""),
    "no time": ({"max_timeout_seconds": 0}, "0 seconds to pay"),
    "too long": ({"max_timeout_seconds": 2**31}, "2147483648 seconds to pay"),
}


@VERSIONS
@pytest.mark.parametrize("what", OTHERS)
def test_what_it_cannot_pay_is_told_and_not_signed(version: Version, what: str) -> None:
    changes, why = OTHERS[what]
    shop, auth = StandardShop(version, offers=[OFFER | changes]), payer()
    said = ask(shop, auth)
    assert isinstance(said, PaymentFailed)
    assert why in str(said)
    assert "nothing was signed" in str(said)
    assert (auth.signed_base, shop.paid) == (0, [])


@VERSIONS
def test_of_several_ways_the_first_that_fits_is_taken(
    version: Version,
) -> None:
    others = [OFFER | OTHERS[what][0] for what in ("another network", "too much")]
    first = OFFER | {"extra": domain_of(BASE_SEPOLIA) | {"paymentFlow": "upfront"}}
    shop = StandardShop(version, offers=[first, *others, OFFER, OFFER | {"amount": "9999"}])
    auth = payer()
    assert ask(shop, auth) == 200
    assert shop.paid[0].signed.authorization.value == 10_000


def test_the_page_of_a_shop_for_browsers_is_left() -> None:
    shop = StandardShop(2)

    def serve(request: httpx.Request) -> httpx.Response:
        response = shop(request)
        if response.status_code != 402:
            return response
        page = b"<!doctype html><script>window.x402 = {}</script>" + b" " * 2_300_000
        headers = dict(response.headers) | {"content-type": "text/html"}
        headers.pop("content-length", None)
        return httpx.Response(402, stream=httpx.ByteStream(page), headers=headers)

    assert ask(serve, payer()) == 200


PENDING = Settlement(success=False, transaction="0x1", error_reason="settlement_pending")


@VERSIONS
@pytest.mark.parametrize(
    ("answer", "told"),
    [
        (httpx.ReadTimeout("lost"), "ReadTimeout"),
        (httpx.ConnectError("lost"), "ConnectError"),
        *(((status, None), str(status)) for status in (500, 503, 404, 400)),
        ((402, PENDING), "not known whether .* settlement_pending"),
        ((402, None), r"was refused: 402 insufficient_funds\. .* for another 135 s\.$"),
    ],
    ids=str,
)
def test_the_same_authorization_is_sent_again(
    version: Version, answer: Reply | Exception, told: str
) -> None:
    shop = StandardShop(version, answers=lambda count: answer if count == 1 else (200, PAID))
    shop.error, auth = "insufficient_funds", payer()
    said = ask(shop, auth)
    assert re.search(told, f"{type(said).__name__} {said}")
    assert ask(shop, auth) == 200
    assert (len(shop.paid), len(shop.nonces), auth.signed_base) == (2, 1, 10_000)


@VERSIONS
@pytest.mark.parametrize("word", UNKNOWN)
def test_after_an_unknown_word_of_settle_no_other_is_ever_signed(
    version: Version, word: str
) -> None:
    failed, now = Settlement(success=False, error_reason=word), [float(NOW_S)]
    shop, auth = StandardShop(version, answers=lambda count: (402, failed)), payer(now)
    for now[0] in (NOW_S, NOW_S + 200.0, NOW_S + 90_000.0):
        said = ask(shop, auth)
        assert isinstance(said, PaymentFailed)
        is_used = word == STATE
        assert ("authorizationState" if is_used else "not known whether") in str(said)
    assert (len(shop.nonces), auth.signed_base) == (1, 10_000)


@VERSIONS
def test_a_server_that_says_the_nonce_is_used_has_been_paid(version: Version) -> None:
    shop = StandardShop(version, answers=lambda count: LOST if count == 1 else (402, None))
    shop.error, auth = NONCE_USED[version], payer()
    assert ask(shop, auth) is LOST
    for _ in range(3):
        said = ask(shop, auth)
        assert isinstance(said, PaidNotServed)
        assert "authorizationState" in str(said)
    assert (len(shop.nonces), auth.signed_base) == (1, 10_000)


@VERSIONS
def test_a_shop_that_refuses_every_payment_collects_no_authorizations(version: Version) -> None:
    """It could use each that it refuses: it gets another only when the first has expired."""
    shop, now = StandardShop(version, answers=lambda count: (402, None)), [float(NOW_S)]
    shop.offers = [OFFER | {"max_timeout_seconds": 2**31 - 1, "amount": "100000"}]
    auth = payer(now)
    for day in range(12):
        now[0] = NOW_S + 86_400.0 * day
        for _ in range(5):
            assert isinstance(ask(shop, auth), PaymentFailed)
        signed = [each.signed.authorization for each in shop.paid]
        usable = {each.nonce for each in signed if each.valid_before > now[0]}
        assert len(usable) == (1 if day < 10 else 0), "max_total is 1.00, of 0.10 each"
    assert (len(shop.nonces), auth.signed_base) == (10, 1_000_000)


@VERSIONS
@pytest.mark.parametrize("way", ["a session", "a redirect"])
def test_its_limits_hold_in_other_ways_too(version: Version, way: str) -> None:
    """A deposit may be asked for in one step, and the request be redirected first."""
    shop = StandardShop(version, answers=lambda count: (402, None))
    shop.offers = [OFFER | {"max_timeout_seconds": 2**31 - 1, "amount": "100000"}]

    def serve(request: httpx.Request) -> httpx.Response:
        if request.url.path == "/there":
            return httpx.Response(307, headers={"Location": URL})
        return shop(request)

    auth: httpx.Auth = payer()
    if way == "a session":
        clock = Clock(lambda: float(NOW_S))
        auth = SessionAuth(
            Wallet.create(), deposit="0.10", max_sessions=9, network=BASE_SEPOLIA, clock=clock
        )
    for _ in range(4):
        assert isinstance(ask(serve, auth, "http://shop/there"), PaymentFailed)
    assert len(shop.nonces) == 1
    assert shop.paid[0].signed.authorization.valid_before == NOW_S + 300


@VERSIONS
@pytest.mark.parametrize(
    ("offered_s", "options", "signed_s"),
    [
        (60, {}, 60),
        (300, {}, 300),
        (301, {}, 300),
        (2**31 - 1, {}, 300),
        (3600, {"max_window_s": 3600}, 3600),
        (3600, {"max_window_s": 5}, 5),
    ],
)
def test_a_window_has_a_limit(
    version: Version, offered_s: int, options: dict[str, Any], signed_s: int
) -> None:
    """A server that refuses the shorter one is told apart."""
    shop = StandardShop(version, answers=lambda count: (402, None))
    shop.offers, shop.error = [OFFER | {"max_timeout_seconds": offered_s}], "too short"
    said = str(ask(shop, payer(**options)))
    assert shop.paid[0].signed.authorization.valid_before - NOW_S == signed_s
    note = f"signed for {signed_s} s, and the server allows {offered_s} s"
    assert (note in said) is ("raise max_window_s" in said) is (signed_s < offered_s)


@VERSIONS
def test_a_refusal_of_a_repeated_payment_says_nothing_until_it_has_expired(
    version: Version,
) -> None:
    said = [LOST, (402, None), (402, None), (200, None)]
    shop = StandardShop(version, answers=lambda count: said[count - 1], error=SIGNATURE)
    now = [float(NOW_S)]
    auth = payer(now)
    for _ in range(2):
        assert isinstance(ask(shop, auth), PaymentFailed | httpx.ReadTimeout)
    assert len(shop.nonces) == 1
    now[0] += 60 + 76
    assert ask(shop, auth) == 200
    assert (len(shop.paid), len(shop.nonces)) == (4, 2)


@VERSIONS
def test_a_request_that_is_sent_again_brings_no_proof_of_its_own(version: Version) -> None:
    """The payer has put the header on it: the caller has no payment."""
    shop, auth = StandardShop(version, answers=lambda n: LOST if n == 1 else (200, PAID)), payer()
    request = httpx.Request("GET", URL)
    with httpx.Client(transport=httpx.MockTransport(shop), auth=auth) as http:
        with pytest.raises(httpx.ReadTimeout):
            http.send(request)
        assert [http.send(request).status_code for _ in range(2)] == [200, 200]
    assert (len(shop.paid), len(shop.nonces), auth.unfinished(request).payments) == (3, 2, [])


def test_a_wanted_version_that_is_not_offered_is_an_error() -> None:
    said = ask(StandardShop(1), payer(version=2))
    assert isinstance(said, PaymentFailed)
    assert "offers no payment in version 2" in str(said)


@pytest.mark.parametrize(
    "body", [{"paymentId": "a"}, {"paymentRequirements": [OFFER]}, wanted("/")]
)
def test_a_body_that_two_steps_cannot_pay_hides_no_offer_in_the_header(body: Any) -> None:
    """The standard leaves the body of version 2 to the seller."""
    shop = StandardShop(2)

    def serve(request: httpx.Request) -> httpx.Response:
        answer = shop(request)
        is_402 = answer.status_code == 402
        return httpx.Response(402, json=body, headers=answer.headers) if is_402 else answer

    assert ask(serve, payer()) == 200


@VERSIONS
@pytest.mark.parametrize("later", [(402, "no offer"), (402, {"accepts": []})])
def test_what_was_lost_is_sent_again_whatever_a_402_asks_by_then(
    version: Version, later: Any
) -> None:
    shop, auth = StandardShop(version, answers=lambda n: LOST if n == 1 else (200, PAID)), payer()

    def serve(request: httpx.Request) -> httpx.Response:
        answer = shop(request)
        is_later = answer.status_code == 402 and shop.paid
        return httpx.Response(later[0], json=later[1]) if is_later else answer

    assert ask(serve, auth) is LOST
    assert ask(serve, auth) == 200
    assert (len(shop.paid), len(shop.nonces), auth.foreign) == (2, 1, [])


@VERSIONS
@pytest.mark.parametrize(
    ("status", "settled", "payments"), [(303, PAID, 2), (304, PAID, 2), (303, None, 1)]
)
def test_a_redirect_with_a_receipt_is_what_was_bought(
    version: Version, status: int, settled: Any, payments: int
) -> None:
    """The x402 SDK for servers settles every answer below 400."""
    shop, auth = StandardShop(version, answers=lambda _: (status, settled)), payer()
    for _ in range(2):
        with httpx.Client(transport=httpx.MockTransport(shop), auth=auth) as http:
            assert http.get(URL).status_code == status
    assert len(shop.nonces) == payments


@VERSIONS
@pytest.mark.parametrize("status", [200, 402, 404])
def test_a_redirect_with_a_receipt_is_what_was_bought_wherever_it_leads(
    version: Version, status: int
) -> None:
    """The client follows it: the receipt is not in the last answer."""
    shop, auth = StandardShop(version, answers=lambda _: (303, PAID)), payer()

    def serve(request: httpx.Request) -> httpx.Response:
        if request.url.path == "/job":
            return httpx.Response(status, json={})
        answer = shop(request)
        answer.headers["location"] = "/job"
        return answer

    assert [ask(serve, auth) for _ in range(2)] == [status] * 2
    assert (len(shop.nonces), auth.settlements) == (2, [PAID] * 2)


def test_extensions_that_it_does_not_know_are_sent_back() -> None:
    offered = {"rewards": {"info": {"tier": "gold", "points": [1, 2]}, "schema": {}}}
    shop = StandardShop(2, extensions=offered)
    assert ask(shop, payer()) == 200
    assert shop.extensions_paid == [offered]


def test_the_extension_that_names_a_payment_keeps_what_the_402_says() -> None:
    """The x402 SDK for servers refuses any other: extension_echo_mismatch."""
    told = {"info": {"required": True}, "schema": {"type": "object"}, "more": [1]}
    shop = StandardShop(2, extensions={PAYMENT_IDENTIFIER: told})
    assert ask(shop, payer()) == 200
    (sent,) = shop.extensions_paid
    assert sent[PAYMENT_IDENTIFIER]["info"].pop("id").startswith("pay_")
    assert sent == {PAYMENT_IDENTIFIER: told}


def test_an_id_that_a_402_names_is_shown_with_the_payment() -> None:
    def shown(**extra: str) -> dict[str, str]:
        accepted = requirements_v2(requirements(), BASE_SEPOLIA, **extra)
        return proof(StandardOffer(accepted, 10_000, None), "signed")

    assert shown(paymentId="pay_1") == {"PAYMENT-SIGNATURE": "signed", "X-Payment-Id": "pay_1"}
    assert shown() == shown(paymentId="not a header\n") == {"PAYMENT-SIGNATURE": "signed"}


@VERSIONS
def test_the_number_of_payments_is_limited_whatever_they_cost(version: Version) -> None:
    """A session's server may ask for less than the deposit: then the sum allows more sessions."""
    shop, auth = StandardShop(version), payer()
    auth.signer.max_payments = 1
    with httpx.Client(transport=httpx.MockTransport(shop), auth=auth) as http:
        assert http.get(URL).is_success
        with pytest.raises(SpendingCapExceeded, match="max_payments=1"):
            http.get(URL)
    assert len(shop.paid) == 1
    assert SessionAuth(Wallet.create(), max_sessions=3).payment.signer.max_payments == 3
