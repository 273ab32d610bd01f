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
from x402sim.protocol.eip2612 import Permit
from x402sim.protocol.eip3009 import Domain

WALLET = contract.wallet_address(ALICE.address_bytes)
"""The smart wallet of Alice."""
CODE = Address(b"\x0c" * 20)
"""Where the code of a wallet is, without an owner, for others to delegate to."""
DELEGATE = Wallet(bytes([6]) * 32)
"""An account that uses it."""


def prepare(driver: ChainDriver) -> None:
    """Put the smart wallets on a chain."""
    alice, set_code = ALICE.address_bytes, driver.chain.rewinding.set_code
    driver.run(set_code(WALLET, contract.wallet_code(), contract.wallet_storage(alice)))
    driver.run(set_code(CODE, contract.wallet_code()))
    driver.run(set_code(DELEGATE.address_bytes, b"\xef\x01\x00" + CODE))


@dataclass(frozen=True)
class Flow:
    """A call; of a refusal, `row` names its gas where the reason does not. Only what is accepted
    has `what` it is, for people.
    """

    name: str
    data: bytes
    sender: Wallet = RELAYER
    row: str = ""
    what: str = ""


def paid(
    name: str,
    payer: Wallet,
    to: Wallet,
    value: int,
    *,
    domain: Domain,
    receive: bool = False,
    packed: bool = False,
    by: Wallet | None = None,
    spoil: Callable[[bytes], bytes] = bytes,
    **changes: object,
) -> bytes:
    """Return calldata of a payment, whose nonce is made from the name."""
    fields = {"from_": payer.address_bytes, "to": to.address_bytes, "value": value}
    auth = authorization(**{**fields, "nonce": nonce(name), **changes})
    signature = spoil(signature_of(auth, by=by or payer, receive=receive, domain=domain))
    return transfer_call(auth, signature, receive=receive, packed=packed)


def with_v(wanted: int, pay: Callable[[str], bytes]) -> str:
    """Return the name of a payment whose signature ends with this `v`."""
    return next(name for name in map(str, count()) if v_of(pay(name)) == wanted)


def v_of(data: bytes) -> int:
    """Return the `v` of a call's signature; 27 if it has none."""
    at = {
        abi.TRANSFER_WITH_AUTHORIZATION: 7 * 32 - 1,
        abi.RECEIVE_WITH_AUTHORIZATION: 7 * 32 - 1,
        abi.CANCEL_AUTHORIZATION: 3 * 32 - 1,
        abi.TRANSFER_WITH_AUTHORIZATION_BYTES: 8 * 32 + 64,
        abi.RECEIVE_WITH_AUTHORIZATION_BYTES: 8 * 32 + 64,
        abi.CANCEL_AUTHORIZATION_BYTES: 4 * 32 + 64,
        abi.PERMIT: 5 * 32 - 1,
        abi.PERMIT_BYTES: 6 * 32 + 64,
    }.get(data[:4])
    return 27 if at is None else data[4 + at]


def common(domain: Domain) -> list[Flow]:
    """Return the flows of payments, transfers and allowances, in the order they are done."""

    def pay(name: str, value: int = 10_000, **changes: object) -> bytes:
        return paid(name, ALICE, SHOP, value, domain=domain, **changes)  # type: ignore[arg-type]

    return [
        Flow("first settlement", pay("a"), what="a payment to a payee who never had any tokens"),
        Flow("settlement", pay("b"), what="a payment by transferWithAuthorization"),
        Flow(
            "receipt",
            pay("c", receive=True),
            SHOP,
            what="a payment by receiveWithAuthorization, sent by the payee",
        ),
        Flow("cancellation", cancel_call(nonce("d"), domain=domain), what="a nonce cancelled"),
        Flow(
            "refund",
            paid("e", SHOP, ALICE, 5_000, domain=domain),
            what="a merchant's authorization to a payer",
        ),
        Flow(
            "first transfer",
            abi.transfer(MALLORY.address_bytes, 7),
            ALICE,
            what="a transfer to a new holder",
        ),
        Flow("transfer", abi.transfer(SHOP.address_bytes, 7), ALICE, what="ERC-20's transfer"),
        Flow("mint", abi.mint(ALICE.address_bytes, 7), OWNER, what="a mint to a holder"),
        Flow(
            "last settlement",
            paid("f", MALLORY, SHOP, 7, domain=domain),
            what="a payment of all that the payer has",
        ),
        Flow("settlement of nothing", pay("i", 0), what="a payment of zero"),
        Flow(
            "settlement to oneself",
            paid("j", ALICE, ALICE, 10_000, domain=domain),
            what="a payment to the payer",
        ),
        Flow("view", abi.balance_of(ALICE.address_bytes), what="a balance, asked by a transaction"),
        Flow("settlement, other v", pay(with_v(28, pay)), what="a payment whose v is 28"),
        *allowances(),
    ]


def allowances() -> list[Flow]:
    """Return the flows of ERC-20's allowances."""
    shop, mallory = SHOP.address_bytes, MALLORY.address_bytes

    def approved(amount_base: int) -> bytes:
        return abi.calldata(abi.APPROVE, mallory, amount_base)

    def taken(amount_base: int) -> bytes:
        return abi.calldata(abi.TRANSFER_FROM, ALICE.address_bytes, shop, amount_base)

    return [
        Flow("first approval", approved(900), ALICE, what="an allowance for a new spender"),
        Flow("approval", approved(1000), ALICE, what="an allowance changed"),
        Flow("transfer from", taken(10), MALLORY, what="a transfer by a spender"),
        Flow("last approval", approved(0), ALICE, what="an allowance taken back"),
        Flow("endless approval", approved(2**256 - 1), ALICE, what="an allowance of all there is"),
        Flow("endless transfer from", taken(10), MALLORY, what="a transfer by such a spender"),
    ]


