"""Checks the origins that `--allow-origin` admits: what browsers send as the `Origin` header."""

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


def origin(text: str) -> str:
    """Return a web origin as browsers send it; one slash at its end is dropped.

    Raises `ValueError`, with the reason, for `null`, `*` and whatever else no `Origin` header
    of one page can be.
    """
    if text in _REASONS:
        raise ValueError(f"--allow-origin {text!r} is refused: {_REASONS[text]}")
    if "," in text or " " in text:
        raise ValueError(
            f"--allow-origin {text!r} is more than one origin; repeat --allow-origin for each"
        )
    sent = _sent(text if "://" in text else f"http://{text}")
    if sent is None:
        raise ValueError(
            f"--allow-origin {text!r} is no web origin; write SCHEME://HOST or "
            "SCHEME://HOST:PORT, such as http://localhost:3000"
        )
    if text.removesuffix("/") != sent:
        raise ValueError(
            f"--allow-origin {text!r} is not what browsers send as Origin; write {sent}"
        )
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
