"""Section 5: which requests carry a valid proof of payment."""

import asyncio
import random
from collections.abc import Awaitable, Callable
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

import pytest
from starlette.responses import Response

from tests.rig import (
    ORDER,
    QUOTE,
    ServiceRig,
    beside,
    broken,
    lose_answer,
    lose_request,
    scene,
)
from tests.service.standard import On
from x402sim.events import DebitUndone
from x402sim.http import web
from x402sim.protocol.crypto import checksum
from x402sim.protocol.refusals import Unpaid
from x402sim.protocol.routes import AGENTS, MARKET
from x402sim.service import gate, sessions
from x402sim.service.proofs import is_entitled
from x402sim.service.state import Entitlement, Service
from x402sim.service.store import Store
from x402sim.serving.control import actions

DAY = 24 * 3600


@pytest.mark.clause(
    "1/unpaid-402", "7/payment-required", "2.2/body", "2.1/requirements", "8/timeout"
)
@scene
async def test_unpaid_is_402_with_requirements(rig: ServiceRig) -> None:
    response = await rig.ask()
    body = response.json()
    payment_id = body.pop("paymentId")
    assert (body.pop("x402Version"), len(body.pop("accepts"))) == (1, 1)  # see test_one_step.py
    assert response.status_code == 402
    assert payment_id.startswith("pay_")
    assert body == {
        "error": "Payment Required",
        "message": "Payment of 10000 base units is required to access /api/perp/quote",
        "network": "cronos-testnet",
        "paymentRequirements": {
            "scheme": "exact",
            "network": "cronos-testnet",
            "payTo": checksum(rig.service.env.pay_to),
            "asset": "0xc01efAaF7C5C61bEbFAeb358E1161b537b8bC0e0",
            "maxAmountRequired": "10000",
            "maxTimeoutSeconds": 300,
            "resource": "/api/perp/quote",
            "description": "A quote for a perpetual position",
        },
    }


@pytest.mark.clause("2.2/payment-id")
@scene
async def test_ids_are_unique_opaque_and_not_guessable(rig: ServiceRig) -> None:
    ids = [(await rig.ask()).json()["paymentId"] for _ in range(64)]
    assert len(set(ids)) == 64
    for position in range(4, len(ids[0])):  # no place that is the same in all of them
        assert len({each[position] for each in ids}) > 3
    read = rig.service.issuer.read
    assert all(read(each) is not None for each in ids)


@pytest.mark.clause(
    "1/repeat-served",
    "4.2/price",
    "4.2/quote",
    "5/cache-first",
    "8/quote-price",
    "5/resource-binding",
)
@scene
async def test_a_paid_request_is_served_every_time(rig: ServiceRig) -> None:
    payment_id = await rig.buy()
    first, second = [await rig.ask(x_payment_id=payment_id) for _ in range(2)]
    assert first.status_code == second.status_code == 200
    assert set(first.json()["quote"]) == {
        "pair", "entryPrice", "liquidationPrice", "fundingRate", "bestVenue",
    }  # fmt: skip
    assert first.content == second.content
    assert rig.earned == 10_000


@pytest.mark.clause("5/resource-binding", "5/cache-first", "5/stored-records")
@scene
async def test_an_entitlement_is_for_its_exact_resource_cached_and_stored(rig: ServiceRig) -> None:
    payment_id = await rig.buy()
    for _ in range(2):
        assert await is_entitled(rig.service, payment_id, "/api/perp/quote")
        for other in ("/api/sessions/create", "/api/perp/quote/", "/API/perp/quote", ""):
            assert not await is_entitled(rig.service, payment_id, other)
        rig.restart()


@pytest.mark.clause(
    "3/record-outlives-cache", "5/stored-records", "3/discarded-after-24h", "8/cache-lifetime",
    "2.5/entitlement", "4.1/cache",
)  # fmt: skip
@scene
async def test_a_settlement_is_cached_for_a_day_and_the_record_grants_access_without_it(
    rig: ServiceRig,
) -> None:
    payment_id = await rig.buy()
    cached = rig.service.entitlements
    paid = Entitlement(payment_id, "/api/perp/quote", rig.alice.address, rig.clock.now_ms())
    assert cached.all() == [paid]
    rig.now[0] += DAY - 1
    assert cached.grants(payment_id, "/api/perp/quote", rig.clock.now_ms())
    rig.now[0] += 1
    assert not cached.grants(payment_id, "/api/perp/quote", rig.clock.now_ms())
    assert (cached.sweep(rig.clock.now_ms()), len(cached)) == (1, 0)
    assert (await rig.ask(x_payment_id=payment_id)).status_code == 200


