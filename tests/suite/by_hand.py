"""`python -m tests.suite.by_hand`: say what a new check still needs that nothing can generate.

Each id that can fail has words for its cause in `conformance/service/causes.toml`, and each new one a
mutant that it must see. Exit code 1: something is missing.
"""

import sys
import tomllib
from collections.abc import Iterator

from tests.mutants import matrix
from tests.mutants.rows import MUTANTS
from x402sim.spec.ground import folder
from x402sim.suite.report.causes import LOSSES, WORDS
from x402sim.suite.report.results import DemandKey
from x402sim.suite.service.engine import all_checks


def missing() -> Iterator[str]:
    """Yield what is missing: where it goes, and what to write."""
    ids = dict.fromkeys(each.id for each in all_checks() if not each.id.startswith("silent/"))
    words = tomllib.loads((folder("service") / WORDS).read_text("utf-8"))
    have = {key.partition(": ")[0] for key in words} - {*DemandKey}
    losses = "; ".join(f"{loss}: {told}" for loss, told in LOSSES.items())
    for check_id in ids:
        if check_id not in have:
            yield (
                f"{check_id} has no cause. Add to conformance/service/{WORDS}:\n\n"
                f'["{check_id}"]\ncause = "what is wrong with a service that fails it"\n'
                f'repair = "what to change in it"\nloss = "words"  # {losses}\n'
            )
    for check_id in sorted(have - ids.keys()):
        yield f"{check_id} is no check any more: remove its words from conformance/service/{WORDS}"
    broken = {each for mutant in MUTANTS.values() for each in mutant.check_ids}
    for check_id in matrix.lacking()[1]:
        if check_id in ids and check_id not in broken:
            yield (
                f"{check_id} sees no defect. Add one to a file of tests/mutants/, such as required.py, "
                f'with "{check_id.removeprefix("spec/")}" as what it breaks'
            )


if __name__ == "__main__":
    found = [*missing()]
    print("\n".join(found))
    sys.exit(bool(found))
