"""The three studies, in small and, as thorough tests, at larger size, against formulas.

The notebooks 13, 16 and 17 have their figures; here is the shortest program of each.
"""

import math
from itertools import accumulate
from operator import mul
from pathlib import Path

import pytest

from tests.campaign import at_length
from tests.studies import lost_to_reorgs, retries, session_or_request
from tests.studies.lost_to_reorgs import P, Q
from tests.studies.retries import QUOTES, RETRIES
from tests.studies.session_or_request import BLOCK_S, COIN, GRID, LATENCY, crossover
from x402sim import sweep


@pytest.mark.parametrize("study", [lost_to_reorgs, retries, session_or_request])
def test_the_program_is_short(study) -> None:
    assert len(Path(study.__file__).read_text().splitlines()) <= 40


# --- revenue lost to reorganisations: 1 - Π(1 - p·q^t), t ≥ k ------------------------------


@pytest.mark.parametrize("k", lost_to_reorgs.GRID["k"])
def test_the_share_of_what_was_served_and_lost_is_the_formulas(k: int) -> None:
    found = lost_to_reorgs.experiment(k, seed=1, payers=60)
    served, lost = found["served"], found["served"] * found["lost"]
    expected = 1 - math.prod(1 - P * Q**t for t in range(k, 100))
    assert served > 40
    assert abs(lost - served * expected) < 3.5 * math.sqrt(served * expected * (1 - expected))


# --- payers that time out and sign again ---------------------------------------------------


def expected(retry: str, counts: str, p: float) -> dict[str, float]:
    """Return the means of one payer, whose answers are late with probability p, by formulas.

    A payer that signs again is charged each time, until an answer comes: a geometric number. Its
    budget is n prices. Counting what it was answered, it gets its n quotes for n/(1 - p) prices
    (negative binomial). Counting what it signed, it pays n prices for n(1 - p) quotes. Counting
    what is exposed, it has n - m tries for the next quote when m are paid, since earlier losses
    have expired: it gets that quote with 1 - p^(n - m).
    """
    n = QUOTES
    if retry == "same":
        return {"double": 0, "overrun": 0, "served": n}
    if counts == "paid":
        return {"double": n * p / (1 - p), "overrun": n * p / (1 - p), "served": n}
    if counts == "signed":
        return {"double": n * p, "overrun": 0, "served": n * (1 - p)}
    gets = [1 - p ** (n - m) for m in range(n)]
    reached = list(accumulate(gets, mul, initial=1.0))  # reached[m]: m quotes were served
    payments = sum(r * each / (1 - p) for r, each in zip(reached, gets, strict=False))
    served = sum(reached[1:])
    return {"double": payments - served, "overrun": payments - n, "served": served}


LARGE = [
    pytest.param(retry, counts, at_length(150, 500), marks=pytest.mark.thorough)
    for retry in RETRIES
    for counts in retries.GRID["counts"]
]


@pytest.mark.parametrize(
    ("retry", "counts", "payers"),
    [("same", "paid", 3), ("new", "exposed", 12), ("new", "paid", 12), *LARGE],
)
def test_what_is_paid_twice_is_what_theory_says(retry: str, counts: str, payers: int) -> None:
    p = 0.3
    found = retries.experiment(retry, counts, p, seed=1, payers=payers)
    most_error = 4 * math.sqrt(QUOTES * p / payers) / (1 - p)  # of a negative binomial, the widest
    for name, theory in expected(retry, counts, p).items():
        error = most_error if theory not in (0, QUOTES) else 1e-9
        assert found[name] == pytest.approx(theory, abs=error), name


# --- by session or by request --------------------------------------------------------------

S, F = LATENCY["service"], LATENCY["facilitator"]
PAYING_S = 6 * S + 4 * F + BLOCK_S
GAS, NEW_HOLDER = 85_785, 17_100
"""Of a settlement, give or take zeros in its calldata; and more for a merchant's first tokens."""


@pytest.mark.parametrize(
    ("calls", "payers"),
    [([1, 2, 3], 4), pytest.param(GRID["calls"], 1, marks=pytest.mark.thorough)],
)
def test_gas_fees_waiting_and_the_crossover_are_the_formulas(calls: list, payers: int) -> None:
    """By request, n calls wait n·P and make n transactions; by session P + 2sn, and two.

    So a session waits less from n > P / (P - 2s), and costs less from n > 2, at any price of gas.
    """
    cells = {**GRID, "calls": calls, "payers": [payers]}
    found = sweep(session_or_request.experiment, cells, seeds=1, workers=0, progress=False)
    n = found["calls"]
    is_session = found["way"] == "session"
    transactions = (payers * n).where(~is_session, 2 * payers)
    gas = (transactions * GAS + NEW_HOLDER) / (payers * n)
    assert (found["gas"] / gas - 1).abs().max() < 2e-3
    assert (found["fee"] / (found["gas"] * found["gwei"] / 1e9 * COIN) - 1).abs().max() < 1e-9
    paid = n.where(~is_session, 1)  # how often a block is waited for
    waiting_s = (paid * PAYING_S + is_session * 2 * S * n) / n
    error_s = BLOCK_S * (paid / payers) ** 0.5 / n  # blocks come at random
    assert ((found["waiting_s"] - waiting_s) / error_s).abs().max() < 4.5
    assert crossover(found, "gas").to_dict() == dict.fromkeys(GRID["gwei"], 3)
    assert crossover(found, "fee").to_dict() == dict.fromkeys(GRID["gwei"], 3)
    least = math.floor(PAYING_S / (PAYING_S - 2 * S)) + 1
    assert crossover(found, "waiting_s").to_dict() == dict.fromkeys(GRID["gwei"], least)
