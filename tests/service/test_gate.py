"""Section 5: which requests carry a valid proof of payment."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass

import pytest
from starlette.responses import Response

from tests.rig import ORDER, QUOTE, ServiceRig, scene
from x402sim.events import DebitUndone
from x402sim.http import web
from x402sim.http.web import Connection
from x402sim.protocol.crypto import checksum
from x402sim.protocol.refusals import Unpaid
from x402sim.service import gate, sessions
from x402sim.service.proofs import is_entitled
from x402sim.service.state import Entitlement

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


@pytest.mark.clause("5/session-debit")
@scene
async def test_two_requests_at_once_spend_the_last_unit_once(rig: ServiceRig) -> None:
    session = await rig.open_session("0.01")
    headers = {"x-session-id": session["sessionId"]}
    one = await gate.find_pass(rig.service, headers, "/api/perp/quote", 10_000)
    two = await gate.find_pass(rig.service, headers, "/api/perp/quote", 10_000)

    await gate.spend(rig.service, one, Response(), web.UNKNOWN)
    with pytest.raises(Unpaid):
        await gate.spend(rig.service, two, Response(), web.UNKNOWN)


# --- clients that hang up ------------------------------------------------------------------


@dataclass
class Hung(Connection):
    """A connection whose client is there at the first look, and has hung up at the last."""

    def is_answered(self) -> bool:
        return False


async def hang_up(rig: ServiceRig, session_id: str) -> Callable[[], Awaitable[None]]:
    """Debit a session for a client that hangs up; return what concludes the request."""
    content = Response()
    granted = await gate.find_pass(rig.service, {"x-session-id": session_id}, QUOTE, 10_000)
    await gate.spend(rig.service, granted, content, Hung())
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


@pytest.mark.parametrize("hung_up", [1, 2])
@scene
async def test_a_debit_that_is_undone_after_its_session_has_ended_is_refunded(
    rig: ServiceRig, hung_up: int
) -> None:
    session_id = (await rig.open_session("0.02", 60))["sessionId"]
    concludes = [await hang_up(rig, session_id) for _ in range(hung_up)]
    rig.now[0] += 61
    rig.service.store.sessions.expire(rig.clock.now_ms(), 100)
    for conclude in concludes:
        await conclude()
    await sessions.expire(rig.service)
    shown = (await rig.http.get(f"/api/sessions/{session_id}")).json()
    assert (shown["released"], shown["status"], rig.earned) == ("0", "refunded", 0)


@scene
async def test_a_debit_stays_once_the_rest_of_its_session_was_refunded(rig: ServiceRig) -> None:
    session_id = (await rig.open_session("0.03", 60))["sessionId"]
    conclude = await hang_up(rig, session_id)
    rig.now[0] += 61
    await sessions.expire(rig.service)
    await conclude()
    shown = (await rig.http.get(f"/api/sessions/{session_id}")).json()
    assert (shown["released"], rig.earned) == ("10000", 10_000)


@scene
async def test_a_full_disk_leaves_the_debit_of_an_answer_that_was_not_written(
    rig: ServiceRig, caplog: pytest.LogCaptureFixture
) -> None:
    session_id = (await rig.open_session("0.02"))["sessionId"]
    conclude = await hang_up(rig, session_id)
    rig.service.store.execute("PRAGMA query_only = 1")
    await conclude()
    rig.service.store.execute("PRAGMA query_only = 0")
    assert "a debit without an answer is not undone" in caplog.text
    assert (await rig.ask(x_session_id=session_id)).status_code == 200


@scene
async def test_a_path_that_does_not_exist_is_404(rig: ServiceRig) -> None:
    for path in ("/api/nothing", "/docs/nothing", "/nothing.md"):
        gone = await rig.http.get(path)
        assert (gone.status_code, gone.json()["error"]) == (404, "Not found"), path
