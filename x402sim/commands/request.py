"""The request of `pay` and `doctor`: its options, sending it, and errors when nobody answers."""

from pathlib import Path
from typing import Annotated, Any

import httpx
import typer

from x402sim.http.bounded import Limits, bound
from x402sim.payer.tools import ToolTransport, tool_request
from x402sim.protocol.messages import BadMessage, decode
from x402sim.text.words import near_url
from x402sim.version import VERSION
from x402sim.world.server.listen import LOOPBACK


def url(variable: str | None = None) -> Any:
    """Return the argument URL; an environment variable may replace it."""
    help_ = "URL of the request, with http:// or https://."
    return typer.Argument(help=help_, metavar="URL", envvar=variable)


def method(variable: str | None = None) -> Any:
    """Return the option --method."""
    help_ = "HTTP method. [default: GET, or POST with --data]"
    return typer.Option("--method", "-X", help=help_, metavar="METHOD", envvar=variable)


def data(variable: str | None = None) -> Any:
    """Return the option --data, the body."""
    help_ = "Body, or @FILE; JSON gets its Content-Type."
    return typer.Option("--data", "-d", help=help_, metavar="TEXT", envvar=variable)


Headers = Annotated[
    list[str] | None,
    typer.Option("--header", "-H", help="Header 'Name: value'; repeatable.", metavar="HEADER"),
]


def client() -> httpx.Client:
    """Return a client for any URL and for MCP tools; it honours SSL_CERT_FILE and uses no proxy."""
    carrier = httpx.HTTPTransport(verify=httpx.create_ssl_context(), trust_env=False)
    return httpx.Client(transport=ToolTransport(carrier), trust_env=False, timeout=30)


def request_to(
    url: str,
    method: str | None,
    data: str | None,
    headers: list[str] | None,
    tool: str | None = None,
    arguments: str | None = None,
) -> httpx.Request:
    """Return the request that the options describe; raises `ValueError`."""
    try:
        parsed = httpx.URL(url)
    except httpx.InvalidURL as wrong:
        raise ValueError(f"{url!r} is no URL: {wrong}") from wrong
    if parsed.scheme not in ("http", "https") or not parsed.host:
        raise ValueError(f"{url!r} is no URL with http:// or https://{near_url(url)}")
    if data is not None and data.startswith("@"):
        file = data[1:]
        try:
            data = Path(file).read_text("utf-8")
        except OSError as error:
            raise ValueError(f"--data @{file}: cannot read the file: {error.strerror}") from error
        except UnicodeDecodeError as error:
            raise ValueError(f"--data @{file}: a text in UTF-8 is wanted") from error
    sent: dict[str, str] = {}
    if data is not None and data.lstrip()[:1] in ("{", "["):
        sent["content-type"] = "application/json"
    for each in headers or ():
        name, colon, value = each.partition(":")
        if not colon or not name.strip():
            raise ValueError(f"--header {each!r}: wanted 'Name: value'")
        sent[name.strip().lower()] = value.strip()
    if tool is not None:
        return _call(parsed, tool, arguments, sent)
    verb = (method or ("POST" if data is not None else "GET")).upper()
    sent.setdefault("user-agent", f"x402sim/{VERSION}")
    return httpx.Request(verb, parsed, headers=sent, content=data)


def _call(
    url: httpx.URL, tool: str, arguments: str | None, headers: dict[str, str]
) -> httpx.Request:
    """Return the call of a tool; raises `ValueError`."""
    try:
        given = {} if arguments is None else decode(arguments.encode(), dict[str, Any])
    except BadMessage as wrong:
        raise ValueError(f"--arguments {arguments!r}: wanted a JSON object: {wrong}") from wrong
    headers.setdefault("user-agent", f"x402sim/{VERSION}")
    return tool_request(url, tool, given, headers)


def answer_to(
    http: httpx.Client, request: httpx.Request, auth: httpx.Auth | None = None
) -> httpx.Response:
    """Return the answer to a request, read within limits; raises `httpx.HTTPError`, and what the
    authentication raises.
    """
    response = http.send(request, auth=auth, stream=True)
    try:
        if not response.is_stream_consumed:
            bound(response, Limits())
            response.read()
    finally:
        response.close()
    return response


def no_answer(url: httpx.URL, error: Exception) -> str:
    """Return what to do if a server does not answer."""
    if isinstance(error, httpx.LocalProtocolError | httpx.InvalidURL):
        return f"the request cannot be sent: {error}; correct the URL, --method or --header"
    todo = ""
    if "WRONG_VERSION_NUMBER" in str(error):
        return f"no answer from {url}: it does not speak TLS; give the URL with http://"
    if "CERTIFICATE_VERIFY_FAILED" in str(error):
        todo = "; to trust its authority, set SSL_CERT_FILE to a file with its certificate"
    elif url.host in LOOPBACK and isinstance(error, httpx.ConnectError):
        todo = "; start it, for example with `x402sim serve`"
    return f"no answer from {url}: {str(error) or type(error).__name__}{todo}"
