"""Runs the suite against one form of a stranger."""

from collections.abc import Sequence

import msgspec

from tests.strangers.stranger import running, strangers
from tests.verdicts import Verdict
from x402sim.clock import stopwatch
from x402sim.suite.command import Wanted, judge
from x402sim.suite.engine import all_checks, matching
from x402sim.suite.setting import Options


class Trial(msgspec.Struct, frozen=True, kw_only=True):
    """One form of one stranger: with some of its legal choices, or with one of its defects."""

    stranger: str
    choices: tuple[str, ...] = ()
    defect: str = ""

    @property
    def name(self) -> str:
        """Its name in the matrix."""
        return f"{self.stranger}/{self.defect or '+'.join(self.choices) or 'as it is'}"


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
    return Verdict(trial.name, {each.id: each for each in results}, elapsed())
