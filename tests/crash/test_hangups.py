"""Clients that hang up, and kills after serving: who is charged in one step is served, once.

`python -m tests.campaign` plays three hundred orders with each of three seeds, and 420 kills.
"""

from typing import Any

import pytest

from tests.campaign import at_length
from tests.crash.deployment import Command
from tests.crash.hangups import run


def test_clients_that_hang_up_are_served_what_they_paid_for() -> None:
    tally = run(Command.SERVE, orders=40, clients=30, timeout_s=0.08, settles_in_s=0.08)
    assert tally.violations() == []
    assert tally.counts()["time-outs"] > 10


def test_a_kill_refuses_nobody_who_was_charged() -> None:
    tally = run(Command.SERVICE, orders=20, clients=12, timeout_s=5, kills=1)
    assert tally.violations() == []
    assert tally.counts()["orders cut by a kill"] > 2


@pytest.mark.thorough
@pytest.mark.timeout(600)
@pytest.mark.parametrize(("timeout_s", "settles_in_s"), [(0.1, 0.1), (1, 1.5)])
@pytest.mark.parametrize("seed", range(1, 1 + at_length(1, 3)))
def test_many_orders_of_clients_that_hang_up(
    seed: int, timeout_s: float, settles_in_s: float
) -> None:
    tally = run(
        Command.SERVE,
        orders=at_length(150, 300),
        clients=64,
        timeout_s=timeout_s,
        seed=seed,
        settles_in_s=settles_in_s,
    )
    counts = tally.counts()
    print(counts)
    assert tally.violations() == []
    assert counts["orders that timed out"] > 50
    assert counts["charged, and the header refused"] * 10 <= counts["orders that timed out"]


@pytest.mark.thorough
@pytest.mark.timeout(3600)
@pytest.mark.parametrize(
    "campaign",
    [
        {"command": Command.SERVE, "kills": at_length(15, 300), "versions": (2,)},
        {"command": Command.SERVICE, "kills": at_length(15, 60)},
        {"command": Command.SERVICE, "kills": at_length(10, 60), "is_twin": True},
    ],
    ids=["serve, named payments", "service", "service beside another"],
)
def test_many_kills(campaign: dict[str, Any]) -> None:
    tally = run(**campaign, orders=100, clients=32, timeout_s=5)
    print(tally.counts())
    assert tally.violations() == []
    assert tally.counts()["orders cut by a kill"] > campaign["kills"]
