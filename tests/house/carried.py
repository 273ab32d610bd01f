"""`python -m tests.house.carried` prints what the program knows of itself: it is data, so that
`python -OO`, which has no docstrings, prints the same."""

import json
from typing import Any

from tests.house.reference import PAGES
from x402sim.chain.rpc.app import documentation
from x402sim.cli import COMMANDS, load
from x402sim.journal import Journal
from x402sim.report.frames import TABLES
from x402sim.spec.clauses import CLAUSES
from x402sim.suite.service.engine import all_checks
from x402sim.world.control.app import usage
from x402sim.world.scenario import shipped

OF_DOCSTRINGS = "python"
"""The page of the guide that shows the first sentences of docstrings."""


def facts() -> dict[str, Any]:
    """Return commands, frames, pages, scenarios, checks and clauses, in words."""
    frames = {name: table(Journal()) for name, table in TABLES.items()}
    return {
        "commands": {name: load(name).help for name in COMMANDS},
        "frames": {
            name: (TABLES[name].__doc__, frame.dtypes.astype(str).to_dict(), frame.attrs)
            for name, frame in frames.items()
        },
        "pages": {name: page() for name, page in PAGES.items() if name != OF_DOCSTRINGS},
        "rpc": documentation(),
        "control": usage(),
        "scenarios": [
            (each.name, each.title, each.covers, each.needs, each.description) for each in shipped()
        ],
        "checks": [
            (each.name, each.title, each.level, each.ground.lines, each.needs)
            for each in all_checks()
        ],
        "clauses": [(each.id, each.text, each.kept_by, each.ground.lines) for each in CLAUSES],
    }


if __name__ == "__main__":
    print(json.dumps(facts(), indent=1))
