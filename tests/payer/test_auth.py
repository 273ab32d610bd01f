"""The two httpx.Auth classes: they pay, and they cannot be made to pay too much."""

import asyncio
import json
import sys
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx
import pytest

from tests.bounded.hostile_peer import wanted
from tests.payer.shop import URL as SHOP_URL, Shop, ask, opened, served
from tests.rig import ORDER, ServiceRig, scene
from x402sim import (
    Fault,
    LocalServer,
    PaymentAuth,
    PaymentFailed,
    SessionAuth,
    SpendingCapExceeded,
    Wallet,
)  # fmt: skip
from x402sim.clock import Clock

URL = "http://service.test/api/perp/quote"


def payer(rig: ServiceRig, **options: Any) -> PaymentAuth:
    return PaymentAuth(rig.alice, clock=rig.clock, **options)


async def quote(rig: ServiceRig, auth: httpx.Auth) -> httpx.Response:
    return await rig.http.post(URL, json=ORDER, auth=auth)


@pytest.mark.clause("1/sign-settle-repeat")
def test_a_sync_client_pays_over_tcp(server: LocalServer) -> None:
    auth = PaymentAuth(server.wallets[0])
    response = httpx.post(f"{server.url}/api/perp/quote", json=ORDER, auth=auth)
    assert response.status_code == 200
    assert response.json()["quote"]["pair"] == "BTC-USD"
    assert (len(auth.receipts), auth.signed_base) == (1, 10_000)
    assert repr(auth).endswith("signed 0.01 of 1.00>")
    assert server.wallets[0].private_key not in repr(auth)


@pytest.mark.clause("1/session-no-402")
def test_a_session_is_opened_once_and_spent_over_tcp(server: LocalServer) -> None:
    auth = SessionAuth(server.wallets[2], deposit="0.03")
    with httpx.Client(base_url=server.url, auth=auth) as http:
        answers = [http.post("/api/perp/quote", json=ORDER) for _ in range(3)]
        assert [a.status_code for a in answers] == [200] * 3
        assert [len(a.history) for a in answers] == [3, 0, 0]  # create, pay, create
        with pytest.raises(SpendingCapExceeded, match=r"max_sessions=1 of deposit=0\.03"):
            http.post("/api/perp/quote", json=ORDER)
    assert len(auth.payment.receipts) == 1


@scene
async def test_a_payment_is_reused_by_default(rig: ServiceRig) -> None:
    thrifty, lavish = payer(rig), payer(rig, reuse=False)
    for auth, transfers in ((thrifty, 1), (lavish, 3)):
        before = rig.transfers()
        for _ in range(3):
            assert (await quote(rig, auth)).status_code == 200
        assert (await rig.http.get("/api/agents", auth=auth)).status_code == 200
        assert (await rig.http.get("/nowhere", auth=auth)).status_code == 404
        assert rig.transfers() - before == transfers == len(auth.receipts)


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({}, "400 Authorization expired: validBefore is "),
        ({"version": 2}, "valid_before: validBefore is "),
    ],
)
@scene
async def test_clocks_that_differ_are_told_and_nothing_is_signed_anew(
    rig: ServiceRig, options: dict[str, Any], says: str
) -> None:
    mine = Clock(lambda: rig.now[0] - 400)
    auth = PaymentAuth(rig.alice, clock=mine, **options)
    for _ in range(2):
        with pytest.raises(PaymentFailed, match="the two clocks differ") as failed:
            await quote(rig, auth)
        assert says in str(failed.value)
        assert f"the server's clock says {int(rig.now[0])}" in str(failed.value)
    assert auth.signed_base == 10_000


@scene
async def test_an_existing_session_is_spent_first_and_others_follow_if_allowed(
    rig: ServiceRig,
) -> None:
    given = (await rig.open_session("0.01"))["sessionId"]
    auth = SessionAuth(rig.bob, session_id=given, deposit="0.02", max_sessions=2, clock=rig.clock)
    spent = []
    for transfers in (0, 1, 1, 2, 2):
        assert (await quote(rig, auth)).status_code == 200
        assert rig.transfers(rig.bob) == transfers
        spent.append(auth.session_id)
    assert spent[0] == given
    assert len(set(spent)) == 3
    with pytest.raises(SpendingCapExceeded):
        await quote(rig, auth)
    assert rig.earned == 50_000


def test_a_window_of_no_second_is_refused() -> None:
    with pytest.raises(ValueError, match="max_window_s must be at least 1, not 0"):
        PaymentAuth(Wallet.create(), max_window_s=0)


# --- hostile servers ---------------------------------------------------------------------


