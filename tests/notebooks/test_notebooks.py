"""Notebooks: executing them gives the saved outputs, and their answers match the theory."""

import ast
import json
import math
import re
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import x402sim
from notebooks.execute import METADATA, executed, notebooks, read
from tests.evm import find
from tests.mutants.honest import HONEST
from tests.mutants.rows import MUTANTS
from x402sim import backends, policies, population
from x402sim.chain.ledger import gas
from x402sim.chain.node.anvil import VARIABLE
from x402sim.suite import local

MEASURED = json.loads(Path(gas.__file__).with_name("gas.json").read_bytes())["flows"]
FILES = notebooks()
IDS = [file.stem for file in FILES]
OTHERS = {"pandas", "matplotlib", "httpx", "IPython", *sys.stdlib_module_names}
PUBLIC = {
    "x402sim": set(x402sim.__all__),
    "x402sim.backends": set(backends.__all__),
    "x402sim.policies": set(policies.__all__),
    "x402sim.population": set(population.__all__),
    "x402sim.report": {"frames", "plots"},
    "x402sim.suite.local": set(local.__all__),
}
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
    """Return the names in the code that are not public: imports, and names with an underscore."""
    modules = [
        f"{module}.{name}"
        for module, name in imported(code)
        if name not in PUBLIC.get(module, ()) and module.partition(".")[0] not in OTHERS
    ]
    hidden = [
        node.attr
        for node in ast.walk(ast.parse(code))
        if isinstance(node, ast.Attribute)
        and node.attr.startswith("_")
        and not re.fullmatch("__(name|doc)__", node.attr)
    ]
    return modules + hidden


@each_notebook
def test_it_uses_only_public_names(file: Path) -> None:
    for cell in code_cells(read(file)):
        assert private_names(cell.source) == []


@pytest.mark.parametrize("code", ["import numpy", "from x402sim import rng", "run._begin"])
def test_the_search_finds_private_names(code: str) -> None:
    assert private_names(code)


@each_notebook
def test_its_outputs_are_saved(file: Path) -> None:
    import nbformat

    notebook = read(file)
    nbformat.validate(notebook)
    assert notebook.metadata == METADATA
    cells = code_cells(notebook)
    assert [cell.execution_count for cell in cells] == list(range(1, len(cells) + 1))
    assert all(not cell.metadata for cell in notebook.cells)
    text = json.dumps(notebook)
    assert len(text) < 1_000_000
    assert re.search(r"/(root|home|tmp|Users|work)/", text) is None


@each_notebook
def test_it_has_question_method_answer_and_limits(file: Path) -> None:
    prose = "\n".join(cell.source for cell in read(file).cells if cell.cell_type == "markdown")
    for part in ("# ", "**Question.**", "**Method.**", "## Answer", "## Limits"):
        assert part in prose
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


@pytest.mark.thorough
@pytest.mark.timeout(400)
@each_notebook
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
    CLAIMS[file.stem[:2]](answers)


Claim = Callable[[dict[str, Any]], None]


def _01_one_paid_request(answers: dict[str, Any]) -> None:
    service_s, facilitator_s, asked_s, next_block_s = 0.040, 0.025, 7.3, 10
    wait_s = next_block_s - asked_s + facilitator_s + 3 * service_s
    assert answers["wait_s"] == pytest.approx(wait_s, abs=0.002)
    assert answers["expected_wait_s"] == pytest.approx(wait_s)
    assert answers["settle_share"] > 0.8
    assert answers["sources_agree"]
    assert answers["is_reproducible"]
    assert answers["payer_transactions"] == 0
    assert 60_000 < answers["payment_gas"] < 110_000
    assert 0 < answers["served_before_indexed_s"] < 300


def _02_when_things_break(answers: dict[str, Any]) -> None:
    assert answers["checks"] == answers["checks_held"] > 100
    assert answers["ledger_as_expected"]
    assert answers["attempts"] == answers["attempts_paid"] + answers["attempts_refused"]
    assert answers["attempts_paid"] == 1 + 2 + 1 + 2 + 2 + 106
    assert answers["undetected"] == ["token forgets used nonces"]
    assert answers["defects_detected"] == answers["defects"] - 1 == 6


def _03_request_or_session(answers: dict[str, Any]) -> None:
    assert answers["paying_s"] == pytest.approx(answers["model_paying_s"], rel=0.1)
    assert answers["model_paying_s"] == pytest.approx(6 * 0.0433 + 4 * 0.0867 + 2.5, abs=0.01)
    assert answers["session_answer_s"] == pytest.approx(2 * 0.0433, rel=0.15)
    assert answers["least_n_waiting"] == 2
    assert answers["least_n_transactions"] == [2, 3]
    assert answers["least_n_calls"] == [2, 2]
    assert answers["gas_saved_at_most"] == pytest.approx(1 - 2 / 14, abs=0.01)
    assert answers["pay_once_transactions"] == 1
    assert 550 < answers["longest_idle_s"] < 600


