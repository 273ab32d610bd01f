"""What the actions of the control API share: the world, its snapshots, and the chain's controls.

`mining` and `rewinding` raise `ChainError`, answered as 409, on a chain without that
control.
"""

import asyncio
import sqlite3
from collections.abc import Callable
from typing import Any, TypeVar

import msgspec
from msgspec.structs import replace

from x402sim.chain.base import Call, ChainError, Controls
from x402sim.http.web import Refused, bad_body
from x402sim.protocol import abi
from x402sim.protocol.crypto import Address
from x402sim.service.state import Entitlement
from x402sim.text.suggest import unknown
from x402sim.world.assembly.parts import Parts

Read = TypeVar("Read")


class Saved(msgspec.Struct, frozen=True):
    """A snapshot of the service's database and cache, and its number on each network's chain."""

    database: sqlite3.Connection
    entitlements: list[Entitlement]
    chains: list[int]


class Context(msgspec.Struct, frozen=True):
    """One world, its snapshots by number, and the tasks that actions left running.

    `parts` has the chain that is acted on; `networks` have every network's, the first one first.
    """

    parts: Parts
    networks: tuple[Parts, ...]
    saved: dict[int, Saved] = msgspec.field(default_factory=dict)
    running: set[asyncio.Task[None]] = msgspec.field(default_factory=set)

    @classmethod
    def of(cls, parts: Parts) -> "Context":
        """Return the context of a world, whose actions are on its first network."""
        return cls(parts, (parts, *parts.also))

    def on(self, network: str) -> "Context":
        """Return the same for another network; raises `Refused` 400 for one that is not here."""
        for each in self.networks:
            if each.network.name == network:
                return replace(self, parts=each)
        known = [each.network.name for each in self.networks]
        raise Refused(400, "Unknown network", unknown("network", network, known))


def require_service(parts: Parts, action: str) -> None:
    """Raise `Refused` (409) in a world without a service of its own, which the action is about."""
    if not parts.recipe.has_service:
        raise Refused(
            409, "No service", f"{action} acts on this world's own service, and it has none"
        )


def merchant(parts: Parts) -> Address:
    """Return the merchant: the service's payTo, or the account given to an external service."""
    if parts.recipe.has_service:
        return parts.service.env.pay_to
    return parts.accounts[-1].address_bytes


def named(parts: Parts) -> dict[str, str]:
    """Return the names of the merchant and of the accounts, by address in lower case."""
    accounts = {each.address.lower(): f"account {n}" for n, each in enumerate(parts.accounts)}
    return {"0x" + merchant(parts).hex(): "merchant", **accounts}


def mining(parts: Parts) -> Controls:
    """Return the chain's mining; raises `ChainError` if it offers none."""
    offered = parts.chain.controls
    if offered is None:
        raise ChainError(
            f"{parts.recipe.chain.name} mines at its own pace and in real time: "
            "its blocks and its clock cannot be controlled"
        )
    return offered


def rewinding(parts: Parts) -> Controls:
    """Return the chain's rewinding; raises `ChainError` if it offers none."""
    offered = parts.chain.controls
    if offered is None:
        raise ChainError(
            f"{parts.recipe.chain.name} is an existing node: it cannot be rewound, and its state "
            "changes by transactions only"
        )
    return offered


def read(parse: Callable[..., Read], *given: Any) -> Read:
    """Return what a function reads in a body; raises `Refused` 400 for its `ValueError`."""
    try:
        return parse(*given)
    except ValueError as wrong:
        raise bad_body(str(wrong)) from wrong


async def balance_of(parts: Parts, account: Address) -> int:
    """Return an account's token balance in base units."""
    chain = parts.chain
    return int.from_bytes(await chain.call(Call(account, chain.token, abi.balance_of(account))))
