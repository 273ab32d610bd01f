"""`python -m tests.crash.slow_commits SECONDS ARGUMENTS…`: x402sim, whose commits take so much longer.

It widens the moment in which the service has spent, and not answered.
"""

import sys
import time
from typing import Any

from x402sim.cli import main
from x402sim.service.store.served import Served
from x402sim.service.store.session_budgets import SessionBudgets


def _delayed(kind: type[Any], name: str, seconds: float) -> None:
    """Let a method of a class take longer, once its work is done."""
    plain = getattr(kind, name)

    def delayed(*args: Any, **named: Any) -> Any:
        done = plain(*args, **named)
        time.sleep(seconds)
        return done

    setattr(kind, name, delayed)


if __name__ == "__main__":
    if seconds := float(sys.argv.pop(1)):
        _delayed(Served, "begin", seconds)
        _delayed(SessionBudgets, "debit", seconds)
    main()
