"""The request of `pay` and `doctor`: its options, and what to do if no 402 answers it."""

from pathlib import Path
from typing import Annotated

import httpx
import typer

from x402sim.http.bounded import Limits, bound
from x402sim.text.suggest import near_url
from x402sim.version import VERSION
from x402sim.world.server.listen import LOOPBACK

Url = Annotated[str, typer.Argument(help="What to ask for, with http:// or https://.")]
Method = Annotated[
    str | None,
    typer.Option("--method", "-X", help="HTTP method. [default: GET, or POST with --data]"),
]
Data = Annotated[
    str | None,
    typer.Option(
        "--data", "-d", help="Body, or @FILE; JSON gets its Content-Type.", metavar="TEXT"
    ),
]
Headers = Annotated[
    list[str] | None,
    typer.Option("--header", "-H", help="Header 'Name: value'; repeatable.", metavar="HEADER"),
]


def client() -> httpx.Client:
    """Return a client for any URL: SSL_CERT_FILE counts, and no proxy."""
    return httpx.Client(verify=httpx.create_ssl_context(), trust_env=False, timeout=30)


def request_to(
    url: str, method: str | None, data: str | None, headers: list[str] | None
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
    verb = (method or ("POST" if data is not None else "GET")).upper()
    sent.setdefault("user-agent", f"x402sim/{VERSION}")
    return httpx.Request(verb, parsed, headers=sent, content=data)


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


def instead(answer: httpx.Response) -> str:
    """Return what to do about an answer that is no 402."""
    status, there = answer.status_code, answer.headers.get("location")
    if there and 300 <= status < 400:
        return f"the server answered {status} and redirects to {there}: give that URL"
    if status == 405:
        allowed = answer.headers.get("allow", "another method")
        do = "give it with --method, and a body with --data if it wants one"
        return f"the server answered 405; it allows {allowed}: {do}"
    if answer.is_success:
        return f"the server answered {status} without asking for a payment; give a paid URL"
    return f"the server answered {status}, not 402: correct the URL, --method, --data or --header"
