"""Which web pages and browser extensions may use a server: the origins that it admits.

An origin is what browsers send as `Origin`; `--allow-origin` and `--rpc-origin` admit some.
"""

import re
from collections.abc import Sequence

import httpx
from starlette.middleware.cors import CORSMiddleware
from starlette.types import ASGIApp, Receive, Scope, Send

from x402sim.http import web
from x402sim.protocol.x402 import REQUIRED_HEADER, RESPONSE_HEADERS
from x402sim.world.world import MAX_PORT

LOOPBACK = ("127.0.0.1", "localhost", "::1")
_REASONS = {
    "null": "every sandboxed frame and every local file sends Origin: null; name the origin of "
    "one page",
    "*": "every web page that is open on this machine could use the keys and the control API; "
    "name the origin of each page",
}
_HOST = re.compile(r"[a-z0-9._-]+|\[[0-9a-f:.]+\]")
ANY_EXTENSION = ("chrome-extension://*", "moz-extension://*")
"""Every extension of a browser: Firefox gives an extension another id on each machine."""
EXPOSED = (REQUIRED_HEADER, *RESPONSE_HEADERS.values(), "X-Payment-Id")
"""The headers of answers that a page of another origin may read."""
NAMED = (b"origin", b"host")


# --- what a request may do ---------------------------------------------------------------


def readable_by(app: ASGIApp, origins: Sequence[str]) -> ASGIApp:
    """Return `app`, whose answers pages of these origins may read."""
    if not origins:
        return app
    return CORSMiddleware(
        app,
        allow_origin_regex="|".join(map(pattern, origins)),
        allow_methods=["*"],
        allow_headers=["*"],
        expose_headers=EXPOSED,
    )


def own_programs_only(app: ASGIApp, origins: Sequence[str], *, is_local: bool) -> ASGIApp:
    """Reject requests of web pages: no Origin but these, and on loopback no foreign Host.

    Otherwise any page in a browser on this machine could send commands here.
    """

    async def guard(scope: Scope, receive: Receive, send: Send) -> None:
        headers = dict(scope["headers"])
        if is_foreign(headers, origins, is_local=is_local):
            origin, host = (headers.get(name, b"").decode("latin-1") for name in NAMED)
            hint = f"origin {origin}, host {host}; --allow-origin admits a page, and --rpc-origin "
            hint += "a wallet to /rpc"
            refusal = web.error(403, "Not for web pages", hint)
            await refusal(scope, receive, send)
        else:
            await app(scope, receive, send)

    return guard


def is_foreign(headers: dict[bytes, bytes], origins: Sequence[str], *, is_local: bool) -> bool:
    """Tell whether a request comes from a web page of an origin that is not admitted."""
    origin, host = (headers.get(name, b"").decode("latin-1") for name in NAMED)
    name = host.rsplit(":", 1)[0] if not host.endswith("]") else host
    is_other = (
        b"origin" in headers
        and not any(re.fullmatch(pattern(each), origin) for each in origins)
        and origin.split("://", 1)[-1] != host
    )
    return is_other or (is_local and name.strip("[]") not in LOOPBACK)


# --- what an option names ----------------------------------------------------------------


def pattern(origin: str) -> str:
    """Return the regular expression of an admitted origin."""
    if origin in ANY_EXTENSION:
        return re.escape(origin.removesuffix("*")) + "[a-z0-9-]+"
    return re.escape(origin)


def rpc_origin(text: str) -> str:
    """Return an origin that may use the JSON-RPC: one of `ANY_EXTENSION`, or as `origin`."""
    return text if text in ANY_EXTENSION else origin(text, option="--rpc-origin")


def origin(text: str, *, option: str = "--allow-origin") -> str:
    """Return a web origin as browsers send it; one slash at its end is dropped.

    Raises `ValueError`, with the reason, for `null`, `*` and whatever else no `Origin` header
    of one page can be.
    """
    if text in _REASONS:
        raise ValueError(f"{option} {text!r} is refused: {_REASONS[text]}")
    if "," in text or " " in text:
        raise ValueError(f"{option} {text!r} is more than one origin; repeat {option} for each")
    sent = _sent(text if "://" in text else f"http://{text}")
    if sent is None:
        raise ValueError(
            f"{option} {text!r} is no web origin; write SCHEME://HOST or "
            "SCHEME://HOST:PORT, such as http://localhost:3000"
        )
    if text.removesuffix("/") != sent:
        raise ValueError(f"{option} {text!r} is not what browsers send as Origin; write {sent}")
    return sent


def _sent(url: str) -> str | None:
    """Return the `Origin` header that browsers send from a URL; None if it has none."""
    try:
        parsed = httpx.URL(url)
    except httpx.InvalidURL:
        return None
    sent = f"{parsed.scheme}://{parsed.netloc.decode('ascii')}"
    host = sent.partition("://")[2].removesuffix(f":{parsed.port}")
    return sent if _HOST.fullmatch(host) and (parsed.port or 0) <= MAX_PORT else None
