"""Escapes text of other parties, so that it acts on no terminal, file or CI when printed.

Whoever answers a request, writes a journal or runs a node chooses such text. As it is, an
escape sequence moves the cursor, a bidi override reverses what follows, a newline begins a line
that looks like ours, U+FFFE breaks XML, and a CI runs `::error::` and `##[error]`.
"""

import re
from collections.abc import Callable
from dataclasses import fields
from typing import Any

_COMMAND = re.compile(r":(?=:[A-Za-z])|#(?=#\[|#vso\[|#teamcity\[)")
"""Where a command to a CI begins: GitHub finds `::` after blanks, and `##[` anywhere."""


def printable(text: str) -> str:
    """Return a text for one line, with every character escaped that `repr` escapes.

    Those are the control characters, newlines included, bidi overrides and other formatting,
    lone surrogates and what Unicode has not assigned. Letters of all languages stay. Printing
    it again changes nothing.
    """
    if not text.isprintable():
        text = "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)
    if "::" not in text and "##" not in text:
        return text
    return _COMMAND.sub(lambda found: f"\\x{ord(found[0]):02x}", text)


def printable_lines(text: str) -> str:
    """Return a text with the lines that it has, each of them printable."""
    return "\n".join(printable(line) for line in text.replace("\r\n", "\n").split("\n"))


def described(value: object) -> str:
    """Return a value as text that is equal in every process: `repr`, but without addresses.

    A function is its name, an object without a `repr` of its own is its class, and a frozen
    distribution of scipy.stats is the call that makes it.
    """
    name = getattr(value, "__qualname__", None)
    if isinstance(name, str):
        return name.replace("<locals>.", "")
    text = repr(value)
    if " at 0x" not in text:
        return text
    name = getattr(getattr(value, "dist", None), "name", None)
    args, keywords = getattr(value, "args", None), getattr(value, "kwds", None)
    if not (isinstance(name, str) and isinstance(args, tuple) and isinstance(keywords, dict)):
        return f"{type(value).__qualname__}(...)"
    return f"{name}({', '.join([*map(repr, args), *(f'{k}={v!r}' for k, v in keywords.items())])})"


def changed(value: Any, shown: Callable[[Any], str] = described) -> str:
    """Return the call that makes a dataclass, with the fields only that differ from the default."""
    default = type(value)()
    pairs = [(each.name, getattr(value, each.name)) for each in fields(value)]
    given = [f"{name}={shown(it)}" for name, it in pairs if it != getattr(default, name)]
    return f"{type(value).__name__}({', '.join(given)})"
