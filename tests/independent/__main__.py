"""`python -m tests.independent`: judge the suite by services that others wrote.

Runs the whole suite against each implementation: as it is, with its legal choices, a group at a time, and
with each defect, unless the checks of its section have seen it already.
Prints what failed, and which defects are missed or seen only by the kit's own demands. Exit code
1: a false alarm, or a defect that breaks the specification is missed. --only takes an implementation, a
choice, a defect, or IMPLEMENTATION/NAME. --check judges by some ids, and where one of them finds what the
matrix does not have, or no longer what it has, once more as above; --new takes the ids that the
matrix of mutants lacks.
"""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import ExitStack
from queue import SimpleQueue

from tests.independent import matrix
from tests.independent.implementation import World, implementations, world
from tests.independent.matrix import Trial
from tests.mutants import matrix as mutants
from tests.mutants.judging import check_ids
from tests.verdicts import Verdict, main

AT_ONCE = 6
"""They mostly wait: for sessions to end, and for what the suite holds back."""


def all_trials() -> dict[str, Trial]:
    """Return every form of every implementation by its name: as it is, groups of choices, each defect."""
    found = [
        trial
        for name, implementation in implementations().items()
        for trial in (
            Trial(implementation=name),
            *(Trial(implementation=name, choices=choices) for choices in implementation.groups),
            *(Trial(implementation=name, defect=defect) for defect in implementation.defects),
        )
    ]
    return {trial.name: trial for trial in found}


def _judged(names: list[str], ids: list[str]) -> Iterator[Verdict]:
    """Judge implementations, `AT_ONCE` of them in a world each, those that take longest first."""
    trials = [trial for name, trial in all_trials().items() if name in names]
    worlds: SimpleQueue[World] = SimpleQueue()

    def look(trial: Trial) -> Verdict:
        within = worlds.get()
        try:
            return matrix.look_again(trial, ids, within) if ids else matrix.look(trial, within)
        finally:
            worlds.put(within)

    with ExitStack() as stack:
        for _ in range(min(AT_ONCE, len(trials))):
            worlds.put(stack.enter_context(world()))
        pool = stack.enter_context(ThreadPoolExecutor(AT_ONCE))
        longest_first = sorted(trials, key=_is_short)
        for done in as_completed([pool.submit(look, trial) for trial in longest_first]):
            yield done.result()


def _is_short(trial: Trial) -> bool:
    """Tell whether a few checks are enough for it, none of which waits for refunds."""
    defect = matrix.defect_of(trial.name)
    return defect is not None and defect.section != "3" and not defect.unseen


if __name__ == "__main__":
    main(
        "independent",
        {it: {t.implementation, t.defect, *t.choices} for it, t in all_trials().items()},
        lacking=lambda: (matrix.lacking(all_trials()), mutants.lacking()[1]),
        judge=_judged,
        complaint=matrix.complaint,
        line=lambda verdict: f"{verdict.name}  {' '.join(verdict.failed)}",
        score=matrix.sum_up,
        file=matrix.FILE,
        write=lambda file, verdicts: matrix.write(file, verdicts, all_trials()),
        check_ids=check_ids(),
    )
