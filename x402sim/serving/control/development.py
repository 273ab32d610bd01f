"""The development methods of anvil and Hardhat (evm_, anvil_, hardhat_) on the ledger.

They call the actions of `/_sim`: so time passes for the whole world, and a snapshot includes the
service's database. Their results are anvil's. Only callers with access to `/_sim` may use them.
"""

import inspect
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

from x402sim.chain.base import ChainError
from x402sim.chain.rpc.reading import RpcContext
from x402sim.http.web import Refused
from x402sim.protocol.crypto import Hash
from x402sim.protocol.rpc_values import (
    BadParams,
    quantity,
    read_address,
    read_bool,
    read_bytes,
    read_hash,
    read_number,
    read_object,
)
from x402sim.serving.control.actions import (
    LATEST_S,
    TEN_YEARS_S,
    mining,
    pass_time,
    rewinding,
    snapshots,
)
from x402sim.serving.control.app import ACTIONS, Recorder
from x402sim.world.running_world import RunningWorld

MOST_BLOCKS = 1000


@dataclass(frozen=True, slots=True)
class Development:
    """The development methods of one world; the scope of an admitted request has `do`."""

    world: RunningWorld
    recorder: Recorder

    async def do(self, rpc: RpcContext, name: str, params: list[Any]) -> Any:
        """Perform a method; raises `BadParams` and `ChainError`."""
        method = _evm_mine if name == "evm_mine" else METHODS.get(name.partition("_")[2])
        if method is None:
            raise ChainError(
                f"{name} is not offered: anvil_, hardhat_ and evm_ have {', '.join(METHODS)}; "
                "GET /_sim lists what else can be done to this world"
            )
        try:
            bound = inspect.signature(method).bind(self, rpc, *params)
        except TypeError as wrong:
            raise BadParams(f"{name}: {wrong}; got {len(params)} parameters") from wrong
        try:
            return await method(*bound.args)
        except Refused as refused:
            raise ChainError(f"{refused.error}: {refused.reason}") from refused

    async def act(self, path: str, **given: Any) -> Any:
        """Do what a POST to /_sim does."""
        done = await ACTIONS["POST", path][0](self.world, **given)
        self.recorder.done(path, given)
        return done


async def _snapshot(dev: Development, _: RpcContext) -> Any:
    return quantity((await dev.act("/snapshot")).snapshot)


async def _revert(dev: Development, _: RpcContext, snapshot: Any) -> bool:
    number = read_number(snapshot, "a snapshot")
    if number not in snapshots(dev.world):
        return False
    await dev.act("/revert", snapshot=number)
    return True


async def _increase_time(dev: Development, _: RpcContext, seconds: Any) -> int:
    await _advance(dev, read_number(seconds, "seconds", most=TEN_YEARS_S))
    return round(dev.world.clock.offset_s)


async def _set_next_time(dev: Development, _: RpcContext, timestamp: Any) -> None:
    at_s = read_number(timestamp, "a timestamp", most=LATEST_S)
    clock = dev.world.clock
    if at_s < clock.now_s():
        raise BadParams(f"the world's clock cannot go back from {clock.now_s()} to {at_s}")
    await _advance(dev, max(0.0, at_s - clock.now()))


async def _advance(dev: Development, seconds: float) -> None:
    """Move the world's clock without mining: the next block has the new time."""
    if seconds > TEN_YEARS_S:
        raise BadParams(f"seconds: expected at most {TEN_YEARS_S}, got {seconds}")
    await pass_time(dev.world, seconds)
    dev.recorder.done("/clock/advance", {"seconds": seconds})


async def _mine(dev: Development, rpc: RpcContext, count: Any = 1, interval: Any = 0) -> None:
    apart_s = read_number(interval, "an interval", most=TEN_YEARS_S)
    number = read_number(count, "blocks", most=MOST_BLOCKS)
    for n in range(number if apart_s else 0):
        await _advance(dev, apart_s if n else 0)
        await dev.act("/mine")
    if number and not apart_s:
        await dev.act("/mine", blocks=number)


async def _set_balance(dev: Development, _: RpcContext, account: Any, amount_wei: Any) -> None:
    chain = rewinding(dev.world)
    await chain.set_native_balance(read_address(account), read_number(amount_wei, "wei"))


async def _set_code(_: Development, rpc: RpcContext, account: Any, code: Any) -> None:
    await rpc.chain.put_code(read_address(account), read_bytes(code, "code"))


async def _set_nonce(_: Development, rpc: RpcContext, account: Any, nonce: Any) -> None:
    most = 2**63 - 1  # what the ledger's file can hold
    await rpc.chain.set_nonce(read_address(account), read_number(nonce, "a nonce", most=most))


async def _reset(dev: Development, _: RpcContext, forking: Any = None) -> None:
    """Begin again with block 0, as the whole world does; there is nothing to fork."""
    if forking:
        raise ChainError("the ledger forks no other chain: use --chain anvil, or anvil itself")
    await dev.act("/reset", clock=False)


async def _drop(dev: Development, _: RpcContext, tx_hash: Any) -> Any:
    """Drop a transaction from the mempool, and the later transactions of the account."""
    return tx_hash if await rewinding(dev.world).drop(Hash(read_hash(tx_hash))) else None


async def _impersonate(_: Development, rpc: RpcContext, account: Any) -> None:
    rpc.impersonated.add(read_address(account))


async def _stop_impersonating(_: Development, rpc: RpcContext, account: Any) -> None:
    rpc.impersonated.discard(read_address(account))


async def _set_automine(dev: Development, _: RpcContext, on: Any) -> None:
    await dev.act("/mining", automine=read_bool(on, "automine"))


async def _get_automine(dev: Development, _: RpcContext) -> bool:
    return mining(dev.world).automine


async def _evm_mine(dev: Development, rpc: RpcContext, options: Any = None) -> str:
    fields = (
        read_object(options, "options") if isinstance(options, dict) else {"timestamp": options}
    )
    if fields.get("timestamp") is not None:
        await _set_next_time(dev, rpc, fields["timestamp"])
    await _mine(dev, rpc, fields.get("blocks") or 1)
    return "0x0"


METHODS: dict[str, Callable[..., Awaitable[Any]]] = {
    "snapshot": _snapshot,
    "revert": _revert,
    "increaseTime": _increase_time,
    "setNextBlockTimestamp": _set_next_time,
    "mine": _mine,
    "setBalance": _set_balance,
    "setCode": _set_code,
    "setNonce": _set_nonce,
    "reset": _reset,
    "dropTransaction": _drop,
    "impersonateAccount": _impersonate,
    "stopImpersonatingAccount": _stop_impersonating,
    "setAutomine": _set_automine,
    "getAutomine": _get_automine,
}
"""By the name behind anvil_, hardhat_ or evm_."""
