"""The token on the chain: mint it, send transactions, read balances and transfers."""

from typing import Any

from x402sim.chain import contract
from x402sim.chain.base import Call, Log, LogFilter
from x402sim.chain.fees import PLENTY_WEI
from x402sim.chain.reverts import cause
from x402sim.http.web import bad_body
from x402sim.protocol import abi
from x402sim.protocol.crypto import Address, checksum, parse_address, to_hex
from x402sim.protocol.money import MAX_STORED, to_base
from x402sim.world.assembly.running_world import RunningWorld
from x402sim.world.control.common import balance_of, mining, read, rewinding
from x402sim.world.control.messages import Sent, Transfer

MAX_MINTED = 1_000_000_000
"""The most tokens that a faucet gives at once, if that is more than the service can store."""


async def faucet(world: RunningWorld, address: str, amount: str = "100.00") -> Any:
    """Mint tokens to an address: {"address": "0x…", "amount": "100.00"}.

    The transaction is mined before the answer, whatever the block time.
    """
    account = read(parse_address, address)
    decimals = world.network.decimals
    amount_base = read(to_base, amount, decimals)
    if not 0 < amount_base <= max(MAX_STORED, MAX_MINTED * 10**decimals):
        raise bad_body(f"cannot mint {amount_base} base units")
    await world.chain.fund(account, amount_base)
    await _mine(world)
    return {"address": address, "balance": str(await balance_of(world, account))}


async def _mine(world: RunningWorld) -> None:
    """With a block time, mine a block now; otherwise transactions are mined already."""
    if world.options.block_time_s is not None:
        await mining(world).mine()


async def wallet(world: RunningWorld, owner: str) -> Any:
    """Make a wallet that is a contract, if it is not there yet: {"owner": "0x…"}."""
    account = read(parse_address, owner)
    made, slots = contract.wallet_address(account), contract.wallet_storage(account)
    await rewinding(world).set_code(made, contract.wallet_code(), slots)
    return {"address": checksum(made)}


async def balances(world: RunningWorld, accounts: tuple[str, ...]) -> Any:
    """Read balances in base units: {"accounts": ["0x…"]}."""
    wanted = [read(parse_address, account) for account in accounts]
    return [str(await balance_of(world, account)) for account in wanted]


async def transfers(world: RunningWorld, account: str = "") -> Any:
    """List the token's transfers, oldest first: ?account=0x… from or to this account only."""
    party = (bytes(12) + read(parse_address, account),) if account else ()
    found = await _transfers(world, party)
    if party:
        received = await _transfers(world, (), party)
        found = sorted({*found, *received}, key=lambda log: (log.block_number, log.index))
    return [
        Transfer(
            tx_hash=to_hex(log.tx_hash),
            block_number=log.block_number,
            sender=checksum(Address(log.topics[1][12:])),
            to=checksum(Address(log.topics[2][12:])),
            amount_base=str(int.from_bytes(log.data)),
        )
        for log in found
    ]


async def _transfers(world: RunningWorld, *accounts: tuple[bytes, ...]) -> list[Log]:
    topics = ((abi.TRANSFER_EVENT,), *accounts)
    return await world.chain.logs(LogFilter(0, 2**63, (), topics))


async def send(world: RunningWorld, sender: str, to: str, data: str = "0x") -> Any:
    """Send a transaction of any account: {"from": "0x…", "to": "0x…", "data": "0x…"}.

    The account gets native currency for gas if it has none. With a block time, the transaction is
    mined before the answer.
    """
    chain = world.chain
    accounts = read(parse_address, sender), read(parse_address, to)
    call = Call(*accounts, read(bytes.fromhex, data.removeprefix("0x")))
    if not await chain.native_balance(call.sender):
        await rewinding(world).set_native_balance(call.sender, PLENTY_WEI)
    sent = await chain.send(call)
    await _mine(world)
    receipt = await chain.receipt(sent)
    reason = receipt.revert_reason if receipt else None
    return Sent(
        tx_hash=to_hex(sent),
        mined=receipt is not None,
        revert_reason=reason,
        cause=None if reason is None else cause(reason).value,
    )
