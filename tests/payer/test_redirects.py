"""Proofs of payment stay at the server that they pay, whatever the client follows."""

from collections.abc import Iterator
from typing import Any

import httpcore
import httpx
import pytest

from tests.bounded.hostile_peer import Server, serving
from tests.payer.shop import CLIENTS, Get, in_sync
from x402sim import PaymentAuth, PaymentFailed, SessionAuth, Wallet
from x402sim.payer.flow import Guard
from x402sim.protocol.x402 import PAYMENT_HEADERS

Peers = tuple[Server, Server]


@pytest.fixture(scope="module")
def servers() -> Iterator[Peers]:
    with serving() as shop, serving() as elsewhere:
        yield shop, elsewhere


@pytest.fixture
def peers(servers: Peers) -> Peers:
    """A hostile server, and the one that it redirects to."""
    shop, elsewhere = servers
    shop.away = elsewhere.url
    shop.seen.clear()
    elsewhere.seen.clear()
    return servers


REFUSED = "redirected a request with a proof of payment to"


@CLIENTS
@pytest.mark.parametrize(
    ("path", "pay_path"),
    [
        *(("/pays/x", f"/away/{status}") for status in (301, 302, 303, 307, 308)),
        ("/seller/x", "/seller/pay"),
    ],
    ids=["301", "302", "303", "307", "308", "payment id"],
)
def test_neither_a_signed_payment_nor_its_id_is_sent_elsewhere(
    get: Get, path: str, pay_path: str, peers: Peers
) -> None:
    shop, elsewhere = peers
    auth = PaymentAuth(Wallet.create(), pay_path=pay_path)
    sent = []
    for _ in range(2):
        with pytest.raises(PaymentFailed, match=REFUSED):
            get(f"{shop.url}{path}", auth)
        sent.append(shop.seen[-1][2])
    assert sent[0] == sent[1], "the same authorization is sent again"
    assert (elsewhere.seen, auth.signed_base) == ([], 10_000)


@CLIENTS
def test_a_proof_of_the_caller_is_not_sent_elsewhere(get: Get, peers: Peers) -> None:
    shop, elsewhere = peers
    url = f"{shop.url}/away/302/x"
    for proof in ("X-Payment-Id", *PAYMENT_HEADERS.values()):
        with pytest.raises(PaymentFailed, match=REFUSED):
            get(url, PaymentAuth(Wallet.create()), headers={proof: "mine"})
    with pytest.raises(PaymentFailed, match=REFUSED):
        get(url, SessionAuth(Wallet.create(), session_id="session_secret"))
    assert elsewhere.seen == []


@CLIENTS
def test_a_402_of_another_server_is_not_paid(get: Get, peers: Peers) -> None:
    shop, elsewhere = peers
    shop.away = f"{elsewhere.url}/pays"
    auth = PaymentAuth(Wallet.create())
    with pytest.raises(PaymentFailed, match="which asks for a payment; nothing was signed"):
        get(f"{shop.url}/away/302/x", auth)
    assert [path for path, _, _ in elsewhere.seen] == ["/pays/leaked"]
    assert auth.signed_base == 0


@CLIENTS
def test_without_a_proof_the_client_may_follow_anywhere(get: Get, peers: Peers) -> None:
    shop, elsewhere = peers
    assert get(f"{shop.url}/away/302/x", PaymentAuth(Wallet.create())).status_code == 200
    assert [path for path, _, _ in elsewhere.seen] == ["/leaked"]


def test_the_next_request_of_a_redirect_is_the_callers_and_guarded_too(peers: Peers) -> None:
    shop, elsewhere = peers
    with httpx.Client() as http:
        unpaid = http.get(f"{shop.url}/away/302/x", auth=PaymentAuth(Wallet.create()))
        assert unpaid.next_request is not None
        assert http.send(unpaid.next_request).status_code == 200
        shop.away, told = elsewhere.url, {"X-Payment-Id": "mine"}
        paid = http.get(f"{shop.url}/away/302/x", auth=PaymentAuth(Wallet.create()), headers=told)
        assert paid.next_request is not None
        elsewhere.seen.clear()
        with pytest.raises(PaymentFailed, match=REFUSED):
            http.send(paid.next_request)
    assert elsewhere.seen == []


