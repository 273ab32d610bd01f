"""Cases as tests need them: checks that act and end in one way, and those of a subject by their ids."""

import ast
import re
import tomllib
from collections.abc import Awaitable, Callable, Iterable
from pathlib import Path
from typing import Any

from x402sim.report.results import DemandKey
from x402sim.spec.ground import folder
from x402sim.suite import row
from x402sim.suite.case import AnyCase
from x402sim.suite.service.case import ServiceCase, case as declared
from x402sim.suite.service.probe import Probe


def case(
    clause: str,
    act: Callable[[Probe], Awaitable[object]] | None = None,
    *,
    title: str = "A case.",
    ends: Exception | None = None,
    decisive: bool | str = False,
    **options: Any,
) -> ServiceCase:
    async def run(probe: Probe) -> None:
        if act is not None:
            await act(probe)
        if ends is not None:
            raise ends

    return declared(clause, title=title, decisive=decisive, **options)(run)


def names(text: str) -> list[str]:
    """Return the names of cases that a text has: "server/many/again [v2 v1]" are two of one id."""
    found = re.findall(r"(\S+(?: \(.+?\))?)(?: \[(.+?)\])?", text)
    return [
        f"{check_id} [{dialect}]" if dialect else check_id
        for check_id, dialects in found
        for dialect in dialects.split() or [""]
    ]


def with_ids(every: Iterable[AnyCase], ids: str) -> list[AnyCase]:
    """Return the cases that a text names, in their own order; each must be there."""
    wanted = names(ids)
    found = [case for case in every if case.name in wanted]
    assert len(found) == len(wanted), {*wanted} - {case.name for case in found}
    return found


def assert_demands_have_causes(subject: str) -> None:
    """Fail unless `causes.toml` of a subject has the demands of its cases, and no other."""
    words = tomllib.loads((folder(subject) / "causes.toml").read_text("utf-8"))
    keys = {key for key, its in words.items() if "at" not in its} - {*DemandKey}
    files = [*folder(subject).glob("*.py"), *Path(row.__file__).with_name(subject).glob("*.py")]
    nodes = [node for file in files for node in ast.walk(ast.parse(file.read_text("utf-8")))]
    texts = {node.value for node in nodes if isinstance(node, ast.Constant)}
    demands = [
        node.value for node in nodes if isinstance(node, ast.keyword) and node.arg == "demand"
    ]
    named = {
        each.value
        for demand in demands
        for each in ast.walk(demand)
        if isinstance(each, ast.Constant) and each.value
    }
    assert keys - texts == set()
    assert named - keys == set()


def assert_every_cell_is_told(
    rows: Iterable[Any], cases: Iterable[Any], dialects: Iterable[str]
) -> None:
    """Fail unless each row has a case in each dialect, or a reason why it has none."""
    told = {case.played_as for case in cases}
    for each in rows:
        for dialect in dialects:
            name = f"{each.section}/{each.name}-{dialect}"
            assert (name in told) != bool(each.absent.get(dialect)), name
