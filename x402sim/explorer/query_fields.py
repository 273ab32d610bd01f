"""Reads the fields of a request: those of its URL, and of a form in a POST."""

from collections.abc import Mapping
from urllib.parse import parse_qsl

from starlette.requests import Request

from x402sim.http import web


async def fields_of(request: Request) -> Mapping[str, str]:
    """Return the fields of a request; those of a form replace those of the URL.

    Raises `Refused` 400 and 413 for a body that is no form.
    """
    fields = dict(request.query_params)
    if request.method == "POST":
        body = await web.read_body(request)
        try:
            fields |= dict(parse_qsl(body.decode(), keep_blank_values=True))
        except ValueError as wrong:
            raise web.bad_body(f"expected a form: {wrong}") from wrong
    return fields
