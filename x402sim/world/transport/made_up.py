"""The answers that a fault makes up, and which of them a server can write."""

import re

from starlette.types import Message

_WITHOUT_BODY = (204, 205, 304)
_NAME = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_VALUE = re.compile(r"([!-~]([\t -~]*[!-~])?)?")
_NO_VALUE = "no value of a header: printable ASCII, without spaces around it"
_WRITTEN_ANYWAY = {
    "content-type": "give `content_type`",
    "content-length": "it is that of `body`",
    "content-encoding": "`body` is sent as it is",
    "transfer-encoding": "`body` is sent as it is",
    "connection": "the server decides when it closes one",
}
"""The headers that a fault does not choose, and why: what the server writes would contradict them,
and a header that stands twice is read differently by each client."""


def require_writable(status: int, body: str, content_type: str, headers: dict[str, str]) -> None:
    """Raise `ValueError` unless a server can write this answer."""
    if body and status in _WITHOUT_BODY:
        raise ValueError(f"body of a fault: an answer of status {status} has none")
    if not _VALUE.fullmatch(content_type):
        raise ValueError(f"content_type of a fault: {content_type[:60]!r} is {_NO_VALUE}")
    seen: set[str] = set()
    for name, value in headers.items():
        if not _NAME.fullmatch(name):
            raise ValueError(f"headers of a fault: {name!r} is no name of a header")
        if not _VALUE.fullmatch(value):
            raise ValueError(f"headers of a fault: {name}: {value[:60]!r} is {_NO_VALUE}")
        if (why := _WRITTEN_ANYWAY.get(name.lower())) is not None:
            raise ValueError(f"headers of a fault: not {name}: {why}")
        if name.lower() in seen:
            raise ValueError(f"headers of a fault: {name} stands there twice")
        seen.add(name.lower())


def made_up(status: int, body: str, content_type: str, headers: dict[str, str]) -> list[Message]:
    """Return an answer as the messages of ASGI."""
    content = body.encode()
    named = {"content-type": content_type, **headers}
    if status not in (204, 304):  # they have no length (RFC 9110, 8.6)
        named["content-length"] = str(len(content))
    raw = [(name.lower().encode(), value.encode()) for name, value in named.items()]
    return [
        {"type": "http.response.start", "status": status, "headers": raw},
        {"type": "http.response.body", "body": content},
    ]
