"""The calls whose gas is measured, and how to make them: accepted ones, and every refusal of Circle's contract.

They are in an order that works; a flow without a name only prepares the next ones.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from itertools import count, product
from typing import Any

from tests.chain.helpers import (
    ALICE,
    MALLORY,
    NOW_S,
    OWNER,
    RELAYER,
    SHOP,
    START_BASE,
    authorization,
    cancel_call,
    nonce,
    permit_call,
    signature_of,
    tail,
    transfer_call,
)
from tests.evm.helpers import ChainDriver
from x402sim.chain import contract
from x402sim.chain.ledger.frame import LARGEST_BALANCE
from x402sim.payer.wallet import Wallet
from x402sim.protocol import abi
from x402sim.protocol.crypto import ZERO_ADDRESS, Address
from x402sim.protocol.eip3009 import Domain, Permit

alice, mallory, shop, owner = (w.address_bytes for w in (ALICE, MALLORY, SHOP, OWNER))
WALLET = contract.wallet_address(alice)
"""The smart wallet of Alice."""
CODE = Address(b"\x0c" * 20)
"""Where the code of a wallet is, without an owner, for others to delegate to."""
DELEGATE = Wallet(bytes([6]) * 32)
"""An account that uses it."""


def prepare(driver: ChainDriver) -> None:
    """Put the smart wallets on a chain."""
    set_code = driver.chain.controls.set_code
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


def flows(domain: Domain) -> list[Flow]:
    """Return all flows, which are accepted, in the order they are done on a new chain."""

    def pay(name: str, value: int = 10_000, **changes: Any) -> bytes:
        return paid(name, ALICE, SHOP, value, domain=domain, **changes)

    def permitted(used: int, deadline: int = NOW_S + 300, *, packed: bool = False) -> bytes:
        permit = Permit(alice, mallory, 1000 + used, used, deadline)
        return permit_call(permit, domain=domain, packed=packed)

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
        # of a smart wallet, and of signatures as bytes
        Flow("transfer to a wallet", abi.transfer(WALLET, 50_000), ALICE),
        Flow("settlement of a wallet", pay("wallet", from_=WALLET)),
        Flow("settlement of a wallet as bytes", pay("wallet, again", from_=WALLET, packed=True)),
        Flow("settlement as bytes", pay("l", packed=True)),
        Flow("receipt as bytes", pay("m", receive=True, packed=True), SHOP),
        Flow("cancellation as bytes", cancel_call(nonce("n"), packed=True, domain=domain)),
        # of those with a role
        Flow("first mint", abi.mint(owner, 7), OWNER),
        Flow("blacklisting", abi.calldata(abi.BLACKLIST, shop), OWNER),
        Flow("unblacklisting", abi.calldata(abi.UNBLACKLIST, shop), OWNER),
        Flow("pause", abi.PAUSE, OWNER),
        Flow("unpause", abi.UNPAUSE, OWNER),
        # of changes of allowances
        Flow("decrease", abi.calldata(abi.DECREASE_ALLOWANCE, mallory, 7), ALICE),
        Flow("increase", abi.calldata(abi.INCREASE_ALLOWANCE, mallory, 5), ALICE),
        Flow("first permit", permitted(0)),
        Flow("permit", permitted(1)),
        Flow("permit as bytes", permitted(2, packed=True)),
        Flow("endless permit", permitted(3, 2**256 - 1)),
        # of an account with a smart wallet's code (EIP-7702)
        Flow("", abi.transfer(DELEGATE.address_bytes, 50_000), ALICE),
        Flow("settlement of a delegate", paid("g", DELEGATE, SHOP, 10_000, domain=domain)),
    ]


# --- the refusals -------------------------------------------------------------------------

MUCH = 10 * START_BASE
SPOILT: dict[str, Callable[[bytes], bytes]] = {
    "high s": lambda s: s[:32] + b"\xff" * 32 + s[64:],
    "v": lambda s: s[:64] + b"\0",
    "no key": lambda s: b"\xff" * 32 + s[32:64] + b"\x1b",
}
"""What may be wrong with a signature, beside who has signed."""
PAYER, PAYEE, SPENDER, MINTER = (
    f"token/{who}-not-blacklisted" for who in ("payer", "payee", "spender", "minter")
)


def refusals(domain: Domain) -> list[Flow]:
    """Return all refusals, after `flows`, and what prepares them."""
    return [
        Flow("", abi.mint(mallory, 1000), OWNER),
        *(each for packed in (False, True) for each in _payments(domain, packed)),
        Flow("not enough", abi.transfer(shop, MUCH), ALICE),
        Flow("to nobody", abi.transfer(ZERO_ADDRESS, 1), ALICE),
        *_allowances(),
        Flow("no minter", abi.mint(alice, 7), MALLORY),
        Flow("nothing", abi.mint(alice, 0), OWNER),
        Flow("to nobody", abi.mint(ZERO_ADDRESS, 1), OWNER),
        *(Flow("a stranger", function, MALLORY) for function in (abi.PAUSE, abi.UNPAUSE)),
        Flow("a stranger", abi.calldata(abi.BLACKLIST, shop), MALLORY),
        Flow("a stranger", abi.calldata(abi.UNBLACKLIST, shop), MALLORY),
        *_blacklisted(domain),
        Flow("", abi.PAUSE, OWNER),
        *_paused(domain),
        Flow("", abi.UNPAUSE, OWNER),
        *_too_much(domain),
    ]


def _payments(domain: Domain, packed: bool) -> Iterator[Flow]:
    """Yield refused payments, cancellations and permits."""
    for receive in (False, True):

        def pay(name: str, value: int = 5, to: Wallet | Address = SHOP, **changes: object) -> bytes:
            changes = {"packed": packed, "receive": receive, "domain": domain, **changes}  # noqa: B023
            return paid(f"refused {name}", ALICE, to, value, **changes)  # type: ignore[arg-type]

        by = SHOP if receive else RELAYER
        if not packed and not receive:
            yield Flow("", pay("used"), RELAYER)
        yield Flow("used nonce", pay("used"), by)
        yield Flow("too early", pay("early", valid_after=NOW_S), by)
        yield Flow("too late", pay("late", valid_before=NOW_S), by)
        yield Flow("another signer", with_v(lambda n: pay(n, by=MALLORY)), by)
        yield Flow("not enough", with_v(lambda n: pay(n, MUCH)), by)
        for name, spoil in {**SPOILT, **LENGTHS[packed]}.items():
            yield Flow(name, pay(name, spoil=spoil), by)
        if receive:
            yield Flow("not the payee", pay("stranger"), RELAYER)
        else:
            yield Flow("to nobody", with_v(lambda n: pay(n, to=ZERO_ADDRESS)), RELAYER)
    yield Flow("", cancel_call(nonce(f"canceled {packed}"), domain=domain), RELAYER)
    yield from _cancellations(domain, packed)
    yield from _permits(domain, packed)


def _cancellations(domain: Domain, packed: bool) -> Iterator[Flow]:
    def cancel(name: str, by: Wallet = ALICE) -> bytes:
        return cancel_call(nonce(name), by=by, packed=packed, domain=domain)

    yield Flow("used nonce", cancel(f"canceled {packed}"))
    yield Flow("another signer", with_v(lambda n: cancel(f"another {n}", MALLORY)))
    for name, spoil in {**SPOILT, **LENGTHS[packed]}.items():
        yield Flow(name, spoilt(cancel(name), packed, spoil))


def _permits(domain: Domain, packed: bool) -> Iterator[Flow]:
    def permit(deadline: int, spender: bytes = mallory, by: Wallet = ALICE) -> bytes:
        asked = Permit(alice, spender, 5, 4, deadline)
        return permit_call(asked, by=by, packed=packed, domain=domain)

    yield Flow("too late", permit(NOW_S - 1))
    yield Flow("another signer", with_v(lambda n: permit(NOW_S + int(n), by=MALLORY)))
    yield Flow("for nobody", with_v(lambda n: permit(NOW_S + int(n), ZERO_ADDRESS)))
    for name, spoil in {**SPOILT, **LENGTHS[packed]}.items():
        yield Flow(name, spoilt(permit(NOW_S + 9), packed, spoil))


LENGTHS: dict[bool, dict[str, Callable[[bytes], bytes]]] = {
    False: {},
    True: {"length": lambda s: s + b"\0"},
}


def spoilt(data: bytes, packed: bool, spoil: Callable[[bytes], bytes]) -> bytes:
    """Return calldata whose signature, the last argument, is spoilt."""
    at = V_AT[data[:4]]
    if packed:
        return data[: at - 96] + tail(spoil(data[at - 64 : at + 1]))
    signature = spoil(data[at + 1 : at + 65] + data[at : at + 1])
    return data[: at - 31] + abi.word(signature[64]) + signature[:64]


def _taken(payer: bytes, to: bytes, amount_base: int) -> bytes:
    return abi.calldata(abi.TRANSFER_FROM, payer, to, amount_base)


def _allowances() -> Iterator[Flow]:
    yield Flow("", abi.calldata(abi.APPROVE, mallory, 2**256 - 1), ALICE)
    yield Flow("", abi.calldata(abi.APPROVE, shop, 5), ALICE)
    yield Flow("not enough", _taken(alice, shop, MUCH), MALLORY)
    yield Flow("above the allowance", _taken(alice, mallory, 6), SHOP)
    yield Flow("to nobody", _taken(alice, ZERO_ADDRESS, 1), MALLORY)
    yield Flow("from nobody", _taken(ZERO_ADDRESS, shop, 0), MALLORY)
    yield Flow("for nobody", abi.calldata(abi.APPROVE, ZERO_ADDRESS, 1), ALICE)
    for function in (abi.INCREASE_ALLOWANCE, abi.DECREASE_ALLOWANCE):
        yield Flow("for nobody", abi.calldata(function, ZERO_ADDRESS, 0), ALICE)
    yield Flow("too much", abi.calldata(abi.INCREASE_ALLOWANCE, shop, 2**256 - 1), ALICE)
    yield Flow("too little", abi.calldata(abi.DECREASE_ALLOWANCE, shop, 2**256 - 1), ALICE)


OVERLOADS = [*product((False, True), repeat=2)]
"""Of a payment: whether its signature goes as bytes, and whether the payee sends it."""


def _blacklisted(domain: Domain) -> Iterator[Flow]:
    """Yield what is refused for the payer, the payee or the caller, where each is blacklisted."""

    def pay(packed: bool, receive: bool) -> bytes:
        name = "refused, blacklisted"
        return paid(name, ALICE, SHOP, 5, packed=packed, receive=receive, domain=domain)

    for account, who in ((alice, PAYER), (shop, PAYEE)):
        yield Flow("", abi.calldata(abi.BLACKLIST, account), OWNER)
        for packed, receive in OVERLOADS:
            by = SHOP if receive else RELAYER
            yield Flow("blacklisted", pay(packed, receive), by, who)
        yield Flow("blacklisted", abi.transfer(shop, 5), ALICE, who)
        yield Flow("blacklisted", _taken(alice, shop, 5), MALLORY, who)
        yield Flow("", abi.calldata(abi.UNBLACKLIST, account), OWNER)
    yield Flow("", abi.calldata(abi.BLACKLIST, shop), OWNER)
    yield Flow("blacklisted", abi.mint(shop, 5), OWNER, PAYEE)
    yield Flow("blacklisted", _taken(alice, mallory, 5), SHOP, SPENDER)
    yield Flow("", abi.calldata(abi.UNBLACKLIST, shop), OWNER)
    yield Flow("", abi.calldata(abi.BLACKLIST, owner), OWNER)
    yield Flow("blacklisted", abi.mint(shop, 5), OWNER, MINTER)
    yield Flow("", abi.calldata(abi.UNBLACKLIST, owner), OWNER)


def _paused(domain: Domain) -> Iterator[Flow]:
    for packed, receive in OVERLOADS:
        data = paid("p", ALICE, SHOP, 5, packed=packed, receive=receive, domain=domain)
        yield Flow("paused", data)
    for packed in (False, True):
        yield Flow("paused", cancel_call(nonce("p"), packed=packed, domain=domain))
        permit = Permit(alice, mallory, 5, 4, NOW_S)
        yield Flow("paused", permit_call(permit, packed=packed, domain=domain))
    for function in (abi.APPROVE, abi.INCREASE_ALLOWANCE, abi.DECREASE_ALLOWANCE):
        yield Flow("paused", abi.calldata(function, mallory, 1), ALICE)
    yield Flow("paused", abi.transfer(shop, 1), ALICE)
    yield Flow("paused", _taken(alice, shop, 1), MALLORY)
    yield Flow("paused", abi.mint(shop, 1), OWNER)


def _too_much(domain: Domain) -> Iterator[Flow]:
    """Yield payments to an account with the largest balance, and mints beyond the largest supply."""
    yield Flow("", abi.mint(RELAYER.address_bytes, LARGEST_BALANCE), OWNER)
    for packed, receive in OVERLOADS:
        pay = partial(paid, packed=packed, receive=receive, domain=domain)
        yield Flow("too much", with_v(lambda n, pay=pay: pay(f"much {n}", ALICE, RELAYER, 5)))  # type: ignore[misc]
    yield Flow("too much", abi.transfer(RELAYER.address_bytes, 5), ALICE)
    yield Flow("too much", _taken(alice, RELAYER.address_bytes, 5), MALLORY)
    yield Flow("too much", abi.mint(RELAYER.address_bytes, 5), OWNER)
    yield Flow("", abi.mint(MALLORY.address_bytes, LARGEST_BALANCE - 2 * START_BASE), OWNER)
    yield Flow("overflow", abi.mint(shop, START_BASE), OWNER)
    yield Flow("above the allowance", abi.mint(shop, 3 * START_BASE), OWNER)