def _04_the_indexers_limits(answers: dict[str, Any]) -> None:
    assert answers["payments_predicted"] == answers["payments_simulated"] > 5000
    assert answers["limit_per_hour"] == 1200
    assert answers["left_after_below"] == 0
    assert answers["starved_share_above"] == pytest.approx(1 - 1 / (3 * 0.45), abs=0.03)
    assert answers["limit_with_lag_per_s"] == pytest.approx(100 / 500)
    assert answers["starved_share_lagging"] == pytest.approx(1 / 3, abs=0.05)
    assert answers["largest_error_of_growth_per_s"] < 0.02
    assert answers["mean_delay_newest_s"] == answers["mean_delay_oldest_s"]
    assert answers["longest_delay_newest_h"] > 10 * answers["longest_delay_oldest_h"]


def _05_lost_answers(answers: dict[str, Any]) -> None:
    low, high = answers["interval_at_0.1"]
    assert low < 0.1 < high
    assert answers["intervals"] == 8
    assert answers["intervals_with_the_expectation"] >= 7
    assert answers["largest_z_of_charges"] < 3
    assert answers["protected_payers"] == 2400
    assert answers["charged_twice_where_protected"] == 0
    assert answers["overcharge_at_0.1"] == pytest.approx(10 * (1 / 0.9 - 1), rel=0.6)
    assert answers["careful_served_at_once_at_0.4"] == pytest.approx(0.6, abs=0.12)
    assert answers["served_in_the_end"] == 1


def _10_a_market(answers: dict[str, Any]) -> None:
    assert answers["wasted_cheapest"] == 1
    assert answers["wasted_by_payments"] == pytest.approx(0.5, abs=0.3)
    assert answers["worlds_lost_by_payments"] == pytest.approx(answers["worlds"] * 2 / 3, abs=2)
    assert answers["wasted_by_share"] < 0.15
    assert answers["worlds_lost_by_share"] <= 2
    assert answers["wasted_by_share"] < answers["wasted_mixed"] < 0.35
    assert 1 <= answers["worlds_lost_mixed"] <= 5
    assert answers["wasted_mixed_late"] < 0.7
    assert 20 < answers["most_failed_orders_mixed"] < 80


def _06_conformance_report(answers: dict[str, Any]) -> None:
    assert answers["own_failures"] == answers["own_inconclusive"] == 0
    assert "spec/2.1/amount" in answers["failures_without_the_amount"]
    assert answers["detected"] == answers["defects"] == len(MUTANTS)
    assert answers["score"] == 1
    assert answers["honest_services"] == len(HONEST)
    assert answers["false_alarms"] == 0
    assert answers["share_with_at_most_two_others"] > 0.75
    assert answers["harmless_defect_changed"] == 0
    assert answers["never_failed"] == 0


def _07_on_a_real_chain(answers: dict[str, Any]) -> None:
    assert answers["outcomes_equal"]
    assert answers["all_passed"]
    assert answers["money_equal"]
    assert answers["transfers"] == 114 + 1 + 7
    assert answers["events"] > 3000
    assert answers["events_that_differ"] == 0
    assert answers["differences_are_multiples_of_12"]
    assert answers["new_slot_gas"] == 22_100 - 5_000
    assert answers["gas"]["payment"] == pytest.approx(MEASURED["settlement"]["gas"], abs=68)
    cancelled_by_another = answers["gas"]["cancellation"] + gas.KNOWN_ACCOUNT
    assert cancelled_by_another == pytest.approx(MEASURED["cancellation"]["gas"], abs=68)


def _08_your_own_study(answers: dict[str, Any]) -> None:
    assert answers["orders"] == 8 * 25 * 5
    assert answers["cells"] == 8
    assert answers["theory_inside"] >= 7
    assert answers["slope"] == pytest.approx(0.5, abs=0.06)


def _09_sweeps(answers: dict[str, Any]) -> None:
    assert len(answers["delays_in_step"]) == 2
    assert answers["mean_in_step_s"] - answers["half_width_in_step_s"] > 7.5 + 1
    assert answers["mean_s"] == pytest.approx(7.5, abs=0.6)
    assert answers["range_in_step_s"] > 2 * answers["range_s"]
    assert answers["gain_s"] == pytest.approx(0.2266, abs=3 * answers["error_common_s"])
    assert 3 * answers["error_common_s"] < answers["error_independent_s"]


