"""Many payments at a time on a node that is asked in batches: the laws of one payment hold for all."""

import asyncio
import time
from collections.abc import Iterator

import httpx
import pytest

from tests.chain.helpers import RELAYER, SHOP, authorization, nonce
from tests.evm.between import Between, refuses
from tests.evm.helpers import Town
from tests.evm.test_external import no_automine, pay_call
from tests.facilitator.test_standard import SETTLE, VERIFY, asking
from x402sim.chain.base import ChainError, TxReceipt
from x402sim.chain.node.any_node import NodeGone
from x402sim.chain.node.batching import LANES, BatchingNode
from x402sim.chain.node.evm_chain import EvmChain
from x402sim.clock import Clock
from x402sim.facilitator.app import facilitator_app
from x402sim.facilitator.engine import Facilitator
from x402sim.http.exchange import OverClient, Request, Response, Transport
from x402sim.protocol.crypto import parse_key
from x402sim.protocol.networks import TESTNET

SEND = "eth_sendRawTransaction"


@pytest.fixture
def chain(town: Town, between: Between) -> Iterator[EvmChain]:
    """The chain of `x402sim facilitator`."""
    http = httpx.AsyncClient(timeout=None)
    node = BatchingNode(OverClient(http), between.url)
    yield EvmChain(node, TESTNET, Clock(), [parse_key(RELAYER.private_key)], may_lag=False)
    town.run(http.aclose())


async def settled(chain: EvmChain, *names: object) -> list[TxReceipt]:
    sent = await asyncio.gather(*(chain.send(pay_call(name)) for name in names))
    return await asyncio.gather(*(chain.wait(tx_hash, 10) for tx_hash in sent))


def counts(town: Town, receipts: list[TxReceipt]) -> list[int]:
    """Return the nonces of transactions that took effect, in order."""
    assert all(each.succeeded for each in receipts)
    found = [town.run(town.anvil.transaction(each.tx_hash)) for each in receipts]
    return sorted(each.nonce for each in found if each)


def test_each_of_many_payments_is_settled_once_however_often_it_is_asked_for(
    town: Town, between: Between, chain: EvmChain
) -> None:
    one = Facilitator(
        chain=chain,
        clock=town.clock,
        network=TESTNET,
        account=RELAYER.address_bytes,
        started_s=town.clock.now(),
    )
    bodies = [asking(2, authorization(nonce=nonce(n), value=10_000)) for n in range(10)]

    async def pay() -> list[bool]:
        transport = httpx.ASGITransport(facilitator_app(one))
        async with httpx.AsyncClient(transport=transport, base_url="http://f.test") as http:
            verified = await asyncio.gather(*(http.post(VERIFY, json=each) for each in bodies))
            assert all(each.json()["isValid"] for each in verified)
            answers = await asyncio.gather(*(http.post(SETTLE, json=each) for each in bodies * 3))
        return [each.json()["success"] for each in answers]

    moved = town.run(pay())
    assert [sum(moved[n :: len(bodies)]) for n in range(len(bodies))] == [1] * len(bodies)
    driver = town.driver(town.anvil)
    assert driver.balance(SHOP) == len(bodies) * 10_000
    sent = town.run(town.anvil.account_nonce(RELAYER.address_bytes))
    assert sent == len(bodies), "no transaction without effect, which costs gas"
    assert max(batch.count(SEND) for batch in between.batches) > 1
    assert max(batch.count("eth_call") for batch in between.batches) > 1


@pytest.mark.parametrize("answer", [refuses(-32600, "no batches")(), 400, [], b"<html>"])
def test_a_node_that_refuses_batches_is_asked_one_by_one(
    town: Town, between: Between, chain: EvmChain, answer: object
) -> None:
    whole = between.answer
    batches: list[object] = []

    def alone(asked: object) -> object:
        if isinstance(asked, list):
            batches.append(asked)
            return answer
        return whole(asked)

    between.answer = alone
    assert counts(town, town.run(settled(chain, 1, 2, 3))) == [0, 1, 2]
    assert len(batches) == 1
    between.close()
    with pytest.raises(NodeGone):
        town.run(chain.height())


