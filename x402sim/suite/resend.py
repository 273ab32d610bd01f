"""A request as a command that sends it again: every byte of it is what was sent.

In single quotes, a shell changes nothing; what is not printable ASCII is in `$'...'`, as bash, zsh
and ksh read it. A command cannot hold a zero byte, and one of many pages is of no use: then it is
empty.
"""

import string

import httpx

MOST = 8000
"""The most bytes of a command."""
_OWN = (b"content-type", b"x-payment-id", b"x-session-id", b"payment-signature")
"""The headers that checks set."""
_OF_CLIENT = (
    *(b"host", b"accept", b"accept-encoding", b"connection", b"user-agent", b"content-length"),
    b"transfer-encoding",
)
"""Those that every client sets by itself."""
_PLAIN = frozenset((string.ascii_letters + string.digits + string.punctuation + " ").encode())


def as_curl(request: httpx.Request) -> str:
    """Return a curl command that sends a request; empty if there is none.

    The values of the user's own headers are not in it.
    """
    url = str(request.url)
    words = ["curl", "-i", *_method(request)]
    if (target := request.extensions.get("target")) is not None:
        url = str(request.url.copy_with(raw_path=b"/")).rstrip("/") + target.decode("latin-1")
        words.append("--path-as-is")
    words.append(quoted(url.encode("latin-1", "replace")))
    for name, value in request.headers.raw:
        if name.lower() in _OWN:
            header = name + (b": " + value if value else b";")  # so curl sends one without a value
            words += ["-H", quoted(header)]
        elif name.lower() not in _OF_CLIENT:
            words += ["-H", quoted(name + b": <hidden>")]
    if request.content:
        words += ["--data-raw", quoted(request.content)]
    command = " ".join(words)
    return command if len(command) <= MOST and r"\x00" not in command else ""


def _method(request: httpx.Request) -> list[str]:
    if request.method == "HEAD":
        return ["-I"]
    return [] if request.method == "GET" and not request.content else ["-X", request.method]


def quoted(text: bytes) -> str:
    """Return a word of a shell that is this text, byte for byte; `::` and `##` act on a CI."""
    if _PLAIN.issuperset(text) and not any(part in text for part in (b"'", b"::", b"##")):
        return f"'{text.decode()}'"
    kept = _PLAIN - set(b"'\\:#")
    return "$'" + "".join(chr(c) if c in kept else f"\\x{c:02x}" for c in text) + "'"
