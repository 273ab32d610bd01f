"""A subject: what is judged, how it is started, spoken to and stopped. One engine judges them all.

The way of a judgement, in this order: a subject's options, read of flags; its preflight and plan,
where it begins; the engine, which runs its cases; the verdict, and its reports.

`SUBJECTS` is the table of all; the last functions wait for a subject that may not be there yet.
"""

import asyncio
import json
import shlex
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, contextmanager
from dataclasses import dataclass, field
from importlib import import_module
from typing import Any, Generic, Protocol, TypeVar

import httpx

from x402sim.clock import Clock
from x402sim.report.results import Result

Tell = Callable[[str], None]
"""Tells the user what a run waits for."""
Begin = Callable[[str], None]
"""Is called with each id before its first case runs."""


class Chosen(Protocol):
    """What a user has chosen: the options of a subject. Their flags are fields (`options.flag`)."""

    @property
    def shown(self) -> str:
        """What reports call the subject: a URL, or a command; it shows no secret."""

    @property
    def rerun(self) -> str:
        """The command that repeats the run, without --only."""


AnyChosen = TypeVar("AnyChosen", bound=Chosen)


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What a run will do: the cases that can be judged, what is printed before, how long it takes.

    `unspoken` has the dialects that the subject does not speak, each with what shows it: nothing of
    them is in the results.
    """

    cases: Sequence[Any] = ()
    lines: tuple[str, ...] = ()
    seconds: float = 0.0
    unspoken: Mapping[str, str] = field(default_factory=dict)

    @property
    def ids(self) -> tuple[str, ...]:
        """The ids that can be judged, in at least one dialect."""
        return tuple(dict.fromkeys(case.id for case in self.cases))


class Judging(Protocol):
    """A run that has begun: the subject is there, and worth judging."""

    @property
    def plan(self) -> Plan:
        """The plan."""

    @property
    def cases(self) -> Sequence[Any]:
        """The cases that get a result: those of the plan, and those left out for a reason."""

    def run(self, on_begin: Begin) -> AsyncIterator[Result]:
        """Run the cases; yield the result of each id as soon as it is certain."""

    def done(self) -> str:
        """Return what was done, such as "2178 requests"."""

    def left_open(self, results: Sequence[Result]) -> tuple[list[str], list[str]]:
        """Return what to tell besides the results, and what --require demanded in vain."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Subject(Generic[AnyChosen]):
    """A kind of subject: a row of `SUBJECTS`.

    `begin` starts the subject or connects to it, and plans; it raises `NotReady` in one line that
    says what was seen, what is wanted, and what to do. Leaving it stops all that it has started.
    """

    name: str
    words: str
    """What stands behind the name on the command line, such as "-- COMMAND…"."""
    words_help: str
    help: str = ""
    """What `conformance NAME --help` says; that of the usual subject is in `commands.help`."""
    options: type[AnyChosen]
    read: Callable[[Sequence[str], Mapping[str, Any]], AnyChosen]
    """Returns the options, of the words behind the name and the flags by their names. Raises
    `ValueError`."""
    cases: Callable[[], Sequence[Any]]
    documents: tuple[str, ...]
    """What its ids begin with; the first may be left out."""
    sections: Mapping[str, str]
    """The title of each section."""
    begin: Callable[[AnyChosen, Sequence[Any], Tell], AbstractAsyncContextManager[Judging]]
    texts: Callable[[str], str] = field(default=lambda check_id: "")
    """Returns the text of the clause behind an id; empty without one."""
    needs: Mapping[Any, str] = field(default_factory=dict)
    """What `--list` calls the needs of cases."""
    costs: Callable[[Sequence[Any]], str] = field(default=lambda cases: "")
    """Returns what `--list` says that the cases of an id cost, such as "pays 2"."""


# --- the table of subjects -------------------------------------------------------------------


SUBJECTS = {
    "service": ("x402sim.suite.service.subject", "SERVICE"),
    "payer": ("x402sim.suite.payer.subject", "PAYER"),
    "facilitator": ("x402sim.suite.facilitator.subject", "FACILITATOR"),
    "server": ("x402sim.suite.server.subject", "SERVER"),
}
"""The module and the name of each subject, imported when it is used."""
DEFAULT = "service"
"""What is judged if no subject is named."""

_WORDS = {
    "service": "",
    "payer": " payer",
    "facilitator": " facilitator",
    "server": " server",
}


