"""A judged command cannot reach the judge's secrets, and leaves no process behind."""

import asyncio
import os
import resource
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.serve.driver import command
from x402sim.suite.kept import MOST_WRITTEN, Written, kept
from x402sim.suite.wire import Reply, Request, listening

LOOKS_UP = """
import os, sys
pid, found = os.getpid(), []
while (kind := open(f"/proc/{pid}/cmdline").read()) and ("keeper" in kind or "conformance" in kind or not found):
    found.append(open(f"/proc/{pid}/environ").read())
    pid = int(open(f"/proc/{pid}/stat").read().rpartition(")")[2].split()[1])
open(sys.argv[1], "w").write(f"{len(found)} processes: " + repr(found))
"""
SECRETS = [
    "SOLANA_KEYPAIR",
    "WEB3_PROVIDER_URI",
    "CDP_API_KEY_SECRET",
    "GITHUB_TOKEN",
    "MY_RPC_URL",
]
LEAVES = "import os, time; os.fork() or (os.setsid(), {}); {}"


def judge(*words: str, options: tuple[str, ...] = (), **more: str) -> "subprocess.Popen[bytes]":
    args = ["payer", "--dialects", "v2", "--only", "payer/control", *options, "--", *words]
    return subprocess.Popen(
        command("conformance", *args), env=os.environ | more, stdout=subprocess.DEVNULL
    )


@pytest.mark.skipif(sys.platform != "linux", reason="it reads /proc")
def test_no_process_of_the_judge_shows_a_secret_to_its_subject(tmp_path: Path) -> None:
    look, seen = tmp_path / "look.py", tmp_path / "seen"
    look.write_text(LOOKS_UP)
    secrets = {name: f"secret of {name}" for name in [*SECRETS, "MINE"]}
    words = [sys.executable, str(look), str(seen)]
    judge(*words, options=("--env", "MINE"), OPENAI_API_KEY="of the model", **secrets).wait(60)
    told = seen.read_text()
    assert told.startswith("4 processes: "), "its own, its keeper, the keeper's parent, the judge"
    assert [name for name in SECRETS if f"secret of {name}" in told] == []
    assert "secret of MINE" in told, "--env MINE"
    assert "OPENAI_API_KEY=of the model" in told


def is_there(pid: int) -> bool:
    file = Path(f"/proc/{pid}/stat")
    try:
        return file.read_text().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):  # it may end between opening and reading
        return False


def gone_soon(*pids: int) -> bool:
    for _ in range(200):
        if not any(map(is_there, pids)):
            return True
        time.sleep(0.05)
    return False


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere its group is ended")
def test_what_left_its_group_ends_with_a_start(tmp_path: Path) -> None:
    file = tmp_path / "pid"
    left = f"open({str(file)!r}, 'w').write(str(os.getpid())), time.sleep(600)"
    waits = f"[time.sleep(0.01) for _ in range(3000) if not os.path.exists({str(file)!r})]"

    async def main() -> None:
        words = [sys.executable, "-c", LEAVES.format(left, waits)]
        async with kept(words, {}) as (_, ended):
            await ended

    asyncio.run(main())
    assert gone_soon(int(file.read_text()))


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere its group is ended")
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGHUP, signal.SIGTERM])
def test_however_the_judge_ends_nothing_is_left(number: signal.Signals, tmp_path: Path) -> None:
    file, script = tmp_path / "pids", tmp_path / "pay.py"
    sleep = f"open({str(file)!r}, 'a').write(f'{{os.getpid()}} '), time.sleep(600)"
    script.write_text(LEAVES.format(sleep, sleep))
    with judge(sys.executable, str(script)) as judging:
        for _ in range(600):
            if file.exists() and len(file.read_text().split()) == 2:
                break
            time.sleep(0.05)
        judging.send_signal(number)
        judging.wait(30)
    assert gone_soon(*map(int, file.read_text().split()))


def test_a_program_that_judged_ends_without_a_warning() -> None:
    program = (
        "import asyncio\nfrom x402sim.suite.kept import kept\n"
        "async def main():\n    async with kept(['true'], {}) as (_, ended): await ended\n"
        "asyncio.run(main())\n"
    )
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", program], capture_output=True, text=True, check=True
    )
    assert done.stderr == ""


def test_a_gigabyte_of_output_is_not_kept(tmp_path: Path) -> None:
    """A command writes 300 MB; before, the judge held 450 MB."""
    script = tmp_path / "pay.py"
    script.write_text("for _ in range(300): print('x' * 1_000_000)")
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss

    async def main() -> str:
        async with kept([sys.executable, str(script)], {}) as (command, ended):
            await ended
            return command.out.text

    text = asyncio.run(main())
    assert len(text) < 1.6 * MOST_WRITTEN
    assert text.startswith("x")
    assert text.endswith("x\n")
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 60_000


@pytest.mark.parametrize("size", [0, 1, MOST_WRITTEN, 2 * MOST_WRITTEN + 1, 5 * MOST_WRITTEN])
def test_the_beginning_and_the_end_of_what_is_written_are_kept(size: int) -> None:
    async def main() -> Written:
        stream, written = asyncio.StreamReader(), Written()
        stream.feed_data(b"<" + b"." * size + b">")
        stream.feed_eof()
        await written.read(stream)
        return written

    written = asyncio.run(main())
    assert written.text[0] + written.text[-1] == "<>"
    assert len(written.first) + len(written.last) + written.left_out == size + 2
    assert bool(written.left_out) is (size > 2 * MOST_WRITTEN)


def test_how_a_command_ends_is_told(tmp_path: Path) -> None:
    async def ends(*words: str) -> tuple[int | None, str, str]:
        async with kept(words, {"X": "given"}) as (command, ended):
            await ended
        return command.returncode, command.out.text, command.log.text

    def run(*words: str) -> tuple[int | None, str, str]:
        return asyncio.run(ends(*words))

    assert run("sh", "-c", "echo $X; echo >&2 log; exit 7") == (7, "given\n", "log\n")
    assert run("sh", "-c", "kill -KILL $$")[0] == -9
    assert run("sh", "-c", "kill -HUP $$")[0] == -1
    assert run("sh", "-c", "cat; pwd")[1] == f"{os.getcwd()}\n", "its input is empty"
    no_program = tmp_path / "program"
    no_program.write_text("")
    no_program.chmod(0o700)
    with pytest.raises(FileNotFoundError):
        run("no-such-program")
    assert "cannot be started: [Errno 8]" in run(str(no_program))[2]


def test_what_is_sent_in_the_last_moment_is_read() -> None:
    read = []

    async def answer(request: Request) -> Reply:
        read.append(request.target)
        return Reply()

    async def main() -> None:
        async with listening(answer) as port:
            with socket.create_connection(("127.0.0.1", port)) as client:
                client.sendall(b"GET /paid HTTP/1.1\r\nHost: a\r\n\r\n")

    asyncio.run(main())
    assert read == ["/paid"]
