"""Permit2 and the x402 proxies: the ledger does what the contracts do on anvil.

One list of operations is played on both: outcome, revert, events, balances, bitmaps, allowance.
`test_equality` has what can be wrong with a message, a signature or a permit.
"""

from collections.abc import Callable
from functools import partial
from itertools import product

import msgspec
import pytest

from tests.chain.helpers import ALICE, MALLORY, NOW_S, RELAYER, SHOP, ChainDriver, tail
from x402sim.chain.base import Call, Reverted
from x402sim.chain.contract import wallet_address, wallet_code, wallet_storage
from x402sim.payer.wallet import Wallet
from x402sim.protocol import abi
from x402sim.protocol.crypto import HALF_ORDER, Address, PrivateKey, sign
from x402sim.protocol.eip3009 import Permit, permit_digest
from x402sim.protocol.money import MAX_UINT256
from x402sim.protocol.permit2 import (
    EXACT_PROXY,
    EXACT_WITNESS,
    PERMIT2,
    TRANSFER_TYPEHASH,
    UPTO_PROXY,
    Permit2Authorization,
    permit2_digest,
    typed_digest,
    witness_hash,
    witness_type_string,
)

NONCE = 0xABC07
KEY = PrivateKey(ALICE.private_key)


class Outcome(msgspec.Struct, frozen=True):
    """What both chains must agree on."""

    reason: str | None
    tried: str | None
    events: list[tuple[Address, tuple[bytes, ...], bytes]]
    balances: list[int]
    bitmap: int
    allowed: int


