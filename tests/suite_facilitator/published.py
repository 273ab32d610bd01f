"""Facilitators that are published, and ours, as the judge of facilitators starts them.

`python -m tests.suite_facilitator.published [NAME…|all]` judges them: each is what its repository's
example is, on the versions that `tests/interop` pins. conformance/facilitator/published.json keeps the
verdicts. It writes conformance/facilitators.md anew: the table of all cases, the problems of
the field with what catches them, and the verdicts.
"""

import asyncio
import shlex
import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any

from tests.interop import programs
from tests.published import ROOT, Kept, cell, page as markdown, pinned, summary, verdicts, words
from x402sim.judging import Verdict, judge
from x402sim.suite.facilitator.case import tried
from x402sim.suite.facilitator.payment import Dialect
from x402sim.suite.facilitator.play import Play
from x402sim.suite.facilitator.room import PLAIN, facilitator_command
from x402sim.suite.facilitator.subject import SECTIONS, FacilitatorJudge, all_cases, rows
from x402sim.version import VERSION

KEPT = Kept(ROOT / "conformance" / "facilitator" / "published.json")


@dataclass(frozen=True)
class Published:
    """A facilitator that somebody has published: what it is, and how it is started."""

    about: str
    program: str | Sequence[str]
    package: str
    dialects: tuple[Dialect, ...]

    @property
    def version(self) -> str:
        if isinstance(self.program, str):
            return pinned(self.program, self.package)
        return f"{self.package} {VERSION}"

    def command(self) -> list[str]:
        """Return the command, its packages installed if need be."""
        return programs.command(self.program)


PUBLISHED = {
    "python": Published(
        "the official one in Python, behind FastAPI",
        "facilitator.py",
        "x402",
        (Dialect.V2,),
    ),
    "npm": Published(
        "the official one for Node, behind express",
        "npm_v2/facilitator.mjs",
        "@x402/evm",
        (Dialect.V2,),
    ),
    "npm-v1": Published(
        "the first official one for Node, behind express",
        "npm_v1/facilitator.mjs",
        "x402",
        (Dialect.V1,),
    ),
    "ours": Published(
        "ours, `x402sim facilitator`",
        (sys.executable, "-m", "x402sim", "facilitator"),
        "x402sim",
        (Dialect.V1, Dialect.V2, Dialect.CRONOS),
    ),
}


def judgement(name: str, only: Iterable[str] = ()) -> Verdict:
    it = PUBLISHED[name]
    start, dialects = shlex.join(it.command()), ",".join(it.dialects)
    return judge("facilitator", only=[*only], start=start, dialects=dialects)


def transaction(name: str) -> str:
    it = PUBLISHED[name]

    async def main() -> str:
        judge = FacilitatorJudge(
            subject=facilitator_command(tuple(it.command())), dialects=it.dialects
        )
        try:
            room = await judge.room(PLAIN)
            play = await Play(
                room=room, dialect=it.dialects[-1], name="a good payment", patience_s=30
            ).ready()
            observed = await tried(play, await play.draft())
            assert observed.settled.transaction in {each.tx_hash for each in observed.money.moved}
            return observed.settled.transaction
        finally:
            await judge.close()

    return asyncio.run(main())


FILE = ROOT / "conformance" / "facilitators.md"
ABOUT = words(__file__)
CASES = {f"{case.id} [{case.dialect}]": case for case in all_cases()}


def _right(each: dict[str, Any]) -> str:
    """Say who is right in a difference."""
    if "not mined" in each["actual"] and "no answer" in each["actual"]:
        return str(ABOUT["jam"])
    if each["id"].endswith("-answer"):
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
        name = f"{each['id']} [{each['dialect']}]"
        sentence = CASES[name].ground.sentences[0]
        said = f"“{sentence.text}” ({sentence.section})"
        did = cell(f"{each['actual']}")
        yield f"| {name} | {did} | {cell(said, 400)} | {_right(each)} |"
    shoulds = [each for each in it["failed"] if each["level"] != "MUST"]
    if shoulds:
        yield from ("", f"SHOULD, {ABOUT['right']['kit']}:", "")
        for each in shoulds:
            name = f"{each['id']} [{each['dialect']}]"
            yield f"- {name}: {CASES[name].title}"


def page() -> str:
    kept = KEPT.all().values()
    differ = (line for it in kept if it["failed"] for line in _differences(it))
    told = chain(verdicts("facilitator", kept), differ)
    return markdown(ABOUT, SECTIONS, rows(), all_cases(), Dialect, told)


def main(names: list[str]) -> None:
    """Judge these, or all, keep what came of it, and write the page."""
    for name in PUBLISHED if names == ["all"] else names:
        it, found = PUBLISHED[name], judgement(name)
        about = {"about": it.about, "version": it.version, "dialects": [*it.dialects]}
        day = {"day": found.about.started[:10], "transaction": transaction(name)}
        KEPT.keep(name, about | day | summary(found.results), PUBLISHED)
        print(name, found, flush=True)
    FILE.write_text(page(), encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1:])
