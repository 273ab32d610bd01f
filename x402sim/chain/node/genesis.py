"""Writes block 0 of a test node: the token at the network's own address, and money."""

from collections.abc import Callable, Mapping

from x402sim.chain import contract
from x402sim.chain.base import Block
from x402sim.chain.node import objects
from x402sim.chain.node.anvil import AnvilNode
from x402sim.protocol.crypto import Address, to_hex
from x402sim.protocol.networks import Network
from x402sim.protocol.rpc_values import quantity

Install = Callable[[AnvilNode, Network, Address, Mapping[Address, int]], None]
"""Writes a network's token, its owner and the balances into a node's block 0; blocks until done."""


def install_stablecoin(
    node: AnvilNode, network: Network, owner: Address, balances: Mapping[Address, int]
) -> None:
    """Write the contract of `chain/contract`, an `Install`.

    The constructor runs at the token's address, as an `eth_call`, because the code that it
    returns contains that address (in the EIP-712 domain).
    """
    ask, token = node.rpc.ask_now, to_hex(network.asset)
    ask("anvil_setCode", token, to_hex(contract.creation_code(network, owner)))
    ask("anvil_setCode", token, ask("eth_call", {"to": token}, "latest"))
    for slot, word in contract.storage(network, owner, dict(balances)).items():
        ask("anvil_setStorageAt", token, to_hex(slot), to_hex(word))


def write_genesis(
    node: AnvilNode,
    network: Network,
    owner: Address,
    *,
    balances: Mapping[Address, int],
    native: Mapping[Address, int],
    install: Install = install_stablecoin,
) -> tuple[Block, int]:
    """Write token, Multicall3 and balances into block 0; return the block and a snapshot's id."""
    ask = node.rpc.ask_now
    install(node, network, owner, balances)
    ask("anvil_setCode", to_hex(contract.MULTICALL), to_hex(contract.multicall_code()))
    for account, amount_wei in native.items():
        ask("anvil_setBalance", to_hex(account), quantity(amount_wei))
    snapshot = int(ask("evm_snapshot"), 16)
    return objects.block(ask("eth_getBlockByNumber", "0x0", False)), snapshot
