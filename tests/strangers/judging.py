"""Runs the suite against one form of a stranger."""

from collections.abc import Sequence

import msgspec

from tests.strangers.stranger import running, strangers
from x402sim.clock import stopwatch
from x402sim.suite.command import Wanted, judge
from x402sim.suite.engine import all_checks, matching
from x402sim.suite.options import Options
from x402sim.suite.verdict import Outcome, Result


class Trial(msgspec.Struct, frozen=True, kw_only=True):
    """One form of one stranger: with some of its legal choices, or with one of its defects."""

    stranger: str
    choices: tuple[str, ...] = ()
    defect: str = ""

    @property
    def name(self) -> str:
        """Its name in the matrix."""
        return f"{self.stranger}/{self.defect or '+'.join(self.choices) or 'as it is'}"


class Verdict(msgspec.Struct, frozen=True, kw_only=True):
    """The results of one run, by id."""

    trial: Trial
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
        """Say what the suite holds against it, or could not find out."""
        odd = self.of(Outcome.FAILED, Outcome.INCONCLUSIVE)
        return "\n".join(_line(self.results[name]) for name in odd)


def try_one(trial: Trial, ids: Sequence[str] = ()) -> Verdict:
    """Start a stranger in a world of its own, and run the suite, or the checks of some ids."""
    stranger, checks, elapsed = strangers()[trial.stranger], all_checks(), stopwatch()
    if ids:
        checks = [check for each in ids for check in matching(checks, each)]
    with running(stranger, trial.choices, trial.defect) as place:
        options = Options(
            base_url=place.url,
            target=stranger.told(trial.choices),
            world_url=place.world,
            restart=place.restart,
        )
        results, _ = judge(options, Wanted(checks=checks))
    return Verdict(trial=trial, results={each.id: each for each in results}, seconds=elapsed())


def _line(result: Result) -> str:
    if result.outcome is Outcome.FAILED:
        said = f"expected {result.expected}, got {result.actual}"
    else:
        said = result.reason
    return f"{result.outcome} {result.id} ({result.title}): {said}"
