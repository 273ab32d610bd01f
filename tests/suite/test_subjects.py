"""What the judges of payers, facilitators and servers have in common: a table, causes, the guide's page."""

import ast
import tomllib
from importlib import import_module
from pathlib import Path

import pytest

from tests.running import ROOT
from x402sim.protocol.networks import BASE_SEPOLIA
from x402sim.spec.ground import folder
from x402sim.suite import row
from x402sim.suite.facilitator import room as of_facilitator
from x402sim.suite.report.results import DemandKey
from x402sim.suite.server import room as of_server
from x402sim.suite.started import Given

SUBJECTS = ("payer", "facilitator", "server")
KEY = "0x11"
GIVEN = {
    "facilitator": of_facilitator.Given(
        port=1, rpc_url="http://rpc", private_key=KEY, address="0x22", network=BASE_SEPOLIA
    ),
    "server": of_server.Given(
        port=1, facilitator_url="http://f", rpc_url="http://rpc", pay_to="0x22", state_dir="/s",
        network=BASE_SEPOLIA,
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", SUBJECTS)
def test_every_cell_of_the_table_has_an_id_or_a_reason(name: str) -> None:
    its = import_module(f"x402sim.suite.{name}.subject")
    told = {case.played_as for case in its.all_cases()}
    for each in its.rows():
        for dialect in each.dialects:
            cell = f"{each.section}/{each.name}-{dialect}"
            assert (cell in told) != bool(each.absent.get(dialect)), cell


@pytest.mark.parametrize("name", SUBJECTS)
def test_each_cause_is_of_a_demand_that_a_case_makes_and_each_demand_has_one(name: str) -> None:
    words = tomllib.loads((folder(name) / "causes.toml").read_text("utf-8"))
    keys = {key for key, its in words.items() if "at" not in its} - {*DemandKey}
    files = [*folder(name).glob("*.py"), *Path(row.__file__).with_name(name).glob("*.py")]
    nodes = [node for file in files for node in ast.walk(ast.parse(file.read_text("utf-8")))]
    texts = {node.value for node in nodes if isinstance(node, ast.Constant)}
    named = {
        each.value
        for node in nodes
        if isinstance(node, ast.keyword) and node.arg == "demand"
        for each in ast.walk(node.value)
        if isinstance(each, ast.Constant) and each.value
    }
    assert keys - texts == named - keys == set()


@pytest.mark.parametrize("name", GIVEN)
def test_a_subject_gets_what_the_guide_says_and_shows_no_key(name: str) -> None:
    given: Given = GIVEN[name]
    page = (ROOT / f"x402sim/guide/judging-{name}s.md").read_text(encoding="utf-8")
    table = page[page.index("| variable") :].split("\n\n")[0]
    assert {each for each in given.environment() if f"`{each}`" not in table} == set()
    assert KEY not in repr(given)
