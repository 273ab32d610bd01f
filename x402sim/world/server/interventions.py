"""The part of /_sim that makes things go wrong, and that sees what the money did."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

from x402sim.chain.base import Call, LogFilter
from x402sim.chain.ledger.ledger import PLENTY_WEI
from x402sim.chain.reverts import cause
from x402sim.protocol import abi
from x402sim.protocol.crypto import Address, Hash, checksum, from_hex, parse_address, to_hex
from x402sim.web import bad_body
from x402sim.world.assembly.parts import Parts
from x402sim.world.transport.faults import Fault

TEN_YEARS_S = 10 * 366 * 86400


@dataclass(frozen=True, slots=True)
class Reach:
    """What an action of the control plane can reach."""

    parts: Parts


class Nothing(msgspec.Struct, frozen=True):
    """No arguments."""


class Skew(msgspec.Struct, frozen=True):
    """Make one actor's clock wrong by so many seconds."""

    actor: Literal["service", "facilitator", "explorer", "chain"]
    seconds: Annotated[float, Meta(ge=-TEN_YEARS_S, le=TEN_YEARS_S)]


class Lag(msgspec.Struct, frozen=True):
    """How many seconds after its time the explorer learns of a block."""

    seconds: Annotated[float, Meta(ge=0, le=TEN_YEARS_S)]


class Doom(msgspec.Struct, frozen=True):
    """How many of the next calls of the token revert."""

    calls: Annotated[int, Meta(ge=0, le=1000)] = 1


class Send(msgspec.Struct, frozen=True):
    """A transaction of any account; its gas is paid for."""

    sender: str = msgspec.field(name="from")
    to: str
    data: str = "0x"


class Accounts(msgspec.Struct, frozen=True):
    """Whose balances."""

    accounts: list[str]


async def standing(reach: Reach, _: Nothing) -> Any:
    """The faults that may still strike."""
    return [msgspec.to_builtins(fault) for fault in reach.parts.faults.standing()]


async def add_fault(reach: Reach, fault: Fault) -> Any:
    """Let something go wrong: {"victim": "facilitator", "does": "lose answer"}."""
    reach.parts.faults.add(fault)
    return {"standing": len(reach.parts.faults.standing())}


async def clear_faults(reach: Reach, _: Nothing) -> Any:
    """Let nothing go wrong any more: no faults, right clocks, mining and lag as at first."""
    parts = reach.parts
    parts.faults.clear()
    for clock in parts.clocks.values():
        clock.skew_s = 0.0
    parts.index.lag_s = parts.recipe.explorer_lag_s
    await parts.chain.doom(0)
    await parts.chain.set_automine(parts.recipe.block_time_s is None)
    return {"standing": 0}


async def skew(reach: Reach, asked: Skew) -> Any:
    """Make an actor's clock wrong: {"actor": "service", "seconds": -30}."""
    reach.parts.clocks[asked.actor].skew_s = asked.seconds
    return {"now": reach.parts.clocks[asked.actor].now_ms()}


async def lag(reach: Reach, asked: Lag) -> Any:
    """Let the explorer lag behind the chain: {"seconds": 600}."""
    reach.parts.index.lag_s = asked.seconds
    return {"lagSeconds": asked.seconds}


async def crash(reach: Reach, _: Nothing) -> Any:
    """Kill the service and start it again on its database."""
    reach.parts.process.crash()
    return {"crashes": reach.parts.process.crashes}


async def doom(reach: Reach, asked: Doom) -> Any:
    """Let the next calls of the token revert when they are mined: {"calls": 1}."""
    await reach.parts.chain.doom(asked.calls)
    return {"calls": asked.calls}


async def drop(reach: Reach, _: Nothing) -> Any:
    """Forget the transactions that wait in the mempool."""
    await reach.parts.chain.drop()
    return {"waiting": 0}


