"""`python -m tests.mutants`: judge the conformance suite by the defects it should see.

Prints what each defect makes fail, what was missed, and the score; exits 0 only if every
defect was seen by the check of its clause and nothing was found in an honest service.
"""

from tests.mutants import matrix
from tests.mutants.honest import HONEST
from tests.mutants.jury import complaint, judge_all, others, sum_up
from tests.mutants.rows import MUTANTS
from tests.verdicts import Verdict, main


def _line(verdict: Verdict) -> str:
    if verdict.name in HONEST:
        return f"honest         {verdict.name}"
    mutant = MUTANTS[verdict.name]
    seen = " ".join(each for each in verdict.failed if each in mutant.check_ids)
    also = "".join(f" {each}" for each in others(mutant, verdict))
    return f"{mutant.kind:14} {mutant.name:36} {seen or 'MISSED'}{also and f'  also{also}'}"


if __name__ == "__main__":
    main(
        "mutants",
        dict.fromkeys((*MUTANTS, *HONEST), ()),
        judge=judge_all,
        complaint=complaint,
        line=_line,
        score=sum_up,
        write=matrix.write,
    )
