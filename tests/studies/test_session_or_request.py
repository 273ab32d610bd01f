"""Study (C), in small and at full size, against what can be worked out by hand.

With s and f the latencies to service and facilitator, and B the mean time to the next block, n
calls by request wait n·P, P = 6s + 4f + B, and make n transactions; by session they wait P + 2sn
and make two, the deposit and the refund. So a session waits less from n > P / (P - 2s), and costs
less from n > 2, whatever the price of gas.
"""

import math
from pathlib import Path

import pytest

from tests.studies import session_or_request
from tests.studies.session_or_request import BLOCK_S, COIN, GRID, LATENCY, crossover, experiment
from x402sim import sweep

S, F = LATENCY["service"], LATENCY["facilitator"]
PAYING_S = 6 * S + 4 * F + BLOCK_S
GAS, NEW_HOLDER = 85_785, 17_100
"""Of a settlement, give or take zeros in its calldata; and more for a merchant's first tokens."""
SMALL = {**GRID, "calls": [1, 2, 3]}


def test_the_program_is_short() -> None:
    assert len(Path(session_or_request.__file__ or "").read_text().splitlines()) <= 40


@pytest.mark.parametrize(
    ("grid", "payers"), [(SMALL, 4), pytest.param(GRID, 1, marks=pytest.mark.thorough)]
)
def test_gas_fees_waiting_and_the_crossover_are_the_formulas(grid: dict, payers: int) -> None:
    cells = {**grid, "payers": [payers]}
    found = sweep(experiment, cells, seeds=1, workers=0, progress=False)
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