@pytest.mark.clause("5/session-condition", "5/session-debit", "1/session-no-402", "2.6/remaining")
@scene
async def test_a_session_is_spent_to_its_last_unit(rig: ServiceRig) -> None:
    session = await rig.open_session("0.03")
    used = {"x-session-id": session["sessionId"]}
    orders = {}, ORDER, ORDER, ORDER, ORDER, {}  # a bad one costs nothing, and tells no more
    asked = [await rig.http.post("/api/perp/quote", json=each, headers=used) for each in orders]
    assert [answer.status_code for answer in asked] == [400, 200, 200, 200, 402, 402]
    shown = (await rig.http.get(f"/api/sessions/{session['sessionId']}")).json()
    assert (shown["deposited"], shown["released"], shown["remaining"]) == ("30000", "30000", "0")
    now_ms = rig.clock.now_ms()
    assert not rig.service.store.sessions.has_budget(session["sessionId"], 1, now_ms)


@scene
async def test_a_get_with_a_body_that_is_too_long_is_refused_and_not_charged(
    rig: ServiceRig,
) -> None:
    session_id = (await rig.open_session())["sessionId"]
    for path in MARKET, AGENTS:
        long, used = bytes(web.MAX_BODY_BYTES + 1), {"x-session-id": session_id}
        answer = await rig.http.request("GET", path, content=long, headers=used)
        assert answer.status_code == 413
    session = rig.service.store.sessions.get(session_id)
    assert session is not None
    assert session.released == 0


# --- clients that hang up ------------------------------------------------------------------


async def hang_up(
    rig: ServiceRig, session_id: str, service: Service | None = None
) -> Callable[[], Awaitable[None]]:
    """Debit a session for a client that hangs up; return what concludes the request."""
    content, service = Response(), service or rig.service
    granted = await gate.find_pass(service, {"x-session-id": session_id}, QUOTE, 10_000)
    await gate.spend(service, granted, content, On(answered=False))
    assert content.background is not None
    return content.background


@pytest.mark.clause("5/session-debit")
@scene
async def test_a_debit_whose_answer_is_not_written_is_undone(rig: ServiceRig) -> None:
    session_id = (await rig.open_session("0.02"))["sessionId"]
    assert (await rig.ask(x_session_id=session_id)).status_code == 200
    conclude = await hang_up(rig, session_id)
    assert (await rig.ask(x_session_id=session_id)).status_code == 402
    await conclude()
    undone = DebitUndone(session_id=session_id, amount_base=10_000, released_base=10_000)
    assert undone in [entry.event for entry in rig.parts.journal]
    assert rig.service.store.counts()["debits"] == 1
    assert (await rig.ask(x_session_id=session_id)).status_code == 200
    assert (await rig.ask(x_session_id=session_id)).status_code == 402


@pytest.fixture
def db(tmp_path: Path) -> Path:
    return tmp_path / "shared.db"


@scene
async def test_a_second_refund_whose_record_is_lost_is_paid_once(rig: ServiceRig) -> None:
    session_id = (await rig.open_session("0.03", 60))["sessionId"]
    undo = await hang_up(rig, session_id)
    rig.now[0] += 61
    with beside(rig) as (other, _):
        await sessions.expire(other)
        await undo()
        assert await sessions.expire(rig.service) == 1
        rig.service.store.execute("UPDATE refunds SET status = 'pending', tx_hash = NULL")
        for _ in range(3):
            rig.now[0] += 300
            await asyncio.gather(sessions.expire(rig.service), sessions.expire(other))
    shown = (await rig.http.get(f"/api/sessions/{session_id}")).json()
    assert (shown["released"], shown["status"], rig.earned) == ("0", "refunded", 0)
    assert rig.transfers() == 3, "a deposit of 0.03, and refunds of 0.02 and of 0.01"


