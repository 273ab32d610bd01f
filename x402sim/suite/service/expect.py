"""Expectations, called as `expect.served(answer)`: each fails the check unless it holds."""

from functools import partial
from typing import Any

from x402sim.suite.report.results import DemandKey, Loss
from x402sim.suite.service.answers import TargetAnswer
from x402sim.suite.verdict import CheckFailed, Show, amounts


def equal(
    what: str,
    actual: Any,
    expected: Any,
    show: Show | None = None,
    loss: Loss | None = None,
    demand: DemandKey = DemandKey.OTHER,
) -> None:
    """Fail unless `actual` equals `expected`; `loss` is the counted cost of a failure."""
    if actual != expected:
        raise CheckFailed(what, expected, actual, show, demand, loss)


def holds(
    what: str,
    is_so: bool,
    actual: Any,
    show: Show | None = None,
    demand: DemandKey = DemandKey.OTHER,
) -> None:
    """Fail unless a condition holds; `what` describes the condition."""
    if not is_so:
        raise CheckFailed("", what, actual, show, demand)


equal_form = partial(equal, demand=DemandKey.FORM)
holds_form = partial(holds, demand=DemandKey.FORM)
"""Judge the form of an answer: a wrong form loses nobody's money."""


def transfers(what: str, moved: Any, wanted: Any, loss: Loss | None = None) -> None:
    """Fail unless these transfers were made; both are lists, or texts of `amounts`."""
    is_missing = moved in ([], amounts([])) and wanted not in ([], amounts([]))
    demand = DemandKey.TRANSFER if is_missing else DemandKey.OTHER
    equal(what, moved, wanted, loss=loss, demand=demand)


def served(answer: TargetAnswer) -> None:
    """Fail unless the protected content was served."""
    if answer.status != 200 or not answer.has_content:
        raise CheckFailed(
            "the request", "200 with the content", answer.summary, answer.show, DemandKey.CONTENT
        )


def not_served(answer: TargetAnswer, *, is_402: bool = False) -> None:
    """Fail if protected content was served, or if an answer that must be a 402 is none."""
    if answer.has_content or 200 <= answer.status < 300:
        demand = DemandKey.WITHHELD if answer.has_content else DemandKey.UNPAID_2XX
        raise CheckFailed(
            "a request without valid proof", "no content", answer.summary, answer.show, demand
        )
    if is_402 and answer.status != 402:
        raise CheckFailed(
            "a request without valid proof", 402, answer.summary, answer.show, DemandKey.OFFER
        )


def withheld(answer: TargetAnswer, request: str = "") -> None:
    """Fail if protected content was served, and on nothing else; `request` names the request."""
    what = f"no protected content{request and ' for '}{request}"
    holds(what, not answer.has_content, answer.summary, answer.show, DemandKey.WITHHELD)


def refused(answer: TargetAnswer, *texts: str) -> None:
    """Fail unless a settlement was refused with a text of section 7, anywhere in the answer.

    Without texts, any refusal is accepted: any answer but a receipt, with any status that the
    target file allows.
    """
    wanted = " or ".join(map(repr, texts))
    if answer.is_receipt:
        raise CheckFailed(
            "the settlement", wanted or "a refusal", answer.summary, answer.show, DemandKey.REFUSED
        )
    if texts and not any(text in answer.text for text in texts):
        raise CheckFailed(
            "the error's text", wanted, answer.summary, answer.show, DemandKey.ERROR_TEXT
        )
    for text in texts:
        allowed = answer.target.statuses.get(text)
        if text in answer.text and allowed and answer.status not in allowed:
            raise CheckFailed(
                f"the status of {text!r}", allowed, answer.status, answer.show, DemandKey.STATUS
            )
