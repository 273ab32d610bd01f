"""The case of x402sim/guide/add-a-check.md finds its defect, and no other, in the shop with the guide's lines."""

import re
import runpy
from pathlib import Path
from textwrap import indent
from types import ModuleType
from typing import Any

from tests.house import ROOT, blocks
from tests.suite_server import shop
from tests.suite_server.judging import Bench, run
from x402sim.spec.ground import folder
from x402sim.suite.report.causes import expected
from x402sim.suite.server.room import Given
from x402sim.suite.verdict import Violation

PAGE = (ROOT / "x402sim" / "guide" / "add-a-check.md").read_text("utf-8")
*_, CASE, DEFECT = blocks(PAGE, "python")
PLACE = "        order = Order(wanted, path, query, body)\n"


class Changed(Bench):
    """A judge of shops with the guide's lines in them."""

    def make(self, given: Given) -> shop.Shop:
        module = ModuleType(shop.__name__)
        written = Path(shop.__file__).read_text("utf-8")
        assert written.count(PLACE) == 1
        lines = written.replace(PLACE, PLACE + indent(DEFECT, " " * 8))
        exec(compile(lines, shop.__file__, "exec"), vars(module))
        self.shops.append(module.shop(given, self.defects, self.habits))
        return self.shops[-1]


def test_the_case_finds_the_defect_and_nothing_in_an_honest_shop() -> None:
    names: dict[str, Any] = runpy.run_path(str(folder("server") / "paths.py"))
    exec(CASE, names)
    cases = [case for case in names["_claimed"].cases() if case.dialect == "v2"]
    found = re.search(r'`"(.+)": "(.+)",`', PAGE)
    assert found is not None
    defect, caught = found.groups()
    assert caught in [case.name for case in cases]
    seen, honest = run(Changed, [(cases, defect, ""), (cases, "", "")])
    wrong = seen[caught]
    assert isinstance(wrong, Violation)
    assert expected(wrong.demand)
    assert set(honest.values()) == {None}
