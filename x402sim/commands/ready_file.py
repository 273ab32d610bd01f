"""`--ready-file`: what a server prints when it is ready, as a file that scripts and CI wait for."""

import os
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import typer

from x402sim.commands.common import Misuse
from x402sim.protocol.messages import decoded

ReadyFile = Annotated[
    Path | None,
    typer.Option(
        "--ready-file",
        help="Write what --json prints to FILE when ready, for its owner only, as it has keys; "
        "it is removed when the server stops.",
        metavar="FILE",
    ),
]


@contextmanager
def ready_file(file: Path | None) -> Iterator[Callable[[str], None]]:
    """Yield what writes a text to a file, whole or not at all; in the end, the file is removed.

    It is written under another name from the start, so that a folder that takes no file is found
    before the server is. A file of a server that was killed is removed. Raises `Misuse`.
    """
    if file is None:
        yield lambda text: None
        return
    _remove_old(file)
    try:
        number, name = tempfile.mkstemp(prefix=f".{file.name}.", dir=file.parent)
    except OSError as wrong:
        raise Misuse(f"--ready-file {file}: {wrong.strerror}: {file.parent}") from wrong
    new, written = Path(name), list[str]()

    def write(text: str) -> None:
        with os.fdopen(os.dup(number), "w", encoding="utf-8") as out:
            out.write(text)
        written.append(text)
        new.replace(file)

    try:
        yield write
    finally:
        os.close(number)
        new.unlink(missing_ok=True)
        if written and _text(file) == written[0]:  # else it is another server's by now
            file.unlink()


def _remove_old(file: Path) -> None:
    """Remove what another server has left there; raises `Misuse` for whatever else is there."""
    if not os.path.lexists(file):
        return
    old = decoded(_text(file).encode()) if file.is_file() else None
    if not isinstance(old, dict) or old.get("event") != "ready":
        raise Misuse(
            f"--ready-file {file}: something is there that `x402sim serve` has not written: remove "
            "it, or give another path"
        )
    file.unlink()


def _text(file: Path) -> str:
    try:
        return file.read_text("utf-8", "replace")
    except FileNotFoundError:
        return ""
