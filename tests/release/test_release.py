"""A release is cut by one command, and its program does alone what the package does."""

import fcntl
import hashlib
import json
import os
import re
import resource
import shlex
import stat
import subprocess
import sys
import tarfile
import zipfile
from functools import partial
from pathlib import Path

import httpx
import pytest

from tests.npm import node
from tests.release import checks
from tests.release.__main__ import FILES, NODE, PAGE, PROGRAM, SDIST, SITE, SUMS, WHEEL
from tests.release.checks import ENVIRONMENT, Place, alone
from tests.running import run
from x402sim.clock import stopwatch

pytestmark = [pytest.mark.thorough, pytest.mark.timeout(900)]
MOST_BYTES, MOST_CPU_S = 60_000_000, 1.0
STORY = '''"""Alice buys, with modules that x402sim does not use."""

import bz2, colorsys, csv, ctypes, curses, graphlib, lzma, shelve, sqlite3, ssl, statistics, wave
import concurrent.futures, multiprocessing.pool, unittest.mock, xml.etree.ElementTree, zoneinfo

async def story(world):
    alice = await world.payer("alice", balance="1.00")
    world.expect((await alice.buy()).status, 200, "4.1/receipt")
'''


@pytest.fixture(scope="session")
def release(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a release, with what was said in `told`; workers of pytest-xdist share it."""
    base = tmp_path_factory.getbasetemp()
    shared = base.parent if "PYTEST_XDIST_WORKER" in os.environ else base
    out = shared / "release"
    with (shared / "release.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not out.exists():
            told = run([sys.executable, "-m", "tests.release", "--out", out])
            (out / "told").write_text(told)
    return out


def test_what_was_cut_is_what_the_page_and_the_sums_say(release: Path) -> None:
    files = {*FILES}
    assert {each.name for each in release.iterdir()} == {*files, PAGE, SUMS, "told"}
    page = (release / PAGE).read_text("utf-8")
    sums = dict(reversed(line.split("  ")) for line in (release / SUMS).read_text().splitlines())
    assert sums.keys() == files
    for name, told in sums.items():
        content = (release / name).read_bytes()
        assert hashlib.sha256(content).hexdigest() == told
        assert f"| `{name}` | {len(content):,} | `{told}` |" in page
    assert re.search(r"^Commit [0-9a-f]{40}", page, re.MULTILINE)
    assert re.search(r"\buvicorn==[\d.]+", page)
    said = (release / "told").read_text()
    for each in ("wheel", "program"):
        assert f"{each}: conformance of a toy shop" in said


def test_the_archives_have_what_the_guide_names(release: Path) -> None:
    wheel = zipfile.ZipFile(release / WHEEL).namelist()
    assert "x402sim/guide/container/Containerfile" in wheel
    assert not [each for each in wheel if each.startswith("tests/")]
    site = zipfile.ZipFile(release / SITE).namelist()
    assert {"index.html", "drift.html", "vectors.html"} <= {each.partition("/")[2] for each in site}
    with tarfile.open(release / SDIST) as sdist:
        names = {each.partition("/")[2] for each in sdist.getnames()}
    assert {"tests/release/x402sim.spec", ".ci/run", "README.md"} <= names
    with tarfile.open(release / NODE) as node_package:
        program = node_package.extractfile("package/program/x402sim")
        assert program is not None
        assert program.read() == (release / PROGRAM).read_bytes()


# --- the program, in a root with no other file ------------------------------------------------


@pytest.fixture(scope="module")
def place(release: Path, tmp_path_factory: pytest.TempPathFactory) -> Place:
    return alone(tmp_path_factory.mktemp("alone"), release / PROGRAM, node())


def test_it_is_small_and_starts_soon(release: Path, place: Place) -> None:
    assert (release / PROGRAM).stat().st_size < MOST_BYTES
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    place.run("--version")
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    used_s = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    assert used_s < MOST_CPU_S, "CPU; the machine of a test may be busy"


def test_it_unpacks_itself_where_nobody_else_can_look_and_leaves_nothing(place: Place) -> None:
    unpacked = partial((place.folder / "root" / "tmp").glob, "*")
    before = {*unpacked()}
    with place.serving():
        (folder,) = {*unpacked()} - before
        assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert {*unpacked()} == before


def test_nothing_of_it_serves_on_when_it_is_killed(release: Path, tmp_path: Path) -> None:
    words = [str(release / PROGRAM), "serve", "--port", "0", "--json", "--quiet"]
    own = ENVIRONMENT | {"TMPDIR": str(tmp_path)}
    with subprocess.Popen(words, env=own, stdout=subprocess.PIPE, text=True) as process:
        url = json.loads(process.stdout.readline())["service"]
        assert httpx.get(f"{url}/healthz").status_code == 200
        process.kill()
    waited = stopwatch()
    while answers(url):
        assert waited() < checks.STOP_S


def answers(url: str) -> bool:
    try:
        return httpx.get(f"{url}/healthz").status_code == 200
    except httpx.TransportError:
        return False


def test_what_it_starts_has_the_libraries_and_the_variables_of_its_own_system(place: Place) -> None:
    """The judge starts Node.js, which writes what it was given, and sells nothing."""
    script = "fs.writeFileSync('/out/given.json', JSON.stringify(process.env))"
    words = shlex.join([place.shop.split()[0], "-e", script])
    place.run("conformance", "server", "/weather", "--start", words, code=2)
    given = json.loads((place.folder / "root" / "out" / "given.json").read_text())
    assert "LD_LIBRARY_PATH" not in given
    assert given["PATH"] == ENVIRONMENT["PATH"]
    assert given["X402SIM_NETWORK"] == "eip155:84532"


def test_each_judge_judges(place: Place) -> None:
    own = place.words("")[-2]
    for words in (
        ("payer", "--dialects", "v2", "--only", "payer/control", "--", own, "pay"),
        ("facilitator", "--start", f"{own} facilitator", "--only", "facilitator/control"),
    ):
        assert "No MUST demand failed" in place.run("conformance", *words)
    with place.serving() as ready:
        words = ready["service"], "--world", ready["control"], "--only", "1,4.1/validate", "--json"
        report = json.loads(place.run("conformance", *words))
    outcomes = {each["id"]: each["outcome"] for each in report["results"]}
    assert "spec/4.1/validate" in outcomes, "which needs random inputs"
    assert {*outcomes.values()} == {"passed"}


def test_a_scenario_of_ones_own_may_import_the_standard_library(place: Place) -> None:
    file = place.folder / "root" / "out" / "story.py"
    file.write_text(STORY)
    assert "1 passed" in place.run("run", "/out/story.py:story")
    file.unlink()


def test_a_scenario_is_played_from_its_page(place: Place) -> None:
    with place.serving() as ready:
        url = f"{ready['control']}/ui/play"
        played = httpx.post(url, json={"scenario": "replay"}, timeout=checks.STEP_S).json()
    assert played["outcome"] == "passed"


@pytest.mark.parametrize(
    ("words", "extra"),
    [
        (("run", "replay", "--out", "/out/run"), "report"),
        (("serve", "--port", "0", "--chain", "anvil"), "evm"),
        (("serve", "--port", "0", "--tls", "/out/ca.pem"), "tls"),
        (("sweep", "/out/study.py:study"), "sweep"),
    ],
)
def test_what_needs_an_extra_says_how_to_get_it(
    place: Place, words: tuple[str, ...], extra: str
) -> None:
    (place.folder / "root" / "out" / "study.py").write_text("def study(seed): return seed")
    done = subprocess.run(
        place.words(*words),
        env=ENVIRONMENT,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 2
    told = " ".join(done.stderr.split())
    assert f"has no extras; where there is Python, pip install 'x402sim[{extra}]'" in told
