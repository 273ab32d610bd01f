"""Subjects that the judge starts: a command, an application, and one that runs already."""

import asyncio
import os
import socket
import sys
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import httpx
import pytest
from starlette.applications import Starlette

from x402sim.protocol.networks import BASE_SEPOLIA
from x402sim.suite import started
from x402sim.suite.kept import Written
from x402sim.suite.started import (
    RESERVED,
    App,
    Command,
    Given,
    Running,
    RunsAlready,
    command,
    error_lines,
    free_port,
    last_line,
)
from x402sim.suite.verdict import NotReady


def given() -> Given:
    return Given(port=free_port(), network=BASE_SEPOLIA)


class Kept:
    """Stands for a command that has written a text."""

    def __init__(self, text: str, returncode: int | None = None) -> None:
        self.log, self.returncode = Written(first=bytearray(text.encode())), returncode


# --- what it wrote ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "line"), [("a\n b \n \n", "b"), ("", ""), ("\n", ""), ("x" * 201, "x" * 200)]
)
def test_the_last_line_is_the_last_one_with_something_in_it(text: str, line: str) -> None:
    assert last_line(text) == line


NODE = """node:internal/modules/cjs/loader:1210
  throw err;
  ^

Error: Cannot find module '/app/shop.js'
    at Module._resolveFilename (node:internal/modules/cjs/loader:1207:15) {
  code: 'MODULE_NOT_FOUND',
  requireStack: []
}

Node.js v20.20.2
"""
PYTHON = """Traceback (most recent call last):
  File "/app/shop.py", line 3, in <module>
    import flask
ModuleNotFoundError: No module named 'flask'
"""
RUBY = """a.rb:13:in 'parse': unexpected token (JSON::ParserError)
\tfrom a.rb:13:in '<main>'
"""
UVICORN = """INFO:     Waiting for application startup.
ERROR:    [Errno 98] error while attempting to bind on address ('127.0.0.1', 8000)
INFO:     Waiting for application shutdown.
"""


@pytest.mark.parametrize(
    ("text", "told"),
    [
        (NODE, "Error: Cannot find module '/app/shop.js'"),
        (PYTHON, "ModuleNotFoundError: No module named 'flask'"),
        (UVICORN, "ERROR:    [Errno 98] error while attempting to bind on address"),
        (RUBY, "a.rb:13:in 'parse': unexpected token (JSON::ParserError)"),
        ("ready\nno port today\n", "no port today"),
        ("", "nothing"),
    ],
)
def test_of_an_output_the_error_is_told(text: str, told: str) -> None:
    assert error_lines(text).startswith(told)
    assert "Node.js" not in error_lines(text)


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("Error: old\nError: new\n  at pay\nhint\nmore\nrest", "Error: new"),
        ("Error: new\nhint\nmore\nrest", "Error: new hint more"),
        ("  indented alone", "indented alone"),
        ("Error: new\n\n{\nhint", "Error: new hint"),
        ("Error: " + "x" * 300, "Error: " + "x" * 293),
    ],
)
def test_the_last_error_is_told_with_two_lines_of_its_own_in_short(text: str, told: str) -> None:
    assert error_lines(text) == told


@pytest.mark.parametrize(
    ("command", "said"),
    [
        (None, ""),
        (Kept("ready\nError: old\nbye\n"), "its last line: bye"),
        (Kept(""), "it logged no line"),
        (Kept("Error: no port\nbye\n", 1), "it wrote: Error: no port bye"),
    ],
)
def test_the_end_of_an_output_is_told(command: Any, said: str) -> None:
    assert Running("http://127.0.0.1:9", command).ending() == said


def test_an_end_by_itself_is_told_with_the_exit_code() -> None:
    assert Running("", Kept("", 0)).has_ended == "it ended by itself, exit code 0"  # type: ignore[arg-type]
    assert Running("", Kept("")).has_ended == Running("").has_ended == ""  # type: ignore[arg-type]


# --- ports ------------------------------------------------------------------------------------


def test_a_url_without_a_port_is_at_port_80() -> None:
    assert (Running("http://a").port, Running("http://a:81").port) == (80, 81)


