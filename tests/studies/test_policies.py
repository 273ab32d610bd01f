"""Study (c) in small: charged and not served against the fault rate, and the closed formula."""

import math

import pandas as pd
import pytest

from tests.studies.charged_unserved import NODE_FAILS, QUOTE, SERVICES, experiment, lost
from x402sim import LiveWorld, Settings, World, sweep
from x402sim.policies import (
    ClaimAfterSettle,
    FailToServe,
    Forget,
    GiveUp,
    NewAuthorization,
    PayerPolicy,
    SameThenNew,
    ServicePolicy,
    SettleAgain,
    StartOver,
)
from x402sim.population import Every

RATES = (0.2, 0.4)
EXPECTED = {
    "forget": lambda p: p,  # the answer is lost
    "ask once": lambda p: p * NODE_FAILS.probability,  # and the node does not answer either
    "reconcile": lambda p: 0,  # the node is asked until it answers
}


@pytest.fixture(scope="module")
def found() -> pd.DataFrame:
    grid = {"service": list(SERVICES), "p": list(RATES)}
    frame = sweep(experiment, grid, seeds=range(1), workers=0, progress=False)
    return frame.groupby(["service", "p"])[["charged", "unserved"]].sum()


def is_likely(hits: float, n: int, p: float) -> bool:
    """Tell whether a count of hits is within three standard deviations."""
    return abs(hits - n * p) <= 3 * math.sqrt(n * p * (1 - p))


@pytest.mark.parametrize("p", RATES)
@pytest.mark.parametrize("service", SERVICES)
def test_charged_and_not_served_is_as_likely_as_the_formula_says(
    found: pd.DataFrame, service: str, p: float
) -> None:
    charged, unserved = found.loc[(service, p)]
    assert charged == 60
    assert is_likely(unserved, charged, EXPECTED[service](p))


def test_the_policies_differ_by_more_than_chance(found: pd.DataFrame) -> None:
    by_service = found["unserved"].unstack("p")
    for p in RATES:
        assert by_service[p]["forget"] > 1.4 * by_service[p]["ask once"] > 0
        assert by_service[p]["reconcile"] == 0


# --- every naive policy, and the charges that follow -------------------------------------

P, PAYERS, MORE = 0.25, 60, 3
NAIVE = {
    "forget": ServicePolicy(lost_answer=Forget()),
    "claim after settle": ServicePolicy(claim=ClaimAfterSettle()),
    "settle again": ServicePolicy(lost_answer=SettleAgain(times=1, then=Forget())),
    "fail to serve": ServicePolicy(serve=FailToServe(P)),
}


def buy(policy: ServicePolicy, retry: object) -> pd.DataFrame:
    """Return the orders of payers whose settlement's answer is lost with probability P."""

    async def story(world: LiveWorld) -> None:
        if not isinstance(policy.serve, FailToServe):
            await world.fault(lost(P))
        await world.population(
            PAYERS, arrivals=Every(1), behaviour=QUOTE, policy=PayerPolicy(retry=retry)
        )

    world = World(seed=1, service=Settings(policy=policy), invariants=False)
    return world.play(story).orders


@pytest.mark.parametrize("name", NAIVE)
def test_a_naive_service_takes_money_unserved_as_often_as_predicted(name: str) -> None:
    orders = buy(NAIVE[name], GiveUp())
    assert (orders["paid_base"] == 10_000).all()
    assert is_likely((~orders["served"]).sum(), PAYERS, P)


@pytest.mark.parametrize("name", ["forget", "claim after settle"])
@pytest.mark.parametrize("retry", [SameThenNew(times=MORE), NewAuthorization(times=MORE)], ids=str)
def test_a_naive_service_charges_twice_as_often_as_predicted(name: str, retry: object) -> None:
    charges = buy(NAIVE[name], retry)["paid_base"] / 10_000
    assert is_likely((charges >= 2).sum(), PAYERS, P)
    assert charges.max() <= MORE + 1
    mean = (1 - P ** (MORE + 1)) / (1 - P)
    squares = sum((2 * k - 1) * P ** (k - 1) for k in range(1, MORE + 2))
    deviation = math.sqrt((squares - mean**2) / PAYERS)
    assert abs(charges.mean() - mean) <= 3 * deviation


@pytest.mark.parametrize(
    "retry", [GiveUp(), SameThenNew(times=MORE), StartOver(times=MORE)], ids=str
)
def test_a_service_that_reconciles_charges_once_and_serves(retry: object) -> None:
    orders = buy(ServicePolicy(), retry)
    assert (orders["paid_base"] == 10_000).all()
    assert orders["served"].all()
