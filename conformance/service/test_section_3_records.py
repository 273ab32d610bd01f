"""Section 3: payment records, their cache and the indexer, over time."""

from functools import partial
from typing import Any

from x402sim.spec.ground import silent
from x402sim.spec.needs import Need
from x402sim.suite.service import expect
from x402sim.suite.service.background import buy_late, turn_s
from x402sim.suite.service.case import case, paid_case, restart_case
from x402sim.suite.service.control_api import eventually
from x402sim.suite.service.probe import Probe

HOUR_S = 3600


@case(
    "3/discarded-after-24h",
    title=("Our own service's cache has the entitlement after 23 hours, and no longer after 25."),
    needs="funds, world, clock",
    decisive=False,
)
async def a_cached_entitlement_is_discarded(probe: Probe) -> None:
    await probe.buy()
    await probe.wait(23 * HOUR_S)
    cached = await probe.world.cached_entitlements()
    expect.holds("the entitlement, after 23 hours", cached > 0, "an empty cache")
    await probe.wait(2 * HOUR_S)
    cached = await eventually(probe.clock, probe.world.cached_entitlements, lambda found: not found)
    expect.equal("entitlements in the cache after 25 hours", cached, 0)


@restart_case(
    "3/record-outlives-cache",
    title="After a restart, or 25 hours, the id of a payment still grants access.",
    decisive="stored for longer",
)
async def a_payment_outlives_the_cache(probe: Probe) -> None:
    paid = await probe.buy()
    if not probe.setting.missing(Need.CLOCK):
        await probe.wait(25 * HOUR_S)
        expect.served(await probe.ask(payment_id=paid.challenge.payment_id))
    await probe.restart()
    expect.served(await probe.ask(payment_id=paid.challenge.payment_id))


@restart_case(
    "3/record-outlives-cache",
    title="After a restart, the id of an indexed payment still grants access.",
    waits=turn_s,
    decisive="stored for longer",
    late=True,
)
async def a_payment_grants_access_when_it_is_indexed(probe: Probe) -> None:
    paid = await buy_late(probe)
    await probe.wait(turn_s(probe.setting))
    await probe.restart()
    expect.served(await probe.ask(payment_id=paid.challenge.payment_id))


@restart_case(
    "3/indexed-status",
    title=("Whether a payment still grants access after the indexer has run, without the cache."),
    ground=silent("3: The resulting values of status", "3: A record with status"),
    waits=turn_s,
    late=True,
)
async def an_indexed_payment(probe: Probe) -> None:
    paid = await buy_late(probe)
    await probe.wait(turn_s(probe.setting))
    await probe.restart()
    answer = await probe.ask(payment_id=paid.challenge.payment_id)
    probe.observe("it does" if answer.has_content else f"it does not: {answer.summary}")


@paid_case(
    "3/indexed-status",
    title="After the indexer has run, a record has a block number and a status.",
    needs="funds, record",
    waits=turn_s,
    late=True,
    decisive=False,
)
async def the_indexer_updates_block_and_status(probe: Probe) -> None:
    paid = await buy_late(probe)

    def is_indexed(record: dict[str, Any]) -> bool:
        is_number = isinstance(record.get("block_number"), int)
        return is_number and isinstance(record.get("status"), str)

    look = partial(probe.record_of, paid)
    record = await probe.eventually(look, turn_s(probe.setting), is_indexed)
    fields = {name: record.get(name) for name in ("block_number", "status")}
    expect.holds("a block_number and a status", is_indexed(record), fields)