def test_answers_in_another_order_and_errors_find_those_who_asked(
    town: Town, between: Between, chain: EvmChain
) -> None:
    whole = between.answer
    between.answer = lambda asked: whole(asked)[::-1] if isinstance(asked, list) else whole(asked)
    between.rules["eth_gasPrice"] = refuses(-32000, "no price")

    async def ask() -> list[object]:
        asked = (chain.node.ask(m) for m in ("eth_chainId", "eth_gasPrice", "eth_blockNumber"))
        return await asyncio.gather(*asked, return_exceptions=True)

    first, error, last = town.run(ask())
    assert (first, last) == (hex(TESTNET.chain_id), "0x0")
    assert str(error) == "no price"


class AtOnce(Transport):
    """Answers all requests in the same moment, once there are as many as may be at a time."""

    def __init__(self) -> None:
        self.waiting, self.all_are_there = 0, asyncio.Event()

    async def send(self, request: Request) -> Response:
        self.waiting += 1
        if self.waiting == LANES:
            self.all_are_there.set()
        await self.all_are_there.wait()
        return Response(200, [], b'{"jsonrpc": "2.0", "id": 1, "result": "0x1"}')


def test_whoever_asks_when_all_requests_end_is_answered() -> None:
    async def ask() -> None:
        node = BatchingNode(AtOnce(), "http://node.test")

        async def some(number: int) -> None:
            for _ in range(5 * number):
                await asyncio.sleep(0)
            for _ in range(1 + number):
                assert await node.ask("eth_blockNumber") == "0x1"

        async with asyncio.timeout(5):
            await asyncio.gather(*map(some, range(LANES)))

    asyncio.run(ask())


@pytest.mark.parametrize("place", [0, 1, 3])
def test_a_refused_transaction_leaves_no_gap_in_the_nonces(
    town: Town, between: Between, chain: EvmChain, place: int
) -> None:
    """Before an accepted one it counts as sent, and is sent again; the last has failed."""
    numbers = iter(range(100))

    def send(raw: str) -> object:
        limit = refuses(-32005, "limit exceeded")
        return limit() if next(numbers) == place else between.truth(SEND, raw)

    between.rules[SEND] = send
    if place < 3:
        assert counts(town, town.run(settled(chain, *range(4)))) == [0, 1, 2, 3]
        return
    with pytest.raises(ChainError, match="limit exceeded"):
        town.run(settled(chain, *range(4)))
    [receipt] = town.run(settled(chain, "next"))
    assert counts(town, [receipt]) == [3]


def test_dropped_transactions_are_sent_again_before_the_next(
    town: Town, between: Between, chain: EvmChain
) -> None:
    no_automine(town)

    async def send() -> list[TxReceipt]:
        sent = [await chain.send(pay_call(name)) for name in range(2)]
        await town.anvil.controls.drop()
        sent.append(await chain.send(pay_call("next")))
        await town.anvil.controls.mine()
        return await asyncio.gather(*(chain.wait(tx_hash, 10) for tx_hash in sent))

    assert counts(town, town.run(send())) == [0, 1, 2]


@pytest.mark.parametrize("has_begun", [False, True])
def test_who_hangs_up_while_others_send_costs_them_nothing(
    town: Town, between: Between, chain: EvmChain, has_begun: bool
) -> None:
    """A transaction that nobody has sent yet is not sent; one on its way is known to be sent."""
    truth = between.truth
    between.rules[SEND] = lambda raw: time.sleep(0.05) or truth(SEND, raw)

    async def send() -> list[TxReceipt]:
        tasks = [asyncio.create_task(chain.send(pay_call(name))) for name in range(3)]
        while has_begun and SEND not in between.seen:
            await asyncio.sleep(0.005)
        await asyncio.sleep(0)
        tasks[0].cancel()
        sent = await asyncio.gather(*tasks[1:])
        return await asyncio.gather(*(chain.wait(tx_hash, 10) for tx_hash in sent))

    assert counts(town, town.run(send())) == ([1, 2] if has_begun else [0, 1])
    assert len(chain._sender.sent) == has_begun