def test_a_port_with_a_listener_is_not_free(monkeypatch: pytest.MonkeyPatch) -> None:
    draw, drawn = started._ports.randrange, list[int]()

    with socket.create_server(("127.0.0.1", 0)) as listener:
        taken = listener.getsockname()[1]
        monkeypatch.setattr(started, "LAST_PORT", 65_535 - taken)  # its reservation is possible
        drawn.append(taken)
        monkeypatch.setattr(
            started._ports, "randrange", lambda *_: drawn.pop() if drawn else draw(10_000, 20_000)
        )
        assert free_port() != taken
    assert not drawn


def test_a_port_is_reserved_until_64_more_are_taken() -> None:
    def is_reserved(port: int) -> bool:
        with socket.socket(type=socket.SOCK_DGRAM) as sock:
            try:
                sock.bind(("127.0.0.1", port + started.LAST_PORT))
            except OSError:
                return True
        return False

    first = free_port()
    for _ in range(RESERVED - 1):
        free_port()
    assert is_reserved(first)
    last = free_port()
    assert (is_reserved(first), is_reserved(last)) == (False, True)
    assert len(started._reserved) == RESERVED


# --- a command --------------------------------------------------------------------------------


SERVES = """
import http.server, os, sys
sys.stderr.write(" ".join(sorted(each for each in os.environ if each.startswith("X402SIM"))) + "\\n")
address = "127.0.0.1", int(os.environ["PORT"])
http.server.HTTPServer(address, http.server.BaseHTTPRequestHandler).serve_forever()
"""


async def answers(url: str) -> bool:
    try:
        async with httpx.AsyncClient(trust_env=False) as http:
            return (await http.get(url)).status_code == 501
    except httpx.TransportError:
        return False


def python(program: str, port: int | None = None, **more: Any) -> Command[Given]:
    shown: dict[str, Any] = {
        "words": (sys.executable, "-c", program), "answers": answers, "guide": "Judge it",
        "url": f"http://127.0.0.1:{port or '{port}'}/x", "failure": "GET {url} is not answered",
    }  # fmt: skip
    return Command(**shown | more)


def run(main: Coroutine[Any, Any, Any]) -> Any:
    return asyncio.run(main)


def test_a_command_listens_at_the_judges_port_or_at_its_own_one_at_a_time() -> None:
    async def main(subject: Command[Given], its: Given) -> str:
        async with subject.start(its) as running:
            assert await answers(running.url)
            log = running.log()
        assert not await answers(running.url), "it ends with the block"
        assert log.startswith("X402SIM_ASSET X402SIM_ASSET_NAME X402SIM_ASSET_VERSION X402SIM_NETW")
        return running.url

    its, own = given(), free_port()
    assert run(main(python(SERVES), its)) == f"http://127.0.0.1:{its.port}/x"
    assert run(main(python(SERVES, own), its)) == f"http://127.0.0.1:{own}/x"
    assert (python("").is_single, python("", own).is_single) == (False, True)


@pytest.mark.parametrize(
    ("program", "more", "how"),
    [
        (
            "import sys; sys.exit('no port today')",
            {"ended": " (as it wanted)"},
            "it ended by itself, exit code 1 (as it wanted); it wrote: no port today",
        ),
        (
            "print('Error: no port'); raise SystemExit(2)",
            {},
            "it ended by itself, exit code 2; it wrote: Error: no port",
        ),
        (
            "import time; time.sleep(60)",
            {"wait_s": 0.3},
            "it did not answer within 0.3 s; it wrote: nothing",
        ),
    ],
)
def test_a_command_that_is_not_ready_is_told_with_what_it_wrote(
    program: str, more: dict[str, Any], how: str
) -> None:
    async def main() -> None:
        async with python(program, 81, **more).start(given()):
            pass

    with pytest.raises(NotReady) as raised:
        run(main())
    begins = "GET http://127.0.0.1:81/x is not answered, so it is not ready: "
    assert str(raised.value) == f"{begins}{how}. The guide, `Judge it`, says what it gets"


