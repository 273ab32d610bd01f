"""Output for people: its width, whether it has colours, and a console of rich for it."""

import os
import textwrap
from typing import TYPE_CHECKING, Any

from x402sim.text.words import printable

if TYPE_CHECKING:
    from rich.console import Console

VARIABLE = "NO_COLOR"
"""The environment variable for plain text: https://no-color.org."""


def is_plain() -> bool:
    """Tell whether the user wants neither colours nor other terminal codes."""
    return bool(os.environ.get(VARIABLE))


def console(**options: Any) -> "Console":
    """Return a console of rich; with NO_COLOR, one that writes as to a file.

    Rich itself would leave out only colours, and keep bold text and moving bars.
    """
    from rich.console import Console  # programs do not need it

    return Console(**options, force_terminal=False if is_plain() else None)


WIDTH = 80
"""Columns of all output for people."""


def filled(text: str, begin: str = "") -> str:
    """Wrap a text at 80 columns after `begin`; later lines are indented by two more."""
    return textwrap.fill(
        printable(text),
        WIDTH,
        initial_indent=begin,
        subsequent_indent=" " * (len(begin) + 2),
        break_on_hyphens=False,
    )
