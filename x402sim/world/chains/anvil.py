"""The chain backend `Anvil`: a real EVM that starts and stops with the world."""

import asyncio
from dataclasses import dataclass
from pathlib import Path

from x402sim.chain.base import ChainError
from x402sim.spec.needs import Need
from x402sim.world.chains.backend import ChainRequest, OpenChain, require_evm
from x402sim.world.loop import VirtualLoop


@dataclass(frozen=True, slots=True)
class Anvil:
    """An anvil (Foundry's test node) on a free port; needs the extra `evm`.

    `program` is its path; by default it is searched in X402SIM_ANVIL, on PATH, and in the npm
    package @foundry-rs/anvil.
    """

    program: Path | None = None
    kind = name = "anvil"
    is_virtual = True

    def open(self, request: ChainRequest) -> OpenChain:
        """Start the node and install the token; raises `ChainError`."""
        require_evm(request)
        if request.file is not None:
            raise ChainError("--db is not supported with anvil: its chain ends with the process")
        from x402sim.chain.node.anvil import AnvilNode
        from x402sim.chain.node.local_chain import LocalChain
        from x402sim.chain.rpc.node import node_rpc_app

        accounts, network, clock = request.accounts, request.network, request.clock
        node = AnvilNode(
            network.chain_id,
            clock.now_s(),
            self.program,
            in_line=_is_time_virtual(),
            mnemonic=accounts.mnemonic or "",
            accounts=len(accounts.funded) if accounts.mnemonic else 0,
            base_fee_wei=network.base_fee_wei,
        )
        if request.gas_price:
            # the price is fixed when a transaction is sent: all of it tip
            node.rpc.ask_now("anvil_setNextBlockBaseFeePerGas", "0x0")
        chain = LocalChain(
            node,
            network,
            clock,
            owner=accounts.owner.address_bytes,
            balances=request.balances,
            native=accounts.native,
            gas_price=request.gas_price,
            calls_at_block_time=request.calls_at_block_time,
        )
        return OpenChain(
            chain=chain,
            network=network,
            rpc_app=node_rpc_app(chain, may_write=request.unlocked),
            offers=frozenset(
                {Need.FUNDS, Need.OBSERVE_CHAIN, Need.CONTROL_CHAIN, Need.CLOCK},
            ),
        )


def _is_time_virtual() -> bool:
    try:
        return isinstance(asyncio.get_running_loop(), VirtualLoop)
    except RuntimeError:
        return False
