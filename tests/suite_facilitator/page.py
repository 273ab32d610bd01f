"""`python -m tests.suite_facilitator.page`: writes conformance/facilitators.md.

It is the table of all cases of facilitators, the problems of the field with what catches them, and
the verdicts on the published ones that `published.json` keeps.
"""

from collections.abc import Iterator
from itertools import chain
from typing import Any

from tests.published import ROOT, cell, page as markdown, verdicts, words
from tests.suite_facilitator.published import KEPT
from x402sim.suite.facilitator.payment import Dialect
from x402sim.suite.facilitator.subject import SECTIONS, all_cases, rows

FILE = ROOT / "conformance" / "facilitators.md"
ABOUT = words(__file__)
CASES = {case.id: case for case in all_cases()}


def _right(each: dict[str, Any]) -> str:
    """Say who is right in a difference."""
    if "not mined" in each["actual"] and "no answer" in each["actual"]:
        return str(ABOUT["jam"])
    if each["id"].rpartition("-")[0].endswith("-answer"):
        return str(ABOUT["no_answer"])
    fits = [name for name in ABOUT["right"] if each["id"].startswith(name)]
    return str(ABOUT["right"][max(fits, key=len)])


def _differences(it: dict[str, Any]) -> Iterator[str]:
    yield from ("", f"### {it['version']}: {it['about']}", "")
    musts = [each for each in it["failed"] if each["level"] == "MUST"]
    if musts:
        yield "| id | what it did | the sentence | who is right |"
        yield "| --- | --- | --- | --- |"
    for each in musts:
        sentence = CASES[each["id"]].ground.sentences[0]
        said = f"“{sentence.text}” ({sentence.section})"
        did = cell(f"{each['actual']}")
        yield f"| {each['id']} | {did} | {cell(said, 400)} | {_right(each)} |"
    shoulds = [each for each in it["failed"] if each["level"] != "MUST"]
    if shoulds:
        yield from ("", f"SHOULD, {ABOUT['right']['kit']}:", "")
        yield from (f"- {each['id']}: {CASES[each['id']].title}" for each in shoulds)


def page() -> str:
    """Return the page, as Markdown."""
    kept = KEPT.all().values()
    differ = (line for it in kept if it["failed"] for line in _differences(it))
    told = chain(verdicts("facilitator", kept), differ)
    return markdown(ABOUT, SECTIONS, rows(), all_cases(), Dialect, told)


if __name__ == "__main__":
    FILE.write_text(page(), encoding="utf-8")
