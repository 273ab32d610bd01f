"""The service's calls to others: what their answers mean, and that any answer is understood or not.

Whatever facilitator, node and explorer answer, the other side is unavailable at worst.
"""

import asyncio
import json
from collections.abc import Callable, Coroutine
from contextlib import suppress
from dataclasses import replace
from typing import Any

import httpx
import msgspec
import pytest
from hypothesis import given, settings, strategies as st

from tests.payer.test_reading import STATUSES, as_bytes, changed, charsets, values
from tests.strategies import requirements
from x402sim import Wallet, World, events
from x402sim.http.exchange import OverClient, Transport
from x402sim.protocol import abi
from x402sim.protocol.cronos import SettleError
from x402sim.protocol.crypto import to_hex
from x402sim.protocol.header import decode_header, present, spelled
from x402sim.protocol.refusals import Refusal
from x402sim.service.environment import Environment
from x402sim.service.upstream.calls import OutcomeUnknown, Unavailable
from x402sim.service.upstream.chain import read_receipt
from x402sim.service.upstream.facilitator import refusal_of
from x402sim.world.world import Hooks

WALLET = Wallet(b"k" * 32)
WORD = "0x" + "0" * 63 + "1"
LOG = {"address": "0x" + "1" * 40, "topics": [WORD, WORD, WORD], "data": WORD,
       "transactionHash": WORD, "blockNumber": "0x1"}  # fmt: skip
RECEIPT = {"status": "0x1", "blockNumber": "0x1", "logs": [LOG], "transactionHash": WORD}
BLOCK = {"number": "0x1", "timestamp": "0x2", "hash": WORD}
SETTLED = {"x402Version": 1, "event": "payment.settled", "txHash": WORD, "from": WALLET.address,
           "to": "0x" + "2" * 40, "value": "1", "blockNumber": 1, "network": "cronos-testnet",
           "timestamp": "2026-01-01T00:00:00Z"}  # fmt: skip
VERDICT = {"isValid": True, "invalidReason": None}
STANDARD = {"success": True, "transaction": WORD, "network": "eip155:338", "payer": WALLET.address}


def results(*honest: Any) -> st.SearchStrategy[bytes]:
    """JSON-RPC answers whose result is honest, nearly so, or anything."""
    nearly = [changed(each) for each in honest if isinstance(each, dict)]
    found = st.one_of(values, st.sampled_from(honest), *nearly)
    called = found.map(lambda each: {"jsonrpc": "2.0", "id": 1, "result": each})
    return st.binary() | as_bytes(values) | as_bytes(called)


def call(bodies: list[bytes], act: Callable[[Transport], Coroutine[Any, Any, Any]],
         status: int = 200, charset: str = "utf-8") -> list[httpx.Request]:  # fmt: skip
    """Call a server that gives these answers in turn; what the service documents may be raised.

    Returns the requests.
    """
    left, seen = list(bodies), []

    def serve(request: httpx.Request) -> httpx.Response:
        seen.append(request)
        kind = {"Content-Type": f"application/json; charset={charset}"}
        return httpx.Response(
            status, content=left.pop() if len(left) > 1 else left[0], headers=kind
        )

    async def main() -> None:
        async with httpx.AsyncClient(transport=httpx.MockTransport(serve)) as http:
            await act(OverClient(http))

    with suppress(Unavailable, OutcomeUnknown):
        asyncio.run(main())
    return seen


SETUP = Environment(
    private_key=b"k" * 32, facilitator_url="http://f", explorer_url="http://e", rpc_url="http://r"
)
chain = results(RECEIPT, BLOCK, [LOG], WORD, "0x0", None, {"blockNumber": "0x1"})


OTHER = replace(SETUP, dialect="standard", explorer_url="")
facilitator = (
    st.binary() | as_bytes(values) | as_bytes(st.one_of(map(changed, (SETTLED, VERDICT, STANDARD))))
)
payment = present(WALLET.payment_header(requirements(), 1_800_000_000))
CALLS: dict[str, tuple[Callable[[Transport], Coroutine[Any, Any, Any]], Any]] = {
    "a nonce": (lambda to: SETUP.rpc(to).nonce_state(WALLET.address_bytes, bytes(32)), chain),
    "a transaction": (lambda to: SETUP.explorer(to).transaction(WORD), chain),
    "settle": (lambda to: SETUP.facilitator(to).settle(payment, requirements()), facilitator),
    "verify": (lambda to: SETUP.facilitator(to).verify(payment, requirements()), facilitator),
    "settle, x402": (lambda to: OTHER.facilitator(to).settle(payment, requirements()), facilitator),
    "verify, x402": (lambda to: OTHER.facilitator(to).verify(payment, requirements()), facilitator),
}


@pytest.mark.parametrize("what", CALLS)
@settings(max_examples=20)
@given(st.data(), STATUSES, charsets)
def test_others_may_answer_anything(what: str, data: Any, status: int, charset: str) -> None:
    act, answers = CALLS[what]
    call(data.draw(st.lists(answers, min_size=1, max_size=6)), act, status, charset)


