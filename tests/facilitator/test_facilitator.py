"""The facilitator: what the Cronos facilitator documents, string for string."""

import asyncio
import base64
import json
from dataclasses import replace
from typing import Any

import httpx
import pytest
from msgspec import to_builtins

from tests.asgi import Http
from tests.chain.helpers import (
    ALICE,
    MALLORY,
    NOW_S,
    RELAYER,
    SHOP,
    START_BASE,
    LedgerDriver,
    authorization,
    cancel_call,
    nonce,
    signature_of,
)
from tests.strategies import requirements
from x402sim.chain.base import ChainError
from x402sim.clock import Clock
from x402sim.facilitator.app import facilitator_app
from x402sim.facilitator.engine import Facilitator, FacilitatorSettings
from x402sim.payer.wallet import Wallet
from x402sim.protocol import abi
from x402sim.protocol.crypto import checksum, to_hex
from x402sim.protocol.eip3009 import Authorization
from x402sim.protocol.header import encode_header
from x402sim.protocol.networks import TESTNET
from x402sim.protocol.rules import VERIFICATION, without

VERIFY, SETTLE = "/v2/x402/verify", "/v2/x402/settle"
VALID = {"isValid": True, "invalidReason": None}
REQUIREMENTS = to_builtins(requirements(pay_to=SHOP.address))


def invalid(reason: str) -> dict:
    return {"isValid": False, "invalidReason": reason}


def failed(reason: str) -> dict:
    return {
        "x402Version": 1,
        "event": "payment.failed",
        "network": "cronos-testnet",
        "timestamp": "2023-11-14T22:13:20.000Z",
        "error": reason,
    }


class Desk:
    """A facilitator on a ledger, called over HTTP."""

    def __init__(self, account: Wallet = RELAYER, **changes: Any) -> None:
        self.driver = LedgerDriver()
        self.facilitator = Facilitator(
            chain=self.driver.ledger,
            clock=self.driver.clock,
            network=TESTNET,
            account=account.address_bytes,
            started_s=self.driver.clock.now(),
        )
        self.app = facilitator_app(replace(self.facilitator, **changes))

    def request(self, method: str, path: str, **sent: Any) -> httpx.Response:
        return Http(self.app).request(method, path, **sent)

    async def ask(self, method: str, path: str, **sent: Any) -> httpx.Response:
        return await Http(self.app).ask(method, path, **sent)

    def post(self, path: str, body: dict) -> Any:
        """Return the JSON of an answer that must be a 200."""
        response = self.request("POST", path, json=body)
        assert response.status_code == 200, response.text
        assert response.headers["content-type"] == "application/json"
        return response.json()


@pytest.fixture
def desk() -> Desk:
    return Desk()


def header(
    auth: Authorization | None = None,
    *,
    by: Wallet = ALICE,
    spelling: Any = "base64",
    signature: bytes | None = None,
) -> str:
    auth = auth or authorization()
    return encode_header(auth, signature or signature_of(auth, by=by), TESTNET, spelling)


def altered(**changes: object) -> str:
    """Return a good header with some fields of its JSON changed, wherever they are."""
    content = json.loads(base64.b64decode(header()))
    for name, value in changes.items():
        (content if name in content else content["payload"])[name] = value
    return base64.b64encode(json.dumps(content).encode()).decode()


def asking(payment_header: str | None = None, /, **requirements: object) -> dict:
    """Return a request body, with some requirements changed."""
    return {
        "x402Version": 1,
        "paymentHeader": payment_header or header(),
        "paymentRequirements": REQUIREMENTS | requirements,
    }


# --- healthcheck, supported ----------------------------------------------------------


def test_what_is_there_and_since_when(desk):
    desk.driver.now[0] += 12.25
    results = {
        "uptime": 12.25,
        "responseTime": [12, 250_000_000],
        "message": "OK",
        "timestamp": NOW_S * 1000 + 12_250,
    }
    kind = {"x402Version": 1, "scheme": "exact", "network": "cronos-testnet"}
    assert desk.request("GET", "/healthcheck").json() == {"status": "success", "results": results}
    assert desk.request("GET", "/v2/x402/supported").json() == {"kinds": [kind]}


# --- what is no request at all -------------------------------------------------------

both = pytest.mark.parametrize("path", [VERIFY, SETTLE])


@both
@pytest.mark.parametrize(
    "content",
    [b"", b"{", b"[]", b"\xff", b"{}", json.dumps(asking(maxTimeoutSeconds="300")).encode()],
)
def test_a_malformed_body_is_a_400(desk, path, content):
    response = desk.request("POST", path, content=content)
    assert (response.status_code, response.json()["error"]) == (400, "Invalid request body")
    assert response.json()["reason"]


