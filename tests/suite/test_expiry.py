"""The end of a session, as its service tells it."""

from typing import Any

import pytest

from x402sim.suite.ending import ends_s

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
