"""Fills in the files of templates/.

Jinja2 is imported at the first documentation request, so that a server starts without it.
"""

from functools import cache
from importlib.resources import files
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from jinja2 import Environment

FOLDER = files("x402sim.service.docs") / "templates"


def render(name: str, **words: Any) -> str:
    """Return the template of that name, filled in with `words`.

    HTML is escaped, Markdown and plain text are not. Raises `jinja2.UndefinedError` for a
    word that is missing.
    """
    return _environment().get_template(name).render(words)


@cache
def _environment() -> "Environment":
    from jinja2 import Environment, FunctionLoader, StrictUndefined, select_autoescape

    return Environment(
        loader=FunctionLoader(lambda name: (FOLDER / name).read_text(encoding="utf-8")),
        autoescape=select_autoescape(["html"]),
        undefined=StrictUndefined,
        keep_trailing_newline=True,
        trim_blocks=True,
        lstrip_blocks=True,
    )
