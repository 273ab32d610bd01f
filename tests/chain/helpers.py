"""A ledger with a clock set by tests, and calldata to send."""

import asyncio
import hashlib
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

from msgspec.structs import astuple

from x402sim.chain.base import Call, Chain, Reverted, TxReceipt
from x402sim.chain.ledger.ledger import LedgerChain
from x402sim.clock import Clock
from x402sim.payer.wallet import Wallet
from x402sim.protocol import abi
from x402sim.protocol.crypto import Address, PrivateKey, parse_key, sign
from x402sim.protocol.eip3009 import (
    Authorization,
    Domain,
    Permit,
    cancel_digest,
    permit_digest,
)
from x402sim.protocol.networks import TESTNET

NATIVE_WEI = 10**18

NOW_S = 1_700_000_000
TOKEN = TESTNET.asset
OWNER, RELAYER, ALICE, MALLORY, SHOP = (Wallet(bytes([n]) * 32) for n in range(1, 6))
START_BASE = 1_000_000
"""Alice's initial balance; no other account holds tokens."""


def nonce(name: object) -> bytes:
    """Return 32 bytes that look random, always the same for one name."""
    return hashlib.sha256(str(name).encode()).digest()


class ChainDriver:
    """A chain and shortcuts to call it; `run` waits for what the chain does."""

    def __init__(
        self, chain: Chain, run: Callable[[Coroutine[Any, Any, Any]], Any] = asyncio.run
    ) -> None:
        self.chain, self.run = chain, run

    def __getattr__(self, name: str) -> Callable[..., Any]:
        """Return an operation of the chain, or of its controls, that is waited for."""
        offering = (self.chain, self.chain.controls)
        of = next(each for each in offering if hasattr(each, name))
        return lambda *given, **named: self.run(getattr(of, name)(*given, **named))

    def put(self, data: bytes, sender: Wallet = RELAYER, to: Address = TOKEN, value: int = 0):
        """Send a transaction; return its hash."""
        return self.run(self.chain.send(Call(sender.address_bytes, to, data, value)))

    def send(self, data: bytes, sender: Wallet = RELAYER, value: int = 0) -> TxReceipt:
        """Send a call of the token that is mined at once; return its receipt."""
        return self.run(self.chain.receipt(self.put(data, sender, value=value)))

    def refusal(self, data: bytes, sender: Wallet = RELAYER, value: int = 0) -> str | None:
        """Send a call; return the revert reason, None for a success."""
        return self.send(data, sender, value).revert_reason

    def view(self, data: bytes, sender: Wallet = RELAYER) -> bytes:
        """Return the result of an `eth_call`."""
        return self.run(self.chain.call(Call(sender.address_bytes, TOKEN, data)))

    def tried(self, data: bytes, sender: Wallet = RELAYER) -> str | None:
        """Try a call without sending; return the revert reason, None for a success."""
        try:
            self.view(data, sender)
        except Reverted as reverted:
            return str(reverted)
        return None

    def balance(self, wallet: Wallet) -> int:
        return int.from_bytes(self.view(abi.balance_of(wallet.address_bytes)))

    def is_used(self, wallet: Wallet, used: bytes) -> bool:
        """Tell whether authorizationState is true."""
        return self.view(abi.authorization_state(wallet.address_bytes, used)) == abi.word(1)


class LedgerDriver(ChainDriver):
    """A ledger, a clock (`now`, in seconds), and shortcuts for calls."""

    def __init__(
        self,
        *,
        file: Path | None = None,
        now: list[float] | None = None,
        calls_at_block_time: bool = False,
    ) -> None:
        self.now = now or [float(NOW_S)]
        self.clock = Clock(lambda: self.now[0])
        ledger = LedgerChain(
            TESTNET,
            self.clock,
            owner=OWNER.address_bytes,
            balances={ALICE.address_bytes: START_BASE},
            native={w.address_bytes: 1000 * NATIVE_WEI for w in (RELAYER, ALICE, MALLORY, SHOP)},
            file=file,
            calls_at_block_time=calls_at_block_time,
        )
        super().__init__(ledger)

    @property
    def ledger(self) -> LedgerChain:
        return self.chain

    @property
    def state(self):
        return self.ledger.machine.state


def authorization(**changes: object) -> Authorization:
    """Return Alice's authorization of 10000 for the shop, valid now, with some fields changed."""
    fields: dict[str, object] = {
        "from_": ALICE.address_bytes,
        "to": SHOP.address_bytes,
        "value": 10_000,
        "valid_after": NOW_S - 60,
        "valid_before": NOW_S + 300,
        "nonce": nonce("first"),
    }
    return Authorization(**(fields | changes))  # type: ignore[arg-type]


def signature_of(
    auth: Authorization,
    *,
    by: Wallet = ALICE,
    domain: Domain = TESTNET.domain,
    receive: bool = False,
) -> bytes:
    return by.sign(auth, domain, receive=receive)


def transfer_call(
    auth: Authorization, signature: bytes, *, receive: bool = False, packed: bool = False
) -> bytes:
    """Return calldata of transfer- or receiveWithAuthorization; `packed` takes `bytes`."""
    if not packed:
        return abi.transfer_with_authorization(auth, signature, receive=receive)
    if receive:
        return ending_with(signature, abi.RECEIVE_WITH_AUTHORIZATION_BYTES, *astuple(auth))
    return ending_with(signature, abi.TRANSFER_WITH_AUTHORIZATION_BYTES, *astuple(auth))


def permit_call(
    permit: Permit,
    *,
    by: Wallet = ALICE,
    domain: Domain = TESTNET.domain,
    packed: bool = False,
) -> bytes:
    """Return calldata of a signed permit."""
    signature = sign(permit_digest(permit, domain), _key(by))
    return abi.permit(permit, signature, packed=packed)


def cancel_call(
    used: bytes,
    *,
    of: Address = ALICE.address_bytes,
    by: Wallet = ALICE,
    packed: bool = False,
    domain: Domain = TESTNET.domain,
) -> bytes:
    """Return calldata of cancelAuthorization."""
    signature = sign(cancel_digest(of, used, domain), _key(by))
    if not packed:
        return abi.cancel_authorization(of, used, signature)
    return ending_with(signature, abi.CANCEL_AUTHORIZATION_BYTES, of, used)


def payment(name: object = "first", **changes: object) -> bytes:
    """Return calldata that pays the shop from Alice; the name makes the nonce."""
    auth = authorization(nonce=nonce(name), **changes)
    return transfer_call(auth, signature_of(auth))


def ending_with(signature: bytes, function: bytes, *words: int | bytes) -> bytes:
    """Return calldata whose last argument is a signature as `bytes`."""
    return abi.calldata(function, *words, (len(words) + 1) * 32) + tail(signature)


def tail(value: bytes) -> bytes:
    """Return `bytes` as the ABI puts them behind the words."""
    return abi.word(len(value)) + value + bytes(-len(value) % 32)


def _key(wallet: Wallet) -> PrivateKey:
    return PrivateKey(parse_key(wallet.private_key))