def permits(domain: Domain) -> list[Flow]:
    """Return the flows of Circle's permits, and of its changes of allowances."""
    mallory, alice = MALLORY.address_bytes, ALICE.address_bytes

    def permitted(
        used: int, *, deadline: int = NOW_S + 300, spender: Address = mallory, **changes: Any
    ) -> bytes:
        permit = Permit(alice, spender, 1000 + used, used, deadline)
        return permit_call(permit, domain=domain, **changes)

    def changed(function: bytes, amount_base: int) -> bytes:
        return abi.calldata(function, mallory, amount_base)

    return [
        Flow("decrease", changed(abi.DECREASE_ALLOWANCE, 7), ALICE, what="an allowance decreased"),
        Flow("increase", changed(abi.INCREASE_ALLOWANCE, 5), ALICE, what="an allowance increased"),
        Flow("first permit", permitted(0), what="the first permit of an owner"),
        Flow("permit", permitted(1), what="a permit that changes an allowance"),
        Flow("permit as bytes", permitted(2, packed=True), what="a permit, signature as bytes"),
        Flow("endless permit", permitted(3, deadline=2**256 - 1), what="a permit that never ends"),
    ]


def further(domain: Domain) -> list[Flow]:
    """Return the flows that follow: wallets, signatures as bytes, roles and permits."""
    mallory, owner = MALLORY.address_bytes, OWNER.address_bytes

    def pay(name: str, **changes: object) -> bytes:
        return paid(name, ALICE, SHOP, 10_000, domain=domain, **changes)  # type: ignore[arg-type]

    delegate, token = DELEGATE.address_bytes, TOKEN
    wallet = authorization(from_=WALLET, nonce=nonce("wallet"))
    signature = signature_of(wallet, domain=domain)
    again = authorization(from_=WALLET, nonce=nonce("wallet, again"))
    packed = signature_of(again, domain=domain)

    return [
        Flow(
            "transfer to a wallet",
            abi.transfer(WALLET, 50_000),
            ALICE,
            what="tokens for a smart wallet",
        ),
        Flow(
            "settlement of a wallet",
            transfer_call(wallet, signature),
            what="a payment by a smart wallet, signed by its owner",
        ),
        Flow(
            "settlement of a wallet as bytes",
            transfer_call(again, packed, packed=True),
            what="a payment by a smart wallet, signature as bytes",
        ),
        Flow("settlement as bytes", pay("l", packed=True), what="a payment, signature as bytes"),
        Flow(
            "receipt as bytes",
            pay("m", receive=True, packed=True),
            SHOP,
            what="a receipt, signature as bytes",
        ),
        Flow(
            "cancellation as bytes",
            cancel_call(nonce("n"), packed=True, domain=domain),
            what="a cancellation, signature as bytes",
        ),
        Flow(
            "minter configured",
            abi.calldata(abi.CONFIGURE_MINTER, OWNER.address_bytes, 1000),
            OWNER,
            what="a minter's allowance set anew",
        ),
        Flow("first mint", abi.mint(OWNER.address_bytes, 7), OWNER, what="a mint to a new holder"),
        Flow("burn", abi.calldata(abi.BURN, 3), OWNER, what="tokens of a minter burnt"),
        Flow(
            "minter removed",
            abi.calldata(abi.REMOVE_MINTER, OWNER.address_bytes),
            OWNER,
            what="a minter that is none any more",
        ),
        Flow(
            "blacklisting",
            abi.calldata(abi.BLACKLIST, SHOP.address_bytes),
            OWNER,
            what="a holder blacklisted",
        ),
        Flow(
            "unblacklisting",
            abi.calldata(abi.UNBLACKLIST, SHOP.address_bytes),
            OWNER,
            what="a holder no longer blacklisted",
        ),
        Flow("pause", abi.PAUSE, OWNER, what="the token paused"),
        Flow("unpause", abi.UNPAUSE, OWNER, what="the token no longer paused"),
        *permits(domain),
        Flow("", abi.transfer(delegate, 50_000), ALICE),
        Flow(
            "settlement of a delegate",
            paid("g", DELEGATE, SHOP, 10_000, domain=domain),
            what="a payment by an account that uses a smart wallet's code (EIP-7702)",
        ),
        *(
            Flow(f"{name} changed{again}", abi.calldata(function, to), by, what=f"a new {name}")
            for name, function in GIVEN.items()
            for to, by, again in ((mallory, OWNER, ""), (owner, OWNER, " again"))
        ),
        Flow(
            "owner changed",
            abi.calldata(abi.TRANSFER_OWNERSHIP, mallory),
            OWNER,
            what="a new owner",
        ),
        Flow("", abi.calldata(abi.TRANSFER_OWNERSHIP, owner), MALLORY),
        Flow("", abi.calldata(abi.UNBLACKLIST, token), OWNER),
        Flow("", abi.transfer(token, 50), ALICE),
        Flow(
            "rescue",
            abi.calldata(abi.RESCUE, token, SHOP.address_bytes, 5),
            OWNER,
            what="tokens that the token had, moved by the rescuer",
        ),
        Flow("", abi.calldata(abi.BLACKLIST, token), OWNER),
    ]


GIVEN = {
    "pauser": abi.UPDATE_PAUSER,
    "blacklister": abi.UPDATE_BLACKLISTER,
    "master minter": abi.UPDATE_MASTER_MINTER,
    "rescuer": abi.UPDATE_RESCUER,
}


def flows(domain: Domain) -> list[Flow]:
    """Return all flows, in the order they are done on a new chain."""
    return common(domain) + further(domain)
