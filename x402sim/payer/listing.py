"""Tells whether a facilitator's index lists the resource of a 402, and if not, what to do.

The index is the standard's `GET /discovery/resources`. An index reports no reason for a missing
resource: what only its operator knows is reported as unknown.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import httpx

from x402sim.clock import stopwatch
from x402sim.protocol.bazaar import BAZAAR, DISCOVERY_PATH, RESPONSES, faults_of_402, listed_url
from x402sim.protocol.findings import Finding, listed_in
from x402sim.protocol.ways import Way, object_in
from x402sim.protocol.x402 import REQUIRED_HEADER, json_in, version_in

PAGE, MAX_PAGES = 100, 100
"""The resources of a page, as many as our own index gives at once, and the pages that are read."""
LOOK_UP_S = 120
"""Seconds after which no further page is asked for."""


@dataclass(frozen=True, slots=True)
class Listing:
    """Whether an index lists a URL: None if unknown, because the list was not read to its end."""

    url: str
    is_listed: bool | None
    read: int = 0
    why: str = ""
    """Why the index could not be read; else ""."""


def look_up(
    response: httpx.Response,
    ways: Sequence[Way],
    index: str,
    ask: Callable[[httpx.Request], httpx.Response],
) -> tuple[Listing, list[Finding]]:
    """Look for the resource of a 402 in an index; the findings name the remedy for a missing one.

    `index` is the facilitator's URL, and `ask` sends a request; raises `httpx.HTTPError`.
    """
    header, body = json_in(response.headers.get(REQUIRED_HEADER), dict), object_in(response.content)
    fields: Mapping[str, Any] = header or body or {}
    version = version_in(fields.get("x402Version"))
    said = _within(fields, "extensions", BAZAAR)
    named = _within(fields, "resource").get("url") or next((it.resource for it in ways), None)
    requested = str(response.request.url)
    url = listed_url(named if isinstance(named, str) and "://" in named else requested, said)
    found = _found(url, index.rstrip("/") + DISCOVERY_PATH, ask)
    if found.is_listed:
        return found, []
    is_declared = bool(said) or any("outputSchema" in way.fields for way in ways)
    if found.why:
        do = f"Whether it is listed is unknown: give the URL below which {DISCOVERY_PATH} is."
    elif found.is_listed is None:
        do = "Whether it is listed is unknown: look for it with the operator's own search."
    elif any(faults_of_402(fields, version)):
        do = "Mend the declaration: the other notes say how."
    elif not is_declared:
        do = f"Declare it: extensions.{BAZAAR} in version 2, outputSchema of an offer in version 1."
    else:
        do = (
            "Settle a payment there, by a payer that repeats `extensions` and `resource`. "
            f"Then read {RESPONSES} of the answer to settle. Missing: the declaration did not "
            "arrive. rejected: the reason is beside it. processing: wait. Why a resource stays "
            "processing is unknown outside: ask the operator, with the transaction."
        )
    seen = found.why or f"{url} is not there; resources read: {found.read}"
    return found, [Finding(f"index of {index}", seen, "the resource", do, stops=False)]


def _within(fields: Mapping[str, Any], *names: str) -> Mapping[str, Any]:
    """Return the object below some names, empty if there is none."""
    for name in names:
        inner = fields.get(name)
        fields = inner if isinstance(inner, dict) else {}
    return fields


def _found(url: str, index: str, ask: Callable[[httpx.Request], httpx.Response]) -> Listing:
    read, elapsed = 0, stopwatch()
    for _ in range(MAX_PAGES):
        if elapsed() > LOOK_UP_S:
            break
        asked = httpx.URL(index, params={"limit": PAGE, "offset": read})
        answer = ask(httpx.Request("GET", asked))
        items = listed_in(object_in(answer.content) or {})
        if answer.status_code != 200 or items is None:
            return Listing(url, None, read, f"{asked} answered {answer.status_code}, and no list")
        if any(isinstance(each, dict) and each.get("resource") == url for each in items):
            return Listing(url, True, read)
        read += len(items)
        if not items:
            return Listing(url, False, read)
    return Listing(url, None, read)
