"""The table of subjects: what the judge can judge, and where each of them is declared."""

from importlib import import_module
from typing import Any

from x402sim.suite.subject import Subject

SUBJECTS = {
    "service": ("x402sim.suite.service.subject", "SERVICE"),
    "payer": ("x402sim.suite.payer.subject", "PAYER"),
    "facilitator": ("x402sim.suite.facilitator.subject", "FACILITATOR"),
    "server": ("x402sim.suite.server.subject", "SERVER"),
}
"""The module and the name of each subject, imported when it is used."""
DEFAULT = "service"
"""What is judged if no subject is named."""

_WORDS = {
    "service": "",
    "payer": " payer",
    "facilitator": " facilitator",
    "server": " server",
}


def instead(name: str) -> str:
    """Return how to judge a subject that was given to the judge of another one."""
    return f"its judge is x402sim conformance{_WORDS[name]}"


def subject(name: str) -> Subject[Any]:
    """Return a subject of the table."""
    module, attribute = SUBJECTS[name]
    found = getattr(import_module(module), attribute)
    assert isinstance(found, Subject)
    return found
