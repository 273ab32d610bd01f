"""Every law of a finished run sees a service with the defect that it is for.

Each mutant breaks its law in a small world of its own, and in a random campaign; without the defect
the same small world breaks nothing.
"""

from functools import cache
from typing import get_args

import msgspec
import pytest

from tests.campaign import at_length
from tests.explore.campaign import BATCH, Batch, run
from tests.explore.case import Act, Again, Buy, Case, Reorganise, Strike, Submit, Wallet, Way
from tests.explore.mutants import LOST, MUTANTS
from tests.explore.play import Played, play
from tests.money import OF_THE_CHAIN, Law
from x402sim import Fault

BATCHES = 30
"""The random worlds in which each mutant is found are 300: every other batch has an adversary."""


@cache
def played(name: str) -> Played:
    return play(MUTANTS[name].case, MUTANTS[name].change)


@pytest.mark.parametrize("name", MUTANTS)
def test_a_defect_breaks_its_law(name: str) -> None:
    found = played(name)
    assert MUTANTS[name].law in found.laws, found.violations
    assert "TypeError" not in str(found.violations), "the mutant does not fit the service any more"


@pytest.mark.parametrize("case", {repr(each.case): each.case for each in MUTANTS.values()}.values())
def test_without_the_defect_the_same_world_holds(case: Case) -> None:
    assert not play(case).violations


SECOND = Again(at_s=0.01, of=0, what="second header", way="X-PAYMENT and id")
UNVERIFIED = Strike(fault=Fault(victim="facilitator", does="lose request"))
FOUND = {
    "a header whose 402 was paid in one step since is not settled": Case(
        steps=(Buy(number=0), UNVERIFIED, SECOND)
    ),
    "whoever submits a second header has charged, not the service": Case(
        steps=(
            Buy(number=0),
            msgspec.structs.replace(SECOND, way="PAYMENT-SIGNATURE"),
            Submit(at_s=0.06, of=0),
        )
    ),
    "a second header beside the id of a payment that is settled is not looked at": Case(
        steps=(
            Buy(number=0, way="X-PAYMENT and id"),
            Reorganise(at_s=0.01, drop=True),
            SECOND,
            Submit(at_s=70, of=0),
        )
    ),
    "whoever submits a second header, sent in two steps, has charged, not the service": Case(
        latency={"facilitator": 0.02},
        steps=(
            Buy(number=0, way="X-PAYMENT and id"),
            UNVERIFIED,
            msgspec.structs.replace(SECOND, way="two steps"),
            Submit(at_s=0.02, of=0),
        ),
    ),
    "two deployments hold a header, and a reorganisation undoes its first use": Case(
        services=2,
        steps=(
            Buy(number=1, wait_s=1.0, pause_s=20.0),
            Strike(fault=Fault(victim="rpc", does="lose request", contains="eth_getLogs", times=6)),
            Submit(at_s=0.01, of=1),
            Again(at_s=1.0, of=1, service="service 2"),
            Reorganise(at_s=3.0, drop=True),
        ),
    ),
    "a second header that was never settled, and that others submit, is no second charge": Case(
        steps=(
            Buy(number=0, wait_s=1.0, pause_s=5.0),
            Act(does="force_revert", given=(1,)),
            Strike(fault=Fault(victim="facilitator", does="lose request", times=2)),
            Again(at_s=1.0, of=0, what="second header", way="two steps"),
            Submit(at_s=12.0, of=0, how="chain"),
        )
    ),
    "what was paid in one step and lost on the wire is not bought by the header at another id": Case(
        latency={"service": 0.5},
        steps=(
            Buy(number=0, patience_s=1.0, pause_s=5.0, way="X-PAYMENT"),
            UNVERIFIED,
            Again(at_s=3.0, of=0, what="new id", way="two steps"),
        ),
    ),
    "what was paid in one step and lost on the wire is not bought by its header at a second id": Case(
        steps=(
            Buy(
                number=0,
                wait_s=200.0,
                pause_s=5.0,
                patience_s=0.3,
                anew=True,
                way="PAYMENT-SIGNATURE",
            ),
            Submit(at_s=20.0, of=0),
            Strike(at_s=100.0, fault=Fault(victim="service", does="shorten", times=2)),
            Again(at_s=200.002, of=0, way="PAYMENT-SIGNATURE"),
            Again(at_s=206.0, of=0, what="second header", way="PAYMENT-SIGNATURE"),
        ),
        block_time_s=2.0,
    ),
    "a header that is said to pay for another payment id may be charged for that one": Case(
        steps=(
            Buy(number=0, pause_s=5.0),
            Strike(fault=Fault(victim="rpc", does="lose request", times=2)),
            Submit(at_s=0.01, of=0, how="facilitator"),
            Again(at_s=0.01, of=0, what="new id", way="two steps"),
        ),
        block_time_s=2.0,
    ),
}
"""Cases that random worlds found once."""


@pytest.mark.parametrize("name", FOUND)
def test_what_was_found_once_holds(name: str) -> None:
    assert not play(FOUND[name]).violations


@pytest.mark.parametrize(
    "law", [law for law in Law if law not in OF_THE_CHAIN], ids=lambda law: law.name
)
def test_each_law_sees_a_defect_that_no_other_law_sees(law: Law) -> None:
    found = [name for name, mutant in MUTANTS.items() if mutant.law is law]
    assert any(played(name).laws == {law} for name in found), found


@pytest.mark.thorough
@pytest.mark.parametrize("name", list(MUTANTS)[:: at_length(2, 1)])
def test_random_worlds_find_the_defect(name: str) -> None:
    played = 0
    for number in range(BATCHES):
        batch = Batch(1 + number, BATCH, number % 2 == 1)
        found = run(batch, MUTANTS[name].change, shrinks=False)
        played += found.runs
        if found.failures:
            print(f"{name}: {', '.join(law.name for law in found.failures)}, after {played} worlds")
            return
    pytest.fail(f"{played} worlds, and nothing was found")


@pytest.mark.parametrize("wallet", get_args(Wallet))
@pytest.mark.parametrize("way", get_args(Way))
def test_a_lost_answer_costs_no_payer_its_money(wallet: Wallet, way: Way) -> None:
    """Also not one whose account is a contract, which alone can say what it has signed."""
    second = Again(at_s=1.0, of=0, what="second header")
    case = Case(wallets=(wallet,), steps=(LOST, Buy(number=0, way=way), second))
    assert not play(case).violations


def test_nothing_is_sent_while_no_node_says_what_a_smart_wallet_has_signed() -> None:
    silent = Fault(victim="rpc", does="refuse", contains="0x1626ba7e", times=None)
    found = play(Case(wallets=("smart",), steps=(Strike(fault=silent), Buy(number=0))))
    assert not found.violations
    assert not any("/settle" in getattr(entry.event, "path", "") for entry in found.journal)


# --- what is no defect -------------------------------------------------------------------


def test_a_race_between_deployments_is_counted_and_no_violation() -> None:
    case = Case(
        services=2,
        latency={"service": 0.5},
        steps=(Buy(number=0, wait_s=1.0), Again(at_s=2.0, of=0, service="service 2")),
        block_time_s=12.0,
    )
    found = play(case)
    assert not found.violations
    assert found.counts["raced"] == 1


def test_a_header_that_was_used_before_it_was_presented_is_no_violation() -> None:
    found = play(Case(steps=(Buy(number=0, wait_s=15.0), Submit(at_s=5.0, of=0))))
    assert not found.violations
    assert found.counts == {"submitted before presented": 1}
