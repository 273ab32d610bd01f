"""Converts a world's options and checked values into journal fields."""

from collections.abc import Mapping
from typing import Any

import msgspec
from msgspec import UNSET, UnsetType

from x402sim.events import Scalar
from x402sim.explorer.settings import ExplorerSettings
from x402sim.facilitator.settings import FacilitatorSettings
from x402sim.protocol.networks import BASE_SEPOLIA, MAINNET, TESTNET
from x402sim.service.settings import Settings
from x402sim.spec.decisions import Decisions
from x402sim.text.printable import changed, described
from x402sim.world.world import World

Configuration = Decisions | ExplorerSettings | FacilitatorSettings | Settings
"""Options whose fields are written only if they differ from the default."""


_NETWORKS = {"MAINNET": MAINNET, "BASE_SEPOLIA": BASE_SEPOLIA}
"""The networks that have a public name; the default is never written."""


_RECORDED = (
    "latency",
    "block_time_s",
    "reorgs",
    "gas_price_gwei",
    "cache",
    "coin_price",
    "service",
    "facilitator",
    "explorer",
    "calls_at_block_time",
)


def options(world: World) -> dict[str, str]:
    """Return the options of a world that are given and no default, as Python source."""
    given = {name: getattr(world, name) for name in _RECORDED}
    first, *also = world.networks
    given["network"] = [first, *also] if also else None if first == TESTNET else first
    given["without"] = world.without
    told = {name: _python(value) for name, value in given.items() if value and _differs(value)}
    return told if world.invariants else told | {"invariants": "False"}


def names(given: object) -> tuple[str, ...] | UnsetType:
    """Return the names of what is given by name; nothing of one that has none of its own."""
    return tuple(map(str, given)) if isinstance(given, Mapping) else UNSET


def _differs(value: Any) -> bool:
    return not isinstance(value, Configuration) or value != type(value)()


def _python(value: Any) -> str:
    for name, network in _NETWORKS.items():
        if value == network:
            return name
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{key!r}: {_python(each)}" for key, each in value.items()) + "}"
    return changed(value, _python) if isinstance(value, Configuration) else described(value)


def noted(data: Mapping[str, Any]) -> dict[str, Any]:
    """Return the data of a note; raises `TypeError` for what JSON cannot hold."""
    held = {}
    for name, value in data.items():
        try:
            held[name] = msgspec.to_builtins(value)
        except TypeError:
            wanted = "what JSON can hold: text, number, bool, None, list or dict"
            raise TypeError(f"note: {name}: expected {wanted}, got {described(value)}") from None
    return held


def value(given: Any) -> Scalar:
    """Return a value as a JSON scalar."""
    return given if isinstance(given, str | int | float | bool | None) else repr(given)
