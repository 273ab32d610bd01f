"""Every law of a finished run sees a service with the defect that it is for.

Each mutant breaks its law in a small world of its own, and in a random campaign; without the defect
the same small world breaks nothing.
"""

import asyncio
from dataclasses import dataclass, replace
from functools import cache
from typing import Any, get_args

import msgspec
import pytest

from tests.campaign import at_length
from tests.explore.campaign import BATCH, Batch, run
from tests.explore.case import (
    Act,
    Again,
    Buy,
    Case,
    Deposit,
    Reorganise,
    Strike,
    Submit,
    Unsold,
    Wallet,
    Way,
)
from tests.explore.play import Played, play
from tests.money import OF_THE_CHAIN, Law
from tests.mutants import rows
from tests.mutants.changes import (
    Change,
    all_of,
    altered,
    collaborator,
    decision,
    overriding,
    setting,
)
from tests.mutants.honest import asked_afterwards, every_refusal_is_final
from tests.mutants.messages import Answer, Request, Serve, answer
from tests.mutants.middleware import answers, middleware, replies, statuses
from tests.mutants.reconciliation import ForgetsRefusals
from x402sim import Fault, World
from x402sim.policies import FailToServe, Forget, ServeBeforeSettle, ServicePolicy
from x402sim.protocol.routes import PAY
from x402sim.protocol.x402 import PAYMENT_HEADERS
from x402sim.service.state import Service


def jury(name: str) -> Change:
    """Return the defect of this name that the conformance suite must see, too."""
    return all_of(*rows.MUTANTS[name].changes)


def pays(request: Request) -> bool:
    return any(name.lower() in request.headers for name in PAYMENT_HEADERS.values())


# --- payments ------------------------------------------------------------------------


def nothing(it: Any, *args: Any, **more: Any) -> None:
    """Leave what the chain has undone as it is."""


def never(it: Any, *args: Any) -> bool:
    return False


def always(it: Any, *args: Any) -> bool:
    return True


async def sold_to_everybody(_: Service, request: Request, serve: Serve) -> Answer:
    """Sell by HEAD as by GET."""
    is_paid = request.method == "HEAD" and pays(request)
    return answer(200, {}) if is_paid else await serve(request)


def nobody(it: Any, *args: Any) -> list[Any]:
    """Remember no earlier header, or no pending payment; owe no refund."""
    return []


def under_the_old_name(it: Any, attempt: int, tx_hash: str, *args: Any, **more: Any) -> None:
    """Keep the transaction that the record was settled with."""
    it.inner.set_block(attempt, it.inner.attempt(attempt).tx_hash, *args, **more)


def refused_at_first(world: World) -> World:
    """Do not know a payment id when it is shown for the first time."""
    shown: set[str] = set()

    async def handler(_: Service, request: Request, serve: Serve) -> Answer:
        payment_id = request.headers.get("x-payment-id")
        is_known = payment_id is None or payment_id in shown or pays(request)
        shown.add(payment_id or "")
        return await serve(request) if is_known else answer(402, {"error": "unknown"})

    return middleware(handler)(world)


# --- in one step ---------------------------------------------------------------------


def taken_for_paid(request: Request, reply: Answer) -> Answer:
    """Serve a payment in one step whose outcome is not known."""
    is_known = reply.status in (200, 402) or not pays(request)
    return reply if is_known else replace(reply, status=200, body=b'{"quote":{}}')


def never_served(request: Request, reply: Answer) -> Answer:
    """Refuse a payment in one step that was settled."""
    is_paid = pays(request) and reply.status == 200
    return replace(reply, status=402, body=b"{}") if is_paid else reply


# --- sessions ------------------------------------------------------------------------


def more(session: Any) -> Any:
    """Return a session that has more than was deposited."""
    return session and altered(session, deposited=session.deposited + 10_000)


def only_once(it: Any, session_id: str, *args: Any) -> int | None:
    """Serve a session once, whatever its budget."""
    session = it.inner.get(session_id)
    return None if session and session.released else it.inner.debit(session_id, *args)


# --- the process ---------------------------------------------------------------------


