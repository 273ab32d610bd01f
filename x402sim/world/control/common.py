"""What the actions of the control API share: the names in a world, and its chain's controls.

`mining` and `rewinding` raise `ChainError`, answered as 409, on a chain without that
control.
"""

from collections.abc import Callable
from typing import Any, TypeVar

from x402sim.chain.base import Call, ChainError, Controls
from x402sim.http.web import Refused, bad_body
from x402sim.protocol import abi
from x402sim.protocol.crypto import Address
from x402sim.world.assembly.running_world import RunningWorld

Read = TypeVar("Read")


def on_network(world: RunningWorld, network: str) -> RunningWorld:
    """Return the world on another network; raises `Refused` 400 for one that is not here."""
    try:
        return world.on(network)
    except ValueError as wrong:
        raise Refused(400, "Unknown network", str(wrong)) from wrong


def require_service(world: RunningWorld, action: str) -> None:
    """Raise `Refused` (409) in a world without a service of its own, which the action is about."""
    if not world.options.has_service:
        raise Refused(
            409, "No service", f"{action} acts on this world's own service, and it has none"
        )


def merchant(world: RunningWorld) -> Address:
    """Return the merchant: the service's payTo, or the account given to an external service."""
    if world.options.has_service:
        return world.service.env.pay_to
    return world.accounts.funded[-1].address_bytes


def named(world: RunningWorld) -> dict[str, str]:
    """Return the names of the merchant and of the accounts, by address in lower case."""
    accounts = {
        each.address.lower(): f"account {n}" for n, each in enumerate(world.accounts.funded)
    }
    return {"0x" + merchant(world).hex(): "merchant", **accounts}


def mining(world: RunningWorld) -> Controls:
    """Return the chain's mining; raises `ChainError` if it offers none."""
    offered = world.chain.controls
    if offered is None:
        raise ChainError(
            f"{world.options.backend.name} mines at its own pace and in real time: "
            "its blocks and its clock cannot be controlled"
        )
    return offered


def rewinding(world: RunningWorld) -> Controls:
    """Return the chain's rewinding; raises `ChainError` if it offers none."""
    offered = world.chain.controls
    if offered is None:
        raise ChainError(
            f"{world.options.backend.name} is an existing node: it cannot be rewound, and its "
            "state changes by transactions only"
        )
    return offered


def read(parse: Callable[..., Read], *given: Any) -> Read:
    """Return what a function reads in a body; raises `Refused` 400 for its `ValueError`."""
    try:
        return parse(*given)
    except ValueError as wrong:
        raise bad_body(str(wrong)) from wrong


async def balance_of(world: RunningWorld, account: Address) -> int:
    """Return an account's token balance in base units."""
    chain = world.chain
    return int.from_bytes(await chain.call(Call(account, chain.token, abi.balance_of(account))))
