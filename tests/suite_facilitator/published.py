"""`python -m tests.suite_facilitator.published NAME…`: judges facilitators that are published, and ours.

Each is what its repository's example is, on the versions that `tests/interop` pins. What came of it
is kept in `published.json` beside this file, of which `page.py` makes conformance/facilitators.md.
"""

import asyncio
import shlex
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.interop import programs
from tests.published import Kept, pinned, summary
from x402sim.judging import Verdict, judge
from x402sim.suite.facilitator.case import tried
from x402sim.suite.facilitator.payment import Dialect
from x402sim.suite.facilitator.play import Play
from x402sim.suite.facilitator.room import PLAIN, Command
from x402sim.suite.facilitator.subject import Judge
from x402sim.version import VERSION

KEPT = Kept(Path(__file__).with_name("published.json"))


@dataclass(frozen=True)
class Published:
    """A facilitator that somebody has published: what it is, and how it is started."""

    about: str
    program: str | Sequence[str]
    package: str
    dialects: tuple[Dialect, ...]

    @property
    def version(self) -> str:
        """The package, and its version."""
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
    """Judge one, and return the verdict."""
    it = PUBLISHED[name]
    start, dialects = shlex.join(it.command()), ",".join(it.dialects)
    return judge("facilitator", only=[*only], start=start, dialects=dialects)


def transaction(name: str) -> str:
    """Let one settle a good payment, and return the hash of its transaction."""
    it = PUBLISHED[name]

    async def main() -> str:
        judge = Judge(subject=Command(tuple(it.command())), dialects=it.dialects)
        try:
            room = await judge.room(PLAIN)
            play = await Play(
                room=room, dialect=it.dialects[-1], name="a good payment", patience_s=30
            ).begin()
            observed = await tried(play, await play.draft())
            assert observed.settled.transaction in {each.tx_hash for each in observed.money.moved}
            return observed.settled.transaction
        finally:
            await judge.close()

    return asyncio.run(main())


def main(names: Sequence[str]) -> None:
    """Judge these, or all, and keep what came of it."""
    for name in names or PUBLISHED:
        it, found = PUBLISHED[name], judgement(name)
        about = {"about": it.about, "version": it.version, "dialects": [*it.dialects]}
        day = {"day": found.about.started[:10], "transaction": transaction(name)}
        KEPT.keep(name, about | day | summary(found.results), PUBLISHED)
        print(name, found, flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
