"""The rules of the house, and what README, guide and other documents say."""

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "x402sim"


def blocks(written: str, language: str) -> list[str]:
    """Return the blocks of code of a page that are in this language."""
    return re.findall(rf"^```{language}\n(.*?)^```", written, re.DOTALL | re.MULTILINE)
