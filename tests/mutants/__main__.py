"""`python -m tests.mutants`: judge the conformance suite by the defects it should see.

Prints what each defect makes fail, what was missed, and the score; exits 0 only if every
defect was seen by the check of its clause and nothing was found in an honest service.

The whole suite takes ten minutes on two cores. `--only` plays some services. `--check` judges by some
ids, so that a new check does not play all others again; services in which a check may set off what
another sees, and those that the matrix lacks, are judged by the whole suite nevertheless.
"""

from collections.abc import Iterator

from tests.mutants import matrix
from tests.mutants.honest import HONEST
from tests.mutants.judging import check_ids, complaint, judge_all, missed, others, sum_up
from tests.mutants.rows import MUTANTS
from tests.verdicts import Verdict, main


def _judged(names: list[str], ids: list[str]) -> Iterator[Verdict]:
    whole = {*matrix.need_all_checks(), *matrix.lacking()[0]}
    return judge_all({name: () if name in whole else ids for name in names})


def _line(verdict: Verdict) -> str:
    if verdict.name in HONEST:
        return f"honest         {verdict.name}"
    mutant = MUTANTS[verdict.name]
    seen = " ".join(each for each in verdict.failed if each in mutant.check_ids)
    also = "".join(f" {each}" for each in others(mutant, verdict))
    seen = seen or ("MISSED" if missed(mutant, verdict) else "")
    return f"{mutant.kind:14} {mutant.name:36} {seen}{also and f'  also{also}'}"


if __name__ == "__main__":
    main(
        "mutants",
        dict.fromkeys((*MUTANTS, *HONEST), ()),
        lacking=matrix.lacking,
        judge=_judged,
        complaint=complaint,
        line=_line,
        score=sum_up,
        file=matrix.FILE,
        write=matrix.write,
        check_ids=check_ids(),
    )
