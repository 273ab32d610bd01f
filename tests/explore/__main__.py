"""`python -m tests.explore`: plays random worlds; at the end of each, money and access must agree.

Each world has payers in two steps and in one, who hang up and send again, smart wallets, sessions,
one to three services of one merchant or of several, latencies, faults, crashes, wrong clocks and
reorganisations. At its end each order is judged: the ledger is compared with what the services
answered. A world that fails is shrunk, and printed as Python and as the JSON that plays it again.

The same seed gives the same worlds. Exit code 1: a world failed.
"""

import argparse
import random
import sys
from collections import Counter
from pathlib import Path

import msgspec

from tests.explore.campaign import Found, run_all
from tests.explore.case import Case
from tests.explore.play import play
from tests.money import Violation
from x402sim.clock import stopwatch
from x402sim.protocol.messages import BadMessage, decode


def main(arguments: list[str] | None = None) -> int:
    """Play, and print; return the exit code."""
    parser = _parser()
    given = parser.parse_args(arguments)
    if given.replay is not None:
        try:
            case: Case = decode(given.replay.read_bytes(), Case)
        except (OSError, BadMessage) as wrong:
            parser.error(f"{given.replay} holds no world: {wrong}")
        violations = play(case).violations
        print("\n".join(map(str, violations)) or "Every invariant held.")
        return int(bool(violations))
    kind = "adversarial" if given.adversary else "plain"
    print(f"{given.runs:,} {kind} worlds, seed {given.seed}", flush=True)
    elapsed, total = stopwatch(), Found()
    for found in run_all(given.seed, given.runs, adversary=given.adversary):
        total.runs += found.runs
        total.events += found.events
        total.kinds += found.kinds
        total.outcomes += found.outcomes
        total.failures |= found.failures
    print(f"{total.runs:,} worlds held: {total.events:,} events, {elapsed():.0f} s\n")
    print(*_table(total.kinds), *_table(total.outcomes), sep="\n")
    for case, violations in total.failures.values():
        print(failure(case, violations))
    return int(bool(total.failures))


def _table(counted: Counter[str]) -> list[str]:
    return [*(f"{count:>10,}  {name}" for name, count in sorted(counted.items())), ""]


def failure(case: Case, violations: list[Violation]) -> str:
    """Return what a world broke, as Python and as JSON to `--replay`."""
    lines = [
        *map(str, violations),
        "",
        "from tests.explore.case import *",
        "from tests.explore.play import play",
        "",
        f"print(*play({case!r}).violations, sep='\\n')",
        "",
        "or --replay a file with:",
        msgspec.json.encode(case).decode(),
        "",
    ]
    return "\n".join(lines)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m tests.explore",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--runs", type=int, default=1_000, help="worlds to play (%(default)s)")
    parser.add_argument("--seed", type=int, default=random.getrandbits(32), help="by default drawn")
    parser.add_argument(
        "--adversary", action="store_true", help="add third parties, and lies of others"
    )
    parser.add_argument("--replay", type=Path, metavar="FILE", help="play the world in this file")
    return parser


if __name__ == "__main__":
    sys.exit(main())
