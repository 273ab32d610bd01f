"""Run the conformance suite from Python: `judge` a service, payer, facilitator or server.

    >>> from x402sim.judging import judge
    >>> verdict = judge("payer", "node agent.js", dialects="v2")          # doctest: +SKIP
    >>> verdict.outcome, verdict.losses                                # doctest: +SKIP
    (<Outcome.FAILED: 'failed'>, ['0.03 USDC'])

A notebook shows a `Verdict` as a table; `verdict.frame` has a row for each id, and
`verdict.plot()` a bar for each section. The verdict is that of `x402sim conformance`.
"""

import shlex
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from functools import partial
from typing import Any

import msgspec

from x402sim.clock import Clock, stopwatch
from x402sim.suite import sdk
from x402sim.suite.case import select
from x402sim.suite.command import judged
from x402sim.suite.options import STRICT, flags_of
from x402sim.suite.published import battery_of
from x402sim.suite.report.conformance import About
from x402sim.suite.report.results import Result
from x402sim.suite.report.verdict import Verdict as Verdict
from x402sim.suite.subject import SUBJECTS, subject as subject_of
from x402sim.suite.verdict import NotReady as NotReady
from x402sim.text.words import unknown
from x402sim.world.loop import run_anywhere

__all__ = ["NotReady", "Verdict", "judge"]


def judge(
    subject: str,
    what: str | Sequence[str] | Callable[..., Any] | None = None,
    *,
    only: str | Sequence[str] = (),
    strict: bool = False,
    tell: Callable[[str], None] = lambda text: None,
    **flags: Any,
) -> Verdict:
    """Judge a subject, such as "service" or "payer", and return the verdict.

    `what` is the argument that follows the subject on the command line: the URL of a service, or
    the command of a payer, as one text or as words. A payer may also be a function of a
    `x402sim.suite.payer.play.Task`. `flags` are those of `x402sim conformance SUBJECT`, with
    underscores: `judge("service", url, world=..., patient=True)`. `only` selects ids by their
    beginnings. `tell` is called with each line of the plan, and with what the run waits for.

    It runs in real time, as long as the plan says, also in a notebook. Raises `ValueError` for an
    unknown subject or flag, and `NotReady` for a subject that cannot be judged.
    """
    if subject not in SUBJECTS:
        raise ValueError(unknown("subject", subject, SUBJECTS))
    kind = subject_of(subject)
    known = {each.name: each for each in flags_of(kind.options)}
    for name in flags:
        if name not in known:
            raise ValueError(unknown(f"flag of a {subject}", name, known))
    for name, value in flags.items():
        if known[name].is_repeatable and isinstance(value, str):
            flags[name] = [value]
    prefixes = [only] if isinstance(only, str) else [*only]
    cases = select(prefixes, kind.cases(), kind.documents)
    options = sdk.read(kind, _words(what), flags | {STRICT.name: strict}, tell)
    elapsed = stopwatch()
    started = datetime.fromtimestamp(Clock().now(), UTC).isoformat(timespec="seconds")
    unspoken: dict[str, str] = {}

    def on_ready(judging: Any) -> None:
        unspoken.update(judging.plan.unspoken)
        for line in judging.plan.lines:
            tell(line)

    results, done = run_anywhere(
        partial(judged, kind, options, cases, tell=tell, on_ready=on_ready)
    )
    if callable(what):
        given = {name: value for name, value in flags.items() if name != "rerun"}
        results = [
            _rerun_here(each, subject, getattr(what, "__name__", type(what).__name__), given)
            for each in results
        ]
    return Verdict(
        about=About(
            kind.name, options.shown, started, kind.sections, unspoken, battery_of(kind.cases())[0]
        ),
        results=tuple(results),
        strict=strict,
        done=done,
        seconds=elapsed(),
    )


def _words(what: str | Sequence[str] | Callable[..., Any] | None) -> list[Any]:
    if what is None:
        return []
    if callable(what):
        return [what]
    if isinstance(what, str):
        return [what] if "://" in what.split(" ")[0] else shlex.split(what)
    return [*what]


def _rerun_here(result: Result, subject: str, name: str, flags: dict[str, Any]) -> Result:
    """Return a result whose `rerun` is a call of `judge`: no command line can name a function."""
    more = "".join(f", {flag}={value!r}" for flag, value in flags.items())
    again = f"judge({subject!r}, {name}, only={result.id!r}{more})"
    return msgspec.structs.replace(result, rerun=again)
