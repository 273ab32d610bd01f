"""What the commands share: how they give up, and how they answer programs."""

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Annotated

import typer

AsJson = Annotated[bool, typer.Option("--json", help="Print JSON, for programs.")]
Chain = Annotated[
    str,
    typer.Option(
        help="What to stand on: ledger (in memory), anvil (a real EVM, started and stopped here; "
        "extra `evm`), or the URL of a node, with keys in X402SIM_CHAIN_KEYS: the first pays "
        "for gas, and the token's owner's mints.",
        metavar="CHAIN",
    ),
]
Token = Annotated[
    str | None,
    typer.Option(help="Where the token is on that node, if not at the network's own address."),
]
NOT_ALL_HELD, MISUSE = 1, 2
"""Exit codes: it ran and found something wrong; it could not start."""


class Misuse(Exception):
    """A command cannot start; the text says what was seen, what is wanted, and what to do."""


def give_up(problem: object) -> typer.Exit:
    """Say in one line why a command cannot start; return what ends it."""
    typer.echo(f"x402sim: {' '.join(str(problem).split())}", err=True)
    return typer.Exit(MISUSE)


@contextmanager
def quiet() -> Iterator[None]:
    """Keep warnings of the simulated service to itself: things go wrong on purpose here."""
    log = logging.getLogger("x402sim")
    before = log.level
    log.setLevel(logging.ERROR)
    try:
        yield
    finally:
        log.setLevel(before)
