"""A service of the specification, as the subject of a judgement.

Options are read from texts: the values of flags of the command.
"""

from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from x402sim.protocol.refusals import Refusal
from x402sim.spec.ground import TITLES, folder
from x402sim.suite.case import skipped_by_user
from x402sim.suite.engine import Judging, Plan
from x402sim.suite.options import again, given as given_or_default, read
from x402sim.suite.report.results import Outcome, Result
from x402sim.suite.service import target as targets
from x402sim.suite.service.case import IDS_BEGIN, ServiceCase, clause_text
from x402sim.suite.service.engine import all_checks, judging
from x402sim.suite.service.options import HIDDEN, REQUIRABLE, Options, clean_url, secrets
from x402sim.suite.service.plan import summary_lines, why_left
from x402sim.suite.service.preflight import examine
from x402sim.suite.service.sending import reach, started
from x402sim.suite.subject import Subject, Tell
from x402sim.text.words import as_given, unknown

REFUNDS = "spec/3/expiry-refund"
"""The id of --require refunds and expiry."""
EXPIRY = f"{REFUNDS}:an_expired_session_serves_nothing_more"
"""The name of the id's case for --require expiry."""


def not_in_full(results: Iterable[Result]) -> list[str]:
    """Return a line for each MUST with a case that began and could not be judged."""
    return [
        f"not judged in full ({result.in_part or 'no case'}): {result.id}, a MUST: {each.reason}"
        for result in results
        if result.level == "MUST" and result.outcome not in (Outcome.FAILED, Outcome.INCONCLUSIVE)
        for each in result.cases
        if each.outcome is Outcome.SKIPPED and each.has_begun
    ]


def lacking(
    results: Iterable[Result], require: tuple[str, ...], checks: Iterable[ServiceCase]
) -> list[str]:
    """Return why a run has not met --require: expiry and refunds, at the end."""
    of_id = [case for case in checks if case.id == REFUNDS]
    wanted = {
        "expiry": [case.title for case in of_id if case.name == EXPIRY],
        "refunds": [case.title for case in of_id],
    }
    return [
        f"--require {word}: {result.id} was not judged in full: {each.reason}"
        for word, titles in wanted.items()
        if word in require
        for result in results
        if result.id == REFUNDS
        for each in result.cases
        if each.outcome is Outcome.SKIPPED and each.title in titles
    ]


def parse(base_url: str | None, **given: Any) -> Options:
    """Return the options of flags by name; raises `ValueError` with the name of the flag."""
    values = given_or_default(Options, given)
    target = find_target(values["target"])
    cleaned, user = clean_url(base_url, "URL")
    if cleaned is None:
        raise ValueError("no service to judge: give its URL, such as http://127.0.0.1:4020")
    base_url = _base(cleaned, target)
    options = Options(
        **read(Options, values) | {"target": target},
        base_url=base_url,
        given_url=cleaned,
        rerun=again((base_url, *(_SHOWN_USER if user else ())), Options, values),
    )
    headers = {**options.headers, **({"Authorization": f"Basic {user}"} if user else {})}
    return replace(
        options,
        headers=headers,
        secrets=secrets(headers, options.rpc_url),
        skip=skipped_by_user(all_checks(), values["skip"] or (), IDS_BEGIN),
    )


_SHOWN_USER = ("--header", f"Authorization:{HIDDEN}")


def _base(url: str, target: targets.Target) -> str:
    known = [target.protected.path, target.pay.path]
    known += [target.sessions.path] if target.sessions.exists else []
    for path in known:
        if url.rstrip("/").endswith(path):
            return url.rstrip("/").removesuffix(path)
    return url


def find_target(name: str) -> targets.Target:
    """Return a shipped target by name, or the target in a file.

    Raises `ValueError` for an unknown name, a malformed file, and an unknown error text in it.
    """
    shipped = {file.stem: file for file in sorted((folder("service") / "targets").glob("*.toml"))}
    file = shipped.get(name, Path(name))
    if not file.is_file():
        if name.endswith(".toml") or "/" in name:
            raise ValueError(
                f"--target: there is no file {as_given(name)}; `target init URL --out FILE` writes "
                "one"
            )
        raise ValueError(
            f"--target: {unknown('target', name, shipped)}, or the path of a TOML file"
        )
    target = targets.load(file)
    texts = [refusal.text for refusal in Refusal]
    for text in target.statuses:
        if text not in texts:
            raise ValueError(f"{file}: statuses: {unknown('error text', text, texts)}")
    return target


@asynccontextmanager
async def begin(
    options: Options, checks: Sequence[ServiceCase], tell: Tell
) -> AsyncIterator[Judging[ServiceCase]]:
    """Connect to a service and its world, examine it, and plan; raises `NotReady`."""
    if options.wait:
        await started(options, options.wait, tell)
    async with reach(options, tell) as setting:
        estimate = await examine(setting, [*checks])
        mine = [check for check in checks if not why_left(setting, check)]
        lines = summary_lines(options, estimate)

        def left_open(results: Sequence[Result]) -> tuple[list[str], list[str]]:
            in_part = not_in_full(results) if options.world_url else []
            return in_part, lacking(results, options.require, checks)

        plan = Plan(cases=mine, lines=lines, seconds=estimate.seconds)
        yield judging(setting, checks, plan, left_open=left_open)


def _read(words: Sequence[str], given: Mapping[str, Any]) -> Options:
    """Return the options of a judgement; `words` are the URL. Raises `ValueError`."""
    if len(words) > 1:
        raise ValueError(
            f"one URL is judged at a time, not {' '.join(words)}; to judge a payer by its command: "
            "x402sim conformance payer -- COMMAND"
        )
    return parse(words[0] if words else None, **given)


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
    costs=lambda cases: f"pays {pays}" if (pays := sum(case.pays for case in cases)) else "",
)
