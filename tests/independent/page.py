"""`python -m tests.independent.page`: write `conformance/service/independent.md` from the matrix that is kept."""

from collections.abc import Iterator

from tests.independent.implementation import implementations
from tests.independent.matrix import kept
from x402sim.suite.case import by_id
from x402sim.suite.service.engine import all_checks, folder

FILE = folder("service") / "independent.md"
_INTRODUCTION = """# What the suite says of services that others wrote

Made by `python -m tests.independent.page` from `independent_matrix.csv`, which `python -m tests.independent`
writes. The services are in `tests/independent/`: one was written from the specification alone, by an
author who had seen neither the suite nor our service (we have shortened its storage and settings
since), with legal choices and with defects that can be switched on. The other has the shape of the
public Cronos paywall, on the published client of its facilitator; it does not claim to keep the
specification.
"""


def page() -> str:
    return "\n".join([_INTRODUCTION, *_score(), *_not_seen(), *_paywall()]) + "\n"


def _score() -> Iterator[str]:
    yield "| service | language | legal choices | false alarms | defects | found by the specification's demands | found by ours only |"
    yield "| --- | --- | --- | --- | --- | --- | --- |"
    for name, implementation in implementations().items():
        if implementation.is_loose:
            continue
        mine = [row for row in kept() if row["service"] == name]
        correct = [row for row in mine if row["kind"] == "correct"]
        alarms = sum(bool(row["seen_by_text"] + row["seen_by_us"]) for row in correct)
        defects = [row for row in mine if row["kind"] == "defect"]
        seen = sum(bool(row["seen_by_text"]) for row in defects)
        ours = sum(bool(row["seen_by_us"]) for row in defects)
        yield (
            f"| {name} | {implementation.service.language} | {len(implementation.choices)} | {alarms} "
            f"| {len(defects)} | {seen} | {ours} |"
        )


def _not_seen() -> Iterator[str]:
    yield "\n## Defects that the specification's own demands do not show\n"
    yield "| service | defect | found by | why |"
    yield "| --- | --- | --- | --- |"
    for row in kept():
        if row["kind"] == "defect" and not row["seen_by_text"]:
            why = row["why_not"] or "no sentence forbids it"
            yield f"| {row['service']} | `{row['form']}` | {row['seen_by_us'] or '—'} | {why} |"


def _paywall() -> Iterator[str]:
    yield "\n## The public paywall\n"
    yield "With the target `cronos-paywall`: `plain` is the example's own behaviour, `hardened` has its"
    yield "holes closed. A line is an id that fails, with the sentence that it does not keep.\n"
    yield "| id | plain | hardened | the specification |"
    yield "| --- | --- | --- | --- |"
    rows = {
        row["form"]: row["seen_by_text"].split() for row in kept() if row["service"] == "express"
    }
    plain, hardened = rows["as it is"], rows["hardened"]
    for check_id, cases in by_id(all_checks()).items():
        if check_id in plain or check_id in hardened:
            said = str(cases[0].ground.sentences[0]).replace("|", "/")
            marks = ["fails" if check_id in form else "" for form in (plain, hardened)]
            yield f"| `{check_id}` | {marks[0]} | {marks[1]} | {said} |"


if __name__ == "__main__":
    FILE.write_text(page(), encoding="utf-8")
