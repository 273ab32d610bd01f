"""What a run has left open of what it should judge.

Of MUSTs that were only partly judged, it says why: because of what the target did or its file
leaves out. What needs other means (a payer, a world, a clock, patience) is not meant.
"""

from collections.abc import Iterable

from x402sim.report.results import Outcome, Result

REFUNDS = "spec/3/expiry-refund"
"""The id that --require refunds and expiry are about."""
EXPIRY = "When its duration is over"
"""How the title of its case begins that --require expiry is about."""


def not_in_full(results: Iterable[Result]) -> list[str]:
    """Return a line for each MUST of which a case began and could not be judged."""
    return [
        f"not judged in full ({result.in_part or 'no case'}): {result.id}, a MUST: {each.reason}"
        for result in results
        if result.level == "MUST" and result.outcome not in (Outcome.FAILED, Outcome.INCONCLUSIVE)
        for each in result.cases
        if each.outcome is Outcome.SKIPPED and each.has_begun
    ]


def lacking(results: Iterable[Result], require: tuple[str, ...]) -> list[str]:
    """Return why a run did not judge what --require demands: expiry and refunds, at the end."""
    return [
        f"--require {word}: {result.id} was not judged in full: {each.reason}"
        for word, title in (("expiry", EXPIRY), ("refunds", ""))
        if word in require
        for result in results
        if result.id == REFUNDS
        for each in result.cases
        if each.outcome is Outcome.SKIPPED and each.title.startswith(title)
    ]