@both
@pytest.mark.parametrize(
    ("said", "named", "wrong"),
    [
        (1, "1", None),
        (0, None, "x402Version"),
        (2, None, "x402Version"),
        *((1, other, "X402-Version") for other in ("2", "", "01")),
    ],
)
def test_another_version_in_the_body_or_the_head_is_a_400(desk, path, said, named, wrong):
    """Decision 2.3/version-header; without the header the body says it."""
    headers = {} if named is None else {"X402-Version": named}
    response = desk.request("POST", path, json=asking() | {"x402Version": said}, headers=headers)
    if wrong is None:
        assert response.status_code == 200
        return
    reason = f"wanted 1, got {said if wrong == 'x402Version' else named}"
    assert response.json() == {"error": f"Unsupported {wrong}", "reason": reason}
    assert response.status_code == 400


# --- verify --------------------------------------------------------------------------


UNREADABLE = {
    "empty": "",
    "half a JSON": base64.b64encode(b"{").decode(),
    "negative value": altered(value="-1"),
    "version 2": altered(x402Version=2),  # decision 2.3/other-version
    "signature 0x0x": altered(signature="0x0x" + "00" * 65),
}
"""Each rule has its case in `tests/protocol/test_rules.py` and in the story `facilitator_refuses`."""


@pytest.mark.parametrize("header", UNREADABLE.values(), ids=UNREADABLE)
def test_a_header_that_cannot_be_read_moves_nothing(desk, header):
    body = asking() | {"paymentHeader": header}
    assert desk.post(VERIFY, body) == invalid("Invalid Base64 paymentHeader")
    assert desk.post(SETTLE, body) == failed("Invalid Base64 paymentHeader")
    assert_untouched(desk.driver)


def assert_untouched(driver: LedgerDriver) -> None:
    """Check that nothing was ever sent to the chain."""
    assert driver.state.head.number == 0
    assert driver.state.transactions == {}
    assert not driver.is_used(ALICE, nonce("first"))
    assert (driver.balance(ALICE), driver.balance(SHOP)) == (START_BASE, 0)


def test_verify_checks_neither_time_nor_balance_nor_nonce(desk):
    desk.driver.send(cancel_call(nonce("first")))
    desk.driver.send(abi.transfer(MALLORY.address_bytes, START_BASE), ALICE)
    desk.driver.now[0] += 10**6
    assert desk.post(VERIFY, asking()) == VALID


# --- settle --------------------------------------------------------------------------


@pytest.mark.clause("4.1/settle-on-chain", "5/exact-amount", "1/payer-pays-no-gas")
@pytest.mark.parametrize("spelling", ["hex", "base64"])
def test_settle_moves_exactly_the_amount_gives_the_receipt_and_pays_the_gas(desk, spelling):
    desk.driver.now[0] += 0.125
    before = dict(desk.driver.state.native)
    answer = desk.post(SETTLE, asking(header(spelling=spelling)))
    tx_hash = desk.driver.state.head.tx_hashes[0]
    assert answer == {
        "x402Version": 1,
        "event": "payment.settled",
        "txHash": to_hex(tx_hash),
        "from": ALICE.address,
        "to": SHOP.address,
        "value": "10000",
        "blockNumber": 1,
        "network": "cronos-testnet",
        "timestamp": "2023-11-14T22:13:20.125Z",
    }
    receipt, native = desk.driver.state.receipts[tx_hash], desk.driver.state.native
    assert receipt.succeeded
    assert {who: before[who] - left for who, left in native.items() if before[who] != left} == {
        RELAYER.address_bytes: receipt.gas_used * receipt.gas_price
    }
    assert receipt.call.sender == RELAYER.address_bytes
    assert (desk.driver.balance(ALICE), desk.driver.balance(SHOP)) == (START_BASE - 10_000, 10_000)
    assert desk.driver.is_used(ALICE, nonce("first"))


IN_TIME = authorization(valid_after=NOW_S + 100, valid_before=NOW_S + 200)


REVERTS: dict[str, tuple[Any, Authorization, str]] = {
    "cancelled": (cancel_call(nonce("first")), authorization(), "Authorization already used"),
    "at validAfter": (100, IN_TIME, "Authorization not yet valid"),
    "at validBefore": (200, IN_TIME, "Authorization expired"),
    "early and late": (
        200,
        authorization(valid_after=NOW_S + 300, valid_before=NOW_S + 100),
        "Authorization not yet valid",
    ),
    "a base unit short": (
        0,
        authorization(value=START_BASE + 1),
        "ERC20: transfer amount exceeds balance",
    ),
    "to nobody": (0, authorization(to=bytes(20)), "Transaction failed on-chain"),
}
"""A call sent or the seconds passed before a settlement, the payment, and the refusal."""


