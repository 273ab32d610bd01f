"""A caller's HTTP client of one part of the world."""

from functools import lru_cache
from typing import Any

import httpx

from x402sim.http.exchange import OverClient, Request, Response, Transport, Url

MOST_KNOWN = 256


class PartClient(httpx.AsyncClient):
    """An httpx client of a part, over a link or to the part itself; cheaper in one process.

    There a request is given to the transport itself, unless there is an `auth`, an event hook or
    a redirect to follow: no cookies are kept.
    """

    def __init__(self, link: Transport, base_url: str, timeout_s: float | None) -> None:
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

    @property
    def _is_short(self) -> bool:
        is_plain = self.auth is None and not self.follow_redirects
        return self._link.is_local and is_plain and not any(self.event_hooks.values())

    async def ask(self, request: Request) -> Response:
        """Return the answer; raises `httpx.TransportError`."""
        return await (self._link if self._is_short else OverClient(self)).send(request)

    async def send(self, request: httpx.Request, **options: Any) -> httpx.Response:
        """Return the answer; raises `httpx.TransportError`."""
        default = (httpx.USE_CLIENT_DEFAULT, False)
        is_plain = all(options.get(each, False) in default for each in ("auth", "follow_redirects"))
        if not (self._is_short and is_plain):
            return await super().send(request, **options)
        response = await self._link.handle_async_request(request)
        response.request = request
        return response


@lru_cache(maxsize=MOST_KNOWN)
def _at(base_url: str, path: str) -> Url:
    url = httpx.URL(path)
    return Url.of(url if url.is_absolute_url else httpx.URL(base_url + "/" + path.lstrip("/")))
