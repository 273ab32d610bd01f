"""A target whose answers attack whoever prints them, and what must not be in the output."""

import re
from contextlib import AbstractContextManager

import msgspec

from tests.cli import shops

NASTY = (
    "\x1b]0;pwned\x07\x1b[2J\x00\n::error file=a::pwned\r\n::set-output name=a::b\n"
    "  ::add-mask::c\n##[error]pwned\n##vso[task.complete]\nx402sim: all held\x85fake\u2028fake"
    "\n-> 200\n\x9b31m\x7f\u202egnp.exe\u2066 \ufffe\uffff\ufeff é"
)
"""Escape sequences, NUL, lines that look like ours or like commands of a CI, and bidi overrides."""
LONE = "\ud800 \udfff"
_FORBIDDEN = re.compile(
    r"[\x00-\x09\x0b-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069\ud800-\udfff\ufeff\ufffe\uffff]"
)
_COMMAND = re.compile(r"^\s*::\w|##\[|##vso\[", re.MULTILINE)
_FAKE = re.compile(r"^(x402sim: all held|fake|-> 200)", re.MULTILINE)


def assert_harmless(output: str) -> None:
    """Nothing of `NASTY` acts on a terminal or on a CI, and no line of it begins a line."""
    for pattern in (_FORBIDDEN, _COMMAND, _FAKE):
        found = pattern.search(output)
        assert found is None, f"{found}: {output[max(0, found.start() - 200) : found.end()]!r}"


def text() -> bytes:
    """A body that is no JSON."""
    return NASTY.encode()


def challenge() -> bytes:
    """A 402 with a nasty text in every field."""
    names = ("scheme", "network", "payTo", "asset", "maxAmountRequired", "resource", "description")
    wanted = dict.fromkeys(names, NASTY) | {"maxTimeoutSeconds": 300}
    return msgspec.json.encode(
        {"error": NASTY, "paymentId": "pay_" + NASTY, "message": NASTY, "network": NASTY,
         "paymentRequirements": wanted, "quote": NASTY, "reason": NASTY}
    )  # fmt: skip


def serving(
    body: bytes, status: int, at: dict[str, tuple[int, bytes]]
) -> AbstractContextManager[str]:
    """Serve one answer at every path, but for those in `at`; yields the URL."""

    def answer(asked: shops.Asked) -> shops.Reply:
        code, content = at.get(asked.path, (status, body))
        return shops.Reply(code, content, {"Content-Type": "text/plain; x=\x1b[31m\x9b"})

    return shops.serving(answer)
