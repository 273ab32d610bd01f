"""The hooks of `.mkdocs.yml`: the page of Python has the docstrings, and their examples are code; a search
finds the written pages before the pages of reference."""

from typing import Any

from markdown import Extension, Markdown
from markdown.preprocessors import Preprocessor

import x402sim
from tests.house.reference import PAGES


def on_page_markdown(markdown: str, page: Any, **_: object) -> str:
    """Add the directives of mkdocstrings to the page of Python; rank the generated pages lower."""
    if page.file.src_uri.removesuffix(".md") in PAGES:
        page.meta["search"] = {"boost": 0.3}
    if page.file.src_uri != "python.md":
        return markdown
    names = sorted(x402sim.__all__, key=str.lower)
    return markdown + "".join(f"\n::: x402sim.{name}\n" for name in names)


def on_config(config: Any) -> Any:
    """Show the doctests of docstrings as code."""
    config.markdown_extensions.append(Doctests())
    return config


class Doctests(Extension):
    """Registers the preprocessor below, before that of fences."""

    def extendMarkdown(self, md: Markdown) -> None:  # noqa: N802
        md.preprocessors.register(_Fenced(md), "doctests", 27)


class _Fenced(Preprocessor):
    """Puts fences around what begins with >>> and ends with an empty line."""

    def run(self, lines: list[str]) -> list[str]:
        out: list[str] = []
        is_inside = False
        for line in [*lines, ""]:
            if line.lstrip().startswith(">>>") and not is_inside:
                out.append("```pycon")
                is_inside = True
            elif is_inside and not line.strip():
                out.append("```")
                is_inside = False
            out.append(line)
        return out
