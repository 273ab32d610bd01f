"""Clients that hang up, and kills after serving: who is charged in one step is served, once."""

import pytest

from tests.crash.deployment import Command
from tests.crash.hangups import run


def test_clients_that_hang_up_are_served_what_they_paid_for() -> None:
    tally = run(Command.SERVE, orders=40, clients=30, timeout_s=0.08)
    assert tally.violations() == []
    assert tally.counts()["time-outs"] > 10


def test_a_kill_refuses_nobody_who_was_charged() -> None:
    tally = run(Command.SERVICE, orders=20, clients=12, timeout_s=5, kills=2)
    assert tally.violations() == []
    assert tally.counts()["orders cut by a kill"] > 2


@pytest.mark.thorough
@pytest.mark.timeout(600)
@pytest.mark.parametrize("seed", [1, 2, 3])
def test_three_hundred_orders_of_clients_that_hang_up(seed: int) -> None:
    tally = run(Command.SERVE, orders=300, clients=64, timeout_s=0.1, seed=seed)
    print(tally.counts())
    assert tally.violations() == []


@pytest.mark.thorough
@pytest.mark.timeout(600)
@pytest.mark.parametrize("command", Command, ids=lambda command: command.name.lower())
def test_sixty_kills(command: Command) -> None:
    tally = run(command, orders=100, clients=32, timeout_s=5, kills=60)
    print(tally.counts())
    assert tally.violations() == []
