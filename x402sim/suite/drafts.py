"""Drafts of payments, for servers and facilitators: JSON with one change, messages of Permit2, and
losses.
"""

import copy
from collections.abc import Mapping, Sequence
from typing import Any

from x402sim.protocol.eip3009 import Authorization
from x402sim.protocol.networks import Network
from x402sim.protocol.permit2 import Permit2Authorization
from x402sim.suite.report.results import Loss

_IN_PERMIT2 = {
    "to": ("witness", "to"),
    "value": ("permitted", "amount"),
    "validAfter": ("witness", "validAfter"),
    "validBefore": ("deadline",),
}


def in_permit2(field: str) -> tuple[str, ...]:
    """Return the path in a payload of Permit2 for a field of an authorization of EIP-3009."""
    return ("permit2Authorization", *_IN_PERMIT2.get(field, (field,)))


def permit2_of(auth: Authorization, permit: Mapping[str, Any]) -> Permit2Authorization:
    """Return a message of Permit2 with the terms of an authorization, and the fields of `permit`.

    The deadline is the second before `valid_before`.
    """
    return Permit2Authorization(
        from_=auth.from_,
        amount=auth.value,
        nonce=int.from_bytes(auth.nonce),
        deadline=max(0, auth.valid_before - 1),
        to=auth.to,
        valid_after=auth.valid_after,
        **permit,
    )


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
