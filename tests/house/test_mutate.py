"""Defects are drawn by a seed, each is one change, and it meets only tests that pass its line."""

import ast
from pathlib import Path

import pytest

from tests.house import PACKAGE, mutate
from tests.house.mutate import (
    ALIVE,
    DIED,
    UNSEEN,
    Verdict,
    changes,
    defects,
    judged,
    look,
    note,
)

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
        list(changes(module))[number].make()
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


def test_a_defect_meets_the_tests_that_pass_its_line(tmp_path: Path) -> None:
    tests = ["tests/protocol/test_money.py", "tests/protocol/test_seal.py"]
    passing = note(tmp_path, [f"{tests[0]}::test_to_base_refuses", tests[1]], 0)
    money = list(defects(PACKAGE / "protocol" / "money.py"))

    def met(name: str) -> Verdict:
        return look(next(each for each in money if name in each.name), passing)

    died = met("to_base: if not match")
    assert died.verdict == DIED
    assert died.test.startswith(tests[0])
    assert met("2 ** 63 - 1").verdict == ALIVE
    assert met("to_decimal: amount_base < 0").verdict == UNSEEN


def test_what_died_before_must_die_after(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(mutate, "failing", lambda tests, defect: [])
    died, alive, gone = Verdict("a", 1, DIED, "t::a"), Verdict("a", 9, ALIVE, "3 of 3"), "b"
    assert judged({"a": died}, {"a": alive, gone: Verdict(gone, 2, DIED, "t")}) == 0
    assert judged({"a": alive}, {"a": died}) == 1
    assert "died before, by t::a: a" in capsys.readouterr().out
    monkeypatch.setattr(mutate, "failing", lambda tests, defect: list(tests))
    assert judged({"a": died}, {}) == 1
