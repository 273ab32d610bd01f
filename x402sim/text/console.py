"""Whether output may have colours, and rich's console that keeps to it."""

import os
from typing import TYPE_CHECKING, Any

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
