"""Each invariant of a finished run fires: a service with the defect that it was written for.

The defects are those that the first campaigns found, put back with hooks, and a few more. Without
the hook the same world breaks nothing.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import msgspec
import pytest
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from x402sim import Fault
from x402sim.explore.audit import Law
from x402sim.explore.case import (
    Again,
    Buy,
    Case,
    Deposit,
    Reorganise,
    Revert,
    RunIndexer,
    Strike,
    Submit,
)
from x402sim.explore.play import play
from x402sim.service.state import Service
from x402sim.world.assembly.hooks import NO_HOOKS, Hooks


class Instead:
    """An object with some methods replaced; a replacement gets the object first."""

    def __init__(self, inner: object, **methods: Callable[..., Any]) -> None:
        self._inner, self._methods = inner, methods

    def __getattr__(self, name: str) -> Any:
        if name in self._methods:
            method, inner = self._methods[name], self._inner
            return lambda *args, **more: method(inner, *args, **more)
        return getattr(self._inner, name)


def with_service(**parts: dict[str, Callable[..., Any]]) -> Hooks:
    """Return hooks that replace methods of a service's collaborators."""

    def changed(service: Service) -> Service:
        store = {name: parts[name] for name in ("payments", "sessions") if name in parts}
        inner = {name: Instead(getattr(service.store, name), **store[name]) for name in store}
        if inner:
            service = replace(service, store=_WithParts(service.store, inner))  # type: ignore[arg-type]
        if "rpc" in parts:
            service = replace(service, rpc=Instead(service.rpc, **parts["rpc"]))  # type: ignore[arg-type]
        return service

    return Hooks(service=changed)


class _WithParts:
    """A store with some of its parts replaced."""

    def __init__(self, store: object, parts: dict[str, Instead]) -> None:
        self._store, self._parts = store, parts

    def __getattr__(self, name: str) -> Any:
        return self._parts.get(name) or getattr(self._store, name)


def answering(change: Callable[[Service, dict[str, Any]], None]) -> Hooks:
    """Return hooks with which `change` edits the body of every answer to POST /api/pay."""

    def app(service: Service, inner: ASGIApp) -> ASGIApp:
        async def served(scope: Scope, receive: Receive, send: Send) -> None:
            if scope["path"] != "/api/pay":
                await inner(scope, receive, send)
                return
            messages: list[Message] = []

            async def keep(message: Message) -> None:
                messages.append(message)

            await inner(scope, receive, keep)
            body = msgspec.json.decode(messages[1]["body"])
            change(service, body)
            headers = [pair for pair in messages[0]["headers"] if pair[0] != b"content-length"]
            await send({**messages[0], "headers": headers})
            await send({**messages[1], "body": msgspec.json.encode(body)})

        return served

    return Hooks(app=app)


# --- the defects -------------------------------------------------------------------------


def blind_before_the_claim() -> Callable[..., Any]:
    """Defect 1: a use from before the claim is not seen."""
    asked: set[tuple[int, bytes]] = set()

    async def nonce_state(rpc: Any, payer: Any, nonce: bytes) -> Any:
        state = await rpc.nonce_state(payer, nonce)
        key = id(rpc), nonce
        if key in asked:
            return state
        asked.add(key)
        return msgspec.structs.replace(state, is_used=False, use=None)

    return nonce_state


async def never_used(rpc: Any, payer: Any, nonce: bytes) -> Any:
    """Defect 2: who looks for the transaction that used a nonce finds none."""
    state = await rpc.nonce_state(payer, nonce)
    return msgspec.structs.replace(state, is_used=False, use=None, head_s=2**40)


def claim_dropped(service: Service, body: dict[str, Any]) -> None:
    """Defect 3, silent: a claim that failed once is forgotten, and the payer is told to wait."""
    for attempt in service.store.payments.pending() if "error" in body else ():
        service.store.payments.drop_claim(attempt)


def said_to_be_over(service: Service, body: dict[str, Any]) -> None:
    """Defect 3: "nothing was charged", while the header is still valid."""
    if "error" in body:
        body["final"] = True
        claim_dropped(service, body)


def kept(inner: Any, *args: Any, **more: Any) -> None:
    """Defects 4 and 5: what the chain has undone stays as it is."""


def under_the_old_name(payments: Any, attempt: int, tx_hash: str, *args: Any, **more: Any) -> None:
    """The record keeps the transaction that it was settled with."""
    payments.set_block(attempt, payments.attempt(attempt).record.tx_hash, *args, **more)


def for_nothing(sessions: Any, session_id: str, *args: Any) -> int:
    """A session is served and not debited."""
    return int(sessions.get(session_id).released)


def nobody(payments: Any) -> list[Any]:
    """Pending payments are forgotten."""
    return []


@dataclass(frozen=True, slots=True)
class Defect:
    """A defect, a world that shows it, and the law that it breaks."""

    law: Law
    hooks: Callable[[], Hooks]
    case: Case


