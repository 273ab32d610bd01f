"""Shared by the commands: options, exit codes, errors in one line, texts in 80 columns."""

import errno
import json
import logging
import os
import signal
import sqlite3
import sys
import textwrap
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from x402sim.chain.base import ChainError
from x402sim.journal import Journal
from x402sim.protocol.networks import NETWORKS
from x402sim.text.console import WIDTH, filled as fill, is_plain
from x402sim.text.words import as_given, printable, printable_lines, unknown

if TYPE_CHECKING:
    from x402sim.protocol.findings import Finding
    from x402sim.serving.log import Form


def whole(text: Any) -> int:
    """Parse an option that is a whole number; an error names the wanted value."""
    return int(number(text, int, "a whole number"))


def within(least: int, most: int | None = None) -> Callable[[Any], int]:
    """Return the parser of a whole number from `least`, to `most` if given."""

    def parse(text: Any) -> int:
        number, end = whole(text), "on" if most is None else f"to {most}"
        if number < least or (most is not None and number > most):
            raise typer.BadParameter(f"a number from {least} {end} is wanted, not {number}")
        return number

    return parse


def one_of(kind: str, *known: str) -> Callable[[str], str]:
    """Return the parser of an option with one of the known words."""

    def parse(text: str) -> str:
        if text not in known:
            raise typer.BadParameter(unknown(kind, text, known))
        return text

    return parse


def number(text: Any, kind: Callable[[Any], float] = float, wanted: str = "a number") -> float:
    """Parse an option that is a number; an error names the wanted value."""
    try:
        return kind(text)
    except ValueError:
        raise typer.BadParameter(f"{wanted} is wanted, not {as_given(text)}") from None


def made(own: typer.Typer) -> Any:
    """Return the command of an application; its help shows arguments without types of Python."""

    def plain(command: Any) -> Any:
        for each in command.params:
            if each.param_type_name == "argument":
                each.display_type_rich = lambda ctx: ""
        for each in getattr(command, "commands", {}).values():
            plain(each)
        return command

    return plain(typer.main.get_command(own))


def completing(names: Callable[[], Iterable[str]]) -> Callable[[str], list[str]]:
    """Return a shell's completion of an argument: the names that begin like it."""
    return lambda incomplete: [each for each in names() if each.startswith(incomplete)]


AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]
ReadyJson = Annotated[bool, typer.Option("--json", help="Print one JSON object when ready.")]
Workers = Annotated[
    int | None,
    typer.Option(
        "--workers",
        "-j",
        help="Number of processes; 0 plays in this one. [default: one per CPU]",
        parser=within(0, 256),
        metavar="N",
    ),
]
Chain = Annotated[
    str,
    typer.Option(
        help="ledger (in memory), anvil (a local EVM; needs the extra `evm`), or the URL of a "
        "node, with private keys in X402SIM_CHAIN_KEYS, the first for gas.",
        metavar="CHAIN",
    ),
]
Token = Annotated[
    str | None,
    typer.Option(
        help="Token contract on the node of `--chain URL`, if not the network's own.",
        metavar="ADDRESS",
    ),
]
NetworkName = Annotated[
    str | None,
    typer.Option(
        help="Network, as for `serve`. [default: cronos-testnet, or the file's only network]",
        metavar="NAME",
        show_default=False,
        autocompletion=completing(lambda: NETWORKS),
    ),
]
NetworkFile = Annotated[
    Path | None,
    typer.Option(help="TOML file with more networks, as for `serve`.", metavar="FILE"),
]
Host = Annotated[str, typer.Option(help="Address to listen on.", metavar="ADDRESS")]


def port(what: str, variable: str | None = None) -> Any:
    """Return the option for a port to listen on; `what` begins its help."""
    help_ = f"{what}; 0 picks a free one."
    return typer.Option(help=help_, envvar=variable, parser=within(0, 65535), metavar="PORT")


