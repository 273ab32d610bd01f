"""Requirements of the backends with a real EVM."""

from importlib.util import find_spec

from x402sim.chain.base import ChainError
from x402sim.world.chains.backend import ChainRequest


def require_evm(request: ChainRequest) -> None:
    """Raise `ChainError` without web3, or if the recipe leaves out rules of the token."""
    if find_spec("web3") is None:
        raise ChainError("a real chain needs web3: pip install 'x402sim[evm]'")
    if request.without_token_rules:
        tables = ", ".join(table for table, _ in request.without_token_rules)
        raise ChainError(f"the rules of a real token cannot be left out: {tables}")
