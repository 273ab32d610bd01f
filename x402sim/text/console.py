"""Output for people: its width, whether it has colours, and rich's console that keeps to it."""

import os
import textwrap
from typing import TYPE_CHECKING, Any

from x402sim.text.words import printable

if TYPE_CHECKING:
    from rich.console import Console

VARIABLE = "NO_COLOR"
"""The variable by which users ask for plain text: https://no-color.org."""


def is_plain() -> bool:
    """Tell whether the user wants no colours, and no other codes of a terminal."""
    return bool(os.environ.get(VARIABLE))


def console(**options: Any) -> "Console":
    """Return a console of rich; with NO_COLOR, one that writes as to a file.

    Rich itself then leaves out colours only, and keeps bold text and moving bars.
    """
    from rich.console import Console  # programs do not need it

    return Console(**options, force_terminal=False if is_plain() else None)


WIDTH = 80
"""The columns of all output that is for people."""


def filled(text: str, begin: str = "") -> str:
    """Return a text in 80 columns after its beginning, its further lines two columns further in."""
    return textwrap.fill(
        printable(text),
        WIDTH,
        initial_indent=begin,
        subsequent_indent=" " * (len(begin) + 2),
        break_on_hyphens=False,
    )
