"""Sections 2.7, 4.3 and 4.5: the public pages: the list of agents, and the documentation index."""

import re
from collections.abc import Iterator
from typing import Any

import httpx

from x402sim.spec.ground import derived, silent
from x402sim.spec.needs import Need
from x402sim.suite.service import expect
from x402sim.suite.service.answers import TargetAnswer, read_402
from x402sim.suite.service.case import case
from x402sim.suite.service.probe import BAD_BODY, Probe
from x402sim.suite.verdict import Inconclusive, Lacking, Skipped, as_json

URL = re.compile(r"https?://[^\s<>()\[\]\"'`]+")
LINK = re.compile(r"\]\(\s*<?([^\s)>]+)")
"""The target of a Markdown link."""
PATH = re.compile(r"(?<![\w/.])/[\w.~%/-]+|\b[\w./-]+\.(?:md|txt|html)\b")
"""A path or a file name in plain text."""
MAX_PAGES = 20
REDIRECTS = (301, 302, 303, 307, 308)
MAX_REDIRECTS = 5


@case(
    "4.3/list",
    title="GET /api/agents is answered with the list, in JSON of any shape.",
    ground=derived(
        "0: All bodies are JSON",
        "1: The service also lists agents",
        "2.7: The service lists agents",
        so="The list is a body, so JSON of any shape.",
    ),
    needs="agents",
    pays=1,
)
async def the_agents_are_listed(probe: Probe) -> None:
    probe.by_target("agents.path")
    answer = await _agents(probe)
    expect.holds("a list, with status 2xx", 200 <= answer.status < 300, answer.summary)
    is_json = answer.body is not None or answer.text.strip() == "null"
    expect.holds("JSON", is_json, answer.summary)


@case(
    "2.7/agent",
    title="The shape of the list of agents, and the fields of the first agent.",
    ground=silent("2.7: Fields of an agent record", "4.3: Query parameters and response shape"),
    needs="agents",
    pays=1,
)
async def what_is_said_of_an_agent(probe: Probe) -> None:
    answer = await _agents(probe)
    body = answer.body
    somewhere = next((each for each in _values(body) if isinstance(each, list | dict)), body)
    listed = answer.at(probe.target.agents.list) or somewhere
    first = next(iter(_values(listed)), None)
    shape = type(body).__name__ if body is not None else "no JSON"
    fields = ", ".join(first) if isinstance(first, dict) else as_json(first)[:80]
    probe.observe(f"{answer.status}, {shape}; the first agent: {fields}")


def _values(body: Any) -> list[Any]:
    if isinstance(body, dict):
        return list(body.values())
    return body if isinstance(body, list) else []


async def _agents(probe: Probe) -> TargetAnswer:
    """Return the list of agents; pay for a list with a price if there are funds."""
    path = probe.target.agents.path
    answer = await _get(probe, path)
    if answer.status in (401, 403):
        raise Skipped(f"the list of agents needs credentials: {answer.summary}")
    if answer.status in BAD_BODY:
        raise Inconclusive(
            f"{answer.summary}; if the list of agents wants query parameters, set agents.path = "
            f'"{path.partition("?")[0]}?limit=10" in the target file'
        )
    if answer.status != 402:
        return answer
    if probe.setting.missing(Need.FUNDS):
        raise Lacking("the list of agents costs money: give --payer-key or --world")
    paid = await probe.pay(read_402(answer))
    return await _get(probe, path, {"X-Payment-Id": paid.challenge.payment_id})


async def _get(probe: Probe, url: str, headers: dict[str, str] | None = None) -> TargetAnswer:
    """Get a page, by its path or its URL, and follow redirects within the same host."""
    answer = await probe.send("GET", url, headers=headers)
    here = httpx.URL(probe.setting.base_url + url if url.startswith("/") else url)
    for _ in range(MAX_REDIRECTS):
        leads_to = answer.headers.get("location", "")
        if answer.status not in REDIRECTS or here.join(leads_to).netloc != here.netloc:
            break
        here = here.join(leads_to)
        answer = await probe.send("GET", str(here), headers=headers)
    return answer


@case(
    "4.5/llms-txt",
    title="The documentation index is plain text, not HTML or JSON, and names a page.",
    needs="llms",
)
async def the_index_is_plain_text(probe: Probe) -> None:
    probe.by_target("llms.path")
    index = await _index(probe)
    kind = index.headers.get("content-type", "text/plain").lower()
    is_text = not any(other in kind for other in ("html", "json", "xml"))
    expect.holds("a content type of plain text", is_text, kind)
    is_markup = index.text.lstrip()[:9].lower().startswith(("<!doctype", "<html"))
    expect.holds("plain text", not is_markup, index.summary)
    named = any(form.search(index.text) for form in (URL, LINK, PATH))
    expect.holds("the address of a page", named, index.summary)


@case(
    "4.5/llms-txt",
    title="Every page of this server that the index names exists.",
    ground=derived(
        "4.5: A plain-text index",
        so="llms.txt is an index of pages, so each URL of this server in llms.txt is a page.",
    ),
    needs="llms",
)
async def the_pages_of_the_index_exist(probe: Probe) -> None:
    index = await _index(probe)
    for url in list(_own_pages(probe, index.text))[:MAX_PAGES]:
        page = await _get(probe, url)
        if page.status in (404, 410) and (below := _below_base(probe, url)):
            page = await _get(probe, below)
        expect.holds(f"a page at {url}", page.status not in (404, 410), page.status)


async def _index(probe: Probe) -> TargetAnswer:
    index = await _get(probe, probe.target.llms.path)
    expect.equal(f"the status of {probe.target.llms.path}", index.status, 200)
    return index


def _own_pages(probe: Probe, text: str) -> Iterator[str]:
    """Yield the URLs on this server in Markdown links or bare URLs, each once."""
    here, seen = httpx.URL(probe.setting.base_url + probe.target.llms.path), set()
    for link in LINK.findall(text) + URL.findall(text):
        try:
            url = here.join(link.rstrip(".,;:*_!?").split("#")[0])
        except httpx.InvalidURL:
            continue  # a template, such as https://{base_url}/docs
        is_template = "{" in link or "/:" in url.path
        if url.netloc == here.netloc and not is_template and url not in seen:
            seen.add(url)
            yield str(url)


def _below_base(probe: Probe, url: str) -> str:
    """Return the same path below the base path, for a service behind a gateway."""
    base, meant = probe.setting.http.base_url.path.rstrip("/"), httpx.URL(url)
    if not base or meant.path.startswith(f"{base}/"):
        return ""
    return str(meant.copy_with(path=base + meant.path))
