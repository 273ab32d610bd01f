"""What a subject that is a command inherits of the judge's environment, and how it is ended.

Inherited keys of wallets and URLs of nodes are taken out: a subject that is judged can reach no
money but the case's.
"""

import os
import re
import signal
import sys
from collections.abc import Mapping
from contextlib import suppress

_SECRET = re.compile(
    r"PRIVATE_?KEY|SECRET_?KEY|PAYER_?KEY|SIGNER|MNEMONIC|SEED_?PHRASE|WALLET|RPC|_PROXY$|^X402",
    re.IGNORECASE,
)
"""Names of variables that a subject does not inherit."""
_KEY = re.compile(r"(0x)?[0-9a-fA-F]{64}")


def inherited(environment: Mapping[str, str]) -> dict[str, str]:
    """Return the variables that a subject may inherit."""
    return {
        name: value
        for name, value in environment.items()
        if not _SECRET.search(name) and not _KEY.fullmatch(value.strip())
    } | {"NO_PROXY": "127.0.0.1,localhost", "PYTHONUNBUFFERED": "1"}


def end_group(group: int, *, gently: bool = False) -> None:
    """End a command and what it has started, by SIGKILL or, `gently`, by SIGTERM."""
    if sys.platform != "win32":
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(group, signal.SIGTERM if gently else signal.SIGKILL)


def last_line(text: str) -> str:
    """Return the last line with something in it, or "nothing"."""
    lines = [line for line in text.splitlines() if line.strip()]
    return lines[-1].strip()[:200] if lines else "nothing"
