"""Content negotiation for texts in Markdown: an HTML page for a browser, the text for programs.

The renderer is imported with the first page. HTML in a text is shown as text. The page loads
nothing and runs no script; the policy allows one style, by hash.
"""

import base64
import hashlib
import re
from collections.abc import Mapping
from functools import cache
from html import escape
from importlib.resources import files
from itertools import pairwise

from starlette.requests import Request
from starlette.responses import Response


def answer(
    request: Request, text: str, links: Mapping[str, str], *, media_type: str = "text/markdown"
) -> Response:
    """Return a text in Markdown, as a page if the request accepts HTML.

    The text must begin with a heading, which becomes the page's title. The page begins with
    `links`, from words to addresses.
    """
    headers = {"Vary": "Accept"}
    if "text/html" not in request.headers.get("accept", ""):
        return Response(text, media_type=media_type, headers=headers)
    style = (files("x402sim.http") / "page.css").read_text("utf-8")
    digest = base64.b64encode(hashlib.sha256(style.encode()).digest()).decode()
    headers["Content-Security-Policy"] = (
        f"default-src 'none'; style-src 'sha256-{digest}'; img-src data:; base-uri 'none'; "
        "form-action 'none'; frame-ancestors 'none'"
    )
    return Response(
        _page(text, style, tuple(links.items())), media_type="text/html", headers=headers
    )


@cache
def _page(text: str, style: str, links: tuple[tuple[str, str], ...]) -> str:
    from markdown_it import MarkdownIt

    reader = MarkdownIt("commonmark", {"html": False}).enable("table")
    tokens = reader.parse(text)
    titles = []
    for token, inline in pairwise(tokens):
        if token.type == "heading_open":
            words = "".join(each.content for each in inline.children or ())
            token.attrSet("id", re.sub(r"[^\w -]", "", words).strip().lower().replace(" ", "-"))
            titles.append(words)
    body = reader.renderer.render(tokens, reader.options, {})
    shown = " ".join(f'<a href="{escape(to)}">{escape(words)}</a>' for words, to in links)
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f'<title>{escape(titles[0])}</title>\n<link rel="icon" href="data:,">\n'
        f"<style>{style}</style>\n</head>\n<body>\n"
        f'<nav aria-label="Documentation">{shown}</nav>\n<main>\n{body}</main>\n</body>\n</html>\n'
    )
