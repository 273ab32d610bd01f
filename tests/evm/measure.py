"""Measures what each flow costs in gas on anvil; as a program it writes the committed table.

python -m tests.evm.measure
"""

import json
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
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
    payment,
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

TABLE = Path(str(files(home))) / "gas_measured.json"


@dataclass(frozen=True)
class Flow:
    name: str
    what: str
    data: bytes
    sender: Wallet = RELAYER


def paid(name: str, payer: Wallet, to: Wallet, value: int, *, receive: bool = False) -> bytes:
    auth = authorization(
        from_=payer.address_bytes, to=to.address_bytes, value=value, nonce=nonce(name)
    )
    return transfer_call(auth, signature_of(auth, by=payer, receive=receive), receive=receive)


FLOWS = [
    Flow("first settlement", "a payment to a payee who never had any tokens", payment("a")),
    Flow("settlement", "a payment by transferWithAuthorization", payment("b")),
    Flow(
        "receipt",
        "a payment by receiveWithAuthorization, sent by the payee",
        paid("c", ALICE, SHOP, 10_000, receive=True),
        SHOP,
    ),
    Flow("cancellation", "a nonce cancelled", cancel_call(nonce("d"))),
    Flow("refund", "a merchant's authorization to a payer", paid("e", SHOP, ALICE, 5_000)),
    Flow(
        "first transfer",
        "a transfer to a new holder",
        abi.transfer(MALLORY.address_bytes, 7),
        ALICE,
    ),
    Flow("transfer", "ERC-20's transfer", abi.transfer(SHOP.address_bytes, 7), ALICE),
    Flow("mint", "a mint to a holder", abi.mint(ALICE.address_bytes, 7), OWNER),
    Flow("last settlement", "a payment of all that the payer has", paid("f", MALLORY, SHOP, 7)),
    Flow("settlement of nothing", "a payment of zero", payment("i", value=0)),
    Flow("settlement to oneself", "a payment to the payer", paid("j", ALICE, ALICE, 10_000)),
    Flow("view", "a balance, asked by a transaction", abi.balance_of(ALICE.address_bytes)),
    Flow("refused: used nonce", "a payment made twice", payment("b")),
    Flow("refused: expired", "a payment too late", payment("g", valid_before=NOW_S)),
    Flow("refused: balance", "a payment without enough", payment("h", value=10 * START_BASE)),
    Flow(
        "refused: transfer",
        "ERC-20's transfer without enough",
        abi.transfer(SHOP.address_bytes, 10 * START_BASE),
        ALICE,
    ),
    Flow(
        "refused: signature",
        "a payment signed by another",
        transfer_call(authorization(), signature_of(authorization(), by=MALLORY)),
    ),
]


def measure(driver: ChainDriver) -> dict[str, Any]:
    """Return the table: gas of each flow, done in order on a new chain."""
    artifact = contract.artifact()
    return {
        "node": driver.run(driver.chain.node.ask("web3_clientVersion")).replace("/v", " "),
        "hardfork": HARDFORK,
        "contract": f"{artifact.contract} on OpenZeppelin Contracts {artifact.openzeppelin}",
        "compiler": artifact.compiler,
        "settings": artifact.settings,
        "source": artifact.source,
        "flows": {flow.name: cost(driver, flow) for flow in FLOWS},
    }


def cost(driver: ChainDriver, flow: Flow) -> dict[str, Any]:
    """Return what one flow used: all, and what is left without the price of its calldata."""
    receipt = driver.send(flow.data, flow.sender)
    assert receipt.succeeded != flow.name.startswith("refused")
    return {
        "what": flow.what,
        "gas": receipt.gas_used,
        "execution": receipt.gas_used - gas.intrinsic(flow.data),
    }


def main() -> None:
    town = Town(find.anvil())
    try:
        TABLE.write_text(json.dumps(measure(town.driver(town.anvil)), indent=1) + "\n")
    finally:
        town.close()


if __name__ == "__main__":
    main()
