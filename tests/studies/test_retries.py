"""Study (d) against what can be worked out by hand, in small and, as a thorough test, at larger size.

A payment's answer is late with probability p, independently. A payer that signs again is charged
each time, until an answer comes: a geometric number. Its budget is n prices. Counting what it was
answered, it gets its n quotes for n/(1 - p) prices (negative binomial). Counting what it signed, it
pays n prices for n(1 - p) quotes. Counting what is exposed, it has n - m tries for the next quote
when m are paid, since earlier losses have expired: it gets that quote with 1 - p^(n - m).
"""

import math
from itertools import accumulate
from operator import mul
from pathlib import Path

import pytest

from tests.campaign import at_length
from tests.studies import retries
from tests.studies.retries import GRID, QUOTES, RETRIES, experiment


def expected(retry: str, counts: str, p: float) -> dict[str, float]:
    """Return the means of one payer, as formulas give them."""
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


def require(retry: str, counts: str, p: float, payers: int) -> None:
    found = experiment(retry, counts, p, seed=1, payers=payers)
    most_error = 4 * math.sqrt(QUOTES * p / payers) / (1 - p)  # of a negative binomial, the widest
    for name, theory in expected(retry, counts, p).items():
        error = most_error if theory not in (0, QUOTES) else 1e-9
        assert found[name] == pytest.approx(theory, abs=error), name


def test_the_program_is_short() -> None:
    assert len(Path(retries.__file__ or "").read_text().splitlines()) <= 40


@pytest.mark.parametrize(
    ("retry", "counts", "payers"),
    [("same", "paid", 3), ("new", "exposed", 12), ("new", "paid", 12)],
)
def test_what_is_paid_twice_is_what_theory_says(retry: str, counts: str, payers: int) -> None:
    require(retry, counts, 0.3, payers=payers)


@pytest.mark.thorough
@pytest.mark.parametrize("retry", RETRIES)
@pytest.mark.parametrize("counts", GRID["counts"])
def test_it_is_at_larger_size_too(retry: str, counts: str) -> None:
    require(retry, counts, 0.3, payers=at_length(150, 500))
