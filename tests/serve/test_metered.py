"""A good sold `upto` by a server: our payer, lost answers, hang-ups, a restart, an API behind."""

import asyncio
import threading
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.serve.driver import until
from tests.serve.paying import approve
from tests.serve.test_selling import Shop, earned, plain, shop
from x402sim import Fault, LocalServer, PaymentAuth
from x402sim.events import AuthorizationConsumed, UsageSettled
from x402sim.report.reading import Reading
from x402sim.report.trace import lines
from x402sim.service.sources import behind

USED = 12_300


def auth(server: LocalServer) -> PaymentAuth:
    return PaymentAuth(
        server.wallets[0], max_amount="1", clock=server.clock, permit2=True, network=server.network
    )


class Chat:
    """The good's function; `may_end` lets it answer."""

    def __init__(self) -> None:
        self.works, self.may_end = 0, threading.Event()
        self.may_end.set()

    async def __call__(self, _: Any) -> Any:
        self.works += 1
        while not self.may_end.is_set():
            await asyncio.sleep(0.005)
        return "hello", "0.0123"


@pytest.fixture
def sold() -> Iterator[tuple[LocalServer, Chat]]:
    chat = Chat()
    with LocalServer(sells={"GET /chat upto 0.05": chat}) as server:
        approve(server)
        yield server, chat


def test_our_payer_pays_what_was_used(sold: tuple[LocalServer, Chat]) -> None:
    server, _ = sold
    payer = auth(server)
    with plain(server, auth=payer) as http:
        assert http.get("/chat").text == "hello"
    assert (earned(server), payer.signed_base) == (USED, 50_000)
    assert payer.settlements[0].amount == str(USED)
    told = [line.text for line in lines(Reading(server.journal))]
    assert "used 0.0123 of at most 0.05 token" in told
    assert "0.0123 of at most 0.05 token settled" in told
    every = [entry.event for entry in server.journal]
    (settled,) = (each for each in every if isinstance(each, UsageSettled))
    (used,) = (each for each in every if isinstance(each, AuthorizationConsumed))
    assert (used.tx_hash, used.authorizer) == (settled.tx_hash, server.wallets[0].address)


@pytest.mark.parametrize(
    "does", ["lose answer", "lose request", "refuse", "crash before", "crash after"]
)
def test_a_lost_settlement_is_neither_repeated_nor_forgotten(
    sold: tuple[LocalServer, Chat], does: Any
) -> None:
    server, chat = sold
    server.fault(Fault(victim="facilitator", does=does, path="/settle"))
    payer = auth(server)
    with plain(server, auth=payer) as http:

        def is_served() -> bool:
            """After an error the same request sends the same signature."""
            with suppress(httpx.TransportError):
                return http.get("/chat").text == "hello"
            return False

        until(is_served)
    assert (earned(server), chat.works, payer.signed_base) == (USED, 1, 50_000)
    assert len(server.transfers()) == 1


def test_who_hangs_up_within_the_work_pays_and_gets_the_answer_later(
    sold: tuple[LocalServer, Chat],
) -> None:
    server, chat = sold
    payer = auth(server)
    chat.may_end.clear()
    with plain(server, auth=payer, timeout=0.4) as http, pytest.raises(httpx.ReadTimeout):
        http.get("/chat")
    assert (chat.works, earned(server)) == (1, 0)
    chat.may_end.set()
    until(lambda: earned(server) == USED)
    with plain(server, auth=payer) as http:
        assert http.get("/chat").text == "hello"
    assert (earned(server), chat.works, payer.signed_base) == (USED, 1, 50_000)


def test_what_is_owed_is_settled_after_a_restart(tmp_path: Path) -> None:
    chat, file = Chat(), tmp_path / "world.db"
    sells = {"GET /chat upto 0.05": chat}
    with LocalServer(file=file, sells=sells) as server:
        approve(server)
        server.fault(Fault(victim="facilitator", does="refuse", path="/settle", times=None))
        payer = auth(server)
        with plain(server, auth=payer) as http:
            assert http.get("/chat").json()["error"] == "Settlement pending"
        assert earned(server) == 0
    with LocalServer(file=file, sells=sells) as server:
        until(lambda: earned(server) == USED)
    assert chat.works == 1


class MeteredShop(Shop):
    def send_response(self, code: int, message: str | None = None) -> None:
        super().send_response(code, message)
        self.send_header("X-Amount-Used", "0.0123")


def test_an_api_behind_says_the_amount_in_a_header(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tests.serve.test_selling.Shop", MeteredShop)
    with (
        shop() as (url, _),
        LocalServer(sells=tuple(behind(url, ["/chat upto 0.05"]))) as server,
        plain(server, auth=auth(server)) as http,
    ):
        approve(server)
        answer = http.get("/chat")
        assert (answer.json(), earned(server)) == ({"path": "/chat"}, USED)
        assert "x-amount-used" not in answer.headers
