"""The golden journals: the six scenarios of the mission, and a metered one, as they were when somebody last looked.

When a change of the code changes what happens in them, `test_golden.py` says at which event.
If that is what was meant: `python -m tests.renew --only golden` writes them anew.
A long journal is kept compressed: nobody reads five thousand lines in a review.
"""

import lzma
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
KEPT = (*SIX, "metered_answer")
LONG = ("indexer_backfill",)


def golden(name: str) -> Path:
    return FOLDER / f"{name}.ndjson{'.xz' if name in LONG else ''}"


def kept(name: str) -> bytes:
    """Return a golden journal; empty if there is none yet."""
    file = golden(name)
    if not file.exists():
        return b""
    return lzma.decompress(file.read_bytes()) if name in LONG else file.read_bytes()


def played(name: str) -> bytes:
    """Return the journal of one of these as it is now; it must pass."""
    run = World(seed=SEED).play(name)
    assert run.outcome == "passed", f"{name} {run.outcome}: {run.reason}"
    return run.journal.ndjson()


def renew() -> None:
    """Play them, keep the journals that have changed, and name them."""
    for name in KEPT:
        journal = played(name)
        if journal != kept(name):
            golden(name).write_bytes(lzma.compress(journal) if name in LONG else journal)
            print(f"{name} has changed")


if __name__ == "__main__":
    renew()
