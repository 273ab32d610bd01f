"""`python -m tests.suite.demands`: write the page of all demands, `conformance/service/demands.md`, anew.

Sentences of the specification that no check is based on are in `conformance/service/uncovered.toml`, each
with the reason.
"""

import tomllib
from collections import Counter
from collections.abc import Iterable, Mapping
from pathlib import Path

from x402sim.spec.ground import SENTENCES, GroundType, Sentence, sentence
from x402sim.suite.case import by_ground, by_id
from x402sim.suite.service.case import ServiceCase
from x402sim.suite.service.engine import all_checks, folder

UNCOVERED = "uncovered.toml"
_INTRODUCTION = """# Every demand, and the sentence that it comes from

Made from the checks by `python -m tests.suite.demands`. A demand is *explicit* (a sentence of
the specification states it), *derived* (it follows from sentences; the step is given), *ours*
(the kit demands it; the reason is given) or *silent* (the specification leaves it open, and the
suite observes). Only explicit and derived demands are a MUST; it has passed only if its *decisive* cases,
without which a defect of it would not be seen, were judged. The cells of a table's row are
separated by bars.
"""

PAGE = folder() / "demands.md"


def uncovered(folder: Path) -> Mapping[Sentence, str]:
    """Return the sentences that no check is based on, with the reasons; raises `ValueError`."""
    reasons = tomllib.loads((folder / UNCOVERED).read_text(encoding="utf-8"))
    return {sentence(name): str(reason) for name, reason in reasons.items()}


def not_quoted(checks: Iterable[ServiceCase]) -> list[Sentence]:
    """Return the sentences of the specification that no check is based on."""
    quoted = {each for check in checks for each in check.ground.sentences}
    return [each for each in SENTENCES if each not in quoted]


def page(checks: list[ServiceCase], reasons: Mapping[Sentence, str]) -> str:
    """Return the page, as Markdown: every id, its grounds, its cases, and what is not covered."""
    kinds = Counter(check.ground.kind for check in checks)
    told = ", ".join(f"{kinds[kind]} {kind}" for kind in GroundType)
    lines = [_INTRODUCTION, f"{len(by_id(checks))} ids, {len(checks)} checks: {told}.", ""]
    section = ""
    for check_id, cases in by_id(checks).items():
        if cases[0].section != section:
            section = cases[0].section
            lines += [f"## Section {section}", ""]
        lines += [f"### {check_id}", ""]
        for ground, its_cases in by_ground(cases):
            lines += [f"{cases[0].level}, {ground.kind}:", ""]
            lines += [f"> {_plain(each)}" + chr(92) for each in ground.lines[:-1]]
            lines += [f"> {_plain(ground.lines[-1])}", ""]
            marks = (" (decisive)" if case.decides else "" for case in its_cases)
            titles = (_plain(case.title) for case in its_cases)
            lines += [*(f"- {title}{mark}" for title, mark in zip(titles, marks, strict=True)), ""]
    lines += ["## Sentences that no check is based on", ""]
    lines += [f"- {_plain(str(each))} {reason}" for each, reason in reasons.items()]
    return "\n".join(lines) + "\n"


def _plain(text: str) -> str:
    """Return text that Markdown shows as it is."""
    for mark in "\\<>*_[]|":
        text = text.replace(mark, chr(92) + mark)
    return text


def written() -> str:
    """Return the page as it must be."""
    return page(all_checks(), uncovered(folder()))


if __name__ == "__main__":
    PAGE.write_text(written(), encoding="utf-8")
