"""A payment of one session is not shown for another one."""

import gc
from typing import Any

import httpx
import pytest

from tests.payer.shop import Reply, Shop, opened, payer, served
from tests.rig import ServiceRig, scene
from x402sim import LocalServer, PaymentAuth, PaymentFailed, SessionAuth, Wallet
from x402sim.payer.session import _Session

CREATE = "/api/sessions/create"
ROUTE = f"http://shop{CREATE}"
SMALL = {"maxSpend": "0.01", "duration": 60}
LARGE = {"maxSpend": "0.05", "duration": 60}
LONG = {"maxSpend": "0.01", "duration": 3600}


async def create(rig: ServiceRig, auth: httpx.Auth, terms: dict[str, Any]) -> dict[str, Any]:
    answer = await rig.http.post(CREATE, json=terms, auth=auth)
    assert answer.status_code == 201
    body: dict[str, Any] = answer.json()
    return body


@scene
async def test_each_session_has_the_terms_that_were_asked_for(rig: ServiceRig) -> None:
    """Our service, too, hands out the old session, whatever the body says."""
    auth = PaymentAuth(rig.alice, clock=rig.clock)
    small, large, long = [await create(rig, auth, each) for each in (SMALL, LARGE, LONG)]
    assert [each["deposited"] for each in (small, large, long)] == ["10000", "50000", "10000"]
    assert long["expiresAt"] - small["expiresAt"] == 3_540_000
    assert len({each["sessionId"] for each in (small, large, long)}) == 3
    again = await create(rig, auth, {"duration": 60, "note": "another order", "maxSpend": "0.01"})
    assert again["sessionId"] == small["sessionId"]
    assert rig.earned == auth.signed_base == 70_000


def test_an_unfinished_deposit_is_not_shown_for_other_terms() -> None:
    """The first is paid, and its session is not handed over."""
    troubles: list[Reply] = [(503, {})]
    shop, auth = Shop(), payer()
    shop.serves = lambda proof: (troubles.pop() if troubles else (201, {})) if proof else None
    with shop.client(auth) as http:
        assert http.post(ROUTE, json=SMALL).status_code == 503
        assert http.post(ROUTE, json=LARGE).status_code == 201
        assert http.post(ROUTE, json=SMALL).status_code == 201
    first, second = (body["paymentId"] for body in shop.settled)
    shown = [proof for _, proof in shop.asked]
    assert shown == [None, first, None, second, first]


def test_an_authorization_for_other_terms_is_not_sent_again_for_these() -> None:
    shop, auth = Shop(settles=lambda _: (503, {})), payer()
    with shop.client(auth) as http:
        for terms in (SMALL, LARGE, SMALL):
            with pytest.raises(PaymentFailed, match="signs no other"):
                http.post(ROUTE, json=terms)
    small, large, again = (body["paymentHeader"] for body in shop.settled)
    assert small == again != large


def test_the_terms_of_a_body_that_is_read_once_count_too() -> None:
    shop = Shop(serves=opened)
    bodies = [b'{"maxSpend":"0.01",', b'"duration":60}'], [b'{"maxSpend":"0.05","duration":60}']
    with shop.client(payer()) as http:
        for body in bodies:
            assert http.post(ROUTE, content=iter(body)).status_code == 201
    assert len(shop.headers) == 2


@pytest.mark.parametrize(
    "body", [b"maxSpend", b'{"a":"maxSpend"}', b'["maxSpend"]', b'{"maxSpend":', b"\xffmaxSpend"]
)
def test_any_other_body_is_paid_for_with_its_path(body: bytes) -> None:
    shop, auth = Shop(serves=served), payer()
    with shop.client(auth) as http:
        for content in (body, b"{}"):
            assert http.post(ROUTE, content=content).status_code == 200
    assert len(shop.headers) == 1


def test_a_session_payer_whose_budget_is_changed_asks_for_that() -> None:
    """Its first deposit has opened no session yet."""
    troubles: list[Reply] = [(503, {})]
    shop = Shop(serves=lambda proof: troubles.pop() if proof and troubles else opened(proof))
    auth = SessionAuth(Wallet.create(), deposit="1.00", max_sessions=2)
    with shop.client(auth) as http:
        with pytest.raises(PaymentFailed, match="not opened"):
            http.get("http://shop/x")
        auth.deposit = "0.50"
        assert http.get("http://shop/x").status_code == 200
    first, second = (body["paymentId"] for body in shop.settled)
    assert auth.session_id == f"session_{second}" != f"session_{first}"


def test_a_session_whose_answers_are_being_read_has_served() -> None:
    """As `PaymentAuth`: the budget is over, and no answer was read to its end yet."""
    with LocalServer() as server:
        auth = SessionAuth(server.wallets[0], deposit="0.02", max_sessions=2)
        with httpx.Client(base_url=server.url, auth=auth) as http:
            open_, sessions = list[httpx.Response](), list[str | None]()
            for _ in range(3):
                request = http.build_request("GET", "/api/perp/market")
                open_.append(http.send(request, stream=True))
                sessions.append(auth.session_id)
            assert [each.status_code for each in open_] == [200] * 3
            assert sessions[0] == sessions[1] != sessions[2]
            for each in open_:
                each.close()


def test_an_answer_that_was_dropped_unread_is_not_being_read() -> None:
    """Else a server could sell sessions for a single answer that nobody reads."""
    session = _Session("session_1")
    answers = [httpx.Response(200, content=iter([b"goods"])) for _ in range(2)]
    for each in answers:
        session.reading.add(each)
    session.note_read(answers.pop(), is_whole=False)
    assert session.serves, "the other answer is being read"
    answers.clear()
    del each
    gc.collect()
    assert not session.serves