@CLIENTS
@pytest.mark.parametrize(("hops", "is_followed"), [(3, True), (4, False)])
def test_a_proof_follows_three_redirects(
    get: Get, hops: int, is_followed: bool, peers: Peers
) -> None:
    url, proof = f"{peers[0].url}/hops/{hops}/x", {"X-Payment-Id": "pay_mine"}
    auth = PaymentAuth(Wallet.create())
    if is_followed:
        assert get(url, auth, headers=proof).status_code == 200
    else:
        with pytest.raises(PaymentFailed, match="4 times; at most 3"):
            get(url, auth, headers=proof)


@CLIENTS
def test_the_callers_trace_is_called_all_the_same(get: Get, peers: Peers) -> None:
    seen: list[str] = []

    def trace(event: str, _: Any) -> None:
        seen.append(event)

    async def trace_async(event: str, info: Any) -> None:
        trace(event, info)

    extensions = {"trace": trace if get is in_sync else trace_async}
    proof = {"X-Payment-Id": "pay_mine"}
    get(f"{peers[0].url}/hops/1/x", PaymentAuth(Wallet.create()), headers=proof,
        extensions=extensions)  # fmt: skip
    assert seen.count("http11.send_request_headers.started") == 2


def test_the_origin_is_known_behind_a_proxy(peers: Peers) -> None:
    shop, elsewhere = peers
    auth = PaymentAuth(Wallet.create(), pay_path="/away/307")
    with httpx.Client(proxy=shop.url, follow_redirects=True, auth=auth) as http:
        with pytest.raises(PaymentFailed, match=REFUSED):
            http.get("http://shop.test/pays/x")
        proof = {"X-Payment-Id": "pay_mine"}
        assert http.get("http://shop.test/hops/2/x", headers=proof).status_code == 200
    assert [path for path, _, _ in shop.seen][:2] == ["/pays/x", "/away/307"]
    assert elsewhere.seen == []


def test_another_transport_is_found_out_by_the_url_of_the_answer() -> None:
    """A transport of the caller's own knows no trace: nothing is paid or believed afterwards."""

    def serve(request: httpx.Request) -> httpx.Response:
        if request.url.host == "away":
            return httpx.Response(200)
        return httpx.Response(302, headers={"Location": "http://away/"})

    transport = httpx.MockTransport(serve)
    auth = SessionAuth(Wallet.create(), session_id="session_secret")
    with (
        httpx.Client(transport=transport, follow_redirects=True, auth=auth) as http,
        pytest.raises(PaymentFailed, match=REFUSED),
    ):
        http.get("http://shop/")


@pytest.mark.parametrize(
    ("method", "url", "headers", "passes"),
    [
        ("GET", "http://[::1]:80/x", {}, True),
        ("GET", "http://[::1]:81/x", {}, False),
        ("CONNECT", "http://proxy/", {"Host": "shop:443"}, True),  # of a tunnel: without a proof
        ("CONNECT", "http://other/x", {"PAYMENT-SIGNATURE": "e30="}, False),
    ],
)
def test_a_proof_goes_to_its_origin_only(
    method: str, url: str, headers: dict[str, str], passes: bool
) -> None:
    guard = Guard(None, "http://[::1]", None, is_async=False)
    request = httpcore.Request(method, url, headers=headers)
    if passes:
        guard("http11.send_request_headers.started", {"request": request})
    else:
        with pytest.raises(PaymentFailed, match="which must not get it"):
            guard("http11.send_request_headers.started", {"request": request})