def instead(name: str) -> str:
    """Return how to judge a subject that was given to the judge of another one."""
    return f"its judge is x402sim conformance{_WORDS[name]}"


def as_server(*sold: tuple[str, str, Any]) -> str:
    """Return how to judge a server of the x402 standard; `sold` are methods, targets and bodies."""
    items = [" ".join(filter(None, (method, path, json.dumps(body) if body else "")))
             for method, path, body in sold]  # fmt: skip
    first, *others = [shlex.quote(each.removeprefix("GET ")) for each in items]
    also = "".join(f" --also {each}" for each in others)
    return (
        f"{instead('server')} {first}{also} --start COMMAND, or, for one that runs already, with "
        "its URL and --facilitator http://127.0.0.1:PORT"
    )


def subject(name: str) -> Subject[Any]:
    """Return a subject of the table."""
    module, attribute = SUBJECTS[name]
    found = getattr(import_module(module), attribute)
    assert isinstance(found, Subject)
    return found


# --- waiting until one is ready --------------------------------------------------------------


LOOK_S = 0.05
"""How long to wait between two looks at a command, which may take no time to start."""
URL_LOOK_S = 0.5
"""How long between two looks at a URL, which may be far away."""
LONG_S = 10.0
"""Seconds of waiting for a subject until the user is told."""
STARTING = (502, 503, 504)
"""What a gateway answers for what is behind it and does not answer yet."""
NOBODY = "nobody answers"
_CLOCK = Clock()


async def until_ready(
    look: Callable[[], Awaitable[str]],
    wait_s: float,
    *,
    every_s: float = LOOK_S,
    on_wait: Tell = lambda why: None,
) -> str:
    """Look until there is nothing in the way, `wait_s` seconds at most; return what was last.

    `look` returns why a subject is not ready, "" once it is, and raises what waiting cannot mend;
    `on_wait` is called once with why it is waited for.
    """
    why = f"{NOBODY} yet"
    try:
        async with asyncio.timeout(wait_s) as limit:
            is_first = True
            while why := await look():
                if is_first:
                    on_wait(why)
                is_first = False
                await _CLOCK.sleep(every_s)
    except TimeoutError:
        if not limit.expired():  # it is the look's own
            raise
    return why


def once(tell: Tell) -> Tell:
    """Return a `Tell` that passes on only the first text."""
    texts = 0

    def first(text: str) -> None:
        nonlocal texts
        texts += 1
        if texts == 1:
            tell(text)

    return first


@contextmanager
def patiently(
    tell: Tell, text: str, waits_s: float = 0, steps: Callable[[], int] = lambda: 0
) -> Iterator[None]:
    """Tell within a `with` block that a subject takes long: the number of `steps` has not changed
    for `LONG_S` seconds, after the `waits_s` seconds of the judge's own waiting.
    """

    async def watch() -> None:
        await _CLOCK.sleep(waits_s)
        before = -1
        while before != (before := steps()):
            await _CLOCK.sleep(LONG_S)
        tell(f"{text}: {LONG_S:g} s until now")

    watching = asyncio.create_task(watch())
    try:
        yield
    finally:
        watching.cancel()


async def until_url_answers(
    http: httpx.AsyncClient, url: str, wait_s: float, tell: Tell = lambda text: None
) -> str:
    """Wait until somebody answers at a URL, and tell so; return why nobody does, "" if they do."""

    async def look() -> str:
        try:
            async with http.stream("GET", url, timeout=wait_s) as answer:  # a body may have no end
                status = answer.status_code
        except httpx.TransportError as error:
            return "" if "SSL" in str(error) else silent(error)  # a certificate does not mend
        return f"it answers {status}" if status in STARTING else ""

    return await until_ready(look, wait_s, every_s=URL_LOOK_S, on_wait=waiting(url, wait_s, tell))


def waiting(url: str, wait_s: float, tell: Tell) -> Tell:
    """Return what tells that a URL is waited for, given why."""
    return lambda why: tell(f"waiting at most {wait_s:g} s for {url}: {why}")


def silent(error: httpx.HTTPError) -> str:
    """Return why there is no answer."""
    return f"{NOBODY} ({type(error).__name__})"


def in_vain(url: str, why: str, wait_s: float) -> str:
    """Return that a subject at a URL was waited for in vain, and what was observed last."""
    return f"{url}: {why}, after waiting for {wait_s:g} s"
