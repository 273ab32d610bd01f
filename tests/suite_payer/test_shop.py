"""The shop of a case, and what it counts, at payers that do what no library does."""

import asyncio
import json
from dataclasses import replace
from typing import Any

import httpx
import msgspec
import pytest
from msgspec.structs import replace as changed

from x402sim.payer.wallet import Wallet
from x402sim.protocol import x402
from x402sim.protocol.eip3009 import Authorization
from x402sim.protocol.networks import BASE_SEPOLIA
from x402sim.suite.dialect import Dialect
from x402sim.suite.payer.play import Function, Purchase, Task, play
from x402sim.suite.payer.shop import PAYMENT_ID_HEADER, Offer, Settled, Shop, Signed, Story, Strike
from x402sim.suite.wire import How, Reply, Request, listening

WALLET = Wallet(b"\x12" * 32)
PAYEE, THIEF = b"\x11" * 20, b"\x33" * 20
MAINNET = changed(BASE_SEPOLIA.domain, chain_id=8453)
HOST = "127.0.0.1:1"


def authorization(wallet: Wallet, value: int, to: bytes) -> Authorization:
    return Authorization(wallet.address_bytes, to, value, 0, 2**33, b"\x55" * 32)


def shop(flow: Dialect, story: Story) -> Shop:
    """A shop whose facilitator settles nothing."""

    async def settle(_: Signed) -> Settled:
        return Settled("", "insufficient_funds")

    right = Offer(amount="10000", pay_to="0x" + PAYEE.hex(), asset="0x" + "22" * 20, network="x")
    return Shop(
        flow=flow, story=story, network=BASE_SEPOLIA, right=right, goods="goods-0123456789",
        origin=f"http://{HOST}", other="http://127.0.0.1:2", thief="0x" + THIEF.hex(), settle=settle,
    )  # fmt: skip


def asked(it: Shop, path: str, body: Any = None, *, pays: bool = False, **headers: str) -> Reply:
    auth = authorization(WALLET, 10_000, PAYEE)
    found = [Signed(auth, WALLET.sign(auth, BASE_SEPOLIA.domain), BASE_SEPOLIA.domain)]
    names = {name.replace("_", "-"): value for name, value in headers.items()}
    request = Request("POST", path, names, json.dumps(body).encode(), HOST)
    return asyncio.run(it.answer(request, found if pays else []))


def test_blanks_around_a_value_are_none_of_it() -> None:
    seen: list[Request] = []

    async def answer(request: Request) -> Reply:
        seen.append(request)
        return Reply()

    async def main() -> None:
        async with listening(answer) as port:
            stream, out = await asyncio.open_connection("127.0.0.1", port)
            out.write(b"GET / HTTP/1.1\r\nhOST:\t 127.0.0.1:1 \r\nX-Payment-Id: pay_1  \r\n\r\n")
            await stream.read()
            out.close()

    asyncio.run(main())
    assert (seen[0].at, seen[0].headers["x-payment-id"]) == (HOST, "pay_1")


def test_who_has_not_paid_gets_nothing_when_the_story_strikes() -> None:
    lost = Strike(settles=True, reply=lambda _, right: replace(right, how=How.LOST))
    in_steps = shop(Dialect.STEPS, Story(strikes=(lost,)))
    assert asked(in_steps, "/api/pay", {"paymentId": "pay_1"}, pays=True).how is How.LOST
    assert (
        asked(in_steps, "/report", **{PAYMENT_ID_HEADER.replace("-", "_"): "pay_1"}).status == 402
    )
    late = Strike(settles=True, reply=lambda _, right: right)
    assert asked(shop(Dialect.V2, Story(strikes=(late,))), "/report", pays=True).status == 402


@pytest.mark.parametrize("deposit", ["inf", "1e400", "nan", "much"])
def test_a_deposit_that_is_no_amount_is_refused(deposit: str) -> None:
    it = shop(Dialect.SESSION, Story())
    assert asked(it, "/api/sessions/create", {"maxSpend": deposit}).status == 400


def test_a_body_that_is_no_object_is_answered() -> None:
    assert asked(shop(Dialect.STEPS, Story()), "/api/pay", [1], pays=True).status == 402


def signing(*signed: tuple[int, Any]) -> Purchase:
    """What is counted of a payer that signs so much for each domain, always with one nonce."""

    def buy(task: Task) -> None:
        wallet = Wallet(task.private_key)
        for value, domain in signed:
            auth = authorization(wallet, value, THIEF)
            payload = x402.exact_payload(auth, wallet.sign(auth, domain))
            httpx.post(task.url, json={"payload": msgspec.to_builtins(payload)})

    story = Story(offers=lambda _, right: [right, replace(right, network="eip155:8453")])
    return asyncio.run(
        play(
            Function(buy).start, Dialect.V2, story, name="one nonce", network=BASE_SEPOLIA, seed=1,
            patience_s=60, limit_starts=1,
        )
    )  # fmt: skip


def test_of_authorizations_with_one_nonce_the_dearest_counts_and_on_each_chain() -> None:
    ours = BASE_SEPOLIA.domain
    assert signing((10_000, ours), (50_000, ours)).committed_base == 50_000
    assert signing((50_000, ours), (10_000, ours)).committed_base == 50_000
    both = signing((10_000, ours), (50_000, MAINNET))
    assert (both.committed_base, len(both.elsewhere), len(both.exposed)) == (60_000, 1, 1)


def test_a_session_has_what_was_deposited_whatever_the_payer_asks_for_then() -> None:
    async def settle(_: Signed) -> Settled:
        return Settled("0x" + "ab" * 32)

    it = shop(Dialect.SESSION, Story())
    it.settle = settle
    pays = {"paymentId": "pay_1"}
    assert asked(it, "/api/pay", pays, pays=True).status == 200  # 10000 base units
    shown = {PAYMENT_ID_HEADER.replace("-", "_"): "pay_1"}
    opened = asked(it, "/api/sessions/create", {"maxSpend": "1000"}, **shown)
    assert (opened.status, json.loads(opened.body)["deposited"]) == (201, "10000")
    for amount in ("-1", "1e3", "inf", None):
        assert asked(it, "/api/sessions/create", {"maxSpend": amount}).status == 400
