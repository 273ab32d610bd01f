"""The actions of the control API: accounts, money, the chain, clocks, faults, crashes.

The table in `app.py` says what each does; a docstring here says more.
"""

import asyncio
from collections.abc import Callable
from dataclasses import replace
from typing import Annotated, Any, TypeVar

from msgspec import Meta
from starlette.responses import Response

from x402sim import events
from x402sim.chain import contract
from x402sim.chain.base import PLENTY_WEI, Call, ChainError, Controls, Log, LogFilter, require_depth
from x402sim.chain.reverts import cause
from x402sim.http.web import Refused, bad_body
from x402sim.payer.wallet import Wallet
from x402sim.protocol import abi
from x402sim.protocol.crypto import (
    Address,
    Hash,
    checksum,
    from_hex,
    keccak256,
    parse_address,
    to_hex,
)
from x402sim.protocol.money import MAX_STORED, to_base, to_decimal
from x402sim.protocol.networks import Network
from x402sim.service import indexer, sessions
from x402sim.service.content import agents
from x402sim.service.goods import plain_path
from x402sim.service.reconcile import reconcile
from x402sim.serving.control import messages
from x402sim.text.words import unknown
from x402sim.world.faults import Fault, read_fault
from x402sim.world.process import ServiceProcess
from x402sim.world.running_world import RunningWorld, Snapshot

Read = TypeVar("Read")


def on_network(world: RunningWorld, network: str) -> RunningWorld:
    """Return the world on another network; raises `Refused` 400 for an unknown network."""
    try:
        return world.on_network(network)
    except ValueError as wrong:
        raise Refused(400, "Unknown network", str(wrong)) from wrong


def require_service(world: RunningWorld, action: str) -> None:
    """Raise `Refused` (409) for an action on the service in a world without a service."""
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
    failing = {_failing_wallet(name).address.lower(): name for name in FAILING}
    return {"0x" + merchant(world).hex(): "merchant", **accounts, **failing}


def mining(world: RunningWorld) -> Controls:
    """Return the controls that mine; raises `ChainError` for a node that mines by itself."""
    why = "mines at its own pace and in real time: its blocks and its clock cannot be controlled"
    return _controls(world, why)


def rewinding(world: RunningWorld) -> Controls:
    """Return the controls that rewind; raises `ChainError` for an existing node."""
    why = "is an existing node: it cannot be rewound, and its state changes by transactions only"
    return _controls(world, why)


def _controls(world: RunningWorld, why: str) -> Controls:
    if world.chain.controls is None:
        raise ChainError(f"{world.options.backend.name} {why}")
    return world.chain.controls


def read(parse: Callable[..., Read], *given: Any) -> Read:
    """Return what a function reads in a body; raises `Refused` 400 for its `ValueError`."""
    try:
        return parse(*given)
    except ValueError as wrong:
        raise bad_body(str(wrong)) from wrong


async def who(world: RunningWorld) -> messages.WorldInfo:
    return messages.WorldInfo(
        pay_to=checksum(merchant(world)),
        asset=checksum(world.chain.token),
        token_owner=checksum(world.chain.owner),
        chain=world.options.backend.kind,
        network=world.network.name,
        token=token_info(world.network),
        offers=sorted(world.capabilities),
        now=world.clock.now_ms(),
        journal=world.journal.length,
        service=world.options.has_service,
    )


def token_info(network: Network) -> messages.TokenInfo:
    """Return what a payer must know to sign for the network's token."""
    return messages.TokenInfo(
        chain_id=network.chain_id,
        name=network.token_name,
        symbol=network.token_symbol,
        version=network.token_version,
        decimals=network.decimals,
    )


async def accounts(world: RunningWorld) -> list[messages.Account]:
    return [messages.Account(**await _held(world, wallet)) for wallet in world.accounts.funded]


async def _held(world: RunningWorld, wallet: Wallet) -> dict[str, str]:
    """Return the fields of an account: address, key and balance."""
    balance_base = await world.chain.balance(wallet.address_bytes)
    return {
        "address": wallet.address,
        "private_key": wallet.private_key,
        "balance": str(balance_base),
        "balance_decimal": to_decimal(balance_base, world.network.decimals),
    }


