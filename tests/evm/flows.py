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


def accepted(name: str, what: str, data: bytes, sender: Wallet = RELAYER) -> Flow:
    """Return a flow that is accepted."""
    return Flow(name, data, sender, what=what)


def common(domain: Domain) -> list[Flow]:
    """Return the flows of payments, transfers and allowances, in the order they are done."""
    alice, shop = ALICE.address_bytes, SHOP.address_bytes

    def pay(name: str, value: int = 10_000, **changes: object) -> bytes:
        return paid(name, ALICE, SHOP, value, domain=domain, **changes)  # type: ignore[arg-type]

    refund, all_there_is = (
        paid("e", SHOP, ALICE, 5_000, domain=domain),
        paid("f", MALLORY, SHOP, 7, domain=domain),
    )
    to_oneself, receipt = paid("j", ALICE, ALICE, 10_000, domain=domain), pay("c", receive=True)
    return [
        accepted("first settlement", "a payment to a payee who never had any tokens", pay("a")),
        accepted("settlement", "a payment by transferWithAuthorization", pay("b")),
        accepted(
            "receipt", "a payment by receiveWithAuthorization, sent by the payee", receipt, SHOP
        ),
        accepted("cancellation", "a nonce cancelled", cancel_call(nonce("d"), domain=domain)),
        accepted("refund", "a merchant's authorization to a payer", refund),
        accepted(
            "first transfer",
            "a transfer to a new holder",
            abi.transfer(MALLORY.address_bytes, 7),
            ALICE,
        ),
        accepted("transfer", "ERC-20's transfer", abi.transfer(shop, 7), ALICE),
        accepted("mint", "a mint to a holder", abi.mint(alice, 7), OWNER),
        accepted("last settlement", "a payment of all that the payer has", all_there_is),
        accepted("settlement of nothing", "a payment of zero", pay("i", 0)),
        accepted("settlement to oneself", "a payment to the payer", to_oneself),
        accepted("view", "a balance, asked by a transaction", abi.balance_of(alice)),
        accepted("settlement, other v", "a payment whose v is 28", pay(with_v(28, pay))),
        *allowances(),
    ]


def allowances() -> list[Flow]:
    """Return the flows of ERC-20's allowances."""
    shop, mallory = SHOP.address_bytes, MALLORY.address_bytes

    def approved(amount_base: int) -> bytes:
        return abi.calldata(abi.APPROVE, mallory, amount_base)

    taken = abi.calldata(abi.TRANSFER_FROM, ALICE.address_bytes, shop, 10)
    endless = approved(2**256 - 1)
    return [
        accepted("first approval", "an allowance for a new spender", approved(900), ALICE),
        accepted("approval", "an allowance changed", approved(1000), ALICE),
        accepted("transfer from", "a transfer by a spender", taken, MALLORY),
        accepted("last approval", "an allowance taken back", approved(0), ALICE),
        accepted("endless approval", "an allowance of all there is", endless, ALICE),
        accepted("endless transfer from", "a transfer by such a spender", taken, MALLORY),
    ]


def permits(domain: Domain) -> list[Flow]:
    """Return the flows of Circle's permits, and of its changes of allowances."""
    mallory, alice = MALLORY.address_bytes, ALICE.address_bytes

    def permitted(
        used: int, *, deadline: int = NOW_S + 300, spender: Address = mallory, **changes: Any
    ) -> bytes:
        permit = Permit(alice, spender, 1000 + used, used, deadline)
        return permit_call(permit, domain=domain, **changes)

    less, more = (
        abi.calldata(function, mallory, amount_base)
        for function, amount_base in ((abi.DECREASE_ALLOWANCE, 7), (abi.INCREASE_ALLOWANCE, 5))
    )
    endless = permitted(3, deadline=2**256 - 1)
    return [
        accepted("decrease", "an allowance decreased", less, ALICE),
        accepted("increase", "an allowance increased", more, ALICE),
        accepted("first permit", "the first permit of an owner", permitted(0)),
        accepted("permit", "a permit that changes an allowance", permitted(1)),
        accepted("permit as bytes", "a permit, signature as bytes", permitted(2, packed=True)),
        accepted("endless permit", "a permit that never ends", endless),
    ]


