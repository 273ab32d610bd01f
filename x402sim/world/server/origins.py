"""Checks the origins that `--allow-origin` and `--rpc-origin` admit: what browsers send as the
`Origin` header.
"""

import re

import httpx

_REASONS = {
    "null": "every sandboxed frame and every local file sends Origin: null; name the origin of "
    "one page",
    "*": "every web page that is open on this machine could use the keys and the control API; "
    "name the origin of each page",
}
_HOST = re.compile(r"[a-z0-9._-]+|\[[0-9a-f:.]+\]")
_MAX_PORT = 65_535


ANY_EXTENSION = ("chrome-extension://*", "moz-extension://*")
"""Every extension of a browser: Firefox gives an extension another id on each machine."""


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
    return sent if _HOST.fullmatch(host) and (parsed.port or 0) <= _MAX_PORT else None
