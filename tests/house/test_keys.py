"""A key in the wrong place appears in no error: it is thrown at all that users call."""

import asyncio
import inspect
from collections.abc import Iterator
from enum import Enum
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

from tests.cli.runner import run
from tests.house import PUBLIC, names_of
from x402sim import LiveWorld, PaymentAuth, SessionAuth, Wallet, World
from x402sim.cli import COMMANDS
from x402sim.suite.options import again
from x402sim.suite.payer.play import PayerCommand
from x402sim.suite.payer.subject import PayerOptions

DIGITS = "5ec2e7" * 10 + "abcd"
KEY, RAW = "0x" + DIGITS, bytes.fromhex(DIGITS)
PHRASE = "legal winner thank year wave sausage worth useful legal winner thank yellow"
SHAPES: dict[str, Any] = {
    "text": KEY,
    "no prefix": DIGITS,
    "capitals": KEY.upper(),
    "in a text": f"--key={KEY} http://127.0.0.1:1",
    "bytes": RAW,
    "list": [KEY],
    "list of bytes": [RAW],
    "mapping": {"key": KEY},
    "number": int(DIGITS, 16),
    "phrase": PHRASE,
    "words": PHRASE.split(),
}
SKIPPED = {
    "x402sim.judging.judge",  # it starts what it is given
    "x402sim.payer.tools.call_paid",  # httpx refuses it, as any client's argument
    "x402sim.payer.tools.tool_request",
}


def assert_hidden(text: str) -> None:
    """No part of the key or of the phrase is in a text that could be joined to the whole."""
    assert DIGITS[:24].lower() not in text.lower(), text
    assert repr(RAW)[2:14] not in text, text
    assert str(int(DIGITS, 16))[:24] not in text, text
    assert "winner thank" not in text.replace("', '", " "), text


def public() -> Iterator[tuple[str, Any]]:
    """Yield the public functions and classes of programs, each once; Python makes an error or an enum."""
    seen = set()
    for module, some in PUBLIC.items():
        at = import_module(module)
        for name in some or names_of(at):
            found = getattr(at, name)
            is_own = getattr(found, "__module__", "").startswith("x402sim")
            full = f"{module}.{name}"
            is_pythons = isinstance(found, type) and issubclass(found, BaseException | Enum)
            is_new = full not in SKIPPED and id(found) not in seen
            if callable(found) and is_own and is_new and not is_pythons:
                seen.add(id(found))
                yield full, found


def calls(function: Any, value: Any) -> Iterator[dict[str, Any]]:
    """Yield keywords for calls: the value for each argument, and for what must be given too."""
    parameters = inspect.signature(function).parameters.values()
    named = [p for p in parameters if p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD)]
    needed = {p.name: value for p in named if p.default is p.empty and p.name != "self"}
    for each in named:
        if each.name != "self":
            yield {**needed, each.name: value}


def text_of(error: Exception) -> str:
    """Return the text of an error with its notes; a file that does not exist keeps its name."""
    text = str(error.strerror) if isinstance(error, OSError) else str(error)
    return " ".join([text, *getattr(error, "__notes__", ())])


async def errors_of(function: Any, value: Any) -> list[str]:
    texts = []
    for keywords in calls(function, value):
        try:
            called = function(**keywords)
            if inspect.isawaitable(called):
                await called
        except Exception as error:  # noqa: BLE001 (whatever it is)
            texts.append(text_of(error))
    return texts


@pytest.mark.parametrize("shape", SHAPES)
def test_no_public_call_shows_it(
    shape: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    shown = {name: asyncio.run(errors_of(function, SHAPES[shape])) for name, function in public()}
    assert sum(map(len, shown.values())) > 50
    for name, texts in shown.items():
        for text in texts:
            assert_hidden(f"{name}: {text}")


QUIET = {"note", "expect", "play"}
"""Methods of a story that record what they are given, as they should."""


@pytest.mark.parametrize("shape", [each for each in SHAPES if each != "number"])  # it may sleep
def test_no_call_of_a_story_shows_it(shape: str) -> None:
    texts: list[str] = []

    async def story(world: LiveWorld) -> None:
        alice = await world.payer("alice", balance="1.00")
        for part in (world, alice):
            for name, method in inspect.getmembers(part, inspect.ismethod):
                if name[0] != "_" and name not in QUIET:
                    found = await errors_of(method, SHAPES[shape])
                    texts.extend(f"{name}: {text}" for text in found)

    World().play(story)
    assert len(texts) > 20
    for text in texts:
        assert_hidden(text)


@pytest.mark.parametrize("command", COMMANDS)
def test_no_command_shows_it(command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for words in ([KEY], ["--" + KEY], ["--seed", KEY], ["--port", KEY], ["--network", KEY]):
        done = run(command, *words, stdin="")
        assert done.exit_code in (0, 1, 2)
        assert_hidden(done.output)


def test_an_error_says_what_to_write() -> None:
    for make in (PaymentAuth, SessionAuth):
        wanted = r"^wallet: expected Wallet, got what looks like a private key$"
        with pytest.raises(ValueError, match=wanted):
            make(KEY)  # type: ignore[arg-type]
    wrong: Any
    for wrong in (5, None, [KEY], Wallet(KEY)):
        with pytest.raises(ValueError, match=f"got an object of the class {type(wrong).__name__}$"):
            Wallet(wrong)


def test_an_amount_names_its_argument() -> None:
    for name in ("max_amount", "max_total"):
        with pytest.raises(ValueError, match=f"^{name}: expected a plain decimal .*, got '0,05'"):
            PaymentAuth(Wallet(KEY), **{name: "0,05"})  # type: ignore[arg-type]


def test_a_report_of_a_judge_shows_none_of_its_subjects_command() -> None:
    words = ("agent", "--key", KEY)
    assert PayerCommand(words).shown == "agent --key <hidden>"
    assert again(("payer",), PayerOptions, {}, behind=words).endswith(" -- agent --key <hidden>")
