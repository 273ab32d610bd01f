"""Makes pages: renders a package's Jinja2 templates (in HTML, with every value escaped), and
Markdown tables.
"""

from collections.abc import Iterable, Sequence
from functools import cache
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from jinja2 import Environment


def render(package: str, template: str, **values: Any) -> str:
    """Render a template in the folder `templates` of a package; return the page.

    Raises `jinja2.UndefinedError` for a missing value.
    """
    return _environment(package).get_template(template).render(values)


@cache
def _environment(package: str) -> "Environment":
    from jinja2 import Environment, PackageLoader, StrictUndefined, select_autoescape

    return Environment(
        loader=PackageLoader(package),
        autoescape=select_autoescape(["html", "html.j2"]),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )


def markdown_table(titles: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a Markdown table; a bar in a cell is escaped."""
    lines = [titles, ["---"] * len(titles), *rows]
    return "".join(
        f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in line)} |\n" for line in lines
    )