async def hanging(_: Service, request: Request, serve: Serve) -> Answer:
    """Never answer who asks with a session."""
    if "x-session-id" in request.headers:
        await asyncio.Event().wait()
    return await serve(request)


async def spinning(service: Service, _: Request, serve: Serve) -> Answer:
    """Ask the node again and again, in one instant."""
    while True:
        await service.clock.sleep(0)
        await service.rpc.height()


async def raises(_: Any, *args: Any) -> Any:
    raise ZeroDivisionError("in the background")


# --- the table -----------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Mutant:
    """A defect, the broken law, and a small world to show the defect."""

    law: Law
    change: Change
    case: Case


REFUSED = Strike(fault=Fault(victim="facilitator", does="refuse", times=None))
LOST = Strike(fault=Fault(victim="facilitator", does="lose answer", path="/settle"))
LEAVES = Fault(victim="service", does="lose answer", path="/quote", skip=1)
BUY, DEPOSIT = Buy(number=0), Deposit(number=0, duration_s=60, spends=3, spend_pause_s=1.0)
BOUGHT, SPENT, UNSETTLED = Case(steps=(BUY,)), Case(steps=(DEPOSIT,)), Case(steps=(REFUSED, BUY))
IN_ONE_STEP = Case(steps=(Buy(number=0, way="PAYMENT-SIGNATURE"),))
SUBMITTED = Case(steps=(*UNSETTLED.steps, Submit(at_s=30.0, of=0)))
UNDONE = Case(steps=(BUY, Reorganise(at_s=1.0, drop=True)))
TWO_HEADERS = Case(steps=(BUY, Again(at_s=9.0, of=0, what="second header")))
REFUND_UNDONE = (
    Deposit(number=0, duration_s=60),
    Act(at_s=75.0, does="run_indexer"),
    Reorganise(at_s=85.0, depth=2, drop=True),
)

