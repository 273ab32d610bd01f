"""The address and the certificate of a server, and access control by Host and Origin.

Programs of this machine have access; a web page or a browser extension only if `--allow-origin` or
`--rpc-origin` names the `Origin` sent by browsers.
"""

import errno
import os
import re
import socket
import ssl
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import httpx
from starlette.middleware.cors import CORSMiddleware
from starlette.types import ASGIApp, Receive, Scope, Send

from x402sim.http import web
from x402sim.protocol.x402 import REQUIRED_HEADER, RESPONSE_HEADERS
from x402sim.text.program import install
from x402sim.text.words import as_given
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
    """Return `app` with answers readable by pages of these origins."""
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
    """Return whether a request comes from a web page of an origin that is not admitted."""
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
    """Return a web origin in the form sent by browsers; a slash at the end is dropped.

    Raises `ValueError`, with the reason, for `null`, `*` and any text that is no page's `Origin`.
    """
    if text in _REASONS:
        raise ValueError(f"{option} {as_given(text)} is refused: {_REASONS[text]}")
    if "," in text or " " in text:
        raise ValueError(
            f"{option} {as_given(text)} is more than one origin; repeat {option} for each"
        )
    sent = _sent(text if "://" in text else f"http://{text}")
    if sent is None:
        raise ValueError(
            f"{option} {as_given(text)} is no web origin; write SCHEME://HOST or "
            "SCHEME://HOST:PORT, such as http://localhost:3000"
        )
    if text.removesuffix("/") != sent:
        raise ValueError(
            f"{option} {as_given(text)} is not what browsers send as Origin; write {sent}"
        )
    return sent


def _sent(url: str) -> str | None:
    try:
        parsed = httpx.URL(url)
    except httpx.InvalidURL:
        return None
    sent = f"{parsed.scheme}://{parsed.netloc.decode('ascii')}"
    host = sent.partition("://")[2].removesuffix(f":{parsed.port}")
    return sent if _HOST.fullmatch(host) and (parsed.port or 0) <= MAX_PORT else None


# --- the address ------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Listen:
    """The address to listen on, and the token and the origins that give access."""

    host: str = "127.0.0.1"
    port: int = 4020
    control_token: str | None = None
    """The token of `Authorization: Bearer TOKEN`; None requires none, on loopback only."""
    allow_origins: tuple[str, ...] = ()
    """The origins of web pages with full access, such as http://localhost:3000."""

    rpc_origins: tuple[str, ...] = ()
    """The origins that may use the chain's JSON-RPC only, such as a wallet's chrome-extension://ID.
    chrome-extension://* and moz-extension://* are every extension of a browser."""

    tls: ssl.SSLContext | None = None
    """The certificate to serve https with; None serves http."""

    def __post_init__(self) -> None:
        """Raise `ValueError` for a port, a token or an origin that cannot work."""
        if not 0 <= self.port <= MAX_PORT:
            raise ValueError(f"a port is a number from 0 to {MAX_PORT}, not {as_given(self.port)}")
        if (token := self.control_token) is not None:
            if not token:
                raise ValueError(
                    "the control token is empty, so everybody would know it (is a shell variable "
                    "not set?); give one, or omit --control-token and X402SIM_CONTROL_TOKEN"
                )
            if token != token.strip() or not (token.isascii() and token.isprintable()):
                raise ValueError(
                    "the control token cannot be sent in a header: use printable ASCII, without a "
                    "space at its beginning or end"
                )
        object.__setattr__(self, "allow_origins", tuple(map(origin, self.allow_origins)))
        object.__setattr__(self, "rpc_origins", tuple(map(rpc_origin, self.rpc_origins)))

    @property
    def rpc_callers(self) -> tuple[str, ...]:
        """All origins that may use the chain's JSON-RPC."""
        return self.allow_origins + self.rpc_origins

    @property
    def is_local(self) -> bool:
        """Whether only this machine can connect."""
        return self.host in LOOPBACK

    @property
    def has_control(self) -> bool:
        """Whether the control API is served: on loopback, or with a token."""
        return self.is_local or self.control_token is not None


def listening_socket(listen: Listen) -> socket.socket:
    """Return a socket bound to the address; port 0 takes a free one. Raises `OSError`."""
    try:
        found, *_ = socket.getaddrinfo(listen.host, listen.port, type=socket.SOCK_STREAM)
        family, *_, address = found
        both = family == socket.AF_INET6 and socket.has_dualstack_ipv6()  # "::" is IPv4, too
        return socket.create_server(address, family=family, backlog=512, dualstack_ipv6=both)
    except OSError as error:
        is_no_host = isinstance(error, socket.gaierror)
        why = error.strerror if is_no_host else os.strerror(error.errno or 0)
        hint = "; port 0 takes a free one" if error.errno == errno.EADDRINUSE else ""
        if is_no_host or error.errno == errno.EADDRNOTAVAIL:
            hint = "; give an address of this machine: 127.0.0.1, or 0.0.0.0 for all that it has"
        text = f"cannot listen on {listen.host} port {listen.port}: {why}{hint}"
        raise OSError(error.errno, text) from error


def base_url(listen: Listen, sock: socket.socket) -> str:
    """Return the URL of the socket for a client on this machine."""
    port = sock.getsockname()[1]
    host = "127.0.0.1" if listen.host in ("0.0.0.0", "") else listen.host  # noqa: S104
    host = "::1" if host == "::" else host
    scheme = "https" if listen.tls else "http"
    return f"{scheme}://[{host}]:{port}" if ":" in host else f"{scheme}://{host}:{port}"


def certified(host: str, ca_file: Path) -> ssl.SSLContext:
    """Return the context of a server whose certificate is signed by a new authority.

    The authority's certificate is written to `ca_file`, for clients that insist on https to trust;
    its key is forgotten. Raises `ValueError` without the extra `tls`, and for a file that cannot
    be written.
    """
    try:
        import trustme
    except ImportError:
        raise ValueError(f"--tls needs the extra `tls`: {install('tls')}") from None
    authority = trustme.CA(organization_name="x402sim, for this run only")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    names = dict.fromkeys((*LOOPBACK, host) if host not in ("0.0.0.0", "::") else LOOPBACK)  # noqa: S104
    authority.issue_cert(*names).configure_cert(context)
    try:
        authority.cert_pem.write_to_path(str(ca_file))
    except OSError as error:
        raise ValueError(f"--tls {ca_file}: cannot write the file: {error.strerror}") from None
    return context