CHANGED: list[tuple[dict[str, Any], type[Exception], str]] = [
    ({"maxAmountRequired": "100001"}, SpendingCapExceeded, r"asks for 0\.100001 .* 0\.10 "),
    ({"maxAmountRequired": "1" + "0" * 70}, SpendingCapExceeded, "max_amount"),
    ({"maxAmountRequired": "1e4"}, PaymentFailed, "1e4"),
    ({"maxAmountRequired": "-1"}, PaymentFailed, "-1"),
    ({"scheme": "upto"}, PaymentFailed, "scheme 'upto'"),
    ({"network": "cronos-mainnet"}, PaymentFailed, "network 'cronos-mainnet'"),
    ({"asset": "0x" + "1" * 40}, PaymentFailed, "asset"),
    ({"resource": "/elsewhere"}, PaymentFailed, "resource '/elsewhere'"),
    ({"payTo": "0x12"}, PaymentFailed, "0x12"),
    ({"payTo": None}, PaymentFailed, "payTo"),
    ({"maxTimeoutSeconds": -(10**12)}, PaymentFailed, "seconds to pay"),
    ({"maxTimeoutSeconds": 0}, PaymentFailed, "seconds to pay"),
    ({"maxTimeoutSeconds": 2**31}, PaymentFailed, "seconds to pay"),
]
UNREADABLE = [b'{"x402Version": 1, "accepts": 5}', b'{"x402Version": 7}', b'{"paymentId": "pay_1"}']
FOREIGN: list[tuple[dict[str, str], bytes, str]] = [
    ({}, b"", "a bill"),
    ({}, b"<html>top up", "a bill"),
    ({}, b"{}", "a bill"),
    ({}, b"[]", "a bill"),
    ({}, b'{"error": {"message": "Insufficient credits"}}', "a bill"),
    ({"WWW-Authenticate": 'Payment id="x", method="tempo"'}, b"{}", "scheme Payment"),
    ({"WWW-Authenticate": 'L402 macaroon="a", invoice="lnbc1"'}, b"pay", "L402"),
    ({"WWW-Authenticate": 'Bearer realm="payment"'}, b"", "the scheme Bearer"),
]


def offering(changed: dict[str, Any], payment_id: str = "pay_1") -> bytes:
    offer = wanted("/x") | {"paymentId": payment_id}
    offer["paymentRequirements"] |= changed
    return json.dumps(offer).encode()


@pytest.mark.parametrize(
    ("offer", "error", "text"),
    [
        *((offering(changed), error, text) for changed, error, text in CHANGED),
        *((body, PaymentFailed, "no readable payment requirements") for body in UNREADABLE),
        *(
            (offering({}, no_header), PaymentFailed, "no usable payment id")
            for no_header in ("\u00e9\u0131", "a\r\nX: y", "")
        ),
    ],
)
def test_a_hostile_402_gets_no_signature(offer: bytes, error: type[Exception], text: str) -> None:
    shop, auth = Shop(serves=lambda _: (402, offer)), PaymentAuth(Wallet.create())
    with shop.client(auth) as http, pytest.raises(error, match=text):
        http.get(SHOP_URL)
    assert auth.signed_base == 0


@pytest.mark.parametrize(("headers", "body", "name"), FOREIGN)
@pytest.mark.parametrize("version", [None, 1, 2])
def test_a_402_of_another_protocol_is_returned_to_the_caller(
    headers: dict[str, str],
    body: bytes,
    name: str,
    version: Any,
    caplog: pytest.LogCaptureFixture,
) -> None:
    auth, asked = PaymentAuth(Wallet.create(), version=version), []

    def shop(request: httpx.Request) -> httpx.Response:
        asked.append(request)
        return httpx.Response(402, headers=headers, content=body)

    with httpx.Client(transport=httpx.MockTransport(shop), auth=auth) as http:
        answer = http.get(SHOP_URL)
    assert (answer.status_code, answer.content, len(asked)) == (402, body, 1)
    assert auth.signed_base == 0
    (foreign,) = auth.foreign
    assert name in foreign.name
    assert name in caplog.text


def test_an_offer_beside_a_challenge_is_paid() -> None:
    both = {"WWW-Authenticate": 'Payment id="x", method="tempo"'}
    shop = Shop(serves=served)

    def answers(request: httpx.Request) -> httpx.Response:
        answer = shop(request)
        answer.headers.update(both)
        return answer

    auth = PaymentAuth(Wallet.create())
    with httpx.Client(transport=httpx.MockTransport(answers), auth=auth) as http:
        assert http.get(SHOP_URL).status_code == 200
    assert not auth.foreign


# --- many at once, and other hosts ---------------------------------------------------------


