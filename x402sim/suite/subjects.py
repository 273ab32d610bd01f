"""The table of subjects: what the judge can judge, and where each of them is declared."""

from importlib import import_module
from typing import Any

from x402sim.suite.subject import Subject

SUBJECTS = {
    "service": ("x402sim.suite.service.subject", "SERVICE"),
    "payer": ("x402sim.suite.payer.subject", "PAYER"),
    "facilitator": ("x402sim.suite.facilitator.subject", "FACILITATOR"),
}
"""The module and the name of each subject, imported when it is used."""
DEFAULT = "service"
"""What is judged if no subject is named."""

NOT_YET = {
    "server": "servers of the x402 standard have no judge of their own yet; one of version 2 is "
    "judged as a service that is paid in one step: x402sim target init URL",
}
"""What is no subject yet, and what to do meanwhile."""
_WORDS = {"service": "", "payer": " payer", "facilitator": " facilitator"}


def instead(name: str) -> str:
    """Return how to judge a subject that was given to the judge of another one."""
    return NOT_YET.get(name) or f"its judge is x402sim conformance{_WORDS[name]}"


def subject(name: str) -> Subject[Any]:
    """Return a subject of the table."""
    module, attribute = SUBJECTS[name]
    found = getattr(import_module(module), attribute)
    assert isinstance(found, Subject)
    return found