def test_another_program_that_answers_at_the_port_is_not_the_command() -> None:
    async def yes(url: str) -> bool:
        await asyncio.sleep(0.5)
        return True

    async def main() -> None:
        async with python("raise SystemExit(3)", answers=yes).start(given()):
            pass

    with pytest.raises(NotReady, match="it ended by itself, exit code 3"):
        run(main())


def test_a_command_that_does_not_exist_is_told_without_its_secret() -> None:
    async def main(*words: str) -> None:
        async with command(words, {}, ""):
            pass

    with pytest.raises(NotReady, match="no-such-program a cannot be started: No such file"):
        run(main("no-such-program", "a"))
    with pytest.raises(NotReady) as raised:
        run(main("no-such-program", "0x" + "1f" * 32))
    assert "1f1f" not in str(raised.value)


CLEANS_UP = """
import signal, sys, time
def end(*_):
    {}
signal.signal(signal.SIGTERM, end)
open(sys.argv[1], "w").close()
time.sleep(60)
"""


@pytest.mark.parametrize(
    ("on_term", "has_cleaned_up"),
    [("open(sys.argv[1], 'w').write('clean'); sys.exit()", True), ("pass", False)],
    ids=["ends", "stays"],
)
def test_a_command_is_asked_to_end_before_it_is_killed(
    on_term: str, has_cleaned_up: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(started, "STOP_S", 5.0 if has_cleaned_up else 0.2)
    file = tmp_path / "file"

    async def main() -> int:
        words = (sys.executable, "-c", CLEANS_UP.format(on_term), str(file))
        async with command(words, {}, "http://a") as running:
            while not file.exists():
                await asyncio.sleep(0.01)
            assert running.command is not None
            return running.command.pid

    pid = run(main())
    assert file.read_text() == "clean" * has_cleaned_up
    with pytest.raises(ProcessLookupError):
        os.killpg(pid, 0)


# --- an application, and one that runs --------------------------------------------------------


def hello(_: object) -> Starlette:
    return Starlette()


def broken(_: object) -> Callable[..., Any]:
    async def app(scope: dict[str, Any], receive: Any, send: Any) -> None:
        await receive()
        await send({"type": "lifespan.startup.failed", "message": "no"})

    return app


async def asked(http: httpx.AsyncClient, url: str) -> httpx.Response | httpx.TransportError:
    try:
        return await http.get(url)
    except httpx.TransportError as error:
        return error


def test_an_application_is_served_at_the_judges_port_until_the_block_ends() -> None:
    its = given()

    async def main() -> None:
        async with httpx.AsyncClient(trust_env=False) as http:
            async with App(hello).start(its) as running:
                assert running.url == f"http://127.0.0.1:{its.port}"
                assert isinstance(await asked(http, running.url), httpx.Response)
            assert isinstance(await asked(http, running.url), httpx.TransportError)
            async with App(hello).start(its) as running, asyncio.timeout(30):
                running.kill()
                while isinstance(await asked(http, running.url), httpx.Response):
                    await asyncio.sleep(0.02)

    run(main())
    assert (App(hello).shown, App(hello).is_single) == ("hello", False)


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_an_application_that_does_not_start_is_told() -> None:
    async def main() -> None:
        async with App(broken).start(given()):
            pass

    with pytest.raises(NotReady, match="broken does not start: see what it logged"):
        run(main())


def test_a_subject_that_runs_already_is_waited_for_and_is_one() -> None:
    told, looks = list[str](), ["nobody answers", ""]

    async def look() -> str:
        return looks.pop(0)

    async def never() -> str:
        return "it answers 503"

    subject = RunsAlready("http://a", tell=told.append)
    assert (run(subject.once(look)).url, subject.shown, subject.is_single) == (
        "http://a", "http://a", True,
    )  # fmt: skip
    assert told == ["waiting at most 30 s for http://a: nobody answers"]
    with pytest.raises(
        NotReady, match=r"503, after waiting for 0.1 s. One that .* --start COMMAND"
    ):
        run(RunsAlready("http://a", 0.1).once(never))
