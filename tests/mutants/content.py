"""Defects of what is for sale, and of what is free: quotes, agents, documentation."""

from dataclasses import replace

from tests.mutants.middleware import CRASHED, answers, instead, page, paths
from tests.mutants.mutant import Kind
from tests.mutants.paying import AGENTS, QUOTE

content = Kind("content")

LLMS = "/llms.txt"
FRONT_PAGE = page("<!doctype html><div id=root></div>")
NOWHERE = "/nowhere"


# --- the defects ---

content("quote-without-a-venue", "4.2/quote", "A quote has no bestVenue.",
    answers(200, QUOTE, lambda it: it["quote"].pop("bestVenue") and None))  # fmt: skip
content("prices-as-text", "4.2/quote", "The entry price of a quote is a string.",
    answers(200, QUOTE, lambda it: it["quote"].update(entryPrice=str(it["quote"]["entryPrice"]))))  # fmt: skip
content("no-funding-rate", "4.2/quote", "The funding rate of a quote is null.",
    answers(200, QUOTE, lambda it: it["quote"].update(fundingRate=None)))  # fmt: skip
content("pair-spelled-otherwise", "4.2/quote", 'The pair comes back as "BTC/USD".',
    answers(200, QUOTE, lambda it: it["quote"].update(pair=it["quote"]["pair"].replace("-", "/"))))  # fmt: skip
content("quote-not-under-its-name", "4.2/quote 1/repeat-served",
    "The fields of the quote stand in the body itself.",
    answers(200, QUOTE, lambda it: it["quote"]),
    broad="what is paid for is never seen, so nothing that is paid is served")  # fmt: skip
content("no-agents", "4.3/list", "There is nothing at /api/agents.",
    paths(lambda path: NOWHERE if path == AGENTS else path))  # fmt: skip
content("agents-crash", "4.3/list", "The list of agents is an internal error.",
    instead(AGENTS, CRASHED))  # fmt: skip
content("agents-are-a-page", "4.3/list", "The list of agents is a page of HTML.",
    instead(AGENTS, page("<ul><li>perp-quotes</li></ul>")))  # fmt: skip
content("no-llms-txt", "4.5/llms-txt", "There is nothing at /llms.txt.",
    paths(lambda path: NOWHERE if path == LLMS else path))  # fmt: skip
content("llms-txt-is-a-page", "4.5/llms-txt",
    "The documentation index is the front page of a web application.",
    instead(LLMS, FRONT_PAGE))  # fmt: skip
content("llms-txt-is-empty", "4.5/llms-txt", "The documentation index lists nothing.",
    instead(LLMS, replace(page(""), media_type="text/plain; charset=utf-8")))  # fmt: skip
content("llms-txt-leads-nowhere", "4.5/llms-txt",
    "The pages in the documentation index do not exist.",
    paths(lambda path: NOWHERE if path.startswith("/docs/") else path))  # fmt: skip
