"""`python -m tests.strangers`: judge the suite by services that others wrote.

Runs the whole suite against each stranger: as it is, with its legal choices, a group at a time, and
with each defect, unless the checks of its section have seen it already.
Prints what failed, and which defects are missed or seen only by the kit's own demands. Exit code
1: a false alarm, or a defect that breaks the specification is missed.
"""

import argparse
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from tests.strangers import matrix
from tests.strangers.judging import Trial
from tests.strangers.stranger import strangers
from x402sim.clock import stopwatch


def main() -> int:
    """Run the command; return its exit code."""
    asked = _arguments()
    trials = [trial for trial in all_trials() if matrix.is_wanted(trial, asked.only)]
    elapsed, verdicts = stopwatch(), []
    with ThreadPoolExecutor(asked.workers) as pool:
        for verdict in pool.map(matrix.look, trials):
            verdicts.append(verdict)
            print(f"{len(verdicts):3}/{len(trials)} {matrix.line(verdict)}", flush=True)
    print("\n".join(["", *matrix.sum_up(verdicts), f"in {elapsed():.0f} s"]))
    if asked.csv:
        matrix.write(asked.csv, verdicts, all_trials())
    return int(any(matrix.complaint(verdict) for verdict in verdicts))


def all_trials() -> list[Trial]:
    """Return every form of every stranger: as it is, its groups of choices, each defect."""
    return [
        trial
        for name, stranger in strangers().items()
        for trial in (
            Trial(stranger=name),
            *(Trial(stranger=name, choices=choices) for choices in stranger.groups),
            *(Trial(stranger=name, defect=defect) for defect in stranger.defects),
        )
    ]


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.strangers", description=__doc__)
    parser.add_argument(
        "--only",
        action="append",
        metavar="NAME",
        help="a stranger, a choice, a defect, or STRANGER/NAME; repeatable",
    )
    parser.add_argument("--csv", type=Path, metavar="FILE", help="write the matrix as CSV")
    parser.add_argument("--workers", type=int, default=2, help="runs at once (%(default)s)")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