def _log(event: bytes, *indexed: bytes, of: bytes = SETUP.network.asset) -> dict[str, Any]:
    topics = [to_hex(each) for each in (event, *(word.rjust(32, b"\0") for word in indexed))]
    return LOG | {"address": to_hex(of), "topics": topics, "data": "0x5"}


def test_a_receipt_tells_transfers_and_used_authorizations_of_its_token_only() -> None:
    token, payer, shop, nonce = SETUP.network.asset, b"p" * 20, b"s" * 20, b"n" * 32

    use, moved = _log(abi.AUTHORIZATION_USED, payer, nonce), _log(abi.TRANSFER_EVENT, payer, shop)
    of_others = _log(abi.TRANSFER_EVENT, payer, shop, of=b"o" * 20)
    canceled = _log(abi.AUTHORIZATION_CANCELED, payer, b"c" * 32)
    for logs in ([use, of_others, moved, canceled], [moved, use, of_others]):
        found = read_receipt(RECEIPT | {"logs": logs}, token)
        assert found is not None
        assert (found.used, found.others) == ({(payer, nonce): (payer, shop, 5)}, ())


@pytest.mark.parametrize("turn", [1, -1])
def test_of_several_authorizations_in_one_transaction_each_has_its_own_transfer(turn: int) -> None:
    """Else one transfer would pay for all of them; some tokens tell the transfer first (-1)."""
    payer, other, shop = b"p" * 20, b"o" * 20, b"s" * 20
    moves = [(payer, b"1" * 32, payer), (other, b"2" * 32, shop), (payer, b"3" * 32, shop)]
    pairs = [
        (_log(abi.AUTHORIZATION_USED, sender, nonce), _log(abi.TRANSFER_EVENT, sender, to))
        for sender, nonce, to in moves
    ]
    logs = [each for pair in pairs for each in pair[::turn]]
    plain = _log(abi.TRANSFER_EVENT, payer, shop)
    for others, all_logs in ((1, [plain, *logs]), (2, [plain, *logs, plain]), (0, logs)):
        found = read_receipt(RECEIPT | {"logs": all_logs}, SETUP.network.asset)
        assert found is not None
        assert found.used == {(sender, nonce): (sender, to, 5) for sender, nonce, to in moves}
        assert found.others == ((payer, shop, 5),) * others


def test_a_contract_that_reverts_accepts_no_signature() -> None:
    told = []

    async def ask(to: Transport) -> None:
        told.append(await SETUP.rpc(to).accepts(WALLET.address_bytes, bytes(32), b"signature"))

    reverted = {"jsonrpc": "2.0", "id": 1, "error": {"code": 3, "message": "execution reverted"}}
    call([json.dumps(reverted).encode()], ask)
    assert told == [False]


@pytest.mark.clause("7/insufficient-balance", "7/authorization-expired")
@pytest.mark.parametrize(
    ("error", "refusal"),
    [
        ("Authorization already used", Refusal.NONCE_USED),
        ("Authorization expired", Refusal.EXPIRED),
        ("Authorization not yet valid", Refusal.INVALID_SIGNATURE),
        ("ERC20: transfer amount exceeds balance", Refusal.INSUFFICIENT_BALANCE),
        ("Invalid signature", Refusal.INVALID_SIGNATURE),
        ("Transaction failed on-chain", Refusal.FAILED),
        ("", Refusal.FAILED),
        ("authorization expired", Refusal.FAILED),
    ],
)
def test_an_error_of_a_cronos_facilitator_becomes_a_text_of_section_7(error, refusal):
    assert refusal_of(error) is refusal


def test_no_error_of_a_facilitator_claims_what_only_the_service_can_know():
    own = {
        Refusal.ALREADY_SETTLED, Refusal.MISMATCH, Refusal.PENDING, Refusal.UNREACHABLE,
        Refusal.CHAIN_UNREACHABLE,
    }  # fmt: skip
    assert own.isdisjoint(refusal_of(error.value) for error in SettleError)


@pytest.mark.parametrize("env", [SETUP, OTHER], ids=["cronos", "standard"])
@pytest.mark.parametrize(
    ("gone", "raised"),
    [(httpx.ConnectError, Unavailable), (httpx.ReadTimeout, OutcomeUnknown)],
)
def test_only_what_reached_nobody_has_surely_moved_nothing(
    env: Environment, gone: type[httpx.TransportError], raised: type[Exception]
) -> None:
    def serve(request: httpx.Request) -> httpx.Response:
        raise gone("gone")

    async def settle() -> None:
        async with httpx.AsyncClient(transport=httpx.MockTransport(serve)) as http:
            await env.facilitator(OverClient(http)).settle(payment, requirements())

    with pytest.raises(raised):
        asyncio.run(settle())


# --- a facilitator of the x402 standard ----------------------------------------------------


