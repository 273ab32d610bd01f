"""A payer at shops that do not serve: it pays once, keeps what it paid, and says so."""

import asyncio
import re
from collections.abc import AsyncIterator, Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx
import pytest

from tests.payer.shop import (
    LOST,
    URL,
    Reply,
    Shop,
    all_at_once,
    ask,
    opened,
    payer,
    receipt,
    served,
)
from x402sim import PaymentAuth, SessionAuth, Wallet
from x402sim.payer.core import PaidNotServed
from x402sim.world.loop import run_virtual

REUSE = pytest.mark.parametrize("reuse", [True, False])


@REUSE
def test_a_shop_that_takes_the_payment_and_asks_again_gets_no_more(reuse: bool) -> None:
    shop, auth = Shop(), payer(reuse=reuse)
    said = [ask(shop, auth) for _ in range(5)]
    assert {type(each) for each in said} == {PaidNotServed}
    assert (len(shop.headers), auth.signed_base) == (1, 10_000)
    first = shop.settled[0]["paymentId"]
    assert shop.asked == [("/x", None), ("/x", first)] + [("/x", first)] * 4
    text = str(said[-1])
    assert "http://shop/x was paid 0.01 devUSDC.e" in text
    assert f"transaction 0x{'1' * 64}" in text
    assert "max_unserved (now 1)" in text
    assert first not in text, "the payment id is a proof of payment"


def test_each_payment_that_bought_nothing_is_named() -> None:
    shop, auth = Shop(settles=lambda body: made(len(shop.settled), body)), payer(max_unserved=2)

    def made(number: int, body: dict[str, Any]) -> Any:
        return 200, receipt(body)[1] | {"txHash": f"0x{number}"}

    assert [type(ask(shop, auth)) for _ in range(2)] == [PaidNotServed] * 2
    text = str(ask(shop, auth))
    assert "(transaction 0x1)" in text
    assert "(transaction 0x2)" in text
    assert auth.signed_base == 20_000


@REUSE
def test_many_threads_and_tasks_pay_a_shop_once_that_does_not_serve(reuse: bool) -> None:
    """Many times: a task must be woken in its own loop, whoever lets it go on."""
    for _ in range(15):
        shop, auth = Shop(), payer(deadline_s=10, reuse=reuse)

        def get(number: int, shop: Shop = shop, auth: PaymentAuth = auth) -> list[Any]:
            if number % 2:
                return all_at_once(shop, auth, 2)
            return [ask(shop, auth)]

        with ThreadPoolExecutor(6) as threads:
            told = [type(each) for all_ in threads.map(get, range(12)) for each in all_]
        assert set(told) == {PaidNotServed}
        assert (len(shop.headers), auth.signed_base) == (1, 10_000)


def test_a_payment_that_was_served_is_followed_by_another_when_it_has_expired() -> None:
    good: set[str | None] = set()
    shop, auth = Shop(serves=lambda proof: (200, {}) if proof in good else None), payer()

    def settle(body: dict[str, Any]) -> Reply:
        good.add(body["paymentId"])
        return receipt(body)

    shop.settles = settle
    for _ in range(3):
        assert ask(shop, auth) == 200
        good.clear()
    assert auth.signed_base == 30_000


@REUSE
@pytest.mark.parametrize("status", [500, 503, 404, 422])
def test_a_payment_without_an_answer_is_shown_until_it_is_served(reuse: bool, status: int) -> None:
    trouble: list[Reply] = [(status, {}), (status, {})]
    shop, auth = Shop(), payer(reuse=reuse)
    shop.serves = lambda proof: (trouble.pop() if trouble else (200, {})) if proof else None
    assert [ask(shop, auth) for _ in range(3)] == [status, status, 200]
    assert (len(shop.headers), auth.signed_base) == (1, 10_000)


# --- sessions --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "trouble",
    [LOST, (500, {}), (201, {}), (201, []), (201, {"sessionId": "a b"}), (201, "x")],
    ids=repr,
)
def test_a_deposit_that_opened_no_session_is_shown_again(trouble: Reply | Exception) -> None:
    troubles = [trouble] * 2
    shop = Shop(serves=lambda proof: troubles.pop() if proof and troubles else opened(proof))
    auth = SessionAuth(Wallet.create(), deposit="1.00", max_sessions=3)
    for _ in range(2):
        assert re.search(r"session|answer names|lost", str(ask(shop, auth)))
    assert ask(shop, auth) == 200
    assert len(shop.headers) == 1


@pytest.mark.parametrize("max_unserved", [1, 2])
def test_a_session_that_never_served_is_followed_by_no_other(max_unserved: int) -> None:
    """Unless the caller asks for it."""
    shop = Shop(serves=lambda proof: opened(proof) if proof and proof.startswith("pay_") else None)
    limits: dict[str, Any] = {"max_sessions": 5, "max_unserved": max_unserved}
    auth = SessionAuth(Wallet.create(), deposit="1.00", **limits)
    for _ in range(3):
        said = ask(shop, auth)
        assert isinstance(said, PaidNotServed)
        assert "has bought nothing yet, and answers 402" in str(said)
    assert len(shop.headers) == max_unserved