FAILING = {
    "no balance": "it has no tokens: any payment is insufficient_funds",
    "blacklisted": "the token refuses any transfer from it",
    "used nonce": "an authorization with the nonce is refused as used",
    "contract wallet": "a contract is at the address, and accepts no signature",
}
"""The accounts that fail, and why."""
_USED_NONCE = bytes(31) + b"\x01"
_ACCEPTS_NOTHING = b"\xfe"
"""The code INVALID; the code of `wallet` accepts also the key of its own address."""


def failing(world: RunningWorld) -> dict[str, str]:
    """Return the accounts that can fail on this chain, and why: without a blacklist, not all."""
    has_list = "fiat token" in world.capabilities
    return {name: why for name, why in FAILING.items() if has_list or name != "blacklisted"}


def _failing_wallet(name: str) -> Wallet:
    return Wallet(to_hex(keccak256(f"x402sim: {name}".encode())))


async def made_failing_accounts(world: RunningWorld) -> list[messages.FailingAccount]:
    """List the accounts that fail in fixed ways; none if they were not made."""
    made = await world.chain.balance(_failing_wallet("used nonce").address_bytes)
    return await failing_accounts(world) if made else []


async def failing_accounts(world: RunningWorld) -> list[messages.FailingAccount]:
    """Make the accounts that fail in fixed ways, unless they exist.

    The keys are the same in every world. A token without a blacklist, as on anvil, has no such
    account; an existing node has none of these.
    """
    found, controls = [], rewinding(world)
    owner, token = checksum(world.chain.owner), checksum(world.chain.token)
    for name, why in failing(world).items():
        payer = _failing_wallet(name)
        account, data = payer.address_bytes, b""
        if name != "no balance" and not await world.chain.balance(account):
            await faucet(world, payer.address)
            if name == "contract wallet":
                await controls.set_code(account, _ACCEPTS_NOTHING)
            elif name == "blacklisted":
                data = abi.calldata(abi.BLACKLIST, account)
            else:
                signature = payer.sign_cancellation(_USED_NONCE, world.network.domain)
                data = abi.cancel_authorization(account, _USED_NONCE, signature)
        if data:
            await send(world, owner, token, to_hex(data))
        nonce = to_hex(_USED_NONCE) if name == "used nonce" else None
        held = await _held(world, payer)
        found.append(messages.FailingAccount(fails=name, why=why, nonce=nonce, **held))
    return found


async def payments(
    world: RunningWorld, path: str = "", times: Annotated[int, Meta(ge=0)] | None = None
) -> list[messages.Paid]:
    """List the settled payments, oldest first; ?path=/api/perp/quote lists a path's only, and
    ignores case, query and a slash at the end.

    With ?times=1, any other number is an error (409) that names all payments.
    """
    require_service(world, "/payments")
    if path and not path.startswith("/"):
        raise Refused(400, "Bad request", f"path: expected /weather, got {path[:200]!r}")
    every = [
        messages.Paid(
            payment_id=each.payment_id,
            path=each.resource_url,
            payer=checksum(each.payer) if each.payer else each.from_address,
            amount_base=each.amount,
            tx_hash=str(each.tx_hash),
        )
        for service in world.services.values()
        for each in service.service.store.payments.settled()
    ]
    asked = plain_path(path.partition("?")[0])
    found = [each for each in every if not path or plain_path(each.path) == asked]
    if times is not None and len(found) != times:
        named = "".join(f"; {each.amount_base} by {each.payer} in {each.tx_hash}" for each in found)
        where = f" for {path}" if path else ""
        wanted = f"wanted {times}, and there are {len(found)}"
        raise Refused(409, "Other payments", f"payments{where}: {wanted}{named[:2000]}")
    return found


async def explorer_queries(world: RunningWorld, since: int = 0) -> list[messages.ExplorerQuery]:
    made = world.index.queries
    later = (each for each in made if each.at_ms >= since)
    return [messages.ExplorerQuery(tx_hash=to_hex(each.tx_hash), at=each.at_ms) for each in later]


async def journal(world: RunningWorld, since: Annotated[int, Meta(ge=0)] = 0) -> Response:
    entries = world.journal.ndjson(since)
    return Response(entries, media_type="application/x-ndjson")


