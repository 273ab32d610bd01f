"""`python -m tests.crash`: kill `serve --db` and `service --db` many times, and print the figures."""

import argparse
import json
import signal
import sys
from typing import Any

from tests.crash.campaign import Figures, run_campaign
from tests.crash.deployment import Command
from tests.crash.kills import Phase


def main() -> int:
    """Run the campaign; 1 if anything was violated."""
    options = _options()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that no process is left behind
    commands = [c for c in Command if options.command in (None, c.name.lower())]
    done = [
        run_campaign(
            command,
            cycles=options.cycles,
            seed=options.seed,
            say=lambda text: print(text, file=sys.stderr, flush=True),
        )
        for command in commands
    ]
    print(json.dumps([as_json(each) for each in done], indent=2) if options.json else table(done))
    return int(any(each.violations for each in done))


def table(done: list[Figures]) -> str:
    """Return the figures, a column for each command."""
    rows = [["", *(each.command.value for each in done)]]
    rows += [[name, *(str(as_json(each)[name]) for each in done)] for name in _COUNTS]
    rows += [
        [f"killed {phase.value}", *(str(each.kills[phase]) for each in done)] for phase in Phase
    ]
    rows += [["violations", *(str(len(each.violations)) for each in done)]]
    widths = [max(len(row[n]) for row in rows) for n in range(len(rows[0]))]
    lines = [
        "  ".join(
            [
                row[0].ljust(widths[0]),
                *(c.rjust(w) for c, w in zip(row[1:], widths[1:], strict=True)),
            ]
        )
        for row in rows
    ]
    return "\n".join([*lines, *(violation for each in done for violation in each.violations)])


_COUNTS = {
    "cycles": "cycles",
    "kills": "kills",
    "starts": "starts",
    "headers signed": "signed",
    "payments on the ledger": "payments",
    "receipts answered": "receipts",
    "payments without a first answer": "lost_answers",
    "headers sent again": "resends",
    "access only by sending again": "resent",
    "replays refused": "replays",
    "sessions": "sessions",
    "session requests served": "spent",
    "refunds": "refunds",
    "seconds": "seconds",
}


def as_json(figures: Figures) -> dict[str, Any]:
    """Return the figures as JSON values."""
    counts = {
        name: figures.kills.total() if field == "kills" else getattr(figures, field)
        for name, field in _COUNTS.items()
    }
    return counts | {
        "command": figures.command.value,
        "seconds": round(figures.seconds),
        "kills by phase": {phase.value: figures.kills[phase] for phase in Phase},
        "violations": figures.violations,
    }


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.crash", description=__doc__)
    parser.add_argument("--cycles", type=int, default=100, help="cycles for each command")
    parser.add_argument("--seed", type=int, default=1, help="seed of the payers' choices")
    parser.add_argument("--command", choices=[c.name.lower() for c in Command])
    parser.add_argument("--json", action="store_true", help="print JSON")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
