"""The JSON-RPC methods of the ledger, by name: the functions that are named as they are. Their
docstrings are their documentation.
"""

from collections.abc import Awaitable, Callable
from types import ModuleType
from typing import Any

from x402sim.chain.rpc import reading, sending

Method = Callable[..., Awaitable[Any]]


def _named(module: ModuleType) -> dict[str, Method]:
    prefixes = ("eth_", "net_", "web3_", "personal_")
    return {name: it for name, it in vars(module).items() if name.startswith(prefixes)}


READS = _named(reading)
"""The methods that neither send nor sign; a proxy to a node passes these on to it for anybody."""
METHODS = {**READS, **_named(sending)}
