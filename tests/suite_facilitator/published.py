"""Facilitators that are published and have no recipe, as the judge of facilitators starts them.

`python -m tests.suite_facilitator.published [NAME…|all]` judges them, and keeps the verdicts in
conformance/verdicts.json; those with a recipe are judged by `x402sim conformance facilitator --sdk`.
It writes conformance/facilitators.md anew: the table of all cases, and the problems of the field.
"""

import shlex
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from tests.interop import programs
from tests.published import ROOT, keep, page as markdown, pinned, words
from x402sim.judging import Verdict, judge
from x402sim.suite.facilitator.payment import Dialect
from x402sim.suite.facilitator.subject import SECTIONS, all_cases, rows
from x402sim.version import VERSION


@dataclass(frozen=True)
class Published:
    """A facilitator that somebody has published, and how it is started."""

    program: str | Sequence[str]
    package: str
    dialects: tuple[Dialect, ...]
    shown: str
    """The command in a checkout, after its packages are installed."""

    @property
    def version(self) -> str:
        """The version of the package."""
        if isinstance(self.program, str):
            return pinned(self.program, self.package).split()[-1]
        return VERSION


PUBLISHED = {
    "x402 (npm)": Published(
        "npm_v1/facilitator.mjs", "x402", (Dialect.V1,), "node tests/interop/npm_v1/facilitator.mjs"
    ),
    "x402sim": Published(
        (sys.executable, "-m", "x402sim", "facilitator"),
        "x402sim",
        tuple(Dialect),
        "x402sim facilitator",
    ),
}
"""Each by the name of its record."""


def judgement(name: str, only: Iterable[str] = ()) -> Verdict:
    """Judge one, and return the verdict."""
    it = PUBLISHED[name]
    start, dialects = shlex.join(programs.command(it.program)), ",".join(it.dialects)
    return judge("facilitator", only=[*only], start=start, dialects=dialects)


FILE = ROOT / "conformance" / "facilitators.md"


def page() -> str:
    """Return the page, as Markdown."""
    return markdown(words(__file__), SECTIONS, rows(), all_cases(), Dialect)


def main(names: list[str]) -> None:
    """Judge these, or all, keep what came of it, and write the page."""
    for name in PUBLISHED if names == ["all"] else names:
        it, found = PUBLISHED[name], judgement(name)
        again = f"x402sim conformance facilitator --start {shlex.quote(it.shown)}"
        keep(found, name, it.version, again)
        print(name, found, flush=True)
    FILE.write_text(page(), encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1:])