Port = Annotated[int, port("Port to listen on")]
RandomSeed = Annotated[int, typer.Option(help="Random seed.", parser=whole, metavar="N")]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="Write no log.")]
Verbose = Annotated[
    bool,
    typer.Option(
        "--verbose",
        "-v",
        help="Log all requests, also of /rpc and pages, with headers and bodies.",
    ),
]
LogForm = Annotated[
    Literal["text", "json"],
    typer.Option(
        parser=one_of("form", "text", "json"),
        help="Form of the log: text, or json, an object a line.",
        metavar="FORM",
    ),
]
NOT_ALL_HELD = 1
"""Exit code of a command that ran and found a failure."""


class Misuse(typer.BadParameter):
    """A command cannot start; the text has the given value, the wanted value, and the remedy.

    The command line prints the text as one line and exits with 2.
    """

    def show(self, file: Any = None) -> None:
        """Print the error on stderr."""
        typer.echo(f"x402sim: {printable(' '.join(self.message.split()))}", err=True)


@contextmanager
def as_misuse(*kinds: type[Exception], begin: str = "") -> Iterator[None]:
    """Turn errors of these kinds, by default `ValueError`, into `Misuse` with their text."""
    wrong = kinds or (ValueError,)
    try:
        yield
    except wrong as error:
        raise Misuse(f"{begin}{error}") from error


@contextmanager
def starting(db: Path | None, chain: str | None = None) -> Iterator[None]:
    """Turn an error of a server's start into one line and exit code 2; `chain` names a node."""
    if db is not None:
        from x402sim.service.store.file import require_file

        with as_misuse(begin="--db "):
            require_file(db)
    try:
        with as_misuse():
            yield
    except OSError as error:
        raise Misuse(str(error.strerror)) from error
    except (sqlite3.Error, ChainError) as error:
        if "locked" in str(error):
            raise Misuse(f"another x402sim uses {db}; stop it, or give another --db") from error
        if isinstance(error, ChainError) and chain is not None:
            raise Misuse(f"--chain {chain}: {error}") from error
        raise Misuse(f"cannot use the database {db}: {error}; give another --db") from error


@contextmanager
def on_stdout() -> Iterator[None]:
    """If what is printed in the block does not reach stdout, say so on stderr and exit with 1."""
    try:
        if sys.stdout is None:
            raise OSError(errno.EBADF, "stdout is closed")
        yield
    except OSError as error:
        if error.errno == errno.EPIPE:  # typer ends quietly
            raise
        if sys.stdout is not None:  # Python's exit would write the rest again
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        do = "give the command an open file with space"
        typer.echo(f"x402sim: cannot print on stdout: {error.strerror}; {do}", err=True)
        raise typer.Exit(NOT_ALL_HELD) from error


INDENTED_BYTES = 1 << 16
"""The most bytes of JSON that are indented: others can nest what they send."""


def print_json(document: Any) -> None:
    """Print JSON, indented unless large: indentation multiplies the size of a deep body."""
    text = json.dumps(document)
    with on_stdout():
        typer.echo(text if len(text) > INDENTED_BYTES else json.dumps(document, indent=2))


def load_journal(file: Path) -> Journal:
    """Return the journal in a file, or in the folder of a saved run; raises `Misuse`."""
    file = file / "journal.ndjson" if file.is_dir() else file
    try:
        journal = Journal.read(file)
    except OSError as error:
        raise Misuse(f"cannot read {file}: {error.strerror}") from error
    except ValueError as error:
        raise Misuse(f"{file}: {error}") from error
    if journal.is_torn:
        typer.echo(f"x402sim: {file} ends in the middle of a line, which is left out", err=True)
    return journal


def stop_on_signals(server: Any) -> None:
    """Let SIGINT and SIGTERM stop a server, which first ends the requests in flight."""
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: setattr(server, "should_exit", True))


def stop_with_stdin(server: Any) -> None:
    """Stop a server when stdin ends, also when the process at the other end was killed."""

    def read_to_its_end() -> None:
        with suppress(OSError):
            while os.read(0, 4096):
                pass
        server.should_exit = True

    threading.Thread(target=read_to_its_end, name="x402sim stdin", daemon=True).start()


