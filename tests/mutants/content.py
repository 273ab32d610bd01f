"""Defects of what is for sale, and of what is free: quotes, agents, documentation."""

from tests.mutants.change import answers, edit
from tests.mutants.mutant import Kind
from x402sim.service import app
from x402sim.service.docs import routes
from x402sim.service.issue import QUOTE

content = Kind("content")

ROWS = (
    content(
        "quote-without-a-venue",
        "4.2/quote",
        "A quote has no bestVenue.",
        answers(200, QUOTE, lambda it: it["quote"].pop("bestVenue") and None),
    ),
    content(
        "prices-as-text",
        "4.2/quote",
        "The entry price of a quote is a string.",
        answers(
            200, QUOTE, lambda it: it["quote"].update(entryPrice=str(it["quote"]["entryPrice"]))
        ),
    ),
    content(
        "no-funding-rate",
        "4.2/quote",
        "The funding rate of a quote is null.",
        answers(200, QUOTE, lambda it: it["quote"].update(fundingRate=None)),
    ),
    content(
        "pair-spelled-otherwise",
        "4.2/quote",
        'The pair comes back as "BTC/USD".',
        answers(
            200, QUOTE, lambda it: it["quote"].update(pair=it["quote"]["pair"].replace("-", "/"))
        ),
    ),
    content(
        "quote-not-under-its-name",
        "4.2/quote 1/repeat-served",
        "The fields of the quote stand in the body itself.",
        answers(200, QUOTE, lambda it: it["quote"]),
        broad="what is paid for is never seen, so nothing that is paid is served",
    ),
    content(
        "agents-are-names",
        "2.7/agent",
        "The list of agents has their names only.",
        answers(200, "/api/agents", lambda it: {"agents": [each["name"] for each in it["agents"]]}),
    ),
    content(
        "no-agents",
        "4.3/list",
        "Nobody listens at /api/agents.",
        edit(app.service_app, "route(AGENTS, list_agents),", ""),
    ),
    content(
        "agents-crash",
        "4.3/list",
        "The list of agents is an internal error.",
        edit(app.list_agents, "    price =", "    raise KeyError(AGENTS)\n    price ="),
    ),
    content(
        "agents-are-a-page",
        "4.3/list",
        "The list of agents is a page of HTML.",
        edit(
            app.list_agents,
            'return web.answer({"agents": agents(service)})',
            'return Response("<ul><li>perp-quotes</li></ul>", media_type="text/html")',
        ),
    ),
    content(
        "no-llms-txt",
        "4.5/llms-txt",
        "Nobody listens at /llms.txt.",
        edit(routes.documentation, 'Route("/llms.txt", llms),', ""),
    ),
    content(
        "llms-txt-is-a-page",
        "4.5/llms-txt",
        "The documentation index is the front page of a web application.",
        edit(
            routes.llms,
            "PlainTextResponse(llms_txt(_base(request)))",
            'Response("<!doctype html><div id=root></div>", media_type="text/html")',
        ),
    ),
    content(
        "llms-txt-is-empty",
        "4.5/llms-txt",
        "The documentation index lists nothing.",
        edit(routes.llms, "llms_txt(_base(request))", '""'),
    ),
    content(
        "llms-txt-leads-nowhere",
        "4.5/llms-txt",
        "The pages in the documentation index do not exist.",
        edit(routes.markdown, "if text is None:", "if True:"),
    ),
)