async def state(world: RunningWorld) -> messages.State:
    chain = world.chain
    head = await chain.block(await chain.height())
    return messages.State(
        now=world.clock.now_ms(),
        clock_advanced_seconds=world.clock.offset_s,
        skews={name: clock.skew_s for name, clock in world.clocks.items() if clock.skew_s},
        lag_seconds=world.index.lag_s,
        network=world.network.name,
        chain=messages.ChainState(
            chain_id=chain.chain_id,
            height=head.number if head else None,
            timestamp=head.timestamp_s if head else None,
            automine=chain.controls.automine if chain.controls else True,
            waiting=await chain.waiting(),
            supply=str(await chain.supply()),
        ),
        rows=world.service.store.counts(),
        pending_payments=world.service.store.payments.unresolved(),
        unindexed_payments=world.service.store.payments.backlog(),
        agents=agents(world.service) if world.options.has_service else [],
        cached_entitlements=len(world.service.entitlements),
        snapshots=snapshots(world),
    )


MAX_MINTED = 1_000_000_000
"""The most tokens of a faucet at once, or as many as the service can store, if more."""


async def faucet(world: RunningWorld, address: str, amount: str = "100.00") -> messages.Balance:
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
    return messages.Balance(address=address, balance=str(await world.chain.balance(account)))


async def _mine(world: RunningWorld) -> None:
    """With a block time, mine a block now; otherwise transactions are mined already."""
    if world.options.block_time_s is not None:
        await mining(world).mine()


async def wallet(world: RunningWorld, owner: str) -> messages.MadeWallet:
    account = read(parse_address, owner)
    made, slots = contract.wallet_address(account), contract.wallet_storage(account)
    await rewinding(world).set_code(made, contract.wallet_code(), slots)
    return messages.MadeWallet(address=checksum(made))


async def balances(world: RunningWorld, accounts: tuple[str, ...]) -> list[messages.Base]:
    wanted = [read(parse_address, account) for account in accounts]
    return [str(await world.chain.balance(account)) for account in wanted]


