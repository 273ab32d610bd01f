"""The table of subjects: what the judge can judge, and where each of them is declared."""

import json
import shlex
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


def as_server(*sold: tuple[str, str, Any]) -> str:
    """Return how to judge a server of the x402 standard; `sold` are methods, targets and bodies."""
    items = [" ".join(filter(None, (method, path, json.dumps(body) if body else "")))
             for method, path, body in sold]  # fmt: skip
    first, *others = [shlex.quote(each.removeprefix("GET ")) for each in items]
    also = "".join(f" --also {each}" for each in others)
    return (
        f"{instead('server')} {first}{also} --start COMMAND, or, for one that runs already, with "
        "its URL and --facilitator http://127.0.0.1:PORT"
    )


def subject(name: str) -> Subject[Any]:
    """Return a subject of the table."""
    module, attribute = SUBJECTS[name]
    found = getattr(import_module(module), attribute)
    assert isinstance(found, Subject)
    return found
