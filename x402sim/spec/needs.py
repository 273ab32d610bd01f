"""What a scenario or a check cannot take for granted.

A scenario runs where the stage offers all of its needs; a conformance check runs where the
target and its world do. Elsewhere it is skipped, with the reason.
"""

from enum import StrEnum

from x402sim.suggest import unknown


class Need(StrEnum):
    """One thing that must be there; the value is its name in `needs="..."`."""

    FUNDS = "funds"
    """A payer with money."""
    OBSERVE_CHAIN = "observe chain"
    """The chain's transfers and receipts can be read."""
    CONTROL_CHAIN = "control chain"
    """Blocks can be mined, held back and reorganised; transactions can be made to revert."""
    CLOCK = "clock"
    """Time can be advanced."""
    FAULTS = "faults"
    """Requests and answers around the service can be lost, delayed and replaced."""
    FIAT_TOKEN = "fiat token"  # noqa: S105 - a name
    """Circle's token, which can be paused and which blacklists."""
    VIRTUAL_TIME = "virtual time"
    """All time is simulated, so that hours pass at once."""
    WORLD = "world"
    """The control API of the world around the service."""
    SESSIONS = "sessions"
    """The service sells sessions."""
    AGENTS = "agents"
    """The service lists agents."""
    LLMS = "llms"
    """The service has a documentation index."""
    RECORD = "record"
    """The service shows the stored record of a payment."""
    SESSION_VIEW = "session view"
    """The service shows a session's budget."""


def parse_needs(text: str, where: str) -> tuple[Need, ...]:
    """Return the needs named in a text such as "funds, clock".

    Raises `ValueError` that begins with `where` and names the nearest need.
    """
    found = []
    for name in filter(None, (part.strip() for part in text.split(","))):
        try:
            found.append(Need(name))
        except ValueError:
            raise ValueError(f"{where}: {unknown('need', name, list(Need))}") from None
    return tuple(found)