def settled_by(answer: dict[str, Any], status: int = 200, **named: Any) -> tuple[Any, Any]:
    """Return what the service makes of an answer to settle, and the request as JSON."""
    found: list[Any] = []
    wanted = requirements(max_amount_required="1")
    header = spelled(msgspec.structs.replace(decode_header(
        WALLET.payment_header(wanted, 1_800_000_000)), **named), "hex")  # fmt: skip

    async def settle(to: Transport) -> None:
        try:
            found.append(await OTHER.facilitator(to).settle(present(header), wanted))
        except OutcomeUnknown as lost:
            found.append(lost)

    sent = call([json.dumps(answer).encode()], settle, status)
    return found[0], json.loads(sent[0].content) if sent else None


def test_a_settlement_of_the_standard_is_asked_for_and_understood() -> None:
    moved, sent = settled_by(STANDARD)
    assert moved.tx_hash == WORD
    assert sent["x402Version"] == sent["paymentPayload"]["x402Version"] == 2
    assert sent["paymentPayload"]["accepted"] == sent["paymentRequirements"]
    assert sent["paymentRequirements"]["network"] == "eip155:338"


@pytest.mark.parametrize(
    ("changes", "status"),
    [
        ({}, 400),
        ({}, 302),
        ({"success": "true"}, 200),
        ({"transaction": "0x1"}, 200),
        ({"transaction": ""}, 200),
        ({"network": "eip155:1"}, 200),
        ({"payer": "0x" + "9" * 40}, 200),
    ],
)
def test_a_receipt_of_something_else_is_no_settlement(changes: Any, status: int) -> None:
    assert isinstance(settled_by(STANDARD | changes, status)[0], OutcomeUnknown)


def test_a_verdict_of_yes_has_the_status_200() -> None:
    found = []

    async def verify(to: Transport) -> None:
        found.append((await OTHER.facilitator(to).verify(payment, requirements())).is_valid)

    for status in (200, 400):
        call([b'{"isValid": true}'], verify, status)
    assert found == [True]


@pytest.mark.clause("2.1/scheme", "2.1/network")
@pytest.mark.parametrize("named", [{"scheme": "upto"}, {"network": "cronos-mainnet"}])
def test_what_a_header_says_of_itself_is_compared_before_the_standard_loses_it(named: Any) -> None:
    refused, sent = settled_by(STANDARD, **named)
    assert (refused.refusal, sent) == (Refusal.INVALID_SIGNATURE, None)


@pytest.mark.parametrize(
    ("word", "transaction", "refusal", "misses"),
    [
        ("insufficient_funds", "", Refusal.INSUFFICIENT_BALANCE, None),
        ("insufficient_funds", WORD, Refusal.FAILED, None),
        ("invalid_exact_evm_payload_signature", "", Refusal.INVALID_SIGNATURE, None),
        ("invalid_exact_evm_nonce_already_used", "", Refusal.NONCE_USED, None),
        ("invalid_exact_evm_payload_authorization_valid_before", "", Refusal.EXPIRED, "validBefore"),
        ("invalid_exact_evm_payload_authorization_valid_after", "", Refusal.INVALID_SIGNATURE,
         "validAfter"),
        ("settlement_pending", WORD, Refusal.PENDING, None),
        ("unexpected_settle_error", "", Refusal.FAILED, None),
        ("a word of tomorrow", "", Refusal.FAILED, None),
    ],
)  # fmt: skip
@pytest.mark.parametrize("status", [200, 400])
def test_a_word_of_the_standard_becomes_a_text_of_section_7(
    word: str, transaction: str, refusal: Refusal, misses: str | None, status: int
) -> None:
    answer = {"success": False, "errorReason": word, "transaction": transaction, "network": ""}
    refused, _ = settled_by(answer, status)
    assert (refused.refusal, refused.misses) == (refusal, misses)


@pytest.mark.parametrize("nothing", ["transaction", "network", "payer"])
def test_a_refusal_with_null_is_a_refusal(nothing: str) -> None:
    """Pydantic writes null where nothing was sent, as the Python SDK of version 1 does."""
    answer = {"success": False, "errorReason": "insufficient_funds", nothing: None}
    refused, _ = settled_by(answer, 200)
    assert refused.refusal is Refusal.INSUFFICIENT_BALANCE


SETTLEMENTS = (
    "drained_wallet", "facilitator_refuses", "false_receipt", "late_settlement", "lost_answer",
    "pending_settlement", "refund_once", "restart_mid_settlement", "upfront_flow",
)  # fmt: skip


@pytest.mark.parametrize("name", SETTLEMENTS)
def test_a_service_at_a_facilitator_of_the_standard_plays_the_scenarios(name: str) -> None:
    hooks = Hooks(setup=lambda setup: replace(setup, dialect="standard"))
    World(seed=1, hooks=hooks).play(name).raise_for_failure()


def test_without_an_explorer_the_node_tells_the_block_of_a_payment() -> None:
    hooks = Hooks(setup=lambda setup: replace(setup, dialect="standard", explorer_url=""))
    run = World(seed=1, hooks=hooks).play("reorg_after_indexing").raise_for_failure()
    asked = {each.event.to for each in run.journal if isinstance(each.event, events.RequestSent)}
    assert "explorer" not in asked
