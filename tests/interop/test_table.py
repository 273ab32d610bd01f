"""The guide's table of other people's programs shows what the tests show."""

import subprocess
import sys

from tests.interop.table import PAGE, ROOT

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
