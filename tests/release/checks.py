"""What a release must do where it is installed, or put: outside the checkout, and without what is in it."""

import json
import os
import shutil
import signal
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.running import Failed, run
from x402sim.clock import stopwatch
from x402sim.version import VERSION

SHOP = Path(__file__).with_name("shop.mjs")
"""A shop that serves whatever settle answers, also a refusal."""
SOLD, FOUND = "server/control/sells", "server/order/refused"
"""The id that it keeps, and the one that it does not."""
STEP_S, STOP_S = 120, 15
ENVIRONMENT = {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "NO_COLOR": "1", "COLUMNS": "80"}
GLIBC = (
    "libc.so.6", "libdl.so.2", "libm.so.6", "libnss_dns.so.2", "libnss_files.so.2",
    "libpthread.so.0", "libresolv.so.2", "librt.so.1", "libutil.so.1",
)  # fmt: skip
"""What every Linux with glibc has; the loader comes with each program."""
NOBODY = 65534
ENTER = 'mount --rbind /dev "$0/dev" && mount -t proc proc "$0/proc" && exec "$@"'


class Root:
    """A root of a file system in a folder, with nothing in it but what is added: no Python, no shell.

    What runs there is not root, sees no other process, and ends when the one that waits for it ends. Linux
    only; root or a user who may have user namespaces makes one.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        for each in ("bin", "dev", "etc", "out", "proc", "tmp"):
            (folder / each).mkdir(parents=True)
        for each in ("out", "tmp"):
            (folder / each).chmod(0o1777)
        folder.chmod(0o755)
        (folder / "etc" / "hosts").write_text("127.0.0.1 localhost\n")

    def add(self, program: Path, name: str = "") -> str:
        """Add a program with the libraries that it names; return its path in the root."""
        listed = run(["ldd", program])
        found = [Path(word) for word in listed.split() if word.startswith("/")]
        beside = next(each for each in found if each.name == "libc.so.6").parent
        for each in {*found, *(beside / name for name in GLIBC)}:
            to = self.folder / each.relative_to("/")
            to.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(each, to)
        there = f"/bin/{name or program.name}"
        shutil.copy(program, self.folder / there[1:])
        return there

    def words(self, *command: str) -> list[str]:
        is_root = os.geteuid() == 0
        own = [] if is_root else ["--map-root-user"]
        who = [f"--userspec={NOBODY}:{NOBODY}"] if is_root else []
        return [
            "unshare", *own, "--mount", "--pid", "--fork", "--kill-child",
            "sh", "-c", ENTER, str(self.folder), "chroot", *who, str(self.folder), *command,
        ]  # fmt: skip


@dataclass(frozen=True, slots=True)
class Place:
    """Where x402sim is tried: `words` start it with arguments, in `folder`, and `shop` the toy shop."""

    words: Callable[..., list[str]]
    folder: Path
    shop: str

    def run(self, *arguments: str, code: int = 0) -> str:
        """Run it and return what it printed; raises `Failed` if it ends with another code."""
        words = self.words(*arguments)
        return run(words, cwd=self.folder, env=ENVIRONMENT, code=code, timeout_s=STEP_S)

    @contextmanager
    def serving(self, *options: str) -> Iterator[dict[str, Any]]:
        """Run `serve` at a free port; yield what it says when it is ready, and stop it as Ctrl-C does.

        Raises `Failed` if it ends with another code than 0.
        """
        words = self.words("serve", "--port", "0", "--json", "--quiet", *options)
        with subprocess.Popen(
            words, cwd=self.folder, env=ENVIRONMENT, stdout=subprocess.PIPE, text=True,
            start_new_session=True,
        ) as process:  # fmt: skip
            assert process.stdout is not None
            try:
                yield json.loads(process.stdout.readline())
                os.killpg(process.pid, signal.SIGINT)
                if code := process.wait(STOP_S):
                    raise Failed(f"serve: exit code {code}")
            finally:
                process.kill()


def beside(folder: Path, program: Path, node: Path) -> Place:
    return Place(lambda *given: [str(program), *given], folder, f"'{node}' '{SHOP}'")


def alone(folder: Path, program: Path, node: Path) -> Place:
    """Return a root that has nothing but the program, and Node.js for the toy shop."""
    root = Root(folder / "root")
    there, runs = root.add(program, "x402sim"), root.add(node)
    (folder / "root" / SHOP.name).write_bytes(SHOP.read_bytes())
    return Place(lambda *given: root.words(there, *given), folder, f"{runs} /{SHOP.name}")


def check(place: Place) -> Iterator[str]:
    """Try it, and yield a line for each thing that it did; raises `Failed`."""
    elapsed = stopwatch()
    if (told := place.run("--version")) != f"x402sim {VERSION}\n":
        raise Failed(f"--version: {told}")
    yield f"--version, in {elapsed():.2f} s"
    place.run("demo")
    place.run("run", "replay")
    yield "demo, run"
    elapsed = stopwatch()
    with place.serving() as ready:
        yield f"serve, in {elapsed():.2f} s"
        url = f"{ready['service']}/api/perp/market"
        place.run("pay", url)
        place.run("pay", url, "--wrong", "amount")
        place.run("doctor", url)
        yield "pay, doctor"
    words = "conformance", "server", "/weather", "--start", place.shop, "--json"
    report = json.loads(place.run(*words, "--only", f"{SOLD},{FOUND}", code=1))
    outcomes = {each["id"]: each["outcome"] for each in report["results"]}
    if (outcomes[SOLD], outcomes[FOUND]) != ("passed", "failed"):
        raise Failed(f"conformance server: {outcomes}")
    yield "conformance of a toy shop"
