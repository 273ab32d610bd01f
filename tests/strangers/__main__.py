"""`python -m tests.strangers`: judge the suite by services that others wrote.

Runs the whole suite against each stranger: as it is, with its legal choices, a group at a time, and
with each defect, unless the checks of its section have seen it already.
Prints what failed, and which defects are missed or seen only by the kit's own demands. Exit code
1: a false alarm, or a defect that breaks the specification is missed. --only takes a stranger, a
choice, a defect, or STRANGER/NAME.
"""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

from tests.strangers import matrix
from tests.strangers.matrix import Trial
from tests.strangers.stranger import strangers
from tests.verdicts import Verdict, main

AT_ONCE = 2


def all_trials() -> dict[str, Trial]:
    """Return every form of every stranger by its name: as it is, groups of choices, each defect."""
    found = [
        trial
        for name, stranger in strangers().items()
        for trial in (
            Trial(stranger=name),
            *(Trial(stranger=name, choices=choices) for choices in stranger.groups),
            *(Trial(stranger=name, defect=defect) for defect in stranger.defects),
        )
    ]
    return {trial.name: trial for trial in found}


def _judged(names: list[str]) -> Iterator[Verdict]:
    trials = all_trials()
    with ThreadPoolExecutor(AT_ONCE) as pool:
        yield from pool.map(matrix.look, [trials[name] for name in names])


if __name__ == "__main__":
    main(
        "strangers",
        {it: {t.stranger, t.defect, *t.choices} for it, t in all_trials().items()},
        judge=_judged,
        complaint=matrix.complaint,
        line=lambda verdict: f"{verdict.name}  {' '.join(verdict.failed)}",
        score=matrix.sum_up,
        write=lambda file, verdicts: matrix.write(file, verdicts, all_trials()),
    )
