"""A chain that other people's libraries use as wallets and facilitators do, on each backend.

`ledger` is `serve` as it is; `anvil` is `serve` on a node with Circle's own token. Both have the
same token, the same accounts, the same words and the same gas: what a program finds must be equal.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from tests.evm import circle, find
from tests.serve.driver import Server, started
from x402sim import BASE_SEPOLIA, Wallet
from x402sim.chain import contract
from x402sim.chain.node.anvil import AnvilNode
from x402sim.clock import Clock
from x402sim.protocol.crypto import checksum, to_hex
from x402sim.protocol.phrase import KNOWN, keys_of
from x402sim.world.chains import ACCOUNTS, KEYS

NETWORK = ("--network", BASE_SEPOLIA.name)
FIRST_BASE = 1000 * 10**BASE_SEPOLIA.decimals
OWNER, RELAYER = (Wallet(key) for key in keys_of(KNOWN, ACCOUNTS + 2)[ACCOUNTS:])
PLENTY_WEI = 10**24


@contextmanager
def chain(kind: str) -> Iterator[Server]:
    """Serve a world on Base Sepolia whose chain is a ledger, or a node with Circle's token."""
    if kind == "ledger":
        with started(*NETWORK) as server:
            yield server
        return
    with node() as running, pytest.MonkeyPatch.context() as patch:
        patch.setenv(KEYS, f"{RELAYER.private_key},{OWNER.private_key}")
        with started(*NETWORK, "--chain", running.url, "--mnemonic", KNOWN) as server:
            yield server


@contextmanager
def node() -> Iterator[AnvilNode]:
    """Start a node that has Circle's token in block 0, and signs for the ten accounts."""
    accounts = [Wallet(key).address_bytes for key in keys_of(KNOWN, ACCOUNTS)]
    made = AnvilNode(
        BASE_SEPOLIA.chain_id,
        Clock().now_s() - 60,
        find.anvil(),
        mnemonic=KNOWN,
        accounts=ACCOUNTS,
    )
    try:
        balances = dict.fromkeys(accounts, FIRST_BASE)
        circle.install(made, BASE_SEPOLIA, OWNER.address_bytes, balances)
        ask = made.rpc.ask_now
        ask("anvil_setCode", to_hex(contract.MULTICALL), contract.artifact("Multicall").runtime)
        for wallet in (OWNER, RELAYER):
            ask("anvil_setBalance", to_hex(wallet.address_bytes), hex(PLENTY_WEI))
        ask("evm_mine")  # a block whose time is now
        yield made
    finally:
        made.stop()


def token(server: Server) -> dict[str, Any]:
    """Return what a program is told of the chain and its token."""
    return {
        "rpc": server.ready["rpc"],
        "token": server.ready["asset"],
        "chainId": server.ready["chainId"],
        "network": BASE_SEPOLIA.name,
        "name": BASE_SEPOLIA.token_name,
        "version": BASE_SEPOLIA.token_version,
    }


def told(server: Server, alice: int, bob: int) -> dict[str, Any]:
    """Return what a program gets: the chain, and the accounts that are its own."""
    accounts = server.ready["accounts"]
    return token(server) | {
        "first": accounts[0]["privateKey"],
        "alice": accounts[alice]["privateKey"],
        "bob": accounts[bob]["privateKey"],
        "poor": Wallet(b"\x77" * 32).private_key,
        "shop": checksum(Wallet(bytes([alice]) * 32).address_bytes),
        "nonce": "0x" + 32 * f"{alice:02x}",
        "end": 4_000_000_000,
    }
