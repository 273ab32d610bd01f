"""The guide's table of other people's programs shows what the tests show."""

import subprocess
import sys

import pytest

from tests.interop.table import HEAD, PAGE, ROOT, Row, markdown, replaced

TABLE = (
    "from tests.interop.__main__ import run; print('TABLE', run('--collect-only')[1], sep='\\n')"
)


def test_the_guides_table_is_current() -> None:
    """Each of its tests runs in CI, so that a row is there only if it is true."""
    done = subprocess.run(
        [sys.executable, "-c", TABLE], capture_output=True, text=True, cwd=ROOT, check=True
    )
    table = done.stdout.split("TABLE\n")[1].strip()
    assert table.count("\n") > 20
    assert table in PAGE.read_text(), "python -m tests.renew --only interop"


ROW = Row("client", "`x` 1 (npm)", "x402 v2")


@pytest.mark.parametrize(
    ("chains", "cells"), [("ledger", "yes | "), ("anvil", " | yes"), ("ledger anvil", "yes | yes")]
)
def test_a_row_says_on_which_chains_it_was_shown(chains: str, cells: str) -> None:
    table = markdown([(ROW, chain) for chain in chains.split()])
    assert table == HEAD + f"| `x` 1 (npm) | client | x402 v2 | {cells} |\n"


def test_a_new_table_takes_the_place_of_the_old() -> None:
    old, new = (HEAD + f"| {cell} |\n" for cell in ("old", "new"))
    assert replaced(f"before\n\n{old}\nafter", new) == f"before\n\n{new}\nafter"
