"""Defects are drawn by a seed, each is one change, and a test that fails tells that it was noticed."""

import ast

import pytest

from tests.house import PACKAGE, mutate
from tests.house.mutate import Defect, changes, drawn, look

CODE = """
def pay(amount: int = 1) -> bool:
    if amount < 2 and is_open:
        count += 1
        send(amount)
    return True
"""


def test_a_defect_is_one_change() -> None:
    found = []
    for number in range(len(list(changes(ast.parse(CODE))))):
        module = ast.parse(CODE)
        place, field, at, new = list(changes(module))[number]
        if at is None:
            setattr(place, field, new)
        else:
            getattr(place, field)[at] = new
        found += set(ast.unparse(module).splitlines()) - set(
            ast.unparse(ast.parse(CODE)).splitlines()
        )
    assert [line.strip() for line in found] == [
        "def pay(amount: int=2) -> bool:",
        "if not (amount < 2 and is_open):",
        "if amount < 2 or is_open:",
        "if amount <= 2 and is_open:",
        "if amount < 3 and is_open:",
        "pass",
        "count += 2",
        "pass",
        "return False",
    ]


def test_a_seed_draws_the_same_defects_and_each_compiles() -> None:
    few = drawn(1, 20, ["chain/ledger"])
    assert few == drawn(1, 20, ["chain/ledger"]) != drawn(2, 20, ["chain/ledger"])
    for defect in few:
        module, told = defect.code()
        compile(module, "changed", "exec")
        assert "  ->  " in told


def test_a_defect_is_noticed_or_alive(monkeypatch: pytest.MonkeyPatch) -> None:
    file = PACKAGE / "protocol" / "money.py"
    places = list(changes(ast.parse(file.read_text("utf-8"))))
    number = next(n for n, (*_, new) in enumerate(places) if isinstance(new, ast.Pass))
    defect = Defect("protocol", file, number)
    monkeypatch.setitem(mutate.TESTS, "protocol", "protocol/test_money.py")
    assert "  |  tests/protocol/test_money.py::" in look(defect)
    monkeypatch.setitem(mutate.TESTS, "protocol", "protocol/test_seal.py")
    assert look(defect).endswith("  |  ALIVE")