REFUSED = Strike(fault=Fault(victim="facilitator", does="refuse", times=None))
DEFECTS = {
    "one payment buys at two deployments": Defect(
        Law.ONE_TRANSFER_PAYS_ONCE,
        lambda: with_service(rpc={"nonce_state": blind_before_the_claim()}),
        Case(services=2, steps=(Buy(number=0), Again(at_s=30.0, of=0, service="service 2"))),
    ),
    "charged, receipt given, then refused": Defect(
        Law.RECEIPT_STAYS,
        lambda: with_service(rpc={"nonce_state": never_used}),
        Case(
            steps=(
                Buy(number=0),
                Strike(
                    at_s=1.0,
                    fault=Fault(
                        victim="explorer",
                        does="answer",
                        status=200,
                        times=None,
                        body='{"jsonrpc":"2.0","id":1,"result":{"blockNumber":"0x1","status":"0x0","logs":[]}}',
                    ),
                ),
                RunIndexer(at_s=2.0),
            )
        ),
    ),
    "final, then charged": Defect(
        Law.FINAL_IS_FINAL,
        lambda: answering(said_to_be_over),
        Case(steps=(REFUSED, Buy(number=0), Submit(at_s=30.0, of=0))),
    ),
    "a claim that is forgotten": Defect(
        Law.PAID_IS_SERVED,
        lambda: answering(claim_dropped),
        Case(steps=(REFUSED, Buy(number=0), Submit(at_s=30.0, of=0))),
    ),
    "a payment that was dropped": Defect(
        Law.SERVED_IS_PAID,
        lambda: with_service(payments={"undo": kept, "fail": kept}),
        Case(steps=(Buy(number=0), Reorganise(at_s=1.0, drop=True))),
    ),
    "a refund that was undone": Defect(
        Law.REFUND_ARRIVES_ONCE,
        lambda: with_service(sessions={"undo_refund": kept}),
        Case(
            steps=(
                Deposit(number=0, duration_s=60),
                RunIndexer(at_s=75.0),
                Reorganise(at_s=85.0, depth=2, drop=True),
            )
        ),
    ),
    "a record of another transaction": Defect(
        Law.RECORD_NAMES_IT,
        lambda: with_service(payments={"set_block": under_the_old_name}),
        Case(steps=(Revert(), Buy(number=0), Reorganise(at_s=30.0, depth=6))),
    ),
    "a session that is not debited": Defect(
        Law.DEBITS_ARE_SERVED,
        lambda: with_service(sessions={"debit": for_nothing}),
        Case(steps=(Deposit(number=0),)),
    ),
    "a payment that is never resolved": Defect(
        Law.RESOLVED,
        lambda: with_service(payments={"pending": nobody}),
        Case(steps=(REFUSED, Buy(number=0))),
    ),
}


@pytest.mark.parametrize("name", DEFECTS)
def test_a_defect_breaks_its_law(name: str) -> None:
    defect = DEFECTS[name]
    played = play(defect.case, defect.hooks())
    assert defect.law in played.laws, played.violations


@pytest.mark.parametrize("name", DEFECTS)
def test_without_the_defect_the_same_world_holds(name: str) -> None:
    assert not play(DEFECTS[name].case, NO_HOOKS).violations


# --- laws of the process, not of the money -----------------------------------------------


def raising(_: Service, inner: ASGIApp) -> ASGIApp:
    async def served(scope: Scope, receive: Receive, send: Send) -> None:
        raise RuntimeError("a bug")

    return served


def spinning(service: Service, inner: ASGIApp) -> ASGIApp:
    async def served(scope: Scope, receive: Receive, send: Send) -> None:
        while True:
            await service.clock.sleep(0)
            await service.rpc.height()

    return served


async def no_answer(_: Any, *args: Any) -> Any:
    raise ZeroDivisionError("in the background")


def test_an_answer_500_breaks_a_law() -> None:
    hooks = with_service(rpc={"nonce_state": no_answer})
    assert Law.NO_SERVER_ERROR in play(Case(steps=(Buy(number=0),)), hooks).laws


def test_an_exception_in_the_background_breaks_a_law() -> None:
    hooks = with_service(rpc={"height": no_answer})
    assert play(Case(steps=(Buy(number=0),)), hooks).laws == {Law.NO_EXCEPTION}


def test_time_that_stands_still_breaks_a_law() -> None:
    played = play(Case(steps=(Buy(number=0),)), Hooks(app=spinning))
    assert Law.TIME_PASSES in played.laws


def test_an_invariant_of_the_run_is_a_law_too() -> None:
    hooks = with_service(sessions={"get": lambda inner, name: _overspent(inner.get(name))})
    assert Law.DURING_THE_RUN in play(Case(steps=(Deposit(number=0),)), hooks).laws


def _overspent(session: Any) -> Any:
    return session and msgspec.structs.replace(session, released=session.deposited + 1)


# --- what is no defect -------------------------------------------------------------------


def test_a_race_between_deployments_is_counted_and_no_violation() -> None:
    case = Case(
        services=2,
        latency={"service": 0.5},
        steps=(Buy(number=0, wait_s=1.0), Again(at_s=2.0, of=0, service="service 2", new_id=True)),
        block_time_s=12.0,
    )
    played = play(case)
    assert not played.violations
    assert played.counts["raced"] == 1


def test_a_header_that_was_used_before_it_was_presented_is_no_violation() -> None:
    case = Case(steps=(Buy(number=0, wait_s=15.0), Submit(at_s=5.0, of=0)))
    played = play(case)
    assert not played.violations
    assert played.counts == {"submitted before presented": 1}
