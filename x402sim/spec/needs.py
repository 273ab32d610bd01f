"""The needs of scenarios and checks: what a stage, or a target and its world, must offer.

A scenario runs on stages that offer all of its needs; a conformance check runs where the target and
its world offer them. Elsewhere it is skipped, and the reason names the need.
"""

from enum import StrEnum

from x402sim.text.words import unknown


class Need(StrEnum):
    """One need; its value is its name in `needs="..."`."""

    meaning: str
    """Its words in a sentence: "the stage does not offer ..."."""

    def __new__(cls, name: str, meaning: str) -> "Need":
        """Make a need of its name and its meaning."""
        need = str.__new__(cls, name)
        need._value_ = name
        need.meaning = meaning
        return need

    FUNDS = "funds", "a payer with money"
    OBSERVE_CHAIN = "observe chain", "the chain's transfers and receipts"
    CONTROL_CHAIN = "control chain", "control of the chain's blocks and transactions"
    CLOCK = "clock", "control of the clock"
    RESTART = "restart", "a restart of the service"
    FAULTS = "faults", "faults of the messages around the service"
    FIAT_TOKEN = "fiat token", "Circle's token, which can be paused, blacklists and takes permits"
    OTHER_SERVICES = "other services", "several services with one merchant"
    VIRTUAL_TIME = "virtual time", "virtual time"
    WORLD = "world", "the control API of the world around the service"
    SESSIONS = "sessions", "sessions for sale"
    AGENTS = "agents", "a list of agents"
    LLMS = "llms", "a documentation index"
    RECORD = "record", "the stored record of a payment"
    SESSION_VIEW = "session view", "a view of a session's budget"


def parse_needs(text: str, where: str) -> tuple[Need, ...]:
    """Return the needs named in a text such as "funds, clock".

    Raises `ValueError` that begins with `where` and names the nearest need.
    """
    known = {need.value: need for need in Need}
    names = [name for name in (part.strip() for part in text.split(",")) if name]
    for name in names:
        if name not in known:
            raise ValueError(f"{where}: {unknown('need', name, known)}")
    return tuple(known[name] for name in names)
