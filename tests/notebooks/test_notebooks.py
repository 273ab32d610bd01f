"""Notebooks: executing them gives the saved outputs, and their answers match the theory."""

import ast
import json
import math
import re
import sys
from collections.abc import Callable, Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

from notebooks.execute import METADATA, executed, notebooks, read
from tests import house
from tests.evm import find
from tests.house import names_of
from tests.mutants.honest import HONEST
from tests.mutants.rows import MUTANTS
from x402sim.chain.ledger import gas
from x402sim.chain.node.anvil import VARIABLE
from x402sim.suite.service import local

MEASURED = json.loads(Path(gas.__file__).with_name("gas.json").read_bytes())["flows"]
FILES = notebooks()
IDS = [file.stem for file in FILES]
STUDIES = (3, 4, 5, *range(9, 23))
"""The notebooks that simulate for a quarter of a minute and more: CI reproduces the others."""
OTHERS = {"pandas", "matplotlib", "httpx", "IPython", *sys.stdlib_module_names}
PUBLIC = {
    **{name: names_of(import_module(name)) for name in (*house.PUBLIC, local.__name__)},
    "x402sim.report": ["frames", "plots"],
}
approx = pytest.approx
each_notebook = pytest.mark.parametrize("file", FILES, ids=IDS)


def code_cells(notebook: Any) -> list[Any]:
    return [cell for cell in notebook.cells if cell.cell_type == "code"]


# --- as they are saved -------------------------------------------------------------------


def test_they_are_numbered_and_each_has_claims() -> None:
    assert [name[:2] for name in IDS] == sorted(CLAIMS)