def test_a_request_that_showed_an_old_session_shows_the_new_one() -> None:
    ended, asked = set[str](), httpx.Request("GET", URL)
    shop = Shop(lambda proof: None if proof in ended else opened(proof))
    auth = SessionAuth(Wallet.create(), max_sessions=2)
    with shop.client(auth) as http:
        assert http.send(asked).status_code == 200
        ended.add(asked.headers["X-Session-Id"])
        assert http.get(URL).status_code == 200
        assert http.send(asked).status_code == 200


def test_an_old_body_that_ends_does_not_speak_for_a_new_session_of_the_same_id() -> None:
    """A server that uses an id twice sells no third session for the goods of the first."""
    auth = SessionAuth(Wallet.create(), deposit="1.00", max_sessions=5)
    bodies = [b"goods"]

    def reply(proof: str | None) -> Reply | None:
        return (201, {"sessionId": "session_1"}) if proof and proof.startswith("pay_") else None

    shop = Shop(serves=reply)

    def answer(request: httpx.Request) -> httpx.Response:
        if bodies and request.headers.get("x-session-id"):
            return httpx.Response(200, content=iter([bodies.pop()]))
        return shop(request)

    with httpx.Client(transport=httpx.MockTransport(answer), auth=auth) as http:
        with http.stream("GET", URL) as old:
            with pytest.raises(PaidNotServed):
                http.get(URL)
            old.read()
        with pytest.raises(PaidNotServed):
            http.get(URL)
    assert len(shop.headers) == 2


# --- deadlines and cancellations, in virtual time ---------------------------------------------


class Silence:
    """An asynchronous shop that is silent for some seconds before it answers at a path."""

    def __init__(self, shop: Shop, *pauses_s: float, path: str = "/api/pay") -> None:
        self.shop, self.pauses_s, self.path = shop, list(pauses_s), path

    async def __call__(self, request: httpx.Request) -> httpx.Response:
        if request.url.path == self.path and self.pauses_s:
            await asyncio.sleep(self.pauses_s.pop())
        return self.shop(request)


def virtually(auth: httpx.Auth, shop: Silence, act: Callable[[httpx.AsyncClient], Any]) -> float:
    """Act with a client in virtual time; return how long it took."""

    async def main() -> float:
        transport = httpx.MockTransport(shop)
        async with httpx.AsyncClient(transport=transport, auth=auth, timeout=None) as http:
            await act(http)
        return asyncio.get_running_loop().time()

    return run_virtual(main)


@pytest.mark.parametrize("deadline_s", [120, 30], ids=["before ours", "at the same moment"])
def test_the_callers_own_deadline_has_priority(deadline_s: float) -> None:
    auth = payer(deadline_s=deadline_s)

    async def act(http: httpx.AsyncClient) -> None:
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(30):
                await http.get(URL)
        task = asyncio.current_task()
        assert task is not None
        assert task.cancelling() == 0
        assert (await http.get(URL)).status_code == 200

    shop = Shop(serves=served)
    assert virtually(auth, Silence(shop, 100_000.0), act) == pytest.approx(30, abs=1)
    assert auth.signed_base == 10_000


def test_a_cancelled_request_lets_the_next_one_pay() -> None:
    auth = payer()

    async def act(http: httpx.AsyncClient) -> None:
        first, second = (asyncio.create_task(http.get(URL)) for _ in range(2))
        await asyncio.sleep(10)
        first.cancel()
        with pytest.raises(asyncio.CancelledError):
            await first
        assert (await second).status_code == 200

    shop = Shop(serves=served)
    virtually(auth, Silence(shop, 50.0), act)
    assert (len(shop.headers), auth.signed_base) == (1, 10_000)


def test_a_late_refusal_of_an_old_session_does_not_end_the_new_one() -> None:
    auth = SessionAuth(Wallet.create(), deposit="1.00", max_sessions=2)
    shop = Shop(serves=opened)

    async def act(http: httpx.AsyncClient) -> None:
        assert (await http.get(URL)).status_code == 200
        old = auth.session_id
        shop.serves = lambda proof: None if proof == old else opened(proof)
        answers = await asyncio.gather(http.get(URL), http.get(URL))
        assert [answer.status_code for answer in answers] == [200, 200]

    virtually(auth, Silence(shop, 10.0, 0.0, 0.0, path="/x"), act)
    assert len(shop.headers) == 2


def test_the_paid_answer_can_be_streamed_and_is_the_callers() -> None:
    """What was paid for has no limit: only what the payer itself reads has one."""
    shop = Shop(serves=lambda proof: (200, "x" * 100_000) if proof else None)
    with shop.client(payer(max_answer_bytes=10_000)) as http, http.stream("GET", URL) as answer:
        assert sum(len(part) for part in answer.iter_bytes()) > 100_000


def test_an_async_body_that_can_be_read_once_is_sent_twice() -> None:
    seen: list[bytes] = []
    shop = Shop(serves=served)

    class Wire(httpx.AsyncBaseTransport):
        async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
            assert isinstance(request.stream, httpx.AsyncByteStream)
            seen.append(b"".join([part async for part in request.stream]))
            return shop(request)

    async def body() -> AsyncIterator[bytes]:
        yield b"a"
        yield b"b"

    async def main() -> None:
        async with httpx.AsyncClient(transport=Wire(), auth=payer()) as http:
            assert (await http.post(URL, content=body())).status_code == 200

    asyncio.run(main())
    assert seen[0] == seen[-1] == b"ab"
