"""A second path that the target sells: a payment for one path must not open the other.

The target file names the path (`second.path`). Without the key, the judge searches the service's
index, OpenAPI document and list of x402 resources for a path whose unpaid request gets an offer
for the path itself.
"""

import re
from collections.abc import Awaitable, Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

from x402sim.payer import core
from x402sim.suite.service.answers import TargetAnswer, read_402, walk
from x402sim.suite.service.probe import Probe
from x402sim.suite.service.target import SPEC
from x402sim.suite.verdict import Inconclusive, NotApplicable, Skipped

DOCUMENTS = ("/openapi.json", "/.well-known/x402", "/")
"""Where services list their resources, besides the index of section 4.5."""
MOST = 20
"""The most paths to request: each costs a request."""
_PATH = re.compile(r"(?:\b(GET|POST)\s+)?(?:https?://[^\s/`\"')]+)?(/[\w./~-]{0,200}[\w~-])")
"""A path in a text, perhaps with a method before it."""

Ask = Callable[[str, str, Any], Awaitable[TargetAnswer]]


@dataclass(frozen=True, slots=True)
class SecondPath:
    """A second path for sale, and how to request it."""

    method: str
    path: str
    body: Any = None

    async def ask(
        self, probe: Probe, payment_id: str | None = None, *, session_id: str | None = None
    ) -> TargetAnswer:
        """Request the path, with or without a proof of payment."""
        headers = core.proofs(payment_id)
        if session_id is not None:
            headers[probe.target.sessions.header] = session_id
        return await probe.send(self.method, self.path, json=self.body, headers=headers)


async def second_path(probe: Probe) -> SecondPath:
    """Return the second path for sale.

    Raises `NotApplicable` without a second path, and `Skipped` if unknown.
    """
    second = probe.target.second
    if second.path == "":
        raise NotApplicable("the target file says that no second path is sold (second.path)")
    if second.path is not None:
        body = (second.body or probe.usual_body) if second.method != "GET" else None
        named = SecondPath(second.method, second.path, body)
        answer = await named.ask(probe)
        if resource_of(answer) in (None, probe.target.protected.path):
            raise Skipped(
                f"{second.method} {second.path} (second.path in the target file) asks for no "
                f"payment of its own: {answer.summary}"
            )
        return named

    async def ask(method: str, path: str, body: Any) -> TargetAnswer:
        return await probe.send(method, path, json=body, may_break=True)

    known = (probe.target.protected.path, probe.target.sessions.path, probe.target.pay.path)
    found = await find_second(ask, resource_of, known, probe.target.llms.path, probe.usual_body)
    if found is not None:
        return found
    is_as_shown = known[:2] == (SPEC.protected.path, SPEC.sessions.path)
    if is_as_shown and probe.target.sessions.exists:
        raise NotApplicable(
            "what the specification sells besides is sessions, which other cases are about; if "
            "there is another path, set second.path in the target file"
        )
    raise Skipped(
        "whether a second path is sold is not known: set second.path in the target file, or "
        '"" if there is none'
    )


async def find_second(
    ask: Ask,
    asks_for: Callable[[TargetAnswer], str | None],
    known: tuple[str, ...],
    index: str,
    usual_body: Any,
) -> SecondPath | None:
    """Return the first path with an offer of its own; None if the documents name none.

    `known` are the path known to be sold, and paths to leave out. `ask` gets a
    method, a path and a body, and requests without payment; `asks_for` returns the path of an
    answer's offer.
    """
    tried: set[tuple[str, str]] = set()
    for place in dict.fromkeys((index, *DOCUMENTS)):
        for method, path in _paths(await ask("GET", place, None)):
            is_new = path not in (*known, index, *DOCUMENTS) and (method, path) not in tried
            if not is_new or len(tried) == MOST:
                continue
            tried.add((method, path))
            body = usual_body if method == "POST" else None
            if asks_for(await ask(method, path, body)) not in (None, known[0]):
                return SecondPath(method, path, body)
    return None


def resource_of(answer: TargetAnswer) -> str | None:
    """Return the path of an offer; None for an answer that cannot be paid."""
    try:
        return path_of(read_402(answer).requirements)
    except Inconclusive:
        return None


def path_of(requirements: Mapping[str, Any]) -> str:
    """Return the path of the resource in payment requirements."""
    return urlsplit(str(requirements.get("resource"))).path


def _paths(answer: TargetAnswer) -> Iterator[tuple[str, str]]:
    """Yield the methods and paths in a document; GET for a path without a method."""
    if answer.status != 200:
        return
    listed = answer.body.get("paths") if isinstance(answer.body, dict) else None
    if isinstance(listed, dict):
        for path, methods in listed.items():
            for method in ("get", "post"):
                if "{" not in path and isinstance(methods, dict) and method in methods:
                    yield method.upper(), path
        return
    texts = [value for _, value in walk(answer.body) if isinstance(value, str)]
    for text in texts if answer.body is not None else [answer.text]:
        for method, path in _PATH.findall(text):
            yield method or "GET", path
