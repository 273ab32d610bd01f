"""Reads the time at which a session ends from the target's answers.

The specification shows no field for it. A time that stands beside the session's id, under a name
such as expiresAt, is taken for it.
"""

import math
import re
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

from x402sim.suite.answers import OpenSession
from x402sim.suite.probe import Probe

NAME = re.compile(r"(expires|expiry|expiration|ends|validuntil|end)(at|on|time|date|ts|ms|s)*")
"""The name of such a field, in lower case and without underscores."""
MS = 10**11
"""A larger number is a time in milliseconds."""
SOONEST_S = 10**9
"""A smaller number is no time, but perhaps a duration."""


async def told_end_s(probe: Probe, session: OpenSession) -> float | None:
    """Return when a session ends, as the target says (Unix seconds); None if it does not."""
    answers = [session.answer, session.paid.receipt]
    if view := probe.target.sessions.view:
        answers.append(await probe.send("GET", view.replace("{sessionId}", session.session_id)))
    found = (ends_s(answer.body, session.session_id) for answer in answers)
    return next((each for each in found if each is not None), None)


def ends_s(body: Any, session_id: str) -> float | None:
    """Return the time that stands beside a session's id, in Unix seconds; None without one."""
    for each in _objects(body):
        if session_id in each.values() and (found_s := _end_of(each)):
            return found_s
    return None


def _objects(body: Any) -> Iterator[dict[str, Any]]:
    """Yield every object of a JSON document."""
    if isinstance(body, dict):
        yield body
    inner = body.values() if isinstance(body, dict) else body
    for each in inner if isinstance(body, dict | list) else ():
        yield from _objects(each)


def _end_of(fields: dict[str, Any]) -> float | None:
    """Return the time in the field that is named so; None if there is none."""
    for name, value in fields.items():
        if NAME.fullmatch(name.replace("_", "").lower()) and (time_s := _time_s(value)):
            return time_s
    return None


def _time_s(value: Any) -> float | None:
    """Return a time in Unix seconds: a number of (milli)seconds, or ISO 8601; None for others."""
    try:
        number = float(value) if not isinstance(value, bool) else math.nan
    except (TypeError, ValueError):
        number = math.nan
    except OverflowError:
        return None
    if number >= SOONEST_S:
        return number / 1000 if number > MS else number
    if not isinstance(value, str):
        return None
    try:
        time = datetime.fromisoformat(value)
        return (time if time.tzinfo else time.replace(tzinfo=UTC)).timestamp()
    except (ValueError, OverflowError):
        return None
