"""What a release must do where it is installed, or put: outside the checkout, and without what is in it."""

import json
import os
import signal
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.release.root import Root
from x402sim.clock import stopwatch
from x402sim.version import VERSION

SHOP = Path(__file__).with_name("shop.mjs")
"""A shop that serves a payment whose `success` is the text "false"."""
SOLD, FOUND = "server/control/sells-v2", "server/order/settle-text-v2"
"""The id that it keeps, and the one that it does not."""
STEP_S, STOP_S = 120, 15
ENVIRONMENT = {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "NO_COLOR": "1", "COLUMNS": "80"}


class Wrong(Exception):
    """The program did not do what it should."""


@dataclass(frozen=True, slots=True)
class Place:
    """Where x402sim is tried: `words` start it with arguments, in `folder`, and `shop` the toy shop."""

    words: Callable[..., list[str]]
    folder: Path
    shop: str

    def run(self, *arguments: str, code: int = 0) -> str:
        """Run it and return what it printed; raises `Wrong` if it ends with another code."""
        words = self.words(*arguments)
        done = subprocess.run(
            words, cwd=self.folder, env=ENVIRONMENT, stdin=subprocess.DEVNULL, capture_output=True,
            text=True, timeout=STEP_S, check=False,
        )  # fmt: skip
        if done.returncode != code:
            raise Wrong(f"{arguments}: exit code {done.returncode}\n{done.stdout}\n{done.stderr}")
        return done.stdout

    @contextmanager
    def serving(self, *options: str) -> Iterator[dict[str, Any]]:
        """Run `serve` at a free port; yield what it says when it is ready, and stop it as Ctrl-C does.

        Raises `Wrong` if it ends with another code than 0.
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
                    raise Wrong(f"serve: exit code {code}")
            finally:
                process.kill()


def beside(folder: Path, program: Path, node: Path) -> Place:
    """Return a place where a program of this system runs, in a folder."""
    return Place(lambda *given: [str(program), *given], folder, f"'{node}' '{SHOP}'")


def alone(folder: Path, program: Path, node: Path) -> Place:
    """Return a root that has nothing but the program, and Node.js for the toy shop."""
    root = Root(folder / "root")
    there, runs = root.add(program, "x402sim"), root.add(node)
    (folder / "root" / SHOP.name).write_bytes(SHOP.read_bytes())
    return Place(lambda *given: root.words(there, *given), folder, f"{runs} /{SHOP.name}")


def check(place: Place) -> Iterator[str]:
    """Try it, and yield a line for each thing that it did; raises `Wrong`."""
    elapsed = stopwatch()
    if (told := place.run("--version")) != f"x402sim {VERSION}\n":
        raise Wrong(f"--version: {told}")
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
        raise Wrong(f"conformance server: {outcomes}")
    yield "conformance of a toy shop"
