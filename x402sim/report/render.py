"""Renders the Jinja2 templates in `templates/`, with every value escaped."""

from functools import cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from jinja2 import Environment


def render(template: str, **values: object) -> str:
    """Return the page that a template makes of these values.

    Raises `jinja2.UndefinedError` for a value that the template uses and that is not given.
    """
    return _environment().get_template(template).render(values)


@cache
def _environment() -> "Environment":
    from jinja2 import Environment, PackageLoader, StrictUndefined

    return Environment(
        loader=PackageLoader("x402sim.report"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
