"""A subject: a kind of program to judge, with its options, start and cases.

A judgement has these steps: read the options from flags; `begin` with the subject's preflight and
plan; run the cases, by the one engine; write the verdict and the reports.

`SUBJECTS` is the table of subjects; the last functions wait for a subject that is not ready yet.
"""

import asyncio
import json
import shlex
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, contextmanager
from dataclasses import dataclass, field
from importlib import import_module
from typing import Any, Generic, Protocol, TypeVar

import httpx

from x402sim.clock import Clock
from x402sim.suite.engine import Judging

Tell = Callable[[str], None]
"""Tells the user what a run waits for."""


class Chosen(Protocol):
    """The options of a subject, as the user chose. Each flag is a field (`options.flag`)."""

    @property
    def shown(self) -> str:
        """The subject's name in reports, without secrets: a URL or a command."""

    @property
    def rerun(self) -> str:
        """The command that repeats the run, without --only."""


AnyChosen = TypeVar("AnyChosen", bound=Chosen)


@dataclass(frozen=True, slots=True, kw_only=True)
class Subject(Generic[AnyChosen]):
    """A kind of subject: a row of `SUBJECTS`.

    `begin` starts the subject or connects to it, and plans. It raises `NotReady` with one line: the
    observation, the requirement, and the user's next step. The end of its block stops everything
    `begin` has started.
    """

    name: str
    words: str
    """The words after the name on the command line, such as "-- COMMAND…"."""
    words_help: str
    help: str = ""
    """The text of `conformance NAME --help`; the usual subject's text is in `commands.help`."""
    options: type[AnyChosen]
    read: Callable[[Sequence[str], Mapping[str, Any]], AnyChosen]
    """Returns the options, from the words after the name and the flags by name. Raises
    `ValueError`."""
    cases: Callable[[], Sequence[Any]]
    documents: tuple[str, ...]
    """The first parts of its ids; the user may leave out the first document."""
    sections: Mapping[str, str]
    """The title of each section."""
    begin: Callable[[AnyChosen, Sequence[Any], Tell], AbstractAsyncContextManager[Judging[Any]]]
    texts: Callable[[str], str] = field(default=lambda check_id: "")
    """Returns the text of the clause of an id; empty without a clause."""
    needs: Mapping[Any, str] = field(default_factory=dict)
    """The words of `--list` for the needs of cases."""
    costs: Callable[[Sequence[Any]], str] = field(default=lambda cases: "")
    """Returns the cost of an id's cases for `--list`, such as "pays 2"."""


# --- the table of subjects -------------------------------------------------------------------


SUBJECTS = {
    "service": ("x402sim.suite.service.subject", "SERVICE"),
    "payer": ("x402sim.suite.payer.subject", "PAYER"),
    "facilitator": ("x402sim.suite.facilitator.subject", "FACILITATOR"),
    "server": ("x402sim.suite.server.subject", "SERVER"),
    "vectors": ("x402sim.suite.vectors.subject", "VECTORS"),
}
"""The module and the name of each subject; imported on use."""
DEFAULT = "service"
"""The subject of a command that names none."""


def instead(name: str) -> str:
    """Return the right judge for a subject that was given to another judge."""
    return f"its judge is x402sim conformance{f' {name}' * (name != DEFAULT)}"


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


# --- waiting for a subject -------------------------------------------------------------------


LOOK_S = 0.05
"""Seconds between two looks at a command: a command may start in no time."""
URL_LOOK_S = 0.5
"""Seconds between two looks at a URL, which may be far away."""
LONG_S = 10.0
"""Seconds of waiting for a subject until the user is told."""
STARTING = (502, 503, 504)
"""The statuses of a gateway whose backend does not answer yet."""
NOBODY = "nobody answers"
_CLOCK = Clock()


async def until_ready(
    look: Callable[[], Awaitable[str]],
    wait_s: float,
    *,
    every_s: float = LOOK_S,
    on_wait: Tell = lambda why: None,
) -> str:
    """Look until nothing is in the way, for at most `wait_s` seconds; return the last obstacle.

    `look` returns why a subject is not ready, "" once it is ready, and raises for a fault that
    waiting cannot mend; `on_wait` gets the first reason to wait.
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
        if not limit.expired():  # the timeout is the look's own
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
    """Tell the user, within a `with` block, that a subject takes long.

    The text is told when `steps` has not changed for `LONG_S` seconds, after `waits_s` seconds of
    the judge's own waiting.
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
    """Wait until somebody answers at a URL, and tell the user; return why nobody does, or ""."""

    async def look() -> str:
        try:
            async with http.stream("GET", url, timeout=wait_s) as answer:  # a body may have no end
                status = answer.status_code
        except httpx.TransportError as error:
            return "" if "SSL" in str(error) else silent(error)  # waiting mends no certificate
        return f"it answers {status}" if status in STARTING else ""

    return await until_ready(look, wait_s, every_s=URL_LOOK_S, on_wait=waiting(url, wait_s, tell))


def waiting(url: str, wait_s: float, tell: Tell) -> Tell:
    """Return a function that tells the user, given the reason, that a run waits for a URL."""
    return lambda why: tell(f"waiting at most {wait_s:g} s for {url}: {why}")


def silent(error: httpx.HTTPError) -> str:
    """Return why there is no answer."""
    return f"{NOBODY} ({type(error).__name__})"


def in_vain(url: str, why: str, wait_s: float) -> str:
    """Return that a subject did not get ready in time, with the last observation."""
    return f"{url}: {why}, after waiting for {wait_s:g} s"
