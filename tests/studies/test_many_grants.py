"""Grants for one authorization, in small, against theory: there is one transfer.

A naive service grants each request. A correct one grants once, in however many processes on one
database. Services of one merchant that share no database do not know of each other's grants, and
the chain says that the merchant was paid: each of them grants once.
"""

from pathlib import Path

import pytest

from tests.studies import many_grants
from tests.studies.many_grants import POLICIES, experiment


def test_the_program_is_short() -> None:
    assert len(Path(many_grants.__file__ or "").read_text().splitlines()) <= 40


@pytest.mark.parametrize("steps", [1, 2])
@pytest.mark.parametrize("policy", POLICIES)
def test_the_grants_are_those_of_theory(policy: str, steps: int) -> None:
    for n, services, shared in (1, 1, False), (25, 1, False), (25, 4, True), (25, 4, False):
        grants = n if policy == "naive" else min(n, 1 if shared else services)
        found = experiment(POLICIES[policy], steps, services, n, seed=1, shared=shared)
        assert found == {"grants": grants, "transfers": 1}
