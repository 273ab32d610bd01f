"""Grants for one authorization, in small, against theory: there is one transfer.

A naive service grants each request. Correct ones grant once each: services of one merchant that
share no database do not know of each other's grants, and the chain says that the merchant was paid.
"""

from pathlib import Path

import pytest

from tests.studies import many_grants
from tests.studies.many_grants import POLICIES, experiment


def test_the_program_is_short() -> None:
    assert len(Path(many_grants.__file__ or "").read_text().splitlines()) <= 40


@pytest.mark.parametrize("policy", POLICIES)
def test_the_grants_are_those_of_theory(policy: str) -> None:
    for n, services in (1, 1), (25, 1), (25, 4):
        grants = n if policy == "naive" else min(n, services)
        assert experiment(policy, n, services, seed=1) == {"grants": grants, "transfers": 1}
