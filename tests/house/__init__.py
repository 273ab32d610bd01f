"""The rules of the house, and what README, guide and other documents say."""

import re
from pathlib import Path
from types import ModuleType

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "x402sim"

PUBLIC: dict[str, tuple[str, ...]] = {
    "x402sim": (), "x402sim.policies": (), "x402sim.population": (), "x402sim.backends": (),
    "x402sim.experiments": (), "x402sim.judging": (), "x402sim.payer.tools": ("ToolTransport", "call_paid", "tool_request"),
}  # fmt: skip
"""The modules for programs to import, each with public names, by default `names_of`."""


def names_of(module: ModuleType) -> list[str]:
    """Return a module's public names: `__all__`, or all names without underscore."""
    names: list[str] = getattr(module, "__all__", dir(module))
    return [name for name in names if name[0] != "_"]


def blocks(written: str, language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", written, re.DOTALL | re.MULTILINE)
