"""The report of one run: as JSON, as text, and as the page `speed.md`."""

import os
import platform
import re
import sqlite3
import textwrap
from collections.abc import Iterator
from dataclasses import asdict
from datetime import UTC, datetime
from importlib.metadata import distributions
from pathlib import Path
from statistics import quantiles
from typing import Any

from tests.bench.rounds import Measured
from tests.bench.rows import ROWS, Effort

PAGE = Path(__file__).with_name("speed.md")
LIBRARIES = (
    "httpx", "starlette", "uvicorn", "httptools", "uvloop", "msgspec", "btclib-secp256k1",
    "tiny-keccak", "coincurve", "web3", "pandas",
)  # fmt: skip
_CPUINFO = Path("/proc/cpuinfo")
_SCALE = {"µs": 1e6, "ms": 1e3}
COLUMNS = f"{'row':<8}{'measured':>10}{'guarded':>10}{'floor':>10}{'aim':>10}"


def machine() -> dict[str, Any]:
    """Return the date, the system, the processor, the load and the versions."""
    info = _CPUINFO.read_text("utf-8").splitlines() if _CPUINFO.exists() else []
    models = [line.split(": ")[1] for line in info if line.startswith("model name")]
    found = {each.name: each.version for each in distributions()}
    return {
        "date": datetime.now(UTC).strftime("%Y-%m-%d"),
        "python": platform.python_version(),
        "system": f"{platform.system()} {platform.machine()}",
        "processor": models[0] if models else platform.processor(),
        "cores": os.cpu_count(),
        "load": round(os.getloadavg()[0], 1),
        "versions": {"sqlite": sqlite3.sqlite_version}
        | {name: found[name] for name in LIBRARIES if name in found},
    }


def entry(name: str, effort: Effort, found: Measured | str) -> dict[str, Any]:
    """Return one row with what was measured, or with why it was not."""
    row = ROWS[name]
    known = {
        "name": name,
        "what": row.what.format_map(asdict(effort)),
        **{
            key: getattr(row, key)
            for key in ("limit", "unit", "is_cost", "floor", "aim", "guarded")
        },
    }
    if isinstance(found, str):
        return known | {"status": f"not measured: {found}", "is_kept": True}
    return known | {
        "measured": found.value,
        "status": row.status(found.value),
        "is_kept": row.is_kept(found.value),
        "rounds": found.values,
        "each": [each and each * _SCALE[row.unit] for each in (found.ours_s, found.limit_s)],
    }


def title(of: dict[str, Any]) -> str:
    """Return where and when it was measured."""
    versions = ", ".join(f"{name} {number}" for name, number in of["versions"].items())
    return textwrap.fill(
        f"{of['date']}, Python {of['python']}, {of['system']}, {of['cores']} cores "
        f"({of['processor']}), load {of['load']}: {versions}.",
        80,
    )


def lines(of: dict[str, Any]) -> Iterator[str]:
    """Yield a row as text: its numbers, then what they are."""
    cells = [of.get("measured"), of["guarded"], of["floor"], of["aim"]]
    numbers = ["" if cell is None else f"{cell:.3g}" for cell in cells]
    if of["is_cost"] and of["limit"]:
        numbers[0] += "x"
    yield f"{of['name']:<8}{''.join(f'{cell:>10}' for cell in numbers)}  {of['status']}"
    costs = [each for each in of.get("each", ()) if each is not None]
    if len(rounds := of.get("rounds", ())) >= 20:
        low, _, high = quantiles(rounds, n=4)
        yield f"        half of {len(rounds)} rounds: {low:.3f} to {high:.3f}"
    if costs:
        ours, limit = (f"{each:,.{0 if each >= 100 else 1}f} {of['unit']}" for each in costs)
        yield f"        {of['what']}: {ours}; {of['limit']}: {limit}"
    else:
        yield f"        {of['what']}"


def renewed(text: str, of: dict[str, Any], *, is_whole: bool = False) -> str:
    """Return a page with the rows that a run has measured; its words stay.

    So do its other rows, and where they were measured, unless the run `is_whole`.
    """
    head, _, rest = text.partition("```text\n")
    words, where = re.fullmatch(r"(.*?)(^20.*|)", head, re.MULTILINE | re.DOTALL).groups()
    rows, name = dict[str, str](), ""
    for line in () if is_whole else rest.partition("```")[0].splitlines(keepends=True)[1:]:
        name = name if line.startswith(" ") else line.split()[0]
        rows[name] = rows.get(name, "") + line
    rows |= {each["name"]: "".join(f"{line}\n" for line in lines(each)) for each in of["rows"]}
    table = "".join(rows[name] for name in ROWS if name in rows)
    where = f"{title(of)}\n\n" if is_whole else where
    return f"{words}{where}```text\n{COLUMNS}\n{table}```\n"