async def send(reach: Reach, asked: Send) -> Any:
    """Send a transaction of any account: {"from": "0x…", "to": "0x…", "data": "0x…"}.

    Where blocks come at their own pace, it is in one when this answers.
    """
    chain = reach.parts.chain
    try:
        data = bytes.fromhex(asked.data.removeprefix("0x"))
        call = Call(parse_address(asked.sender), parse_address(asked.to), data)
    except ValueError as error:
        raise bad_body(str(error)) from error
    if not await chain.native_balance(call.sender):
        await chain.endow(call.sender, PLENTY_WEI)
    sent = await chain.send(call)
    await come_to_a_block(reach.parts)
    receipt = await chain.receipt(sent)
    reason = receipt.revert_reason if receipt else None
    return {
        "txHash": to_hex(sent),
        "mined": receipt is not None,
        "revertReason": reason,
        "cause": None if reason is None else cause(reason).value,
    }


async def transfers(reach: Reach, _: Nothing) -> Any:
    """All transfers of the token on the chain, oldest first."""
    found = await reach.parts.chain.logs(LogFilter(0, 2**63, (), ((abi.TRANSFER_EVENT,),)))
    return [
        {
            "from": checksum(Address(log.topics[1][12:])),
            "to": checksum(Address(log.topics[2][12:])),
            "amount": str(int.from_bytes(log.data)),
            "txHash": to_hex(log.tx_hash),
            "blockNumber": log.block_number,
        }
        for log in found
    ]


async def balances(reach: Reach, asked: Accounts) -> Any:
    """Balances in base units: {"accounts": ["0x…"]}."""
    try:
        wanted = [parse_address(account) for account in asked.accounts]
    except ValueError as error:
        raise bad_body(str(error)) from error
    return [str(await balance(reach.parts, account)) for account in wanted]


async def balance(parts: Parts, account: Address) -> int:
    """Return an account's token balance in base units."""
    chain = parts.chain
    return int.from_bytes(await chain.call(Call(account, chain.token, abi.balance_of(account))))


async def who(reach: Reach, _: Nothing) -> Any:
    """Who is who: the merchant, the token, its owner, the network."""
    parts = reach.parts
    settings = parts.service.settings
    return {
        "payTo": checksum(settings.pay_to),
        "asset": checksum(parts.chain.token),
        "tokenOwner": checksum(parts.chain.owner),
        "chain": chain_kind(parts),
        "network": settings.network.name,
        "now": parts.clock.now_ms(),
        "journal": parts.journal.length,
        "service": parts.recipe.has_service,
    }


async def come_to_a_block(parts: Parts) -> None:
    """Mine what waits now, where blocks come at their own pace: what control does is done."""
    if parts.recipe.block_time_s is not None:
        await parts.chain.mine()


def chain_kind(parts: Parts) -> str:
    """Return what a world stands on: "ledger", "anvil", or "node" if that is somebody else's."""
    return parts.recipe.chain if parts.chain.is_ours else "node"


def tx_hash(text: str) -> Hash:
    """Return a transaction's hash; raises `Refused` 400."""
    try:
        return Hash(from_hex(text, 32))
    except ValueError as error:
        raise bad_body(str(error)) from error


Action = Callable[[Any, Any], Awaitable[Any]]
ACTIONS: dict[tuple[str, str], tuple[Action, type[Any]]] = {
    ("GET", "/who"): (who, Nothing),
    ("GET", "/transfers"): (transfers, Nothing),
    ("POST", "/balances"): (balances, Accounts),
    ("POST", "/send"): (send, Send),
    ("GET", "/faults"): (standing, Nothing),
    ("POST", "/faults"): (add_fault, Fault),
    ("POST", "/faults/clear"): (clear_faults, Nothing),
    ("POST", "/clock/skew"): (skew, Skew),
    ("POST", "/explorer/lag"): (lag, Lag),
    ("POST", "/crash"): (crash, Nothing),
    ("POST", "/doom"): (doom, Doom),
    ("POST", "/drop"): (drop, Nothing),
}
