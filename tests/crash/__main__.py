"""`python -m tests.crash`: kill `serve --db` and `service --db` many times, and print the figures."""

import argparse
import signal
import sys

from tests.crash.campaign import Figures, run_campaign
from tests.crash.deployment import Command


def main() -> int:
    """Run the campaign; 1 if anything was violated."""
    options = _options()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that no process is left behind
    violations = []
    for command in Command:
        if options.command in (None, command.name.lower()):
            figures = run_campaign(command, cycles=options.cycles, seed=options.seed)
            print(f"{command.value}\n{table(figures)}", flush=True)
            violations += figures.violations
    return int(bool(violations))


def table(figures: Figures) -> str:
    """Return the figures, one a line, and the violations."""
    lines = [f"{count:>8,}  {name}" for name, count in sorted(figures.did.items())]
    lines.append(f"{len(figures.violations):>8,}  violations")
    return "\n".join([*lines, *figures.violations])


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.crash", description=__doc__)
    parser.add_argument("--cycles", type=int, default=100, help="cycles for each command")
    parser.add_argument("--seed", type=int, default=1, help="seed of the payers' choices")
    parser.add_argument("--command", choices=[c.name.lower() for c in Command])
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
