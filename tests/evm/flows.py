"""The calls whose gas is measured, and how to make them."""

from collections.abc import Callable
from dataclasses import dataclass
from itertools import count
from typing import Any

from tests.chain.helpers import (
    ALICE,
    MALLORY,
    NOW_S,
    OWNER,
    RELAYER,
    SHOP,
    TOKEN,
    authorization,
    cancel_call,
    nonce,
    permit_call,
    signature_of,
    transfer_call,
)
from tests.evm.helpers import ChainDriver
from x402sim.chain import contract
from x402sim.payer.wallet import Wallet
from x402sim.protocol import abi
from x402sim.protocol.crypto import Address
from x402sim.protocol.eip3009 import Domain, Permit

WALLET = contract.wallet_address(ALICE.address_bytes)
"""The smart wallet of Alice."""
CODE = Address(b"\x0c" * 20)
"""Where the code of a wallet is, without an owner, for others to delegate to."""
DELEGATE = Wallet(bytes([6]) * 32)
"""An account that uses it."""


def prepare(driver: ChainDriver) -> None:
    """Put the smart wallets on a chain."""
    alice, set_code = ALICE.address_bytes, driver.chain.controls.set_code
    driver.run(set_code(WALLET, contract.wallet_code(), contract.wallet_storage(alice)))
    driver.run(set_code(CODE, contract.wallet_code()))
    driver.run(set_code(DELEGATE.address_bytes, b"\xef\x01\x00" + CODE))


@dataclass(frozen=True)
class Flow:
    """A call; of a refusal, `row` names its gas where the reason does not. Without a name it only
    prepares the next ones.
    """

    name: str
    data: bytes
    sender: Wallet = RELAYER
    row: str = ""


def paid(
    name: str,
    payer: Wallet,
    to: Wallet | Address,
    value: int = 10_000,
    *,
    domain: Domain,
    receive: bool = False,
    packed: bool = False,
    by: Wallet | None = None,
    spoil: Callable[[bytes], bytes] = bytes,
    **changes: object,
) -> bytes:
    """Return calldata of a payment, whose nonce is made from the name; `changes` are of fields."""
    payee = to.address_bytes if isinstance(to, Wallet) else to
    fields = {"from_": payer.address_bytes, "to": payee, "value": value}
    auth = authorization(**{**fields, "nonce": nonce(name), **changes})
    signature = spoil(signature_of(auth, by=by or payer, receive=receive, domain=domain))
    return transfer_call(auth, signature, receive=receive, packed=packed)


V_AT = {
    abi.TRANSFER_WITH_AUTHORIZATION: 4 + 7 * 32 - 1,
    abi.RECEIVE_WITH_AUTHORIZATION: 4 + 7 * 32 - 1,
    abi.CANCEL_AUTHORIZATION: 4 + 3 * 32 - 1,
    abi.TRANSFER_WITH_AUTHORIZATION_BYTES: 4 + 8 * 32 + 64,
    abi.RECEIVE_WITH_AUTHORIZATION_BYTES: 4 + 8 * 32 + 64,
    abi.CANCEL_AUTHORIZATION_BYTES: 4 + 4 * 32 + 64,
    abi.PERMIT: 4 + 5 * 32 - 1,
    abi.PERMIT_BYTES: 4 + 6 * 32 + 64,
}
"""Where the `v` of a signature is in the calldata of each function that has one."""


def v_of(data: bytes) -> int:
    """Return the `v` of a call's signature; 27 if it has none."""
    return data[V_AT[data[:4]]] if data[:4] in V_AT else 27


def with_v(make: Callable[[str], bytes], v: int = 27) -> bytes:
    """Return a call, made from some name, whose signature ends with this `v`."""
    return next(data for name in map(str, count()) if v_of(data := make(name)) == v)


def common(domain: Domain) -> list[Flow]:
    """Return the flows of payments, transfers and allowances, in the order they are done."""
    alice, shop, mallory = ALICE.address_bytes, SHOP.address_bytes, MALLORY.address_bytes

    def pay(name: str, value: int = 10_000, **changes: object) -> bytes:
        return paid(name, ALICE, SHOP, value, domain=domain, **changes)  # type: ignore[arg-type]

    taken = abi.calldata(abi.TRANSFER_FROM, alice, shop, 10)
    return [
        Flow("first settlement", pay("a")),
        Flow("settlement", pay("b")),
        Flow("receipt", pay("c", receive=True), SHOP),
        Flow("cancellation", cancel_call(nonce("d"), domain=domain)),
        Flow("refund", paid("e", SHOP, ALICE, 5_000, domain=domain)),
        Flow("first transfer", abi.transfer(mallory, 7), ALICE),
        Flow("transfer", abi.transfer(shop, 7), ALICE),
        Flow("mint", abi.mint(alice, 7), OWNER),
        Flow("last settlement", paid("f", MALLORY, SHOP, 7, domain=domain)),
        Flow("settlement of nothing", pay("i", 0)),
        Flow("settlement to oneself", paid("j", ALICE, ALICE, 10_000, domain=domain)),
        Flow("view", abi.balance_of(alice)),
        Flow("settlement, other v", with_v(pay, 28)),
        Flow("first approval", abi.calldata(abi.APPROVE, mallory, 900), ALICE),
        Flow("approval", abi.calldata(abi.APPROVE, mallory, 1000), ALICE),
        Flow("transfer from", taken, MALLORY),
        Flow("last approval", abi.calldata(abi.APPROVE, mallory, 0), ALICE),
        Flow("endless approval", abi.calldata(abi.APPROVE, mallory, 2**256 - 1), ALICE),
        Flow("endless transfer from", taken, MALLORY),
    ]