@pytest.mark.parametrize("seed", range(12))
@scene
async def test_in_any_order_each_debit_is_served_or_paid_back_once(
    rig: ServiceRig, seed: int
) -> None:
    """Two services on one store, departing clients, refunds with lost answers, restarts."""
    luck = random.Random(seed)
    ids = [(await rig.open_session("0.04", luck.choice([40, 80]))) for _ in range(3)]
    open_debits: list[Callable[[], Awaitable[None]]] = []
    served = 0

    async def take_turn(_: Any, deliver: Any) -> Any:
        await asyncio.sleep(0)
        return await deliver()

    async def leave(_: Any = None, deliver: Any = None) -> Any:
        if open_debits:
            await open_debits.pop(luck.randrange(len(open_debits)))()
        return await deliver() if deliver else None

    with beside(rig) as (other, _):
        for _ in range(30):
            match luck.choice(["debit", "debit", "leave", "serve", "sweep", "sweep", "restart"]):
                case "debit":
                    service, session = luck.choice([rig.service, other]), luck.choice(ids)
                    with suppress(Unpaid):
                        open_debits.append(await hang_up(rig, session["sessionId"], service))
                case "leave":
                    await leave()
                case "serve" if open_debits:
                    served += bool(open_debits.pop())
                case "sweep":
                    fault = luck.choice([lose_request, lose_answer, leave, take_turn])
                    with broken(rig, luck.choice(["facilitator", "rpc"]), fault):
                        sweeps = [sessions.expire(each) for each in (rig.service, other)]
                        await asyncio.gather(*sweeps[: luck.randint(1, 2)], return_exceptions=True)
                        for each in sweeps:
                            each.close()
                case "restart":
                    rig.restart()
            rig.now[0] += luck.choice([0, 1, 15])
        while open_debits:
            await leave()
        for _ in range(4):
            rig.now[0] += 600
            await asyncio.gather(sessions.expire(rig.service), sessions.expire(other))
        shown = [(await rig.http.get(f"/api/sessions/{each['sessionId']}")).json() for each in ids]
    assert {each["status"] for each in shown} <= {"refunded", "expired"}
    assert sum(int(each["released"]) for each in shown) == rig.earned == served * 10_000


@scene
async def test_a_debit_that_a_full_disk_does_not_undo_is_undone_by_the_next_sweep(
    rig: ServiceRig, caplog: pytest.LogCaptureFixture
) -> None:
    session_id = (await rig.open_session("0.02"))["sessionId"]
    conclude = await hang_up(rig, session_id)
    rig.service.store.execute("PRAGMA query_only = 1")
    await conclude()
    assert "a debit without an answer is not undone; the next sweep" in caplog.text
    await sessions.expire(rig.service)
    rig.service.store.execute("PRAGMA query_only = 0")
    for _ in range(2):
        await sessions.expire(rig.service)
    shown = (await rig.http.get(f"/api/sessions/{session_id}")).json()
    assert shown["released"] == "0"


async def not_undone(rig: ServiceRig) -> str:
    """Return the id of a session with a debit that a full disk has not undone."""
    session_id = str((await rig.open_session("0.02"))["sessionId"])
    conclude = await hang_up(rig, session_id)
    rig.service.store.execute("PRAGMA query_only = 1")
    await conclude()
    rig.service.store.execute("PRAGMA query_only = 0")
    return session_id


@scene
async def test_a_debit_that_is_still_to_undo_is_undone_as_the_process_ends(
    rig: ServiceRig, db: Path
) -> None:
    session_id = await not_undone(rig)
    await rig.parts.process.close()
    with closing(Store(db)) as store:
        found = store.sessions.get(session_id)
        assert found is not None
        assert found.released == 0


@pytest.mark.parametrize("is_reset", [False, True])
@scene
async def test_a_debit_that_is_still_to_undo_is_none_of_a_database_that_is_reverted_or_reset(
    rig: ServiceRig, is_reset: bool
) -> None:
    """Else a debit of the same resource that was served would be undone in its place."""
    parts = rig.parts
    served = (await rig.open_session("0.02"))["sessionId"]
    assert (await rig.ask(x_session_id=served)).status_code == 200
    taken = await actions.snapshot(parts)
    await not_undone(rig)
    await (actions.reset(parts) if is_reset else actions.revert(parts, taken.snapshot))
    assert rig.service.debits_to_undo == []


@scene
async def test_a_path_that_does_not_exist_is_404(rig: ServiceRig) -> None:
    for path in ("/api/nothing", "/docs/nothing", "/nothing.md"):
        gone = await rig.http.get(path)
        assert (gone.status_code, gone.json()["error"]) == (404, "Not found"), path