def log_form(kind: Literal["text", "json"], *, verbose: bool, quiet: bool) -> "Form | None":
    """Return the form of a server's log on stderr; None for none."""
    from x402sim.serving.log import PAUSE_S, WATCHED_PAUSE_S, Form

    is_tty = sys.stderr.isatty()
    colours = is_tty and not is_plain()
    pause_s = WATCHED_PAUSE_S if is_tty else PAUSE_S
    write = partial(os.write, sys.stderr.fileno())  # no buffer: a blocked thread ends with us
    return None if quiet else Form(write, kind == "json", verbose, colours, pause_s)


def filled(text: str, indent: int = 0) -> str:
    """Wrap a text at 80 columns; lines after the first are indented by two more."""
    return fill(text.replace("\n", " "), " " * indent)


def log_to_stderr() -> None:
    """Log warnings and errors to stderr, with the text of other parties escaped."""
    logging.basicConfig(format="%(levelname)s %(name)s: %(message)s", level=logging.WARNING)
    for handler in logging.getLogger().handlers:
        handler.addFilter(_escape)


def _escape(record: logging.LogRecord) -> bool:
    """Escape the message and the trace of a record: both may quote other parties."""
    record.msg, record.args = printable(record.getMessage()), None
    if record.exc_info and not record.exc_text:
        trace = printable_lines(logging.Formatter().formatException(record.exc_info))
        record.exc_text = "\n".join(f"  {line}" for line in trace.split("\n"))
    return True


@contextmanager
def quiet() -> Iterator[None]:
    """Hide the simulated service's warnings: scenarios break things on purpose."""
    log = logging.getLogger("x402sim")
    before = log.level
    log.setLevel(logging.ERROR)
    try:
        yield
    finally:
        log.setLevel(before)


# --- steps, facts and findings ----------------------------------------------------------

NAME_WIDTH, MOST_NAME_WIDTH = 14, 18
"""Width of the column of names: at least, and at most if a name is longer."""
MOST_SHOWN = 2000
"""Printed characters of a value; the rest is cut."""


@dataclass(frozen=True, slots=True)
class Step:
    """One step: title, success, details, and a word for the outcome."""

    title: str
    ok: bool
    facts: dict[str, Any] = field(default_factory=dict)
    mark: str = ""
    """By default "ok" or "FAILED"."""


def print_step(number: int, step: Step, *, err: bool = False) -> None:
    """Print a step with a mark: "ok", "FAILED", or the step's own."""
    mark = step.mark or ("ok" if step.ok else "FAILED")
    mark = typer.style(mark, fg="green" if step.ok else "red")
    typer.echo(f"{number}. {printable(step.title)}: {mark}", err=err)
    print_facts({name.replace("_", " "): value for name, value in step.facts.items()}, err=err)


def print_facts(facts: Mapping[str, Any], *, err: bool = False) -> None:
    """Print names and values in two columns, with the text of other parties escaped.

    Lines fit in 80 columns, except for longer ids and hashes: these stay whole, to be copied.
    """
    names = [printable(name) for name in facts]
    column = min(max([NAME_WIDTH, *map(len, names)]), MOST_NAME_WIDTH)
    for name, value in zip(names, facts.values(), strict=True):
        text = printable(value or '""' if isinstance(value, str) else _as_text(value))
        text = text if len(text) <= MOST_SHOWN else f"{text[:MOST_SHOWN]}…"
        lines = textwrap.wrap(
            text, WIDTH - column - 4, break_on_hyphens=False, break_long_words=False
        )
        typer.echo(f"   {name:<{column}} {lines[0] if lines else ''}".rstrip(), err=err)
        for line in lines[1:]:
            typer.echo(f"   {'':<{column}} {line}", err=err)


def _as_text(value: Any) -> str:
    if isinstance(value, list) and value and all(isinstance(each, str) for each in value):
        return ("; " if any("," in each for each in value) else ", ").join(value)
    is_json = value is None or isinstance(value, dict | list | bool)
    return json.dumps(value) if is_json else str(value)


def print_findings(findings: Iterable["Finding"]) -> None:
    """Print each finding: the observation, the rule, and the remedy."""
    for each in findings:
        mark = typer.style(each.mark, fg="red" if each.stops else "yellow")
        typer.echo(f"{mark}: {printable(each.about)}")
        print_facts({"seen": each.seen, "wanted": each.wanted, "do": each.do})
