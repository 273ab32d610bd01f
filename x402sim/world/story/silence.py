"""Silences the service's warnings during stories, which break things on purpose.

What failed is in the journal, with its time and its service. Errors are logged as ever, and so are
warnings if the logger "x402sim" has a level of its own.
"""

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

_LOG = logging.getLogger("x402sim")
_is_story: ContextVar[bool] = ContextVar("a story is played", default=False)


@contextmanager
def warnings_silenced() -> Iterator[None]:
    """Hide the warnings of what runs in this context, unless somebody has asked for them."""
    _LOG.addFilter(_is_shown)  # once: a second time it is there already
    token = _is_story.set(True)
    try:
        yield
    finally:
        _is_story.reset(token)


def _is_shown(record: logging.LogRecord) -> bool:
    asked_for = _LOG.level != logging.NOTSET
    return asked_for or record.levelno >= logging.ERROR or not _is_story.get()
