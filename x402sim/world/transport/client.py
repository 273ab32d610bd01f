"""A caller's HTTP client of one part of the world."""

from functools import lru_cache
from typing import Any

import httpx

from x402sim.http.exchange import OverClient, Request, Response
from x402sim.world.transport.link import Link

MOST_KNOWN = 256


class PartClient(httpx.AsyncClient):
    """An httpx client over a link, with `ask` as a cheaper way in one process.

    There `ask` gives a request to the link itself, unless the client has an `auth`: it keeps no
    cookies, and calls no event hooks.
    """

    def __init__(self, link: Link, base_url: str, timeout_s: float) -> None:
        super().__init__(transport=link, base_url=base_url, timeout=timeout_s)
        self._link, self._base = link, str(self.base_url).rstrip("/")
        self._known: dict[str, httpx.URL] = {}

    def build_request(self, method: str, url: httpx.URL | str, **options: Any) -> httpx.Request:
        """Return a request; a URL that was used before is not parsed again."""
        if not isinstance(url, str) or options.get("params"):
            return super().build_request(method, url, **options)
        request = super().build_request(method, self._known.get(url, url), **options)
        if len(self._known) < MOST_KNOWN:
            self._known[url] = request.url
        return request

    def request_to(self, method: str, path: str, headers: dict[str, str], body: bytes) -> Request:
        """Return a request with this client's headers and timeout; names are in lower case."""
        url, extensions = _at(self._base, path), {"timeout": self.timeout.as_dict()}
        own = {name.encode(): value.encode("ascii") for name, value in headers.items()}
        if body:
            own[b"content-length"] = b"%d" % len(body)
        named = {name.lower(): value for name, value in self.headers.raw}
        named = {b"host": url.netloc} | named | own
        return Request(method, url, list(named.items()), body, extensions)

    async def ask(self, request: Request) -> Response:
        """Return the answer; raises `httpx.TransportError`."""
        is_short = self._link.is_local and self.auth is None
        return await (self._link if is_short else OverClient(self)).send(request)


@lru_cache(maxsize=MOST_KNOWN)
def _at(base_url: str, path: str) -> httpx.URL:
    url = httpx.URL(path)
    return url if url.is_absolute_url else httpx.URL(base_url + "/" + path.lstrip("/"))