@pytest.mark.clause("5/nonce-once", "5/window")
@pytest.mark.parametrize(("before", "auth", "reason"), REVERTS.values(), ids=REVERTS)
def test_settle_translates_the_tokens_revert_reason(desk, before, auth, reason):
    if isinstance(before, bytes):
        desk.driver.send(before)
    else:
        desk.driver.now[0] += before
    sent, balances = len(desk.driver.state.transactions), dict(desk.driver.state.balances)
    wanted = {"payTo": checksum(auth.to), "maxAmountRequired": str(auth.value)}
    answer = desk.post(SETTLE, asking(header(auth), **wanted))
    assert answer == failed(reason) | {"timestamp": answer["timestamp"]}
    assert desk.driver.state.balances == balances
    assert len(desk.driver.state.transactions) == sent  # tried first, so a refusal costs no gas


@pytest.mark.parametrize(
    ("skew_s", "prepared_s", "reason"),
    [
        pytest.param(5, 100, "Authorization not yet valid", id="just opened, by our clock"),
        pytest.param(-5, 200, "Authorization expired", id="not yet closed, by our clock"),
    ],
)
def test_the_facilitators_clock_distinguishes_early_from_late(desk, skew_s, prepared_s, reason):
    """The chain alone judges the window; ours only says which end of it was missed."""
    skewed = Clock(lambda: desk.driver.now[0] + skew_s)
    facilitator = replace(desk.facilitator, clock=skewed)
    desk.driver.now[0] += prepared_s
    desk.app = facilitator_app(facilitator)
    assert desk.post(SETTLE, asking(header(IN_TIME)))["error"] == reason


def test_a_replaced_transaction_fails_on_chain(desk, monkeypatch):
    async def replaced(tx_hash: bytes, timeout_s: float) -> None:
        raise ChainError(f"{to_hex(tx_hash)} was replaced by another transaction")

    monkeypatch.setattr(desk.driver.ledger, "wait", replaced)
    assert desk.post(SETTLE, asking()) == failed("Transaction failed on-chain")


@pytest.mark.clause("5/nonce-once")
def test_the_same_payment_settled_twice_at_once_moves_money_once():
    desk = Desk()
    asyncio.run(desk.driver.ledger.set_automine(False))

    async def twice() -> list[httpx.Response]:
        asks = [asyncio.create_task(desk.ask("POST", SETTLE, json=asking())) for _ in range(2)]
        for _ in range(100):  # until each of them waits for the block
            await asyncio.sleep(0)
        assert len(desk.driver.state.waiting) == 2
        await desk.driver.ledger.mine()
        return await asyncio.gather(*asks)

    answers = [response.json() for response in asyncio.run(twice())]
    assert answers[0]["event"] == "payment.settled"
    assert answers[1] == failed("Transaction failed on-chain")
    assert desk.driver.balance(SHOP) == 10_000


@pytest.mark.parametrize("v", [0, 1, 29])
def test_a_signature_that_only_the_token_refuses_is_invalid(v):
    desk = Desk(rules=without(VERIFICATION, "5/signature-proves"))
    signature = signature_of(authorization())[:64] + bytes([v])
    assert desk.post(SETTLE, asking(header(signature=signature))) == failed("Invalid signature")
    for each in (desk, Desk()):
        assert each.post(SETTLE, asking(header(by=MALLORY))) == failed("Invalid signature")


def test_a_facilitator_without_gas_fails(desk):
    desk = Desk(account=Wallet(b"\x77" * 32))
    assert desk.post(SETTLE, asking()) == failed("Transaction failed on-chain")
    assert_untouched(desk.driver)


def test_a_transaction_that_is_not_mined_in_time_is_a_504_and_may_be_mined_later():
    desk = Desk(settings=FacilitatorSettings(receipt_timeout_s=0.01))
    asyncio.run(desk.driver.ledger.set_automine(False))
    response = desk.request("POST", SETTLE, json=asking())
    assert (response.status_code, response.json()) == (
        504,
        {"error": "Settlement timed out", "reason": "the transaction is not mined yet"},
    )
    assert desk.driver.balance(SHOP) == 0
    asyncio.run(desk.driver.ledger.mine())
    assert desk.driver.balance(SHOP) == 10_000
    assert desk.post(SETTLE, asking()) == failed("Authorization already used")
