"""The flags of a judge: fields of its one frozen dataclass of options, declared once.

The command line makes its options from the flags; `read` reads the values, and `again` writes the
command that repeats a run.
"""

import math
import os
import shlex
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field, fields, replace
from enum import StrEnum
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import urlsplit

from x402sim.protocol.networks import BASE_SEPOLIA, Network, network_named
from x402sim.suite.case import ONLY
from x402sim.suite.started import START_S, WAIT_S
from x402sim.text.keys import keyless
from x402sim.text.program import program

AnyKind = TypeVar("AnyKind", bound=StrEnum)
_FLAG = "flag"


@dataclass(frozen=True, slots=True)
class Flag:
    """One flag. `name` is the name of the command line's option, in snake case."""

    name: str
    help: str
    _: KW_ONLY
    kind: type = str
    metavar: str | None = None
    default: Any = None
    """The value of a flag that is not given."""
    read: Callable[[Any], Any] = lambda value: value
    """Reads a value (of a repeatable flag, the list of values); raises `ValueError`."""
    shows: Callable[[Any], str | None] | None = None
    """Writes a value for the command that repeats a run, without secrets; None omits the flag."""
    variable: str | None = None
    """The environment variable that sets the flag, too."""
    is_repeatable: bool = False
    is_repeated: bool = True
    """Whether the command that repeats a run includes the flag."""

    @property
    def option(self) -> str:
        """The name of the option."""
        return f"--{self.name.replace('_', '-')}"


KEEP = Flag(
    "keep",
    "Add the verdict on each --sdk to this file, for `conformance site`.",
    metavar="FILE",
    read=Path,
    is_repeated=False,
)
"""The file of verdicts, of every subject that --sdk can install."""
STRICT = Flag("strict", "Treat SHOULD failures as failures.", kind=bool, default=False)
"""The only flag of the engine that a repetition needs, for every subject."""


def flag(
    meaning: str,
    *,
    name: str = "",
    unset: Any = None,
    factory: Callable[[], Any] | None = None,
    **more: Any,
) -> Any:
    """Declare a field of options as a flag, named `name` or as the field; `more` is for `Flag`.

    `unset`, or the result of `factory`, is the field's value in options made without a command
    line.
    """
    metadata = {_FLAG: Flag(name, meaning, **more)}
    if factory is not None:
        return field(default_factory=factory, metadata=metadata)
    return field(default=unset, metadata=metadata)


def above_zero(what: str, option: str) -> Callable[[float], float]:
    """Return a reader of finite numbers above 0; `what` is the unit in its `ValueError`."""

    def read(value: float) -> float:
        if not 0 < value < math.inf:
            raise ValueError(f"{option} is a number of {what} above 0, not {value}")
        return value

    return read


def patience_flag(what: str, usual_s: float) -> Any:
    """Declare the limit in seconds for one `what`."""
    return flag(
        f"Seconds that one {what} may take.",
        kind=float,
        unset=usual_s,
        default=usual_s,
        metavar="SECONDS",
        read=above_zero("seconds", "--patience"),
    )


def wait_flag(meaning: str) -> Any:
    """Declare how many seconds a subject may take to its first answer."""
    return flag(meaning, kind=float, metavar="SECONDS", read=above_zero("seconds", "--wait"))


def env_flag() -> Any:
    """Declare the option for further variables that a command inherits."""
    return flag(
        "Variable that the command inherits, too, beside PATH, keys of language models and the "
        "like; repeatable.",
        metavar="NAME",
        is_repeatable=True,
        default=(),
        read=_set,
        unset=(),
    )


def _set(names: Sequence[str]) -> tuple[str, ...]:
    """Read names of variables; raises `ValueError` for a variable that is not set."""
    if missing := [name for name in names if name not in os.environ]:
        raise ValueError(f"{', '.join(missing)} is not set")
    return tuple(names)


PATIENCE_S = 15.0
"""The usual seconds of an answer, at most."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OfJudge:
    """The options that the judges of payers, facilitators and servers have in common."""

    subject: Any
    """The subject, which has a name for reports, `shown`."""
    rerun: str = ""
    """The command to repeat the run, without --only."""
    sdk: tuple[str, ...] = flag(
        "Install and judge a published version, such as x402==2.25.0 or @x402/evm@2.27.0; "
        "repeatable, for a table.",
        metavar="PACKAGE",
        is_repeatable=True,
        default=(),
        read=tuple,
        unset=(),
    )
    network: Network = flag(  # noqa: RUF009 - it declares a field
        "Network of the payments.",
        metavar="NAME",
        default=BASE_SEPOLIA.name,
        read=network_named,
        unset=BASE_SEPOLIA,
    )
    seed: int = flag(
        "Random seed of keys, nonces and goods.", kind=int, metavar="N", default=0, unset=0
    )
    patience: float = patience_flag("answer", PATIENCE_S)
    wait: float | None = wait_flag(
        f"Seconds until the first answer. [default: {START_S:g} after --start, else {WAIT_S:g}]"
    )
    env: tuple[str, ...] = env_flag()
    jobs: int | None = flag(
        "Plays side by side. [default: as many as the cores allow]",
        kind=int,
        metavar="N",
    )

    @property
    def shown(self) -> str:
        """The subject's name in reports."""
        return ", ".join(self.sdk) or str(self.subject.shown)