def wallets(domain: Domain) -> list[Flow]:
    """Return the flows of a smart wallet, and of signatures as bytes."""

    def pay(name: str, *, packed: bool = True, **changes: Any) -> bytes:
        return paid(name, ALICE, SHOP, domain=domain, packed=packed, **changes)

    return [
        Flow("transfer to a wallet", abi.transfer(WALLET, 50_000), ALICE),
        Flow("settlement of a wallet", pay("wallet", packed=False, from_=WALLET)),
        Flow("settlement of a wallet as bytes", pay("wallet, again", from_=WALLET)),
        Flow("settlement as bytes", pay("l")),
        Flow("receipt as bytes", pay("m", receive=True), SHOP),
        Flow("cancellation as bytes", cancel_call(nonce("n"), packed=True, domain=domain)),
    ]


def roles() -> list[Flow]:
    """Return the flows of what the owner, its minter, blacklister and pauser do."""
    shop, owner = SHOP.address_bytes, OWNER.address_bytes
    return [
        Flow("minter configured", abi.calldata(abi.CONFIGURE_MINTER, owner, 1000), OWNER),
        Flow("first mint", abi.mint(owner, 7), OWNER),
        Flow("burn", abi.calldata(abi.BURN, 3), OWNER),
        Flow("minter removed", abi.calldata(abi.REMOVE_MINTER, owner), OWNER),
        Flow("blacklisting", abi.calldata(abi.BLACKLIST, shop), OWNER),
        Flow("unblacklisting", abi.calldata(abi.UNBLACKLIST, shop), OWNER),
        Flow("pause", abi.PAUSE, OWNER),
        Flow("unpause", abi.UNPAUSE, OWNER),
    ]


def permits(domain: Domain) -> list[Flow]:
    """Return the flows of Circle's permits, and of its changes of allowances."""
    alice, mallory = ALICE.address_bytes, MALLORY.address_bytes

    def permitted(used: int, deadline: int = NOW_S + 300, *, packed: bool = False) -> bytes:
        permit = Permit(alice, mallory, 1000 + used, used, deadline)
        return permit_call(permit, domain=domain, packed=packed)

    return [
        Flow("decrease", abi.calldata(abi.DECREASE_ALLOWANCE, mallory, 7), ALICE),
        Flow("increase", abi.calldata(abi.INCREASE_ALLOWANCE, mallory, 5), ALICE),
        Flow("first permit", permitted(0)),
        Flow("permit", permitted(1)),
        Flow("permit as bytes", permitted(2, packed=True)),
        Flow("endless permit", permitted(3, 2**256 - 1)),
    ]


GIVEN = {
    "pauser": abi.UPDATE_PAUSER,
    "blacklister": abi.UPDATE_BLACKLISTER,
    "master minter": abi.UPDATE_MASTER_MINTER,
    "rescuer": abi.UPDATE_RESCUER,
}


def handed_over(domain: Domain) -> list[Flow]:
    """Return the flows of an account that uses a smart wallet's code (EIP-7702), and those that
    give roles to others and back, and rescue tokens.
    """
    mallory, owner, token = MALLORY.address_bytes, OWNER.address_bytes, TOKEN
    return [
        Flow("", abi.transfer(DELEGATE.address_bytes, 50_000), ALICE),
        Flow("settlement of a delegate", paid("g", DELEGATE, SHOP, 10_000, domain=domain)),
        *(
            Flow(f"{name} changed{again}", abi.calldata(function, to), OWNER)
            for name, function in GIVEN.items()
            for to, again in ((mallory, ""), (owner, " again"))
        ),
        Flow("owner changed", abi.calldata(abi.TRANSFER_OWNERSHIP, mallory), OWNER),
        Flow("", abi.calldata(abi.TRANSFER_OWNERSHIP, owner), MALLORY),
        Flow("", abi.calldata(abi.UNBLACKLIST, token), OWNER),
        Flow("", abi.transfer(token, 50), ALICE),
        Flow("rescue", abi.calldata(abi.RESCUE, token, SHOP.address_bytes, 5), OWNER),
        Flow("", abi.calldata(abi.BLACKLIST, token), OWNER),
    ]


def flows(domain: Domain) -> list[Flow]:
    """Return all flows, which are accepted, in the order they are done on a new chain."""
    further = [*wallets(domain), *roles(), *permits(domain), *handed_over(domain)]
    return [*common(domain), *further]