def further(domain: Domain) -> list[Flow]:
    """Return the flows that follow: wallets, signatures as bytes, roles and permits."""
    return [*wallets(domain), *roles(), *permits(domain), *delegated(domain), *handed_over()]


def wallets(domain: Domain) -> list[Flow]:
    """Return the flows of a smart wallet, and of signatures as bytes."""

    def of_wallet(name: str, *, packed: bool = False) -> bytes:
        auth = authorization(from_=WALLET, nonce=nonce(name))
        return transfer_call(auth, signature_of(auth, domain=domain), packed=packed)

    def pay(name: str, **changes: Any) -> bytes:
        return paid(name, ALICE, SHOP, 10_000, domain=domain, packed=True, **changes)

    signed, packed = of_wallet("wallet"), of_wallet("wallet, again", packed=True)
    received = pay("m", receive=True)
    canceled = cancel_call(nonce("n"), packed=True, domain=domain)
    by, as_bytes = "a payment by a smart wallet", "signature as bytes"
    return [
        accepted(
            "transfer to a wallet", "tokens for a smart wallet", abi.transfer(WALLET, 50_000), ALICE
        ),
        accepted("settlement of a wallet", f"{by}, signed by its owner", signed),
        accepted("settlement of a wallet as bytes", f"{by}, {as_bytes}", packed),
        accepted("settlement as bytes", f"a payment, {as_bytes}", pay("l")),
        accepted("receipt as bytes", f"a receipt, {as_bytes}", received, SHOP),
        accepted("cancellation as bytes", f"a cancellation, {as_bytes}", canceled),
    ]


def roles() -> list[Flow]:
    """Return the flows of what the owner, its minter, blacklister and pauser do."""
    shop, owner = SHOP.address_bytes, OWNER.address_bytes

    def done(name: str, what: str, function: bytes, *given: Any) -> Flow:
        return accepted(name, what, abi.calldata(function, *given), OWNER)

    return [
        done(
            "minter configured", "a minter's allowance set anew", abi.CONFIGURE_MINTER, owner, 1000
        ),
        accepted("first mint", "a mint to a new holder", abi.mint(owner, 7), OWNER),
        done("burn", "tokens of a minter burnt", abi.BURN, 3),
        done("minter removed", "a minter that is none any more", abi.REMOVE_MINTER, owner),
        done("blacklisting", "a holder blacklisted", abi.BLACKLIST, shop),
        done("unblacklisting", "a holder no longer blacklisted", abi.UNBLACKLIST, shop),
        done("pause", "the token paused", abi.PAUSE),
        done("unpause", "the token no longer paused", abi.UNPAUSE),
    ]


def delegated(domain: Domain) -> list[Flow]:
    """Return the flows of an account that uses a smart wallet's code."""
    what = "a payment by an account that uses a smart wallet's code (EIP-7702)"
    data = paid("g", DELEGATE, SHOP, 10_000, domain=domain)
    return [
        Flow("", abi.transfer(DELEGATE.address_bytes, 50_000), ALICE),
        accepted("settlement of a delegate", what, data),
    ]


def handed_over() -> list[Flow]:
    """Return the flows that give roles to others and back, and rescue tokens."""
    mallory, owner, token = MALLORY.address_bytes, OWNER.address_bytes, TOKEN
    given, rescued = (
        abi.calldata(abi.TRANSFER_OWNERSHIP, mallory),
        abi.calldata(abi.RESCUE, token, SHOP.address_bytes, 5),
    )
    return [
        *(
            accepted(f"{name} changed{again}", f"a new {name}", abi.calldata(function, to), OWNER)
            for name, function in GIVEN.items()
            for to, again in ((mallory, ""), (owner, " again"))
        ),
        accepted("owner changed", "a new owner", given, OWNER),
        Flow("", abi.calldata(abi.TRANSFER_OWNERSHIP, owner), MALLORY),
        Flow("", abi.calldata(abi.UNBLACKLIST, token), OWNER),
        Flow("", abi.transfer(token, 50), ALICE),
        accepted("rescue", "tokens that the token had, moved by the rescuer", rescued, OWNER),
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