def flags_of(options: type[Any]) -> tuple[Flag, ...]:
    """Return the flags of a dataclass of options, in order."""
    return tuple(_flags(options).values())


def _flags(options: type[Any]) -> dict[str, Flag]:
    """Return the flags by the names of their fields; the subject's own flags come first."""
    common = [each.name for each in fields(OfJudge)] if issubclass(options, OfJudge) else ()
    ordered = sorted(fields(options), key=lambda each: each.name in common)
    declared = {each.name: each.metadata[_FLAG] for each in ordered if each.metadata}
    return {name: replace(each, name=each.name or name) for name, each in declared.items()}


def given(options: type[Any], values: Mapping[str, Any]) -> dict[str, Any]:
    """Return the value of every flag, by name: the given value, or the default."""
    every = {each.name: each.default for each in (*flags_of(options), STRICT)}
    assert values.keys() <= every.keys(), f"no such flag: {values.keys() - every.keys()}"
    return every | {name: each for name, each in values.items() if each is not None}


def read(options: type[Any], values: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields with their flags' values; a `ValueError` names the flag or variable."""
    every, found = given(options, values), {}
    for name, each in _flags(options).items():
        if (value := every[each.name]) is None:
            continue
        try:
            found[name] = each.read(value)
        except ValueError as wrong:
            variable = each.variable
            is_there = variable and os.environ.get(variable) == value
            named = variable if variable and is_there else each.option
            text = str(wrong)
            raise ValueError(text if text.startswith(named) else f"{named}: {text}") from None
    return found


def one_of(members: Sequence[AnyKind], plural: str) -> Callable[[str], tuple[AnyKind, ...]]:
    """Return a reader of an enumeration's members, separated by commas; it raises `ValueError`."""
    known = {str(each): each for each in members}

    def read(text: str) -> tuple[AnyKind, ...]:
        try:
            return tuple(known[each.strip()] for each in text.split(","))
        except KeyError as wrong:
            raise ValueError(f"{plural} are {', '.join(known)}; {wrong} is none") from None

    return read


def command_like(example: str) -> Callable[[str], tuple[str, ...]]:
    """Return a reader of a command's words; its `ValueError` shows the example."""

    def read(text: str) -> tuple[str, ...]:
        words = tuple(shlex.split(text))
        if not words:
            raise ValueError(f'give a command, as in --start "{example}"')
        return words

    return read


def port_for(what: str, so: str) -> Callable[[str], int]:
    """Return a reader of a local URL, http://127.0.0.1:PORT, at which the judge serves something.

    The reader's `ValueError` names the service, `what`, and the user's next step, `so`.
    """

    def read(text: str) -> int:
        url = urlsplit(text)
        if url.scheme != "http" or url.hostname not in ("127.0.0.1", "localhost") or not url.port:
            raise ValueError(
                f"{text} is no address that the judge can serve {what} at: give "
                f"http://127.0.0.1:PORT with a free port, and {so}"
            )
        return url.port

    return read


def again(
    words: Iterable[str],
    options: type[Any],
    values: Mapping[str, Any],
    behind: Sequence[str] = (),
) -> str:
    """Return the command that repeats a run: every flag that matters, and no secret.

    `words` follow the name of the command; `behind` are the words of a subject's own command, after
    the flags and the place of --only.
    """
    every = given(options, values)
    command = [*program(), "conformance", *words]
    for each in (*flags_of(options), STRICT):
        value = every[each.name]
        if not each.is_repeated or value is None or value == each.default:
            continue
        for one in value if each.is_repeatable else (value,):
            command += _words(each, one)
    text = shlex.join(command)
    for each in flags_of(options):
        text = text.replace(f"'${each.variable}'", f'"${each.variable}"')
    return keyless(f"{text}{ONLY} -- {shlex.join(behind)}" if behind else text)


def _words(flag: Flag, value: Any) -> Iterator[str]:
    """Yield the words of one option, without secrets."""
    match value:
        case False:
            return
        case True:
            yield flag.option
            return
        case float():
            shown: str | None = f"{value:g}"
        case _:
            shown = flag.shows(value) if flag.shows else str(value)
    if shown is not None:
        yield from (flag.option, shown)
