"""What does the suite say of a stranger?"""

import msgspec

from tests.strangers.stranger import Place
from x402sim.clock import stopwatch
from x402sim.suite.check import Check
from x402sim.suite.command import Wanted, judge
from x402sim.suite.engine import all_checks
from x402sim.suite.remote import Access
from x402sim.suite.target import Target
from x402sim.suite.verdict import Outcome, Result


class Verdict(msgspec.Struct, frozen=True, kw_only=True):
    """The results of one run, by id."""

    results: dict[str, Result]
    seconds: float

    def of(self, *outcomes: Outcome) -> list[str]:
        """Return the ids with one of these outcomes."""
        return [name for name, each in self.results.items() if each.outcome in outcomes]

    @property
    def by_the_text(self) -> list[str]:
        """The failed ids whose demand is in the specification, or follows from it."""
        return [name for name in self.of(Outcome.FAILED) if name.startswith("spec/")]

    @property
    def by_us(self) -> list[str]:
        """The failed ids whose demand is the kit's own."""
        return [name for name in self.of(Outcome.FAILED) if not name.startswith("spec/")]

    def alarms(self) -> str:
        """Say what the suite holds against a service, or could not find out."""
        odd = self.of(Outcome.FAILED, Outcome.INCONCLUSIVE)
        return "\n".join(_line(self.results[name]) for name in odd)


def run(place: Place, target: Target, checks: list[Check] | None = None) -> Verdict:
    """Run the suite, or some of its checks, against a stranger and the world around it."""
    elapsed = stopwatch()
    wanted = Wanted(checks=checks or all_checks())
    access = Access(base_url=place.url, target=target, world_url=place.world)
    results, _ = judge(access, wanted)
    return Verdict(results={each.id: each for each in results}, seconds=elapsed())


def _line(result: Result) -> str:
    if result.outcome is Outcome.FAILED:
        said = f"expected {result.expected}, got {result.actual}"
    else:
        said = result.reason
    return f"{result.outcome} {result.id} ({result.title}): {said}"