class Street:
    """One of the chains, and what is done there by Alice, the shop and the facilitator."""

    def __init__(self, driver: ChainDriver) -> None:
        self.driver = driver
        self.network = driver.town.network
        self.gas: list[int] = []

    def auth(self, *, upto: bool = False, **changes: object) -> Permit2Authorization:
        """Return Alice's message for 10000 to the shop, valid now."""
        fields: dict[str, object] = {
            "from_": ALICE.address_bytes,
            "token": self.network.asset,
            "amount": 10_000,
            "spender": UPTO_PROXY if upto else EXACT_PROXY,
            "nonce": NONCE,
            "deadline": NOW_S + 300,
            "to": SHOP.address_bytes,
            "valid_after": NOW_S - 60,
            "facilitator": RELAYER.address_bytes if upto else None,
        }
        return Permit2Authorization(**(fields | changes))  # type: ignore[arg-type]

    def signed(self, auth: Permit2Authorization) -> bytes:
        return sign(permit2_digest(auth, self.network.chain_id), KEY)

    def permit(self) -> tuple[Permit, bytes]:
        """Return Alice's EIP-2612 permit for Permit2."""
        permit = Permit(ALICE.address_bytes, PERMIT2, 10_000, 0, NOW_S + 300)
        return permit, sign(permit_digest(permit, self.network.domain), KEY)

    def approve(self, amount_base: int = MAX_UINT256 // 3) -> None:
        data = abi.approve(PERMIT2, amount_base)
        self.send(data, self.network.asset, ALICE)

    def send(self, data: bytes, to: Address, sender: Wallet = RELAYER, value: int = 0) -> Outcome:
        driver, tried = self.driver, None
        call = Call(sender.address_bytes, to, data, value)
        try:
            driver.call(call)
        except Reverted as reverted:
            tried = str(reverted)
        receipt = driver.receipt(driver.put(data, sender, to, value))
        self.gas.append(receipt.gas_used)
        events = [(log.address, log.topics, log.data) for log in receipt.logs]
        assert [log.index for log in receipt.logs] == list(range(len(events)))
        owner, token = ALICE.address_bytes, self.network.asset
        bitmap = driver.call(Call(owner, PERMIT2, abi.nonce_bitmap(owner, NONCE)))
        allowed = driver.call(Call(owner, token, abi.allowance(owner, PERMIT2)))
        balances = [driver.balance(each) for each in (ALICE, SHOP, MALLORY)]
        numbers = int.from_bytes(bitmap), int.from_bytes(allowed)
        return Outcome(receipt.revert_reason, tried, events, balances, *numbers)

    def settle(
        self,
        auth: Permit2Authorization,
        amount_base: int | None = None,
        *,
        signature: bytes | None = None,
        permit: tuple[Permit, bytes] | None = None,
        sender: Wallet = RELAYER,
        value: int = 0,
    ) -> Outcome:
        """Settle by the proxy that the authorization's scheme has."""
        amount_base = auth.amount if amount_base is None else amount_base
        proof = self.signed(auth) if signature is None else signature
        to = EXACT_PROXY if auth.facilitator is None else UPTO_PROXY
        return self.send(abi.settle(auth, amount_base, proof, permit), to, sender, value)


Play = Callable[[Street], Outcome]


def compact(signature: bytes) -> bytes:
    """Return the signature in 64 bytes (EIP-2098)."""
    s = int.from_bytes(signature[32:64]) | (signature[64] - 27) << 255
    assert int.from_bytes(signature[32:64]) <= HALF_ORDER
    return signature[:32] + s.to_bytes(32)


def changed(change: Callable[[bytes], bytes]) -> Play:
    """Settle with the right signature in another form."""

    def play(street: Street) -> Outcome:
        street.approve()
        auth = street.auth()
        return street.settle(auth, signature=change(street.signed(auth)))

    return play


def exact(street: Street, by: Wallet = RELAYER) -> Outcome:
    street.approve()
    return street.settle(street.auth(), sender=by)


def part(street: Street) -> Outcome:
    street.approve()
    return street.settle(street.auth(upto=True), 1_858)


def two_nonces_of_a_word(street: Street) -> Outcome:
    street.approve()
    street.settle(street.auth())
    return street.settle(street.auth(nonce=NONCE + 1, amount=7))


def sponsored(*, upto: bool = False, part: int | None = None, before: int = 0) -> Play:
    """Settle with a permit instead of an approval, or after an approval of another amount."""

    def play(street: Street) -> Outcome:
        auth = street.auth(upto=upto)
        if before:
            street.approve(before)
        return street.settle(auth, part, permit=street.permit())

    return play


def of_a_wallet(street: Street, owner: Wallet = ALICE) -> Outcome:
    """Settle for a smart wallet without tokens, with Alice's signature."""
    account = wallet_address(ALICE.address_bytes)
    street.driver.set_code(account, wallet_code(), wallet_storage(owner.address_bytes))
    return street.settle(street.auth(from_=account))


def without_a_proxy(street: Street, by: Wallet = MALLORY) -> Outcome:
    """Let the named spender, or another, take less than the maximum."""
    street.approve()
    auth = street.auth(spender=MALLORY.address_bytes)
    digest = typed_digest(street.network.chain_id, TRANSFER_TYPEHASH, auth)
    return street.send(transfer_call(auth, 70, sign(digest, KEY)), PERMIT2, by)


def without_a_proxy_above_the_maximum(street: Street) -> Outcome:
    auth = street.auth(spender=MALLORY.address_bytes)
    return street.send(transfer_call(auth, 10_001, bytes(65)), PERMIT2, MALLORY)


def transfer_call(auth: Permit2Authorization, amount_base: int, signature: bytes) -> bytes:
    head = auth.token, auth.amount, auth.nonce, auth.deadline, auth.to, amount_base, auth.from_
    return abi.calldata(abi.PERMIT_TRANSFER_FROM, *head, 32 * 8) + tail(signature)


def witness_by_hand(street: Street) -> Outcome:
    """Call Permit2 as the proxy does, with another spender."""
    street.approve()
    auth = street.auth(spender=MALLORY.address_bytes)
    signature, kind = street.signed(auth), witness_type_string(EXACT_WITNESS).encode()
    head = auth.token, auth.amount, auth.nonce, auth.deadline, auth.to, 9, auth.from_
    text = tail(kind)
    data = abi.calldata(
        abi.PERMIT_WITNESS_TRANSFER_FROM, *head, witness_hash(auth), 320, 320 + len(text)
    )
    return street.send(data + text + tail(signature), PERMIT2, MALLORY)


def malformed(change: Callable[[bytes], bytes]) -> Play:
    """Settle with other calldata."""

    def play(street: Street) -> Outcome:
        auth = street.auth()
        data = abi.settle(auth, auth.amount, street.signed(auth))
        return street.send(change(data), EXACT_PROXY)

    return play


PLAYS: dict[str, tuple[Play, str | None]] = {
    "exact": (exact, None),
    "exact, by anybody": (partial(exact, by=MALLORY), None),
    "upto, a part": (part, None),
    "two nonces of a word": (two_nonces_of_a_word, None),
    "a compact signature": (changed(compact), None),
    "sponsored": (sponsored(), None),
    "upto, sponsored": (sponsored(upto=True), None),
    "upto, a part, sponsored": (sponsored(upto=True, part=1_858), None),
    "sponsored, approved before": (sponsored(before=7), None),
    "sponsored, approved as much before": (sponsored(before=10_000), None),
    "a part, sponsored, the rest was approved": (
        sponsored(upto=True, part=1_858, before=10_000 - 1_858),
        None,
    ),
    "without a proxy": (without_a_proxy, None),
    "a witness, without a proxy": (witness_by_hand, None),
    "a signature too short": (changed(lambda s: s[:63]), "InvalidSignatureLength()"),
    "a wallet without tokens": (of_a_wallet, "TRANSFER_FROM_FAILED"),
    "a wallet of another": (partial(of_a_wallet, owner=MALLORY), "InvalidContractSignature()"),
    "without a proxy, by another": (partial(without_a_proxy, by=RELAYER), "InvalidSigner()"),
    "above, without a proxy": (without_a_proxy_above_the_maximum, "InvalidAmount(10000)"),
    "cut off": (malformed(lambda data: data[:-120]), ""),
    "an odd address": (malformed(lambda data: data[:4] + b"\1" + data[5:]), ""),
    "no such function": (malformed(lambda data: abi.selector("collect()")), ""),
    "with value": (lambda s: s.settle(s.auth(), value=1), ""),
    "another token": (lambda s: s.settle(s.auth(token=EXACT_PROXY)), "TRANSFER_FROM_FAILED"),
}
"""Each play, and why the last operation reverts."""
PAYMENTS = {
    "exact",
    "upto, a part",
    "two nonces of a word",
    *(n for n in PLAYS if "sponsored" in n),
}


@pytest.mark.parametrize("name", PLAYS)
def test_the_ledger_does_what_the_contracts_do(two: list[ChainDriver], name: str):
    play, reason = PLAYS[name]
    anvil, ledger = (Street(driver) for driver in two)
    theirs, ours = play(anvil), play(ledger)
    assert ours == theirs
    assert (ours.reason, ours.tried) == (reason, reason)
    tolerance = 700 if name in PAYMENTS else 5_200  # as the head of `ledger/gas.py` says
    for used, charged in zip(anvil.gas, ledger.gas, strict=True):
        assert abs(charged - used) <= tolerance


def test_both_chains_answer_the_views(two: list[ChainDriver]):
    names = "PERMIT2()", "WITNESS_TYPEHASH()", "WITNESS_TYPE_STRING()"
    for to, name in [(PERMIT2, "DOMAIN_SEPARATOR()"), *product((EXACT_PROXY, UPTO_PROXY), names)]:
        call = Call(ALICE.address_bytes, to, abi.selector(name))
        assert two[1].call(call) == two[0].call(call) != b"", name