def _11_policies_compared(answers: dict[str, Any]) -> None:
    assert answers["intervals"] == 15
    assert answers["intervals_with_the_expectation"] >= 13
    assert answers["largest_error_of_shares"] < 0.06
    assert answers["unserved_at_forget_0.2"] == pytest.approx(0.2, abs=0.07)
    assert answers["unserved_at_ask_once_0.2"] == pytest.approx(0.1, abs=0.05)
    assert answers["unserved_at_reconcile"] == 0
    assert answers["charges_at_reconcile"] == [1.0]
    expected = (1 - 0.2**4) / (1 - 0.2)
    assert answers["expected_charges"] == pytest.approx(expected, abs=0.001)
    assert answers["charges_at_forget"] == pytest.approx([expected] * 3, abs=0.1)
    assert answers["charged_twice_at_forget"] == pytest.approx(0.2, abs=0.07)
    assert answers["unserved_same_authorization"] == answers["unserved_at_forget_0.2"]


def _12_one_payment_many_grants(answers: dict[str, Any]) -> None:
    assert answers["cases_as_expected"] == answers["cases"] == 48
    assert answers["grants_never_reserved"] == 200
    assert answers["intervals_with_the_expectation"] >= answers["intervals"] - 2 == 6
    assert answers["spread_of_the_published_s"] == pytest.approx(0.3 * 1000 / 247, abs=0.01)


def _13_access_before_finality(answers: dict[str, Any]) -> None:
    assert answers["intervals_with_the_expectation"] >= 10
    low, high = answers["interval"]
    assert low < 0.0518 < high
    assert answers["expected_with_6"] == pytest.approx(0.2 / 2**6 / 0.5, rel=0.02)


def _14_preemption(answers: dict[str, Any]) -> None:
    assert answers["intervals_with_the_expectation"] >= answers["intervals"] - 2 == 18
    for name, window_s in ("claims_first", 0.1), ("unverified", 0.2), ("claims_last", 0.4):
        expected = 1 - math.exp(-window_s / 0.5)
        assert answers[f"{name}_at_0.5"] == pytest.approx(expected, abs=0.1)


def _18_a_day_of_real_shape(answers: dict[str, Any]) -> None:
    assert answers["waiting_s"] == pytest.approx(1.5, abs=0.1)
    assert answers["in_flight"] == pytest.approx(234_490 / 86_400 * 1.1, rel=0.2)
    assert answers["gas_saved"]["30"] == pytest.approx(1 - 2 / 30, abs=0.02)
    assert answers["session_waiting_s"]["30"] == pytest.approx(1.5 / 30 + 0.1, abs=0.02)


def _15_shared_cache(answers: dict[str, Any]) -> None:
    leaks = answers["leaks_obeying"]
    assert leaks["no header"] == leaks["public, max-age=60"] == 1
    assert sum(leaks.values()) == 2
    assert len(leaks) == 5
    assert answers["leaks_ignoring"] == [1.0]
    assert answers["law"] == ["invariant/served-only-if-transferred"]
    assert answers["theory_inside"] >= answers["points"] - 1 == 5
    assert answers["largest_error"] < 0.02
    assert answers["lost_at_1"] == pytest.approx(0.5, abs=0.05)
    assert answers["lost_with_no_store"] == 0


def _16_session_or_request_in_money(answers: dict[str, Any]) -> None:
    assert answers["fee_of_a_call"] == pytest.approx(0.0144, rel=0.1)
    assert answers["transactions_of_30"] == [30, 1, 2]
    assert answers["least_n_fee"] == [2, 3]
    assert answers["least_n_waiting"] == 2
    assert answers["least_n_total"] == 3
    assert answers["fee_share_of_30"] == pytest.approx(2 * 1.44 / 30, rel=0.1)
    assert answers["refunded_after_30"] == pytest.approx(0.7)
    assert answers["worst_error"] < 0.15
    assert answers["worst_error_of_locked"] < 0.05
    without_prices, *_, dear = answers["crossovers"]
    assert without_prices == [2.0] * 3
    assert dear[0] > dear[1] > dear[2] > 2


def _17_retries(answers: dict[str, Any]) -> None:
    names = "naive: starts over", "naive: signs again", "careful: the same again"
    assert answers["safe_modes"] == dict(zip(names, (3, 3, 7), strict=True))
    assert answers["safe_modes_in_two_steps"] == dict(zip(names, (3, 7, 7), strict=True))
    assert answers["unserved_in_a_mode"] == 0
    assert answers["intervals_with_the_expectation"] >= answers["intervals"] - 3 == 14
    lost = 5 * 0.4 / (1 - 0.4)
    assert answers["overrun_counts_paid"] == answers["wasted_counts_paid"]
    assert answers["wasted_counts_paid"] == pytest.approx(lost, abs=1.2)
    assert answers["overrun_counts_exposed"] == pytest.approx(1.78, abs=0.8)
    assert answers["overrun_counts_signed"] == answers["wasted_same"] == 0
    assert answers["served_counts_signed"] == pytest.approx(5 * 0.6, abs=0.6)
    assert answers["served_same"] == 5


CLAIMS: dict[str, Claim] = {
    name[1:3]: claim for name, claim in globals().items() if re.match(r"_\d\d_", name)
}
"""What is claimed of each notebook's answers, by its number."""
