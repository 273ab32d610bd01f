"""`python -m tests.mutants`: judge the conformance suite by the defects it should see.

Prints what each defect makes fail, what was missed, and the score; exits 0 only if every
defect was seen by the check of its clause and nothing was found in an honest service.
"""

import argparse
import sys
from pathlib import Path

from tests.mutants import matrix
from tests.mutants.honest import HONEST
from tests.mutants.jury import Verdict, check_ids, complaint, judge_all, missed, others, sum_up
from tests.mutants.rows import MUTANTS
from x402sim.clock import stopwatch


def main() -> int:
    """Run the command; return its exit code."""
    asked = _arguments()
    names = asked.only or [*MUTANTS, *HONEST]
    unknown = [name for name in names if name not in MUTANTS and name not in HONEST]
    if unknown:
        print(f"there is no {', '.join(unknown)}", file=sys.stderr)
        return 2
    elapsed = stopwatch()
    verdicts: dict[str, Verdict] = {}
    for verdict in judge_all(names):
        verdicts[verdict.name] = verdict
        print(f"{len(verdicts):3}/{len(names)} {_line(verdict)}", flush=True)
    in_order = [verdicts[name] for name in names]
    problems = [problem for verdict in in_order if (problem := complaint(verdict))]
    for problem in problems:
        print(f"! {problem}")
    print("\n".join(sum_up(in_order, elapsed())))
    if asked.csv:
        matrix.write(asked.csv, in_order, check_ids())
    return 1 if problems else 0


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.mutants", description=__doc__)
    parser.add_argument(
        "--csv",
        type=Path,
        metavar="FILE",
        help="write the matrix as CSV; with --only, renew those rows",
    )
    parser.add_argument(
        "--only", action="append", metavar="NAME", help="one defect or honest service; repeatable"
    )
    return parser.parse_args()


def _line(verdict: Verdict) -> str:
    if verdict.name in HONEST:
        return f"{'!' if complaint(verdict) else '+'} honest         {verdict.name}"
    mutant = MUTANTS[verdict.name]
    seen = [check_id for check_id in verdict.failed if check_id in mutant.check_ids]
    more = others(mutant, verdict)
    also = f"  also {' '.join(more)}" if more else ""
    mark = "!" if missed(mutant, verdict) else "+"
    return f"{mark} {mutant.kind:14} {mutant.name:36} {' '.join(seen) or 'MISSED'}{also}"


if __name__ == "__main__":
    sys.exit(main())
