"""The end of a session, as its service tells it."""

import asyncio
from typing import Any

import httpx
import pytest

from x402sim.payer.wallet import Wallet
from x402sim.suite.service.answers import Challenge, OpenSession, Paid, TargetAnswer
from x402sim.suite.service.background import ends_s, reported_end_s
from x402sim.suite.service.options import Options
from x402sim.suite.service.probe import Probe
from x402sim.suite.service.setting import Setting
from x402sim.suite.service.target import SessionsEndpoint, Target

AT_S = 1_800_000_000
ISO = "2027-01-15T08:00:00"


@pytest.mark.parametrize(
    ("body", "found"),
    [
        ({"sessionId": "session_a", "expiresAt": AT_S}, AT_S),
        ({"data": [{"id": "session_a", "expires_at": AT_S * 1000}]}, AT_S),
        ({"session": {"id": "session_a", "expiry": f"{ISO}Z"}}, AT_S),
        ({"id": "session_a", "validUntil": ISO}, AT_S),
        ({"id": "session_a", "endsAt": str(AT_S)}, AT_S),
        ({"id": "session_a", "expiresIn": 3600, "expired": True, "ends": "never"}, None),
        ({"id": "session_b", "expiresAt": AT_S}, None),
        ({"offer": {"expiresAt": AT_S}, "session": {"id": "session_a"}}, None),
        ({"id": "session_a", "expiresAt": 10**400}, None),
        ("session_a", None),
    ],
)
def test_the_end_stands_beside_the_id(body: Any, found: float | None) -> None:
    assert ends_s(body, "session_a") == found


def test_any_id_of_a_session_fits_into_the_path_of_its_view() -> None:
    session_id, asked = "session_a/../b?c#d", []

    def serve(request: httpx.Request) -> httpx.Response:
        asked.append(request.url.raw_path)
        return httpx.Response(200, json={"id": session_id, "expiresAt": AT_S})

    async def main() -> float | None:
        target = Target(sessions=SessionsEndpoint(view="/sessions/{sessionId}/state"))
        http = httpx.AsyncClient(transport=httpx.MockTransport(serve), base_url="http://target")
        setting = Setting(options=Options(target=target), http=http)
        silent = TargetAnswer(target, 200, httpx.Headers(), "", None, str)
        paid = Paid(Challenge(silent, "pay_1", {}), "", silent, Wallet.create())
        session = OpenSession(session_id, paid, silent)
        return await reported_end_s(Probe(setting), session)

    assert asyncio.run(main()) == AT_S
    assert asked == [b"/sessions/session_a%2F..%2Fb%3Fc%23d/state"]
