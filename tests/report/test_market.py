"""Reports on a market: each merchant has its service's name, and its money is told as a seller's."""

import pandas as pd
import pytest
from msgspec.structs import replace

from x402sim import Fault, LiveWorld, Run, Settings, World
from x402sim.events import Begin
from x402sim.journal import Journal
from x402sim.policies import Forget, ServicePolicy
from x402sim.report import plots

SHOPS = {
    "dear": Settings(quote_price="0.05"),
    "cheap": Settings(quote_price="0.02"),
    "deaf": Settings(quote_price="0.01", policy=ServicePolicy(lost_answer=Forget())),
}
EARNED: dict[str, int] = {}


@pytest.fixture(scope="module")
def run() -> Run:
    async def story(world: LiveWorld) -> None:
        alice = await world.payer("alice", balance="1.00")
        await alice.buy()
        await alice.at("cheap").buy()
        await alice.at("cheap").open_session("0.10", 60)
        await world.fault(Fault(victim="facilitator", does="lose answer", path="/settle"))
        await alice.at("deaf").buy()  # it takes the money, and knows nothing of it
        await world.advance(300)
        EARNED.update({name: await world.earned(name) for name in world.services})
        EARNED["all"] = await world.earned()

    return World(service=SHOPS).play(story).raise_for_failure()


def test_every_transfer_is_told_by_the_service_and_as_payment_or_refund(run: Run) -> None:
    assert run.transfers[["sender", "to", "kind", "amount"]].values.tolist() == [
        ["mint", "alice", "mint", 1.0],
        ["alice", "dear", "payment", 0.05],
        ["alice", "cheap", "payment", 0.02],
        ["alice", "cheap", "payment", 0.10],
        ["alice", "deaf", "payment", 0.01],
        ["cheap", "alice", "refund", 0.10],
    ]
    assert set(run.balances["party"]) == {"alice", "dear", "cheap", "deaf"}


def test_the_services_are_those_that_the_journal_names(run: Run) -> None:
    journal = Journal()
    for entry in run.journal:
        event = entry.event
        journal.record(
            entry.at_ms, replace(event, options={}) if isinstance(event, Begin) else event
        )
    assert Run(journal=journal).orders.equals(run.orders)
    assert set(run.orders["service"]) == {"dear", "cheap", "deaf"}


def _of(run: Run) -> dict[str, float]:
    """Return the lines of the plot of balances with their last values."""
    lines = plots.balances(run).get_lines()
    return {str(line.get_label()): float(pd.Series(line.get_ydata()).iloc[-1]) for line in lines}


@pytest.mark.parametrize(
    ("count", "lines"),
    [(1, {"merchant": 0.01, "alice": -0.01}), (6, {"6 merchants": 0.06, "alice": -0.06})],
)
def test_one_service_has_the_merchant_and_more_than_lines_are_one_line(
    count: int, lines: dict[str, float]
) -> None:
    shops = {f"shop {n}": Settings() for n in range(count)}

    async def story(world: LiveWorld) -> None:
        alice = await world.payer("alice", balance="1.00")
        for name in shops:
            await alice.at(name).buy()

    assert _of(World(service=shops).play(story)) == pytest.approx(lines)