@pytest.mark.parametrize(
    ("kind", "options", "payments"),
    [
        (PaymentAuth, {"max_total": "0.20"}, 1),
        (PaymentAuth, {"max_total": "0.20", "reuse": False}, 20),
        (SessionAuth, {"deposit": "0.20"}, 1),
    ],
)
def test_one_object_serves_many_tasks_loop_after_loop(
    server: LocalServer, kind: Any, options: dict[str, Any], payments: int
) -> None:
    wallet = server.wallets[4]
    pays, before = kind(wallet, **options), len(server.transfers(wallet.address))

    async def main() -> list[int]:
        limits = httpx.Limits(max_connections=20)
        async with httpx.AsyncClient(base_url=server.url, auth=pays, limits=limits) as http:
            asked = (http.post("/api/perp/quote", json=ORDER) for _ in range(10))
            return [response.status_code for response in await asyncio.gather(*asked)]

    assert [asyncio.run(main()) for _ in range(2)] == [[200] * 10] * 2
    assert len(server.transfers(wallet.address)) - before == payments


def test_threads_do_not_pass_the_cap() -> None:
    shop = Shop(settles=lambda _: (400, {"error": "Invalid signature"}))
    auth = PaymentAuth(Wallet.create(), max_total="0.10")

    def attempt(number: int) -> type[Exception]:
        with shop.client(auth) as http, pytest.raises(PaymentFailed) as failed:
            http.get(f"http://shop/{number}")
        return failed.type

    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        with ThreadPoolExecutor(20) as threads:
            ends = list(threads.map(attempt, range(60)))
    finally:
        sys.setswitchinterval(before)
    assert ends.count(SpendingCapExceeded) == 50
    assert auth.signed_base == 100_000


def test_proofs_are_not_shown_to_other_hosts() -> None:
    shop, seen = Shop(serves=opened), list[httpx.Request]()

    def serve(request: httpx.Request) -> httpx.Response:
        if request.url.host == "shop":
            return shop(request)
        seen.append(request)
        return httpx.Response(404, json={"error": "no sessions here"})

    wallet = Wallet.create()
    session, payment = SessionAuth(wallet, deposit="1.00"), PaymentAuth(wallet)
    with httpx.Client(transport=httpx.MockTransport(serve)) as http:
        for auth in (session, payment):
            assert http.get(SHOP_URL, auth=auth).is_success
        with pytest.raises(PaymentFailed, match="not opened: the server answered 404"):
            http.get("http://evil.test/x", auth=session)
        http.get("http://evil.test/x", auth=payment)
    assert len(seen) == 2
    assert not [r for r in seen if "x-session-id" in r.headers or "x-payment-id" in r.headers]


@scene
async def test_a_wrong_session_id_pays_no_deposit(rig: ServiceRig) -> None:
    auth = SessionAuth(rig.alice, session_id="session_typo", clock=rig.clock)
    with pytest.raises(SpendingCapExceeded, match="max_sessions=0"):
        await quote(rig, auth)
    assert rig.transfers() == 0


@pytest.mark.parametrize("serves", [True, False])
def test_a_proof_of_the_caller_is_shown_before_a_payment_of_ours(serves: bool) -> None:
    """Ours was served and is used up, or has bought nothing yet."""
    shop = Shop(serves=lambda proof: (200, {}) if serves and proof else None)
    auth = PaymentAuth(Wallet.create())
    ask(shop, auth)
    shop.serves = lambda proof: (200, {"for": proof}) if proof == "mine" else None
    with shop.client(auth) as http:
        assert http.get(SHOP_URL, headers={"X-Payment-Id": "mine"}).json() == {"for": "mine"}
    assert shop.asked[-1] == ("/x", "mine")


def test_a_proof_of_the_caller_stays_on_the_request_that_showed_ours_too() -> None:
    """Without it, the request is signed for when it is sent again."""
    shop = Shop(lambda proof: None if proof == "mine" else served(proof))
    ask(shop, auth := PaymentAuth(Wallet.create()))
    request = httpx.Request("GET", SHOP_URL, headers={"X-Payment-Id": "mine"})
    with shop.client(auth) as http:
        assert http.send(request).status_code == 200
        shop.serves = lambda proof: None
        with pytest.raises(PaymentFailed, match="itself shows a payment, in X-Payment-Id"):
            http.send(request)
    assert (request.headers["X-Payment-Id"], auth.signed_base) == ("mine", 10_000)


def test_a_lost_receipt_can_be_asked_for_by_the_id_of_the_request(server: LocalServer) -> None:
    server.fault(Fault(victim="service", does="lose answer", path="/api/pay"))
    auth = PaymentAuth(wallet := server.wallets[9])
    with httpx.Client(auth=auth, base_url=server.url) as http:
        with pytest.raises(httpx.RemoteProtocolError):
            http.get("/api/perp/market")
        answer = http.get("/api/perp/market")
        assert (answer.status_code, auth.receipts) == (200, [])
        record = http.get(f"/api/payments/{answer.request.headers['X-Payment-Id']}").json()
    (moved,) = server.transfers(wallet.address)
    assert record["tx_hash"] == moved.tx_hash
