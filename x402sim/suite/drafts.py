"""Drafts of payments, for servers and facilitators: JSON with one change, and losses."""

import copy
from collections.abc import Mapping, Sequence
from typing import Any

from x402sim.protocol.networks import Network
from x402sim.report.results import Loss


def with_value(body: Mapping[str, Any], path: Sequence[str], value: Any) -> dict[str, Any]:
    """Return a copy of a JSON object with a value at a path; makes missing objects on the path."""
    copied, place, name = _at(body, path)
    place[name] = value
    return copied


def without(body: Mapping[str, Any], path: Sequence[str]) -> dict[str, Any]:
    """Return a copy of a JSON object without the field at a path."""
    copied, place, name = _at(body, path)
    place.pop(name, None)
    return copied


def _at(body: Mapping[str, Any], path: Sequence[str]) -> tuple[dict[str, Any], dict[str, Any], str]:
    """Return a copy of a JSON object, the object that holds the path's last field, and the field's
    name."""
    copied = copy.deepcopy(dict(body))
    *above, name = path
    place = copied
    for each in above:
        place = place.setdefault(each, {})
    return copied, place, name


def lost(network: Network, base: int, why: str) -> Loss:
    """Return a loss in base units of a network's token."""
    return Loss(base=base, decimals=network.decimals, symbol=network.token_symbol, why=why)
