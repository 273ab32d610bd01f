"""Runs the suite against mutants and honest services, and judges its verdicts."""

import logging
import os
import traceback
from collections.abc import Collection, Iterable, Iterator, Mapping
from concurrent.futures import ProcessPoolExecutor, as_completed
from contextlib import contextmanager
from dataclasses import replace
from multiprocessing import get_context

from tests.mutants.honest import HONEST, Honest
from tests.mutants.mutant import FEW, Mutant
from tests.mutants.rows import MUTANTS
from tests.verdicts import Verdict
from x402sim.clock import stopwatch
from x402sim.suite.service.case import ServiceCase
from x402sim.suite.service.engine import all_checks
from x402sim.suite.service.local import judge


def judge_one(
    name: str, checks: list[ServiceCase] | None = None, honest: Honest | None = None
) -> Verdict:
    """Run the whole suite, or some checks, against a mutant or an honest service of this name.

    `honest` is a service that has none.
    """
    elapsed = stopwatch()
    given = honest or HONEST.get(name, Honest(name=name, own_target=True))
    results, crash = [], ""
    world = MUTANTS[name].world(given.world) if name in MUTANTS else given.world
    try:
        with quiet():
            results = judge(world, target=given.target, checks=checks or all_checks())
    except Exception:  # noqa: BLE001 - it is reported with the verdict
        crash = traceback.format_exc()
    return Verdict(name, {each.id: each for each in results}, elapsed(), crash)


@contextmanager
def quiet() -> Iterator[None]:
    """Judge without log lines: what a defective service logs is no news."""
    before = logging.root.manager.disable
    logging.disable(logging.CRITICAL)
    try:
        yield
    finally:
        logging.disable(before)


def judge_all(services: Mapping[str, Collection[str]]) -> Iterator[Verdict]:
    """Judge each service by its ids, or by all checks if it has none; on all cores.

    A verdict is yielded as soon as it is given; who stops asking waits for no other.
    """
    longest_first = sorted(services.items(), key=lambda each: bool(each[1]))
    with ProcessPoolExecutor(os.cpu_count(), mp_context=get_context("spawn")) as pool:
        try:
            for done in as_completed([pool.submit(_judge_by, *each) for each in longest_first]):
                yield done.result()
        finally:
            pool.shutdown(cancel_futures=True)


def _judge_by(name: str, ids: Collection[str]) -> Verdict:
    verdict = judge_one(name, [check for check in all_checks() if check.id in ids])
    return replace(verdict, ids=ids)


def wanted(mutant: Mutant, verdict: Verdict) -> frozenset[str]:
    """Return the ids that should have failed for a mutant, of those that judged it."""
    return mutant.check_ids & {*verdict.ids} if verdict.ids else mutant.check_ids


def missed(mutant: Mutant, verdict: Verdict) -> list[str]:
    """Return the ids that should have failed for a mutant, and did not."""
    return sorted(wanted(mutant, verdict) - set(verdict.failed))


def others(mutant: Mutant, verdict: Verdict) -> list[str]:
    """Return the ids that failed for a mutant besides its own."""
    return [check_id for check_id in verdict.failed if check_id not in mutant.check_ids]


def complaint(verdict: Verdict) -> str:
    """Say what is wrong with the suite, given its verdict; empty if nothing is."""
    if verdict.crash:
        return f"{verdict.name}: the suite crashed\n{verdict.crash}"
    if verdict.name in HONEST:
        return verdict.alarms()
    mutant = MUTANTS[verdict.name]
    unseen = missed(mutant, verdict)
    if unseen:
        why = "; ".join(map(verdict.why, unseen))
        return f"{mutant.name} ({mutant.does}) is missed: {why}"
    more = others(mutant, verdict)
    if len(more) > FEW and not mutant.broad:
        return f"{mutant.name} also fails {len(more)} others: {', '.join(more)}"
    return ""


def sum_up(verdicts: Iterable[Verdict]) -> list[str]:
    """Return three lines: the score, that of the specification's demands, false alarms."""
    verdicts = list(verdicts)
    defects = [verdict for verdict in verdicts if verdict.name in MUTANTS]
    mutants = [verdict for verdict in defects if wanted(MUTANTS[verdict.name], verdict)]
    honest = [verdict for verdict in verdicts if verdict.name in HONEST]
    seen = sum(not missed(MUTANTS[verdict.name], verdict) for verdict in mutants)
    share = f" = {100 * seen / len(mutants):.1f} %" if mutants else ""
    by_text = sum(bool(verdict.by_the_text) for verdict in mutants)
    return [
        f"mutation score {seen}/{len(mutants)}{share}",
        f"by the text    {by_text}/{len(mutants)}: seen by more than the kit's own demands",
        f"false alarms   {sum(bool(complaint(each)) for each in honest)} of {len(honest)}",
    ]


def check_ids() -> list[str]:
    return list(dict.fromkeys(check.id for check in all_checks()))
