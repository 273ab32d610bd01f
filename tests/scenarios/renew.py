"""The golden journals: the six scenarios of the mission, as they were when somebody last looked.

When a change of the code changes what happens in them, `test_golden.py` says at which event.
If that is what was meant: `python -m tests.scenarios.renew [NAME...]` writes them anew, and
`git diff --stat tests/golden` belongs into the review.
"""

import sys
from itertools import zip_longest
from pathlib import Path

from x402sim import World

FOLDER = Path(__file__).parents[1] / "golden"
SEED = 1
SIX = (
    "replay",
    "expired_window",
    "wrong_amount",
    "resource_mismatch",
    "session_exhaustion",
    "indexer_backfill",
)


def golden(name: str) -> Path:
    """Return where a golden journal is kept."""
    return FOLDER / f"{name}.ndjson"


def first_difference(kept: bytes, now: bytes) -> str:
    """Tell at which line two journals first differ; empty if they are equal to the byte."""
    pairs = zip_longest(kept.splitlines(), now.splitlines(), fillvalue=b"(the journal has ended)")
    for number, (before, after) in enumerate(pairs, 1):
        if before != after:
            return f"line {number} differs\n  kept: {before.decode()}\n  now:  {after.decode()}"
    return "" if kept == now else "the lines are equal, the line ends are not"


def renew(names: list[str]) -> None:
    """Play these of the six, or all, and keep their journals."""
    unknown = set(names) - set(SIX)
    if unknown:
        sys.exit(f"no golden journal of {', '.join(sorted(unknown))}; there are: {', '.join(SIX)}")
    for name in names or SIX:
        run = World(seed=SEED).play(name)
        if run.outcome != "passed":
            sys.exit(f"{name} {run.outcome}: {run.reason}; its journal is not worth keeping")
        file, journal = golden(name), run.journal.ndjson()
        kept = file.read_bytes() if file.exists() else b""
        file.write_bytes(journal)
        print(f"{name}: {first_difference(kept, journal) or 'as it was'}")


if __name__ == "__main__":
    renew(sys.argv[1:])
