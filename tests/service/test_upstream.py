"""The service's calls to others: what their answers mean, and that any answer is understood or not.

Whatever facilitator, node and explorer answer, the other side is unavailable at worst.
"""

import asyncio
import json
from collections.abc import Callable, Coroutine
from contextlib import suppress
from typing import Any

import httpx
import pytest
from hypothesis import given, settings, strategies as st

from tests.payer.test_reading import STATUSES, as_bytes, changed, charsets, values
from tests.strategies import requirements
from x402sim import Wallet
from x402sim.http.exchange import OverClient, Transport
from x402sim.protocol import abi
from x402sim.protocol.cronos import SettleError
from x402sim.protocol.crypto import to_hex
from x402sim.protocol.header import present
from x402sim.protocol.refusals import Refusal
from x402sim.service.environment import Environment
from x402sim.service.upstream.calls import OutcomeUnknown, Unavailable
from x402sim.service.upstream.chain import read_receipt
from x402sim.service.upstream.facilitator import refusal_of

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


facilitator = (
    st.binary() | as_bytes(values) | as_bytes(changed(SETTLED)) | as_bytes(changed(VERDICT))
)
payment = present(WALLET.payment_header(requirements(), 1_800_000_000))
CALLS: dict[str, tuple[Callable[[Transport], Coroutine[Any, Any, Any]], Any]] = {
    "a nonce": (lambda to: SETUP.rpc(to).nonce_state(WALLET.address_bytes, bytes(32)), chain),
    "a transaction": (lambda to: SETUP.explorer(to).transaction(WORD), chain),
    "settle": (lambda to: SETUP.facilitator(to).settle(payment, requirements()), facilitator),
    "verify": (lambda to: SETUP.facilitator(to).verify(payment, requirements()), facilitator),
}


@pytest.mark.parametrize("what", CALLS)
@settings(max_examples=40)
@given(st.data(), STATUSES, charsets)
def test_others_may_answer_anything(what: str, data: Any, status: int, charset: str) -> None:
    act, answers = CALLS[what]
    call(data.draw(st.lists(answers, min_size=1, max_size=6)), act, status, charset)


def test_the_honest_answers_of_these_tests_are_understood() -> None:
    moved = []

    async def settle(to: Transport) -> None:
        wanted = requirements(max_amount_required="1")
        paid = present(WALLET.payment_header(wanted, 1_800_000_000))
        moved.append(await SETUP.facilitator(to).settle(paid, wanted))

    call([json.dumps(SETTLED).encode()], settle)
    assert moved[0].tx_hash == WORD


def test_a_receipt_tells_transfers_and_used_authorizations_of_its_token_only() -> None:
    token, payer, shop, nonce = SETUP.network.asset, b"p" * 20, b"s" * 20, b"n" * 32

    def log(event: bytes, *indexed: bytes, of: bytes = token) -> dict[str, Any]:
        topics = [to_hex(each) for each in (event, *(word.rjust(32, b"\0") for word in indexed))]
        return LOG | {"address": to_hex(of), "topics": topics, "data": "0x5"}

    logs = [
        log(abi.TRANSFER_EVENT, payer, shop),
        log(abi.TRANSFER_EVENT, payer, shop, of=b"o" * 20),
        log(abi.AUTHORIZATION_USED, payer, nonce),
        log(abi.AUTHORIZATION_CANCELED, payer, b"c" * 32),
    ]
    found = read_receipt(RECEIPT | {"logs": logs}, token)
    assert found is not None
    assert (found.transfers, found.used) == (((payer, shop, 5),), ((payer, nonce),))


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
