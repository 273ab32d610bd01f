"""`python -m tests.bench`: measures speed on this machine, each row against its limit.

The full form takes about half an hour; rows that take an hour more must be named by `--only`. `--quick` takes less than a minute, without the rows that
take long; it fails (exit code 1) if a row is 30 % worse than its guarded number (`log`: 7 %), twice in a row.
`tests/bench/speed.md` explains the numbers, and shows those of one run.
"""

import argparse
import json
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

from tests.bench import report
from tests.bench.rounds import NotMeasured
from tests.bench.rows import FULL, QUICK, ROWS, Bench

SLOW = (
    "{name}: measured {measured:.3g} at the second try, guarded is {guarded:.3g}: too much worse. Find the "
    "change that did it, or put the new number into tests/bench/rows.py and say why."
)


def main(arguments: list[str] | None = None) -> int:
    """Measure, print each row as soon as it is done, and return the exit code."""
    given = _parser().parse_args(arguments)
    effort = QUICK if given.quick else replace(FULL, payers=given.payers)
    names = given.only or [
        name
        for name, row in ROWS.items()
        if not row.is_asked_for and (row.guarded or not given.quick)
    ]
    rows: list[dict[str, Any]] = []
    run = report.machine() | {"form": "quick" if given.quick else "full", "rows": rows}
    tell = (lambda *_: None) if given.json else lambda *lines: print(*lines, sep="\n", flush=True)
    tell(report.title(run), report.COLUMNS)
    with Bench(effort) as bench:
        for name in names:
            row = _measured(bench, name)
            if given.quick and not row["is_kept"]:  # the machine may have had a bad moment
                row = _measured(bench, name)
            rows.append(row)
            tell(*report.lines(row))
    if given.json:
        print(json.dumps(run, indent=2, ensure_ascii=False))
    if given.write is not None:
        old = given.write.read_text("utf-8") if given.write.exists() else ""
        page = report.renewed(old, run, is_whole=not (given.only and old))
        given.write.write_text(page, encoding="utf-8")
    slow = [row for row in rows if given.quick and not row["is_kept"]]
    for row in slow:
        print(SLOW.format(**row), file=sys.stderr)
    return int(bool(slow))


def _measured(bench: Bench, name: str) -> dict[str, Any]:
    try:
        return report.entry(name, bench.effort, ROWS[name].measure(bench))
    except NotMeasured as why:
        return report.entry(name, bench.effort, str(why))


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m tests.bench",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--quick", action="store_true", help="the quick form, as CI runs it")
    parser.add_argument("--only", choices=ROWS, action="append", help="a row; repeatable")
    parser.add_argument("--json", action="store_true", help="print JSON, with every round")
    parser.add_argument("--payers", type=int, default=FULL.payers, help="of the full form")
    parser.add_argument(
        "--write",
        type=Path,
        metavar="FILE",
        help="write a page with the table, or renew the rows of `--only` in one",
    )
    return parser


if __name__ == "__main__":
    sys.exit(main())