async def transfers(world: RunningWorld, account: str = "") -> list[messages.Transfer]:
    party = (bytes(12) + read(parse_address, account),) if account else ()
    found = await _transfers(world, party)
    if party:
        received = await _transfers(world, (), party)
        found = sorted({*found, *received}, key=lambda log: (log.block_number, log.index))
    return [
        messages.Transfer(
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


async def send(world: RunningWorld, sender: str, to: str, data: str = "0x") -> messages.Sent:
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
    return messages.Sent(
        tx_hash=to_hex(sent),
        mined=receipt is not None,
        revert_reason=reason,
        cause=None if reason is None else cause(reason).value,
    )


async def mine(
    world: RunningWorld, blocks: Annotated[int, Meta(ge=1, le=1000)] = 1
) -> messages.Height:
    return messages.Height(height=await mining(world).mine(blocks))


async def set_mining(world: RunningWorld, automine: bool) -> messages.Automine:
    """Mine each transaction immediately, or only on demand: {"automine": false}.

    Blocks of a block time go on.
    """
    chain = mining(world)
    _record(world, events.MiningSwitched(automine=automine))
    await chain.set_automine(automine)
    return messages.Automine(automine=automine)


async def reorg(
    world: RunningWorld, depth: Annotated[int, Meta(ge=1)] = 1, drop: tuple[str, ...] = ()
) -> messages.Height:
    """Replace the newest blocks: {"depth": 1, "drop": ["0x…"]}.

    The transactions are mined again, except the hashes in "drop".
    """
    lost, chain = [Hash(read(from_hex, text, 32)) for text in drop], rewinding(world)
    require_depth(depth, await chain.deepest_reorg())
    _record(world, events.ChainReorganised(depth=depth))
    await chain.reorg(depth, lost)
    return messages.Height(height=await world.chain.height())


async def drop(world: RunningWorld) -> messages.Waiting:
    await rewinding(world).drop()
    return messages.Waiting(waiting=0)


async def force_revert(
    world: RunningWorld, calls: Annotated[int, Meta(ge=0, le=1000)] = 1, account: str = ""
) -> messages.Reverts:
    """Make the next calls of the token revert when mined: {"calls": 1, "account": "0x…"}.

    With an account, only calls that name the account, as sender or in the data, revert.
    """
    await rewinding(world).force_revert(calls, read(parse_address, account) if account else None)
    return messages.Reverts(calls=calls)


async def snapshot(world: RunningWorld) -> messages.SnapshotTaken:
    chains = [await rewinding(each).snapshot() for each in world.networks]
    number, services = chains[0], {name: each.service for name, each in world.services.items()}
    for each in services.values():
        sessions.undo_debits(each)  # a revert forgets those that wait
    world.snapshots[number] = Snapshot(
        {name: each.store.copy() for name, each in services.items()},
        {name: each.entitlements.all() for name, each in services.items()},
        chains,
    )
    return messages.SnapshotTaken(snapshot=number)


def snapshots(world: RunningWorld) -> list[int]:
    """Return the snapshots that every chain still has, as a reorganisation may delete some."""
    return [
        number
        for number, saved in sorted(world.snapshots.items())
        if all(
            own in rewinding(each).snapshots
            for each, own in zip(world.networks, saved.chains, strict=True)
        )
    ]


async def revert(world: RunningWorld, snapshot: int) -> messages.Reverted:
    """Revert to a snapshot: {"snapshot": id}. It and all later ones are deleted.

    The clock is kept, as by `reset`; `clockAdvancedSeconds` is how far it is ahead.
    """
    if snapshot not in (there := snapshots(world)):  # the database must not be reverted alone
        known = ", ".join(map(str, there)) or "none"
        raise Refused(404, "Unknown snapshot", f"got {snapshot}, there are: {known}")
    chains, saved = list(map(rewinding, world.networks)), world.snapshots[snapshot]
    for name, database in saved.databases.items():  # the part that may fail comes first
        service = world.services[name].service
        service.store.restore(database)
        service.debits_to_undo.clear()  # it no longer has them: another one would be undone
    for chain, number in zip(chains, saved.chains, strict=True):
        await chain.revert(number)
    for name, entitlements in saved.entitlements.items():
        cache = world.services[name].service.entitlements
        cache.clear()
        for entitlement in entitlements:
            cache.add(entitlement)
    for number in [n for n in world.snapshots if n >= snapshot]:
        world.snapshots.pop(number).close()
    return messages.Reverted(reverted=snapshot, clock_advanced_seconds=world.clock.offset_s)


async def reset(world: RunningWorld, clock: bool = False) -> messages.ResetDone:
    """Reset to block 0, an empty database and the initial balances.

    {"clock": true} also resets the clock to real time. No other action does, because the journal
    and clients know its time already. Without it, `clockAdvancedSeconds` is how far the clock is
    ahead, and a payer with a right clock is refused.
    """
    chains = list(map(rewinding, world.networks))
    if clock:
        world.clock.give_back()
    services = [each.service for each in world.services.values()]
    for service in services:  # first: if the chain then fails, a second reset mends it
        service.store.clear()
        service.debits_to_undo.clear()
    for chain in chains:
        await chain.reset()
    for service in services:
        service.entitlements.clear()
    for saved in world.snapshots.values():
        saved.close()
    world.snapshots.clear()
    return messages.ResetDone(reset=True, clock_advanced_seconds=world.clock.offset_s)


LATEST_S = 221_845_392_000
"""The year 9000, in Unix seconds; Python's dates end soon after."""
TEN_YEARS_S = 10 * 366 * 86400
Seconds = Annotated[float, Meta(ge=0, le=TEN_YEARS_S)]


async def advance(world: RunningWorld, seconds: Seconds) -> messages.Now:
    """Move the clock forward, then run what is due: {"seconds": 300}.

    With automine, a block is mined at the new time. The answer comes when expired sessions are
    refunded, old entitlements are removed from the cache and pending payments are reconciled, but
    after 2 seconds at the latest. The indexer runs on its own schedule.
    """
    return await pass_time(world, seconds, mines=True)


async def pass_time(world: RunningWorld, seconds: float, *, mines: bool = False) -> messages.Now:
    """Move the clock forward and run what is due; `mines` a block if the chain has automine."""
    if world.clock.now() + seconds > LATEST_S:
        raise bad_body("the clock cannot go past the year 9000")
    chains = list(map(mining, world.networks))
    world.clock.advance(seconds)
    for blocks in chains:
        if mines and blocks.automine:
            await blocks.mine()
    for each in world.services.values():
        each.service.entitlements.sweep(world.clock.now_ms())
    due = asyncio.create_task(_expire_and_reconcile(world))
    world.tasks.keep(due)
    await asyncio.wait({due}, timeout=2)
    if due.done():
        due.result()  # re-raises the task's exception
    return messages.Now(now=world.clock.now_ms())


async def _expire_and_reconcile(world: RunningWorld) -> None:
    for each in world.services.values():
        await each.do(sessions.expire)
        await each.do(reconcile)


async def skew(
    world: RunningWorld,
    actor: str,
    seconds: Annotated[float, Meta(ge=-TEN_YEARS_S, le=TEN_YEARS_S)],
) -> messages.Now:
    clocks = world.clocks
    if actor not in clocks:
        raise bad_body(unknown("actor", actor, clocks))
    if actor == "service":
        require_service(world, 'a skew of "service"')
    clocks[actor].skew_s = seconds
    return messages.Now(now=clocks[actor].now_ms())


async def set_facilitator(
    world: RunningWorld,
    name: str | None = None,
    receipt_timeout_s: Annotated[float, Meta(gt=0, le=TEN_YEARS_S)] | None = None,
    simulates: bool | None = None,
    simulates_verify: bool | None = None,
    listing_delay_s: Annotated[float, Meta(ge=0, le=TEN_YEARS_S)] | None = None,
) -> messages.FacilitatorNow:
    """Change a facilitator's settings: {"receipt_timeout_s": 0.5}.

    An omitted setting stays; the answer has all. The names are those of `FacilitatorSettings`,
    without `native` and `servers`. Without a name, the first facilitator changes.
    """
    known, wanted = world.facilitators, name or world.options.first_facilitator
    if wanted not in known:
        raise bad_body(unknown("facilitator", wanted, known))
    given: dict[str, Any] = {
        "receipt_timeout_s": receipt_timeout_s,
        "simulates": simulates,
        "simulates_verify": simulates_verify,
        "listing_delay_s": listing_delay_s,
    }
    changes = {key: value for key, value in given.items() if value is not None}
    for each in known[wanted]:
        each.settings = replace(each.settings, **changes)
    now, shown = known[wanted][0].settings, messages.FacilitatorNow.__struct_fields__[1:]
    return messages.FacilitatorNow(name=wanted, **{each: getattr(now, each) for each in shown})


async def lag_explorer(world: RunningWorld, seconds: Seconds) -> messages.Lag:
    world.index.lag_s = seconds
    return messages.Lag(lag_seconds=seconds)


async def faults(world: RunningWorld) -> list[Fault]:
    return world.faults.active()


async def add_fault(world: RunningWorld, fault: Any) -> messages.Standing:
    new = read(read_fault, fault)
    if new.victim in world.services or new.does in ("crash before", "crash after"):
        require_service(world, f'"{new.does}" of "{new.victim}"')
    read(world.faults.add, new)
    return messages.Standing(standing=len(world.faults.active()))


async def clear_faults(world: RunningWorld, keep: tuple[str, ...] = ()) -> messages.Standing:
    """Reset faults, clock skews, the explorer's lag, forced reverts, mining and facilitators.

    Faults whose `contains` is among the texts to `keep`, and not empty, stay.
    """
    world.faults.clear(set(keep) - {""})
    for clock in world.clocks.values():
        clock.skew_s = 0.0
    world.index.lag_s = world.options.explorer_settings.lag_s
    for name, facilitators in world.facilitators.items():
        for each in facilitators:
            each.settings = world.options.facilitators[name]
    for controls in (each.chain.controls for each in world.networks):
        if controls is not None:
            await controls.force_revert(0)
            await controls.set_automine(world.options.block_time_s is None)
    return messages.Standing(standing=len(world.faults.active()))


async def crash(world: RunningWorld, service: str = "service") -> messages.Crashes:
    process = _process(world, service, "/crash")
    _record(world, events.ServiceCrashed(victim=_named(world, service)))
    process.crash()
    await process.runs()
    return messages.Crashes(crashes=process.crashes)


async def run_indexer(world: RunningWorld, service: str = "service") -> messages.Indexed:
    process = _process(world, service, "/indexer/run")
    ran = await process.do(indexer.run)
    return messages.Indexed(
        **{name: getattr(ran, name, 0) for name in messages.Indexed.__struct_fields__}
    )


def _named(world: RunningWorld, service: str) -> events.ServiceName:
    return world.options.first if service == "service" else service


def _record(world: RunningWorld, event: events.StoryEvent) -> None:
    """Record an accepted action, before the effects."""
    world.journal.record(world.clock.now_ms(), event)


def _process(world: RunningWorld, service: str, action: str) -> ServiceProcess:
    """Return the process of a service; raises `Refused` for an unknown service."""
    require_service(world, action)
    name = _named(world, service)
    if name not in world.services:
        raise bad_body(unknown("service", name, world.services))
    return world.services[name]
