"""Sections 2.7, 4.3 and 4.5: the public pages: the list of agents, and the documentation index."""

import re
from collections.abc import Iterator

import httpx

from x402sim.spec.needs import Need
from x402sim.suite.answers import TargetAnswer, read_402
from x402sim.suite.check import check
from x402sim.suite.expect import expect, require
from x402sim.suite.probe import Probe
from x402sim.suite.verdict import Inconclusive, Skipped

URL = re.compile(r"https?://[^\s<>()\[\]\"'`]+")
LINK = re.compile(r"\]\(\s*<?([^\s)>]+)")
"""The target of a Markdown link."""
PATH = re.compile(r"(?<![\w/.])/[\w.~%/-]+|\b[\w./-]+\.(?:md|txt|html)\b")
"""A path or a file name in plain text."""
MAX_PAGES = 20


@check("4.3/list", needs="agents", pays=1)
async def the_agents_are_listed(probe: Probe) -> None:
    """GET /api/agents answers 200 with a list, or with an object that contains one."""
    answer = await _agents(probe)
    expect("status", answer.status, 200)
    body = answer.body
    nested = body.values() if isinstance(body, dict) else ()
    has_list = isinstance(body, list) or any(isinstance(value, list | dict) for value in nested)
    require("a list of agents", has_list, answer.summary)


@check("2.7/agent", needs="agents", pays=1)
async def agents_are_objects(probe: Probe) -> None:
    """Every agent in the list is an object with fields."""
    answer = await _agents(probe)
    nested = answer.body.values() if isinstance(answer.body, dict) else [answer.body]
    place = probe.target.agents.list
    several = [answer.at(place)] if place else nested
    listed = next((value for value in several if isinstance(value, list)), None)
    if listed is None:
        raise Inconclusive(f"there is no list in the answer: {answer.summary}")
    for agent in listed:
        require("an object", isinstance(agent, dict) and bool(agent), repr(agent))


async def _agents(probe: Probe) -> TargetAnswer:
    """Return the list of agents; pay for it if it costs something and there are funds."""
    path = probe.target.agents.path
    answer = await probe.send("GET", path)
    if answer.status in (401, 403):
        raise Skipped(f"the list of agents needs credentials: {answer.summary}")
    if answer.status != 402:
        return answer
    if probe.setting.missing(Need.FUNDS):
        raise Skipped("the list of agents costs money: give --payer-key or --world")
    paid = await probe.pay(read_402(answer))
    return await probe.send("GET", path, headers={"X-Payment-Id": paid.challenge.payment_id})


@check("4.5/llms-txt", needs="llms")
async def the_index_is_plain_text(probe: Probe) -> None:
    """The documentation index is plain text, not HTML or JSON, and names a page."""
    index = await _index(probe)
    kind = index.headers.get("content-type", "text/plain").lower()
    is_text = kind.startswith("text/") and "html" not in kind
    require("a content type of plain text", is_text, kind)
    is_markup = index.text.lstrip()[:9].lower().startswith(("<!doctype", "<html"))
    require("plain text", not is_markup, index.summary)
    named = any(form.search(index.text) for form in (URL, LINK, PATH))
    require("the address of a page", named, index.summary)


@check("4.5/llms-txt", needs="llms")
async def the_pages_of_the_index_exist(probe: Probe) -> None:
    """Every page of this server that the index names exists."""
    index = await _index(probe)
    for url in list(_own_pages(probe, index.text))[:MAX_PAGES]:
        page = await probe.send("GET", url)
        require(f"a page at {url}", page.status not in (404, 410), page.status)


async def _index(probe: Probe) -> TargetAnswer:
    index = await probe.send("GET", probe.target.llms.path)
    expect(f"the status of {probe.target.llms.path}", index.status, 200)
    return index


def _own_pages(probe: Probe, text: str) -> Iterator[str]:
    """Yield the URLs on this server that Markdown links or bare URLs lead to, each once."""
    base, seen = str(probe.setting.http.base_url).rstrip("/"), set()
    here = httpx.URL(base + probe.target.llms.path)
    for link in LINK.findall(text) + URL.findall(text):
        try:
            url = here.join(link.rstrip(".,;:").split("#")[0])
        except httpx.InvalidURL:
            continue  # a template, such as https://{base_url}/docs
        if url.netloc == here.netloc and "{" not in link and url not in seen:
            seen.add(url)
            yield str(url)
