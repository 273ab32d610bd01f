"""Parses the name of a chain backend, as on the command line. No other code does."""

from x402sim.text.suggest import unknown
from x402sim.world.chains.anvil import Anvil
from x402sim.world.chains.backend import ChainBackend
from x402sim.world.chains.ledger import Ledger
from x402sim.world.chains.node import Node

DEFAULT_CHAIN = Ledger()


def parse_chain(text: str, *, token: str | None = None, deploy: bool = False) -> ChainBackend:
    """Return the chain that `text` names: "ledger", "anvil" or the URL of a node.

    `token` and `deploy` are the node's (see `Node`). Raises `ValueError` that lists the possible
    names and suggests the nearest.
    """
    if text.startswith(("http://", "https://")):
        return Node(text, token=token, deploy=deploy)
    own: tuple[ChainBackend, ...] = (DEFAULT_CHAIN, Anvil())
    known = {chain.name: chain for chain in own}
    if text not in known:
        raise ValueError(unknown("chain", text, [*known, "http://HOST:PORT"]))
    if token is not None or deploy:
        raise ValueError(
            f"a token can be named or deployed only on a node (`--chain URL`): {text} has its own"
        )
    return known[text]
