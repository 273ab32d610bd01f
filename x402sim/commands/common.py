"""What the commands share: options, exit codes, and how they report misuse."""

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Annotated

import typer

AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]
Chain = Annotated[
    str,
    typer.Option(
        help="Chain backend: ledger (in memory), anvil (a local EVM; needs the extra `evm`), or "
        "the URL of a node, with private keys in X402SIM_CHAIN_KEYS.",
        metavar="CHAIN",
    ),
]
Token = Annotated[
    str | None,
    typer.Option(
        help="Token contract on the node, if not the network's own; needs `--chain URL`.",
        metavar="ADDRESS",
    ),
]
Host = Annotated[str, typer.Option(help="Address to listen on.")]
Port = Annotated[int, typer.Option(help="Port to listen on; 0 picks a free one.", max=65535, min=0)]
NOT_ALL_HELD, MISUSE = 1, 2
"""Exit codes: it ran and found a failure; it could not start."""


class Misuse(Exception):
    """A command cannot start; the text says what was seen, what is wanted, and what to do."""


def give_up(problem: object) -> typer.Exit:
    """Print in one line why a command cannot start; return the exception that ends it."""
    typer.echo(f"x402sim: {' '.join(str(problem).split())}", err=True)
    return typer.Exit(MISUSE)


@contextmanager
def quiet() -> Iterator[None]:
    """Hide the simulated service's warnings: scenarios break things on purpose."""
    log = logging.getLogger("x402sim")
    before = log.level
    log.setLevel(logging.ERROR)
    try:
        yield
    finally:
        log.setLevel(before)