def imported(code: str) -> Iterator[tuple[str, str]]:
    """Yield (module, name) for each import; the name is empty for a whole module."""
    for node in ast.walk(ast.parse(code)):
        if isinstance(node, ast.Import):
            yield from ((alias.name, "") for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0
            yield from ((node.module or "", alias.name) for alias in node.names)


def private_names(code: str) -> list[str]:
    """Return the imported names that are not public; ruff finds names with an underscore."""
    return [
        f"{module}.{name}"
        for module, name in imported(code)
        if name not in PUBLIC.get(module, ()) and module.partition(".")[0] not in OTHERS
    ]


@each_notebook
def test_it_is_saved_with_its_outputs_and_uses_public_names(file: Path) -> None:
    import nbformat

    notebook = read(file)
    nbformat.validate(notebook)
    assert notebook.metadata == METADATA
    cells = code_cells(notebook)
    assert [name for cell in cells for name in private_names(cell.source)] == []
    assert [cell.execution_count for cell in cells] == list(range(1, len(cells) + 1))
    assert all(not cell.metadata for cell in notebook.cells)
    text = json.dumps(notebook)
    assert len(text) < 1_000_000
    assert re.search(r"/(root|home|tmp|Users|work)/", text) is None
    prose = "\n".join(cell.source for cell in notebook.cells if cell.cell_type == "markdown")
    for target in re.findall(r"\]\(([^)]+)\)", prose):
        assert (file.parent / target).is_file(), target


# --- executed again ---------------------------------------------------------------------


ASKED = """
import asyncio, json
assert asyncio.get_running_loop().is_running()
json.dumps(answers)
"""


def visible(output: Any) -> dict[str, str]:
    """Return the parts of an output that are compared: texts, and whether images are there."""
    if output.output_type == "stream":
        return {output.name: output.text}
    looks = r'<style.*?</style>|"data:image/png;base64,[^"]*"'
    return {
        kind: re.sub(looks, "", data, flags=re.DOTALL) if kind.startswith("text/") else ""
        for kind, data in output.data.items()
    }


@pytest.mark.timeout(400)
@pytest.mark.parametrize(
    "file",
    [
        pytest.param(
            each,
            id=each.stem,
            marks=pytest.mark.campaign if int(each.stem[:2]) in STUDIES else pytest.mark.thorough,
        )
        for each in FILES
    ],
)
def test_it_reproduces_its_outputs_and_the_answers_are_right(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import nbformat

    if file.stem[:2] == "07":
        monkeypatch.setenv(VARIABLE, str(find.anvil()))
    saved, asking = read(file), read(file)
    asking.cells.append(nbformat.v4.new_code_cell(ASKED.strip()))
    *fresh, asked = code_cells(executed(asking))
    for cell, then in zip(fresh, code_cells(saved), strict=True):
        said = [visible(output) for output in cell.outputs]
        assert not any("stderr" in output for output in said), said
        assert said == [visible(output) for output in then.outputs], cell.source
    answers = json.loads(ast.literal_eval(asked.outputs[0].data["text/plain"]))
    wanted = CLAIMS[file.stem[:2]](answers)
    assert {name: answers[name] for name in wanted} == wanted


CELLS = (
    "plots.sequence(run)",
    "axes = plots.balances(run)\naxes.set_title('mine')\naxes",
    "plots.balances(run).figure",
    "display(plots.balances(run))\nplots.caption(run, number=1, text='Balances.')",
    "import matplotlib.pyplot as plt\nplots.balances(run)",
    "%matplotlib inline\nplots.balances(run)",
    "figure, ax = plt.subplots()\nplots.balances(run, ax)",
    "figure, ax = plt.subplots()\nplots.balances(run, ax)\nplt.show()",
)
"""Cells with one figure each, in the order of a notebook; pyplot is loaded in the middle."""


@pytest.mark.thorough
@pytest.mark.timeout(100)
def test_a_plot_that_ends_a_cell_is_shown_once() -> None:
    import nbformat

    first = (
        "from x402sim import World\nfrom x402sim.report import plots\nrun = World().play('replay')"
    )
    fresh = nbformat.v4.new_notebook()
    fresh.cells = [nbformat.v4.new_code_cell(code) for code in (first, *CELLS)]
    _, *cells = code_cells(executed(fresh))
    for cell in cells:
        shown = [output.data for output in cell.outputs if "image/png" in output.get("data", {})]
        assert len(shown) == 1, cell.source
    (said,) = [each.data for each in cells[3].outputs if "text/markdown" in each.data]
    assert said["text/markdown"].startswith("**Figure 1.** Balances. *replay, seed 0: ")


class Within:
    """Equals every number of a range, its ends included."""

    def __init__(self, low: float, high: float = math.inf) -> None:
        self.low, self.high = low, high

    def __eq__(self, other: object) -> bool:
        return isinstance(other, int | float) and self.low <= other <= self.high

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"within {self.low} and {self.high}"


WAIT_S = 10 - 7.3 + 0.025 + 3 * 0.040
"""Until the next block, since a payer asked; and what facilitator and service take."""
CHARGES = (1 - 0.2**4) / (1 - 0.2)
"""Charges of a payer that signs again up to four times, if one answer in five is lost."""
MODES = "naive: starts over", "naive: signs again", "careful: the same again"


def falling(numbers: list[float], least: float) -> list[float]:
    """Return these numbers, sorted, without what comes twice and what is not above the least."""
    return sorted({each for each in numbers if each > least}, reverse=True)


def preempted(window_s: float) -> Any:
    return approx(1 - math.exp(-window_s / 0.5), abs=0.1)


CLAIMS: dict[str, Callable[[dict[str, Any]], dict[str, Any]]] = {
    "01": lambda _: {
        "wait_s": approx(WAIT_S, abs=0.002), "expected_wait_s": approx(WAIT_S),
        "settle_share": Within(0.8, 1), "sources_agree": True, "is_reproducible": True,
        "payer_transactions": 0, "payment_gas": Within(60_000, 110_000),
        "served_before_indexed_s": Within(1, 300),
    },
    "02": lambda found: {
        "checks": found["checks_held"], "checks_held": Within(100), "ledger_as_expected": True,
        "attempts": found["attempts_paid"] + found["attempts_refused"],
        "attempts_paid": 1 + 2 + 1 + 2 + 2 + 106, "undetected": ["token forgets used nonces"],
        "defects": 7, "defects_detected": 6,
    },
    "03": lambda found: {
        "paying_s": approx(found["model_paying_s"], rel=0.1),
        "model_paying_s": approx(6 * 0.0433 + 4 * 0.0867 + 2.5, abs=0.01),
        "session_answer_s": approx(2 * 0.0433, rel=0.15), "least_n_waiting": 2,
        "least_n_transactions": [2, 3], "least_n_calls": [2, 2], "pay_once_transactions": 1,
        "gas_saved_at_most": approx(1 - 2 / 14, abs=0.01), "longest_idle_s": Within(550, 600),
    },
    "04": lambda found: {
        "payments_predicted": found["payments_simulated"], "payments_simulated": Within(5000),
        "limit_per_hour": 1200, "left_after_below": 0,
        "starved_share_above": approx(1 - 1 / (3 * 0.45), abs=0.03),
        "limit_with_lag_per_s": approx(100 / 500), "starved_share_lagging": approx(1 / 3, abs=0.05),
        "largest_error_of_growth_per_s": Within(0, 0.02),
        "mean_delay_newest_s": found["mean_delay_oldest_s"],
        "longest_delay_newest_h": Within(10 * found["longest_delay_oldest_h"]),
    },
    "05": lambda _: {
        "interval_at_0.1": [Within(0, 0.1), Within(0.1, 1)], "intervals": 8,
        "intervals_with_the_expectation": Within(7, 8), "largest_z_of_charges": Within(0, 3),
        "protected_payers": 2400, "charged_twice_where_protected": 0, "served_in_the_end": 1,
        "overcharge_at_0.1": approx(10 * (1 / 0.9 - 1), rel=0.6),
        "careful_served_at_once_at_0.4": approx(0.6, abs=0.12),
    },
    "06": lambda _: {
        "own_failures": 0, "own_inconclusive": 0, "score": 1, "false_alarms": 0, "never_failed": 0,
        "failures_without_the_amount": ["spec/5/exact-amount", "spec/2.1/amount"],
        "defects": len(MUTANTS), "detected": len(MUTANTS), "honest_services": len(HONEST),
        "share_with_at_most_two_others": Within(0.75, 1), "harmless_defect_changed": 0,
    },
    "07": lambda found: {
        "outcomes_equal": True, "all_passed": True, "money_equal": True, "events_that_differ": 0,
        "transfers": 114 + 1 + 7, "events": Within(3000), "new_slot_gas": 22_100 - 5_000,
        "differences_are_multiples_of_12": True,
        "gas": found["gas"] | {
            "payment": approx(MEASURED["settlement"]["gas"], abs=68),
            "cancellation": approx(MEASURED["cancellation"]["gas"] - gas.KNOWN_ACCOUNT, abs=68),
        },
    },
    "08": lambda _: {
        "orders": 8 * 25 * 5, "cells": 8, "theory_inside": Within(7, 8),
        "slope": approx(0.5, abs=0.06),
    },
    "09": lambda found: {
        "delays_in_step": [Within(0), Within(0)], "mean_s": approx(7.5, abs=0.6),
        "mean_in_step_s": Within(7.5 + 1 + found["half_width_in_step_s"]),
        "range_in_step_s": Within(2 * found["range_s"]),
        "gain_s": approx(0.2266, abs=3 * found["error_common_s"]),
        "error_independent_s": Within(3 * found["error_common_s"]),
    },
    "10": lambda found: {
        "wasted_cheapest": 1, "wasted_by_payments": approx(0.5, abs=0.3),
        "worlds_lost_by_payments": approx(found["worlds"] * 2 / 3, abs=2),
        "wasted_by_share": Within(0, 0.15), "worlds_lost_by_share": Within(0, 2),
        "wasted_mixed": Within(found["wasted_by_share"], 0.35), "worlds_lost_mixed": Within(1, 5),
        "wasted_mixed_late": Within(0, 0.7), "most_failed_orders_mixed": Within(20, 80),
    },
    "11": lambda found: {
        "intervals": 15, "intervals_with_the_expectation": Within(13, 15),
        "largest_error_of_shares": Within(0, 0.06), "unserved_at_reconcile": 0,
        "unserved_at_forget_0.2": approx(0.2, abs=0.07), "charges_at_reconcile": [1.0],
        "unserved_at_ask_once_0.2": approx(0.1, abs=0.05),
        "expected_charges": approx(CHARGES, abs=0.001),
        "charges_at_forget": approx([CHARGES] * 3, abs=0.1),
        "charged_twice_at_forget": approx(0.2, abs=0.07),
        "unserved_same_authorization": found["unserved_at_forget_0.2"],
    },
    "12": lambda _: {
        "cases": 48, "cases_as_expected": 48, "grants_never_reserved": 200, "intervals": 8,
        "intervals_with_the_expectation": Within(6, 8),
        "spread_of_the_published_s": approx(0.3 * 1000 / 247, abs=0.01),
    },
    "13": lambda _: {
        "intervals_with_the_expectation": Within(10),
        "interval": [Within(0, 0.0518), Within(0.0518, 1)],
        "expected_with_6": approx(0.2 / 2**6 / 0.5, rel=0.02),
    },
    "14": lambda _: {
        "intervals": 20, "intervals_with_the_expectation": Within(18, 20),
        "claims_first_at_0.5": preempted(0.1), "unverified_at_0.5": preempted(0.2),
        "claims_last_at_0.5": preempted(0.4),
    },
    "15": lambda found: {
        "leaks_obeying": dict.fromkeys(found["leaks_obeying"], 0)
        | {"no header": 1, "public, max-age=60": 1},
        "leaks_ignoring": [1.0], "law": ["invariant/served-only-if-transferred"], "points": 6,
        "theory_inside": Within(5, 6), "largest_error": Within(0, 0.02),
        "lost_at_1": approx(0.5, abs=0.05), "lost_with_no_store": 0,
    },
    "16": lambda found: {
        "fee_of_a_call": approx(0.0144, rel=0.1), "transactions_of_30": [30, 1, 2],
        "least_n_fee": [2, 3], "least_n_waiting": 2, "least_n_total": 3,
        "fee_share_of_30": approx(2 * 1.44 / 30, rel=0.1), "refunded_after_30": approx(0.7),
        "worst_error": Within(0, 0.15), "worst_error_of_locked": Within(0, 0.05),
        "crossovers": [[2.0] * 3, *found["crossovers"][1:-1], falling(found["crossovers"][-1], 2)],
    },
    "17": lambda found: {
        "safe_modes": dict(zip(MODES, (3, 3, 7), strict=True)), "unserved_in_a_mode": 0,
        "safe_modes_in_two_steps": dict(zip(MODES, (3, 7, 7), strict=True)), "intervals": 17,
        "intervals_with_the_expectation": Within(14, 17), "wasted_same": 0, "served_same": 5,
        "overrun_counts_paid": found["wasted_counts_paid"],
        "wasted_counts_paid": approx(5 * 0.4 / (1 - 0.4), abs=1.2),
        "overrun_counts_exposed": approx(1.78, abs=0.8), "overrun_counts_signed": 0,
        "served_counts_signed": approx(5 * 0.6, abs=0.6),
    },
    "18": lambda found: {
        "waiting_s": approx(1.5, abs=0.1), "in_flight": approx(234_490 / 86_400 * 1.1, rel=0.2),
        "gas_saved": found["gas_saved"] | {"30": approx(1 - 2 / 30, abs=0.02)},
        "session_waiting_s": found["session_waiting_s"] | {"30": approx(1.5 / 30 + 0.1, abs=0.02)},
    },
    "19": lambda _: {
        "five": {
            "any of the list": approx(5 / 10, abs=0.08), "by weight": approx(0.602, abs=0.08),
            "cheaper of two": approx(1 - 10 / 45, abs=0.08),
            "some by price": approx(0.602, abs=0.08),
        },
        "intervals": 26, "intervals_with_the_expectation": Within(22, 26),
        "best_as_expected": True, "honest_if_any": approx(5 * 0.398 / 0.602, abs=0.01),
        "honest_if_two": [9, approx(1 - 36 / 91, abs=0.001)],
        "five_crafted": approx(1 / (1 + 0.282 / 0.718 / 5), abs=0.001),
        "bought_in_proportion": round(25 * 0.602 / 0.398 - 5),
    },
    "20": lambda _: {
        "intervals": 56, "intervals_with_the_expectation": Within(48, 56),
        "at_6": {
            "every 2 s": 0.0, "Poisson, mean 2 s": approx(math.exp(-5.8 / 2), abs=0.05),
            "every 12 s": approx(1 - 5.8 / 12, abs=0.12),
            "Poisson, mean 12 s": approx(math.exp(-5.8 / 12), abs=0.12),
        },
        "fails_worked_at_8": [
            approx(2.5 * math.exp(-7.8 / 5) * (math.exp(2 / 5) - 1), abs=0.1),
            approx(math.exp(-2.8 / 5), abs=0.12),
        ],
        "all_failures_at_once_cost_gas": True, "gas_with_the_margin": 0, "paid_unserved": 0,
        "served_unpaid": [0, 0, approx(math.exp(-6.8 / 8), abs=0.15)],
    },
    "21": lambda found: {
        "least_n_gas": [3, 3], "least_n_waiting": [2, 2], "transactions_of_30": [30, 2],
        "crossover_of_a_session": approx(2, abs=0.05), "crossovers_on_paper": [
            approx(320_864 / found["gas_of_a_settlement"], abs=0.01),
            approx(228_137 / found["gas_of_a_settlement"], abs=0.01),
        ],
        "fee_share_of_30": {
            name: approx(2 * fee / 0.03, rel=0.03) for name, fee in found["fee_of_a_call"].items()
        },
        "worst_error": Within(0, 0.2), "worst_error_of_locked": Within(0, 0.05),
    },
    "22": lambda found: {
        "intervals": 20, "intervals_with_the_expectation": Within(17, 20), "servers_for_8.7": 7,
        "leakage": {
            "no defence": approx(1 - (1 / 2 + 1 / 26) / 9, abs=0.02), "deposit": 0,
            "reserve, 4 facilitators": approx(0.8, abs=0.03), "reserve, 1 facilitator": 0,
        },
        "leverage": {
            name: approx(1 / (1 - share), rel=0.02) for name, share in found["leakage"].items()
        },
        "leakage_withdrawn": dict.fromkeys(found["leakage"], 1) | {"deposit": 0},
        "transactions_an_answer": found["transactions_an_answer"]
        | {"reserve, 1 facilitator": 1, "deposit": 2},
        "honest_at_a_quarter": 1 / 4,
    },
}  # fmt: skip
"""What is claimed of each notebook's answers, by its number."""
