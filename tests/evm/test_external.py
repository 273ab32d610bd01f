"""Somebody else's node: we have keys and no power, and the node can fail in many ways."""

import asyncio
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from msgspec import structs

from tests.chain.helpers import ALICE, MALLORY, OWNER, RELAYER, TOKEN, nonce, payment
from tests.evm.between import Between, refuses, says
from tests.evm.helpers import Town
from x402sim.chain.base import Call, ChainError, Reverted
from x402sim.chain.node import evm_chain
from x402sim.chain.node.any_node import NodeGone
from x402sim.chain.node.evm import JsonRpcNode
from x402sim.chain.node.external import ExternalChain
from x402sim.clock import Clock
from x402sim.payer.wallet import Wallet
from x402sim.protocol import abi
from x402sim.protocol.crypto import Hash, from_hex, to_hex
from x402sim.protocol.networks import TESTNET, Network

KEYS = [from_hex(wallet.private_key, 32) for wallet in (RELAYER, ALICE, OWNER)]
UNKNOWN = Hash(b"\x99" * 32)


def pay_call(name: object = "first", sender: Wallet = RELAYER) -> Call:
    return Call(sender.address_bytes, TOKEN, payment(name))


@pytest.fixture(autouse=True)
def short_timeout(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(evm_chain, "POLL_S", 0.01)


@pytest.fixture
def connect() -> Iterator[Callable[..., ExternalChain]]:
    """Connects to a node that is not ours."""
    chains: list[ExternalChain] = []

    def connect(url: str, timeout_s: float = 2, network: Network = TESTNET) -> ExternalChain:
        chains.append(ExternalChain(JsonRpcNode(url, timeout_s=timeout_s), network, Clock(), KEYS))
        return chains[-1]

    yield connect
    for chain in chains:
        chain.close()


@pytest.fixture
def chain(between: Between, connect: Callable[..., ExternalChain]) -> ExternalChain:
    """A chain on a node that is not ours; `between` sees what it asks and can change answers."""
    return connect(between.url)


@pytest.fixture
def run(town: Town):
    return town.run


# --- what it is for ------------------------------------------------------------------


def test_sending_uses_eth_methods_only(run, chain, between):
    tx_hash = run(chain.send(pay_call()))
    receipt = run(chain.wait(tx_hash, 5))
    assert receipt.succeeded
    assert receipt.call == pay_call()
    assert receipt.tx_hash == tx_hash
    powers = {method for method in between.seen if not method.startswith("eth_")}
    assert powers == set()


@pytest.mark.parametrize(
    ("advised", "base", "bid"), [(10**12, 0, 10**12), (10**12, 10**12, 125 * 10**10)]
)
def test_the_bid_is_the_advised_price_above_the_base_fee(run, chain, between, advised, base, bid):
    newest = between.truth("eth_getBlockByNumber", "latest", False)["result"]
    between.rules["eth_gasPrice"] = says(hex(advised))
    between.rules["eth_getBlockByNumber"] = says(newest | {"baseFeePerGas": hex(base)})
    assert run(chain.transaction(run(chain.send(pay_call())))).gas_price == bid


def test_where_only_we_bid_the_bid_does_not_grow(run, chain, between):
    """A node that advises what was paid last must not be outbid by ourselves, again and again."""
    paid: list[int] = [10**13]
    between.rules["eth_gasPrice"] = lambda: {"result": hex(paid[-1])}
    for name in range(5):
        tx_hash = run(chain.send(pay_call(name)))
        paid.append(run(chain.transaction(tx_hash)).gas_price)
    assert set(paid) == {10**13}


def test_without_a_key_it_does_not_send(run, chain):
    with pytest.raises(ChainError, match=f"no key for {MALLORY.address}"):
        run(chain.send(pay_call(sender=MALLORY)))


def test_settlements_at_the_same_moment_each_get_a_nonce(run, chain):
    async def all_at_once() -> list:
        sent = await asyncio.gather(*(chain.send(pay_call(n)) for n in range(4)))
        return await asyncio.gather(*(chain.wait(tx_hash, 10) for tx_hash in sent))

    receipts = run(all_at_once())
    assert all(receipt.succeeded for receipt in receipts)
    nonces = [run(chain.transaction(receipt.tx_hash)).nonce for receipt in receipts]
    assert sorted(nonces) == list(range(4))


def test_two_programs_with_the_same_key_get_along(run, between, connect):
    chains = [connect(between.url) for _ in range(2)] * 4

    async def by_turns() -> list:
        sent = [await chain.send(pay_call(n)) for n, chain in enumerate(chains)]
        waits = (chain.wait(tx, 5) for chain, tx in zip(chains, sent, strict=True))
        return await asyncio.gather(*waits)

    assert [receipt.succeeded for receipt in run(by_turns())] == [True] * 8


def test_a_node_without_a_count_of_the_mempool_works(run, town, chain, between):
    no_automine(town)
    count = "eth_getTransactionCount"
    between.rules[count] = lambda account, _: between.truth(count, account, "latest")
    sent = [run(chain.send(pay_call(n))) for n in range(3)]
    assert between.seen.count("eth_sendRawTransaction") == 3 + 1 + 2  # what waits, offered again
    run(town.anvil.controls.mine())
    receipts = [run(chain.wait(tx_hash, 5)) for tx_hash in sent]
    assert [(it.succeeded, it.index) for it in receipts] == [(True, 0), (True, 1), (True, 2)]


# --- another chain or token than expected --------------------------------------------


def tells(between: Between, function: bytes, word: bytes) -> Callable[..., Any]:
    """Return a rule of calls: a function answers this word, and others the truth."""
    return lambda asked, *_: (
        {"result": to_hex(word)}
        if asked["input"] == to_hex(function)
        else between.truth("eth_call", asked, "latest")
    )


def test_a_token_that_is_another_is_refused_and_one_that_says_no_domain_is_not(run, chain, between):
    between.rules["eth_call"] = tells(between, abi.DECIMALS, bytes(32))
    with pytest.raises(ChainError, match="0 decimals; wanted"):
        run(chain.check())
    between.rules["eth_call"] = tells(between, abi.DOMAIN_SEPARATOR, b"\x77" * 32)
    with pytest.raises(ChainError, match=rf"DOMAIN_SEPARATOR\(\) is 0x{'77' * 32}, wanted 0x"):
        run(chain.check())
    with pytest.raises(ChainError, match=r"the EIP-712 domain of 0xc01efA.* is not name 'Bridged"):
        run(chain.check(read=True))
    between.rules["eth_call"] = refuses(3, "execution reverted")
    run(chain.check())


# --- a node that fails ---------------------------------------------------------------

ASKS = {
    "height": lambda chain: chain.height(),
    "block": lambda chain: chain.block(0),
    "transaction": lambda chain: chain.transaction(UNKNOWN),
    "receipt": lambda chain: chain.receipt(UNKNOWN),
    "call": lambda chain: chain.call(pay_call()),
    "balance": lambda chain: chain.native_balance(TOKEN),
    "nonce": lambda chain: chain.account_nonce(TOKEN),
    "code": lambda chain: chain.code(TOKEN),
    "send": lambda chain: chain.send(pay_call()),
    "check": lambda chain: chain.check(),
}


def test_a_node_that_is_gone_is_an_error(run, chain, between):
    between.close()
    for ask in ASKS.values():
        with pytest.raises(NodeGone, match=r"no answer from http://127\.0\.0\.1:\d+ to "):
            run(ask(chain))


GONE = {
    "hangs up": (None, "ConnectionError"),
    "is HTML": (b"<html>Bad gateway</html>", "it answered no JSON"),
    **{str(status): (status, str(status)) for status in (429, 502)},
}
NONSENSE = ("latest", None, {"number": 1}, [], 7)
WRONG = {
    "is '0x'": ({"result": "0x"}, "answered eth_"),
    **{f"is {it!r}": ({"result": it}, "answered eth_") for it in NONSENSE},
    "says why": (refuses(-32005, "daily limit exceeded")(), "daily limit exceeded"),
}


@pytest.mark.parametrize("name", ["height", "nonce", "send"])
def test_an_answer_that_is_none_is_an_error(run, chain, between, name):
    for answer, (said, seen) in {**GONE, **WRONG}.items():
        for method in ("blockNumber", "getTransactionCount", "gasPrice"):
            between.rules[f"eth_{method}"] = lambda *_, said=said: said
        with pytest.raises(NodeGone if answer in GONE else ChainError, match=seen):
            run(ASKS[name](chain))


def test_an_incomplete_block_and_nonsense_for_code_are_errors_and_no_code_is_none(
    run, chain, between
):
    between.rules["eth_getBlockByNumber"] = says({"number": "0x1"})
    with pytest.raises(ChainError, match=r'answered eth_getBlockByNumber with {"number":"0x1"}'):
        run(chain.block(1))
    for wrong in NONSENSE:
        between.rules["eth_getCode"] = says(wrong)
        with pytest.raises(ChainError, match="answered eth_getCode with "):
            run(chain.code(TOKEN))
    between.rules["eth_getCode"] = says("0x")
    assert run(chain.code(TOKEN)) == b""


def test_a_node_that_never_answers_is_given_up(run, between, connect):
    chain = connect(between.url, timeout_s=0.2)
    forever = threading.Event()
    between.rules["eth_blockNumber"] = lambda *_: forever.wait(3)
    with pytest.raises(NodeGone, match="ReadTimeout"):
        run(asyncio.wait_for(chain.height(), 2))
    forever.set()


# --- what becomes of a transaction ---------------------------------------------------


def no_automine(town: Town) -> None:
    town.run(town.anvil.controls.set_automine(False))


def test_a_node_that_comes_back_while_we_wait_is_asked_again(run, town, chain, between):
    tx_hash = run(chain.send(pay_call()))
    answers = iter([None, 503, b"starting"])
    receipt, truth = "eth_getTransactionReceipt", between.truth
    between.rules[receipt] = lambda tx: next(answers, truth(receipt, tx))
    assert run(chain.wait(tx_hash, 5)).succeeded


def test_a_dropped_transaction_is_sent_again(run, town, chain, between):
    no_automine(town)
    tx_hash = run(chain.send(pay_call()))
    run(town.anvil.controls.drop())
    assert run(chain.transaction(tx_hash)) is None

    async def wait() -> bool:
        waiting = asyncio.create_task(chain.wait(tx_hash, 5))
        while await chain.transaction(tx_hash) is None:
            await asyncio.sleep(0.01)
        await town.anvil.controls.mine()
        return (await waiting).succeeded

    assert run(wait())
    assert between.seen.count("eth_sendRawTransaction") == 2


def test_a_dropped_transaction_does_not_block_later_ones(run, town, chain):
    no_automine(town)
    tx_hash = run(chain.send(pay_call("first")))
    with pytest.raises(TimeoutError, match=r"0x[0-9a-f]{64} was not mined within 0\.05 s"):
        run(chain.wait(tx_hash, 0.05))
    run(town.anvil.controls.drop())
    run(town.anvil.controls.set_automine(True))
    assert run(chain.wait(run(chain.send(pay_call("second"))), 5)).succeeded
    assert run(chain.receipt(tx_hash)).succeeded


def test_a_replaced_transaction_can_never_be_mined(run, town, chain, connect):
    no_automine(town)
    tx_hash = run(chain.send(pay_call("ours")))
    run(town.anvil.controls.drop())
    run(connect(town.node.url).send(pay_call("theirs")))
    run(town.anvil.controls.mine())
    with pytest.raises(ChainError, match=f"replaced by another .* nonce 0 of {RELAYER.address}"):
        run(chain.wait(tx_hash, 5))


def test_a_transaction_that_waits_below_its_senders_count_can_never_be_mined(
    run, town, chain, between
):
    """anvil can pass over one of many transactions sent at once, and never mines it."""
    no_automine(town)
    tx_hash = run(chain.send(pay_call()))
    truth = between.truth
    between.rules["eth_getTransactionCount"] = lambda who, block: (
        {"result": "0x1"} if block == "latest" else truth("eth_getTransactionCount", who, block)
    )
    with pytest.raises(ChainError, match=f"passed over: nonce 0 of {RELAYER.address}"):
        run(chain.wait(tx_hash, 0.05))


def test_a_transaction_that_is_mined_while_we_ask_is_not_passed_over(run, town, chain, between):
    no_automine(town)
    tx_hash = run(chain.send(pay_call()))
    truth = between.truth

    def mines_first(who: str, block: str) -> Any:
        if block == "latest":
            truth("evm_mine")  # between the receipt and the count of one batch
        return truth("eth_getTransactionCount", who, block)

    between.rules["eth_getTransactionCount"] = mines_first
    with pytest.raises(TimeoutError):
        run(chain.wait(tx_hash, 0.05))
    assert run(chain.wait(tx_hash, 5)).succeeded


def test_one_node_that_lags_behind_is_no_proof_of_replacement(run, town, chain, between):
    """Twice in a row it knows a higher nonce and not the transaction; then it catches up."""
    tx_hash = run(chain.send(pay_call()))
    truth = between.truth
    for method in ("eth_getTransactionReceipt", "eth_getTransactionByHash"):
        forgetful = iter([{"result": None}] * 2 * (1 + (method == "eth_getTransactionByHash")))
        between.rules[method] = lambda tx, m=method, f=forgetful: next(f, None) or truth(m, tx)
    assert run(chain.wait(tx_hash, 5)).succeeded


@pytest.mark.parametrize("answer", ["says why", "is 7", "is '0x'"])
def test_a_node_that_does_not_say_what_became_of_a_transaction_is_asked_again(
    run, chain, between, answer
):
    """Whatever it answers, the transaction was sent; only one that is replaced has failed."""
    tx_hash = run(chain.send(pay_call()))
    truth, wrong = between.truth, iter([WRONG[answer][0]] * 3)
    between.rules["eth_getTransactionReceipt"] = lambda tx: (
        next(wrong, None) or truth("eth_getTransactionReceipt", tx)
    )
    assert run(chain.wait(tx_hash, 5)).succeeded
    assert next(wrong, None) is None


def test_a_receipt_and_its_transaction_are_asked_of_one_node_behind_a_load_balancer(
    run, town, chain, between
):
    run(chain.wait(run(chain.send(pay_call())), 5))
    assert ["eth_getTransactionReceipt", "eth_getTransactionByHash"] in between.batches


def test_a_deployed_token_that_the_node_does_not_find_is_an_error(run, chain, between):
    truth, receipts = between.truth, []

    def once(tx: str) -> object:
        """Tell the truth until `wait` has a receipt, which a node may take time for; then null."""
        answer = {"result": None} if receipts else truth("eth_getTransactionReceipt", tx)
        receipts.extend(filter(None, [answer["result"]]))
        return answer

    between.rules["eth_getTransactionReceipt"] = once
    with pytest.raises(ChainError, match="answered eth_getTransactionReceipt with null"):
        run(chain._begin(deploy=True, read=True))


KNOWN = ("already known", "ALREADY known transaction", "already imported")
OFFERS = {"lost": (True, None), "not arrived": (False, None)} | {
    text: (True, refuses(-32000, text)()) for text in KNOWN
}
"""Whether an offer arrives, and what is answered to it."""


@pytest.mark.parametrize("offer", OFFERS)
def test_an_offer_with_an_odd_answer_is_made_until_the_node_has_it(
    run, town, chain, between, offer
):
    """The node may have it without our knowing: signed anew it would be paid twice."""
    arrives, answer = OFFERS[offer]

    def odd(raw: str) -> dict | None:
        if arrives:
            between.truth("eth_sendRawTransactionSync", raw)  # which answers once it is mined
        return answer

    between.rules["eth_sendRawTransaction"] = odd
    tx_hash = run(chain.send(pay_call()))
    assert run(town.anvil.height()) == arrives
    del between.rules["eth_sendRawTransaction"]
    assert run(chain.wait(tx_hash, 5)).succeeded
    assert run(town.anvil.height()) == 1


@pytest.mark.parametrize(
    "text",
    [
        "nonce too low: next nonce 1, tx nonce 0",
        "invalid nonce; got 0, expected 1: invalid sequence",
        "replacement transaction underpriced",
    ],
)
def test_a_nonce_that_is_used_is_passed_over(run, town, chain, between, text):
    """Another node of the same address lagged behind when it was asked for the nonce."""
    run(chain.send(pay_call("first")))
    chain._sender._nonces.clear()
    stale = iter([{"result": "0x0"}])
    truth = between.truth

    def offer(raw: str) -> dict:
        answer = truth("eth_sendRawTransaction", raw)
        return {"error": {"code": -32000, "message": text}} if "error" in answer else answer

    between.rules["eth_sendRawTransaction"] = offer
    between.rules["eth_getTransactionCount"] = lambda *asked: (
        next(stale, None) or truth("eth_getTransactionCount", *asked)
    )
    tx_hash = run(chain.send(pay_call("second")))
    assert run(chain.wait(tx_hash, 5)).succeeded
    assert run(chain.transaction(tx_hash)).nonce == 1


def test_if_every_nonce_is_used_it_gives_up(run, chain, between):
    between.rules["eth_sendRawTransaction"] = refuses(-32000, "nonce too low")
    with pytest.raises(ChainError, match=f"3 nonces of {RELAYER.address} in a row are used"):
        run(chain.send(pay_call()))


def test_a_sender_that_cannot_pay_for_gas_is_refused_and_its_nonce_stays_free(run, town, chain):
    broke = structs.replace(pay_call(), value=10**30)
    with pytest.raises(ChainError, match=r"(?i)insufficient funds"):
        run(chain.send(broke))
    assert run(chain.wait(run(chain.send(pay_call())), 5)).succeeded


@pytest.mark.parametrize("offers_traces", [True, False])
def test_why_it_reverted_is_traced_or_tried_on_the_block_before(run, chain, between, offers_traces):
    if not offers_traces:
        between.rules["debug_traceTransaction"] = refuses(-32601, "the method does not exist")
    run(chain.send(pay_call()))
    receipt = run(chain.wait(run(chain.send(pay_call())), 5))
    used = nonce("first").hex()
    assert receipt.revert_reason == f"ERC3009UsedAuthorization({ALICE.address}, 0x{used})"
    assert "debug_traceTransaction" in between.seen


@pytest.mark.parametrize(
    ("rule", "text"),
    [
        (says("0x"), "it would not have failed in the block before or in its own"),
        (refuses(-32000, "missing trie node"), "missing trie node"),
    ],
)
def test_an_unknown_reason_is_a_failure(run, chain, between, rule, text):
    run(chain.send(pay_call()))
    tx_hash = run(chain.send(pay_call()))
    between.rules["debug_traceTransaction"] = refuses(-32601, "the method does not exist")
    between.rules["eth_call"] = rule
    receipt = run(chain.wait(tx_hash, 5))
    assert (receipt.succeeded, receipt.revert_reason) == (False, f"{evm_chain.NOT_KNOWN}: {text}")


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        ({"code": 3, "message": "execution reverted", "data": "0x"}, ""),
        ({"code": 3, "message": "execution reverted: no", "data": "0x"}, ""),
        ({"code": -32000, "message": "execution reverted"}, ""),
        ({"code": -32000, "message": "execution reverted: not today"}, "not today"),
        ({"code": 3, "message": "?", "data": to_hex(abi.revert_data("not today"))}, "not today"),
    ],
)
def test_a_revert_is_understood_in_every_nodes_dialect(run, chain, between, error, reason):
    between.rules["eth_call"] = lambda *_: {"error": error}
    with pytest.raises(Reverted) as caught:
        run(chain.call(pay_call()))
    assert str(caught.value) == reason