BY_LAW: dict[Law, dict[str, tuple[Change, Case]]] = {
    Law.PAID_IS_SERVED: {
        "a lost answer is forgotten": (
            setting(policy=ServicePolicy(lost_answer=Forget())),
            Case(steps=(LOST, BUY)),
        ),
        "a claim is dropped": (collaborator(payments=ForgetsRefusals), SUBMITTED),
    },
    Law.FINAL_IS_FINAL: {
        "final, then charged": (
            all_of(
                collaborator(payments=ForgetsRefusals), answers(None, PAY, every_refusal_is_final)
            ),
            SUBMITTED,
        ),
    },
    Law.CHARGED_ONCE: {
        "a second header is settled": (jury("paid-id-is-paid-again"), TWO_HEADERS),
    },
    Law.SERVED_ONCE: {
        "one step is served again": (decision(authorization_once=False), IN_ONE_STEP),
        "one step is charged, and never served": (replies("/", never_served), IN_ONE_STEP),
    },
    Law.SERVED_AFTER_PAID: {
        "one step is served before it settles": (
            replies("/", taken_for_paid),
            Case(steps=(REFUSED, *IN_ONE_STEP.steps)),
        ),
        "a claim is served before it settles": (
            setting(policy=ServicePolicy(serve=ServeBeforeSettle())),
            UNSETTLED,
        ),
    },
    Law.SERVED_IS_PAID: {
        "what the chain undid is kept": (
            overriding("payments", mark_reorged=nothing, fail=nothing),
            UNDONE,
        ),
    },
    Law.ONE_NAME: {
        "a name is not reserved": (
            overriding("served", taken_by=nothing, reserve=always),
            Case(
                latency={"facilitator": 0.5},
                balances=("1.00", "1.00"),
                steps=(
                    Buy(number=0, way="PAYMENT-SIGNATURE", name=0),
                    Buy(number=1, way="PAYMENT-SIGNATURE", name=0, payer=1),
                ),
            ),
        ),
    },
    Law.UNSOLD: {
        "HEAD buys": (
            middleware(sold_to_everybody),
            Case(steps=(Buy(number=0, way="X-PAYMENT"), Unsold(at_s=20.0, of=0))),
        ),
    },
    Law.ONLY_WHAT_WAS_BOUGHT: {
        "a payment opens every resource": (jury("records-forget-the-resource"), BOUGHT),
    },
    Law.RECORD_NAMES_IT: {
        "a receipt names another transaction": (jury("hash-of-nothing"), BOUGHT),
        "a record keeps an old transaction": (
            overriding("payments", set_block=under_the_old_name),
            Case(steps=(Act(does="force_revert"), BUY, Reorganise(at_s=30.0, depth=6))),
        ),
    },
    Law.ONE_TRANSFER_PAYS_ONCE: {
        "one payment buys at two deployments": (
            asked_afterwards,
            Case(services=2, steps=(BUY, Again(at_s=30.0, of=0, service="service 2"))),
        ),
    },
    Law.RECEIPT_STAYS: {
        "a receipt is not served": (setting(policy=ServicePolicy(serve=FailToServe(1))), BOUGHT),
        "a receipt is refused at first": (refused_at_first, BOUGHT),
    },
    Law.SESSION_IS_DEPOSIT: {
        "a session has more than its deposit": (
            overriding(
                "sessions",
                get=lambda it, of: more(it.inner.get(of)),
                paid_by=lambda it, of: more(it.inner.paid_by(of)),
            ),
            SPENT,
        ),
    },
    Law.SESSION_SERVES: {
        "a session is served once": (overriding("sessions", debit=only_once), SPENT),
    },
    Law.DEBITS_ARE_SERVED: {
        "a session is debited twice": (jury("debited-twice"), SPENT),
        "a session is served for nothing": (jury("never-debited"), SPENT),
        "a debit is kept whose client has left": (
            overriding("sessions", undo_debit=nothing),
            Case(steps=(*SPENT.steps, Strike(fault=LEAVES))),
        ),
        "a session shows a wrong balance": (
            answers(200, "/api/sessions/session_", lambda it: it.update(released="1")),
            SPENT,
        ),
    },
    Law.REFUND_IS_THE_REST: {
        "a refund is paid twice": (jury("refunded-twice"), SPENT),
        "a refund is too much": (jury("whole-deposit-refunded"), SPENT),
        "no refund is paid": (jury("never-refunded"), SPENT),
        "a refund that was undone stays": (
            overriding("sessions", undo_refund=nothing),
            Case(steps=REFUND_UNDONE),
        ),
    },
    Law.RESOLVED: {
        "pending for ever": (overriding("payments", pending=nobody), UNSETTLED),
    },
    Law.ANSWERED: {"no answer, for ever": (middleware(hanging), SPENT)},
    Law.NO_SERVER_ERROR: {
        "a refusal is a 500": (
            all_of(*(statuses(PAY, each, 500) for each in (400, 402, 409, 502))),
            UNSETTLED,
        ),
    },
    Law.NO_EXCEPTION: {
        "an exception in the background": (overriding("rpc", height=raises), BOUGHT),
    },
    Law.TIME_PASSES: {"time stands still": (middleware(spinning), BOUGHT)},
}
MUTANTS = {
    name: Mutant(law, *mutant) for law, found in BY_LAW.items() for name, mutant in found.items()
}


# --- the tests ----------------------------------------------------------------------


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
    "a header that is said to pay for another payment id may be charged for that one": Case(
        steps=(
            Buy(number=0, pause_s=5.0),
            Strike(fault=Fault(victim="rpc", does="lose request", times=2)),
            Submit(at_s=0.01, of=0, how="facilitator"),
            Again(at_s=0.01, of=0, what="new id", way="two steps"),
        ),
        block_time_s=2.0,
    ),
    "a payment that is refused for its name, as another has it, pays in version 1 without it": Case(
        balances=("1.00",),
        steps=(
            Deposit(number=0, wait_s=0.0, pause_s=5.0, spend_pause_s=0.0),
            Buy(number=1, pause_s=5.0, way="PAYMENT-SIGNATURE", name=0),
            Buy(number=2, pause_s=5.0, way="PAYMENT-SIGNATURE", name=0),
            Again(at_s=0.01, of=2, what="new id", way="X-PAYMENT"),
        ),
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
@pytest.mark.parametrize("name", list(MUTANTS)[:: at_length(4, 1)])
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
    """Nor a payer with a contract's account, and only the contract can judge the signature."""
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
