"""Several chains with one clock, and their first balances."""

import asyncio
import json
from pathlib import Path

from typer.testing import CliRunner

from tests.chain.asking import JsonRpc, Rpc
from tests.chain.helpers import (
    ALICE,
    MALLORY,
    NATIVE_WEI,
    NOW_S,
    OWNER,
    RELAYER,
    SHOP,
    START_BASE,
    ChainDriver,
)
from tests.evm import circle
from x402sim.chain.base import Call, Chain
from x402sim.chain.ledger.ledger import LedgerChain
from x402sim.chain.node import objects
from x402sim.chain.node.anvil import AnvilNode
from x402sim.chain.node.local_chain import LocalChain, install_stablecoin
from x402sim.cli import app
from x402sim.clock import Clock
from x402sim.protocol.networks import TESTNET
from x402sim.protocol.rpc_values import read_quantity

PLAYERS = (ALICE, MALLORY, SHOP)
EVERYBODY = (*PLAYERS, OWNER, RELAYER)
MONEY = {
    "owner": OWNER.address_bytes,
    "balances": {ALICE.address_bytes: START_BASE},
    "native": {wallet.address_bytes: 10**6 * NATIVE_WEI for wallet in EVERYBODY},
}
"""The state of block 0: tokens for Alice, native currency for every account."""

RESETS = 10
"""How often one anvil process is reset. It keeps the states of the last thousand blocks that it
mined, resets included, and would in the end drop that of block 0."""


CONTRACTS = {
    "circle": (circle.CIRCLE, circle.install),
    "stablecoin": (TESTNET, install_stablecoin),
}
"""Circle's own contract, and the product's contract on anvil: the network and how the contract
comes into block 0. Circle's version is always "2"."""


class Town:
    """A clock, an anvil with one of the two contracts, and the ledgers to compare."""

    def __init__(self, program: Path, contract: str) -> None:
        self._program, self._begun = program, 0
        self.network, self._install = CONTRACTS[contract]
        self.now = [float(NOW_S)]
        self.clock = Clock(lambda: self.now[0])
        self._runner = asyncio.Runner()
        self.run = self._runner.run
        self.anvil = self._new_anvil()

    def _new_anvil(self) -> LocalChain:
        self.node = AnvilNode(TESTNET.chain_id, self.clock.now_s(), self._program)
        return LocalChain(self.node, self.network, self.clock, **MONEY, install=self._install)

    def begin(self) -> None:
        """Reset the clock and the anvil."""
        self.now[0] = float(NOW_S)
        self._begun += 1
        if self._begun % RESETS == 0:
            self.anvil.close()
            self.anvil = self._new_anvil()
        self.run(self.anvil.controls.reset())
        self.run(self.anvil.controls.set_automine(True))
        self.run(self.anvil.controls.force_revert(0))
        self.anvil.watchers.clear()

    def ledger(self) -> LedgerChain:
        """Return a new ledger with the initial state of the anvil."""
        return LedgerChain(self.network, self.clock, **MONEY)

    def close(self) -> None:
        self.anvil.close()
        self._runner.close()

    def driver(self, chain: Chain) -> ChainDriver:
        """Return shortcuts to call a chain of this town, the same for a ledger and for anvil."""
        driver = ChainDriver(chain, self.run)
        driver.town, driver.domain = self, self.network.domain
        driver.rpc = Rpc(ledger=chain) if isinstance(chain, LedgerChain) else OfAnvil(driver)
        return driver


class OfAnvil(JsonRpc):
    """The JSON-RPC of an anvil, asked through the chain."""

    def __init__(self, driver: ChainDriver) -> None:
        self.post = lambda body: json.loads(
            driver.pass_on(json.dumps(body).encode(), writes="send" in str(body))
        )


async def estimate(chain: LocalChain | LedgerChain, call: Call) -> int:
    """Return the gas that a call needs now; raises `Reverted`."""
    if isinstance(chain, LedgerChain):
        return await chain.estimate_gas(call)
    asked = objects.call_object(call), "latest", {}, await chain.next_block()
    return await chain.node.read(read_quantity, "eth_estimateGas", *asked)


def refusal(*arguments: str) -> str:
    """Return the line with which a command refuses arguments."""
    result = CliRunner().invoke(app, list(arguments))
    assert (result.exit_code, result.output.count("\n")) == (2, 1), result.output
    return result.output
