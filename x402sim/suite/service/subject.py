"""A service of the specification, as the subject of a judgement."""

from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

from x402sim.report.results import Result
from x402sim.spec.ground import TITLES
from x402sim.suite.service.check import IDS_BEGIN, Check, clause_text
from x402sim.suite.service.engine import all_checks, run
from x402sim.suite.service.left_open import lacking, not_in_full
from x402sim.suite.service.options import REQUIRABLE, Options
from x402sim.suite.service.parse_options import parse
from x402sim.suite.service.plan import summary_lines, why_left
from x402sim.suite.service.preflight import examine
from x402sim.suite.service.remote import reach, started
from x402sim.suite.service.setting import Setting
from x402sim.suite.subject import Plan, Subject, Tell


@dataclass(frozen=True, slots=True)
class ServiceJudging:
    """A service that can be judged, and the checks that judge it."""

    setting: Setting
    checks: list[Check]
    plan: Plan

    def run(self, on_begin: Callable[[str], None]) -> AsyncIterator[Result]:
        """Run the checks; yield the result of each id as soon as it is certain."""
        return run(self.setting, self.checks, on_begin)

    def done(self) -> str:
        """Return how many requests were sent."""
        return f"{self.setting.pace.requests} requests"

    def left_open(self, results: Sequence[Result]) -> tuple[list[str], list[str]]:
        """Return each MUST that was judged in part, and what --require demanded in vain."""
        options = self.setting.options
        in_part = not_in_full(results) if options.world_url else []
        return in_part, lacking(results, options.require)


@asynccontextmanager
async def begin(options: Options, checks: Sequence[Check], tell: Tell) -> AsyncIterator[Any]:
    """Connect to a service and its world, examine it, and plan; raises `NotReady`."""
    if options.wait:
        await started(options, options.wait, tell)
    async with reach(options, tell) as setting:
        plan = await examine(setting, [*checks])
        ids = dict.fromkeys(check.id for check in checks if not why_left(setting, check))
        yield ServiceJudging(
            setting,
            [*checks],
            Plan(ids=(*ids,), lines=summary_lines(options, plan), seconds=plan.seconds),
        )


def _read(words: Sequence[str], given: Mapping[str, Any]) -> Options:
    """Return the options of a judgement; `words` are the URL. Raises `ValueError`."""
    if len(words) > 1:
        raise ValueError(
            f"one URL is judged at a time, not {' '.join(words)}; to judge a payer by its command: "
            "x402sim conformance payer -- COMMAND"
        )
    return parse(words[0] if words else None, **given)


def _costs(cases: Sequence[Check]) -> str:
    pays = sum(case.pays for case in cases)
    return f"pays {pays}" if pays else ""


SERVICE: Subject[Options] = Subject(
    name="service",
    words="URL",
    words_help="Base URL of the service to judge, or its endpoint.",
    options=Options,
    read=_read,
    cases=all_checks,
    documents=IDS_BEGIN,
    sections=TITLES,
    begin=begin,
    texts=clause_text,
    needs={need: name for name, need in reversed(REQUIRABLE.items())},
    costs=_costs,
)
