"""`python -m tests.bench`: measures speed on this machine, each row against its limit.

The full form takes about half an hour, and leaves out three rows that take an hour: `--only` measures those.
`--quick` takes less than a minute, without the rows that take long; it fails (exit code 1) if a row is
30 % worse than its guarded number (`log`: 7 %), twice in a row. `--against` is stricter, as both sides are
measured on the same machine: it fails if a row is 15 % slower than at an earlier commit, in three pairs.
`tests/bench/speed.md` explains the numbers, and shows those of one run.
"""

import argparse
import os
import platform
import re
import sqlite3
import sys
import textwrap
from collections.abc import Iterator, Mapping
from dataclasses import asdict
from datetime import UTC, datetime
from importlib.metadata import distributions
from pathlib import Path
from statistics import quantiles

from tests.bench import pairs
from tests.bench.rounds import Measured, NotMeasured
from tests.bench.rows import FULL, PAIRED_WITH, QUICK, ROWS, Bench, Effort

PAGE = Path(__file__).with_name("speed.md")
LIBRARIES = (
    "httpx", "starlette", "uvicorn", "httptools", "uvloop", "msgspec", "btclib-secp256k1",
    "tiny-keccak", "coincurve", "web3", "pandas",
)  # fmt: skip
COLUMNS = f"{'row':<8}{'measured':>10}{'guarded':>10}{'floor':>10}{'aim':>10}"
SLOW = (
    "{name}: measured {measured:.3g} at the second try, guarded is {guarded:.3g}: too much worse. Find the "
    "change that did it, or put the new number into tests/bench/rows.py and say why."
)
_CPUINFO = Path("/proc/cpuinfo")
_SCALE = {"µs": 1e6, "ms": 1e3}


def main(arguments: list[str] | None = None) -> int:
    """Measure, print each row as soon as it is done, and return the exit code."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench", description=__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("--quick", action="store_true", help="the quick form, as CI runs it")
    parser.add_argument("--only", choices=ROWS, action="append", help="a row; repeatable")
    text = "write a page with the table, or renew the rows of `--only` in one"
    parser.add_argument("--write", type=Path, metavar="FILE", help=text)
    text = f"compare the quick form with that of a commit, by default {PAIRED_WITH}; fails at 15 %%"
    parser.add_argument("--against", metavar="COMMIT", nargs="?", const=PAIRED_WITH, help=text)
    given = parser.parse_args(arguments)
    given.quick |= given.against is not None
    names = given.only or [
        name
        for name, row in ROWS.items()
        if not row.is_asked_for and (row.guarded or not given.quick)
    ]
    if given.against:
        return against(given.against, names)
    where, slow = machine(), list[str]()
    rows: dict[str, list[str]] = {}
    print(where, COLUMNS, sep="\n", flush=True)
    with Bench(QUICK if given.quick else FULL) as bench:
        for name in names:
            found, row = measured(bench, name), ROWS[name]
            if given.quick and not row.is_kept(found):  # the machine may have had a bad moment
                found = measured(bench, name)
                if isinstance(found, Measured) and not row.is_kept(found):
                    told = {"name": name, "measured": found.value, "guarded": row.guarded}
                    slow.append(SLOW.format_map(told))
            rows[name] = [*lines(name, bench.effort, found)]
            print(*rows[name], sep="\n", flush=True)
    if given.write is not None:
        old = given.write.read_text("utf-8") if given.write.exists() else ""
        page = renewed(old, rows, where="" if given.only and old else where)
        given.write.write_text(page, encoding="utf-8")
    for each in slow:
        print(each, file=sys.stderr)
    return int(bool(slow))


def against(commit: str, names: list[str]) -> int:
    """Compare rows with a commit, print each, and return the exit code."""
    print(machine(), f"Here / at {commit}:", sep="\n", flush=True)
    slow = list[str]()
    with pairs.files_of(commit) as there:
        for name in names:
            line, is_kept = pairs.compared(name, ROWS[name], there)
            print(line, flush=True)
            if not is_kept:
                slow.append(name)
    if slow:
        told = "Find the change that did it, or say why, and name a newer commit in tests/bench/rows.py."
        print(
            f"{', '.join(slow)}: three pairs were 15 % worse than {commit}. {told}", file=sys.stderr
        )
    return int(bool(slow))


def measured(bench: Bench, name: str) -> Measured | NotMeasured:
    """Measure a row, or say why that cannot be done."""
    try:
        return ROWS[name].measure(bench)
    except NotMeasured as why:
        return why


def machine() -> str:
    info = _CPUINFO.read_text("utf-8").splitlines() if _CPUINFO.exists() else []
    models = [line.split(": ")[1] for line in info if line.startswith("model name")]
    installed = {each.name: each.version for each in distributions()}
    versions = [f"{name} {installed[name]}" for name in LIBRARIES if name in installed]
    processor = models[0] if models else platform.processor()
    return textwrap.fill(
        f"{datetime.now(UTC):%Y-%m-%d}, Python {platform.python_version()}, {platform.system()} "
        f"{platform.machine()}, {os.cpu_count()} cores ({processor}), load {os.getloadavg()[0]:.1f}: "
        f"sqlite {sqlite3.sqlite_version}, {', '.join(versions)}.",
        80,
    )


def lines(name: str, effort: Effort, found: Measured | NotMeasured) -> Iterator[str]:
    """Yield a row as text: its numbers, then what they are."""
    row = ROWS[name]
    is_known = isinstance(found, Measured)
    cells = [found.value if is_known else None, row.guarded, row.floor, row.aim]
    numbers = ["" if cell is None else f"{float(f'{cell:.3g}'):,g}" for cell in cells]
    if row.is_cost and row.limit:
        numbers[0] += "x"
    status = row.status(found.value) if is_known else f"not measured: {found}"
    yield f"{name:<8}{''.join(f'{cell:>10}' for cell in numbers)}  {status}"
    what = f"        {row.what.format_map(asdict(effort))}"
    if is_known and len(found.values) >= 20:
        low, _, high = quantiles(found.values, n=4)
        yield f"        half of {len(found.values)} rounds: {low:.3f} to {high:.3f}"
    if is_known and found.ours_s is not None and found.limit_s is not None:
        costs = [each_s * _SCALE[row.unit] for each_s in (found.ours_s, found.limit_s)]
        ours, limit = (f"{each:,.{0 if each >= 100 else 1}f} {row.unit}" for each in costs)
        what += f": {ours}; {row.limit}: {limit}"
    yield what


def renewed(text: str, measured: Mapping[str, list[str]], *, where: str = "") -> str:
    """Return a page with these rows; its words stay.

    So do its other rows, and where they were measured, unless `where` tells where all rows were
    measured; then only rows stay that are measured on request.
    """
    head, _, rest = text.partition("```text\n")
    words, old = re.fullmatch(r"(.*?)(^20.*|)", head, re.MULTILINE | re.DOTALL).groups()
    rows, name = dict[str, str](), ""
    for line in rest.partition("```")[0].splitlines(keepends=True)[1:]:
        name = name if line.startswith(" ") else line.split()[0]
        rows[name] = rows.get(name, "") + line
    if where:
        rows = {name: row for name, row in rows.items() if name in ROWS and ROWS[name].is_asked_for}
    rows |= {name: "".join(f"{line}\n" for line in each) for name, each in measured.items()}
    table = "".join(rows[name] for name in ROWS if name in rows)
    where = f"{where}\n\n" if where else old
    return f"{words}{where}```text\n{COLUMNS}\n{table}```\n"


if __name__ == "__main__":
    sys.exit(main())
