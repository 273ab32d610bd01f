"""The container of the guide is built by podman, from its own lines, and sells: alone, and with compose.

What its recipes promise is looked at without building.
"""

import os
import shlex
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from itertools import chain
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import httpx
import pytest
import yaml

from tests.house import ROOT, blocks
from tests.running import STEP_S, run
from x402sim import BASE_SEPOLIA, TESTNET, Network, PaymentAuth, Wallet
from x402sim.clock import stopwatch
from x402sim.suite.started import free_port
from x402sim.version import VERSION

PAGE = (ROOT / "x402sim" / "guide" / "without-python.md").read_text("utf-8")
PROGRAM, BUILD, RUN, COMPOSE = (each.splitlines() for each in blocks(PAGE, "sh"))
SHOP = blocks((ROOT / "x402sim" / "guide" / "facilitator.md").read_text("utf-8"), "python")[0]
MEMORY, ROOM = Path("/dev/shm"), 6 << 30
HERE, READY_S = "127.0.0.1", 40.0
KEY = "0xac0974bec39a17e36ba4a6b4d238ff944bacb478cbed5efcae784d7bf4f2ff80"
"""Of the first account of every world."""
FOLDER = ROOT / "x402sim" / "guide" / "container"
STAGES = [
    each.splitlines() for each in (FOLDER / "Containerfile").read_text("utf-8").split("\nFROM ")[1:]
]
SERVICES: dict[str, Any] = yaml.safe_load((FOLDER / "compose.yaml").read_text("utf-8"))
DEBIAN, SUITE = "docker.io/library/debian:bookworm-slim", "bookworm"
NEEDED = ("mmdebstrap", "podman", "podman-compose", "runc")
NETWORK = ("iptables", "netavark", "aardvark-dns")
SETTINGS = ("/etc/pip.conf", "/usr/local/share/ca-certificates")
VARIABLES = ("PIP_CERT", "PIP_EXTRA_INDEX_URL", "PIP_INDEX_URL")
CONTAINERS = """[containers]
default_ulimits = ["nofile=4096:4096", "nproc=4096:4096"]
[engine]
runtime = "runc"
"""
"""Limits that also a root without CAP_SYS_RESOURCE may set; crun wants cgroups that not all have."""


# --- the recipes --------------------------------------------------------------------------


@pytest.mark.parametrize("name", SERVICES["services"])
def test_a_service_of_compose_can_harm_nobody_else(name: str) -> None:
    service = SERVICES["services"][name]
    assert all(each.startswith("127.0.0.1:") for each in service.get("ports", []))
    assert service["read_only"]
    assert service["cap_drop"] == ["ALL"]
    assert service["security_opt"] == ["no-new-privileges:true"]
    assert "privileged" not in service


@pytest.mark.parametrize("stage", [each for each in STAGES if each[-1].startswith("CMD")])
def test_what_runs_in_a_container_is_not_root(stage: list[str]) -> None:
    (user,) = (number for number, line in enumerate(stage) if line.startswith("USER "))
    assert stage[user] == "USER x402sim"
    assert not [line for line in stage[user:] if line.startswith("RUN ")]


def test_the_base_is_the_debian_that_the_tests_make() -> None:
    bases = [stage[0].split()[0] for stage in STAGES]
    assert bases[0] == DEBIAN
    assert SUITE in DEBIAN
    assert set(bases[1:]) <= {stage[0].split()[-1] for stage in STAGES}


def test_the_line_that_builds_the_program_needs_python_alone() -> None:
    """What it builds, and the two lines after it, are in test_release.py."""
    build, *others = PROGRAM
    assert others == ["dist/x402sim demo", "dist/x402sim serve"]
    python, *words = build.split()
    assert python == "python3"
    told = run([sys.executable, "-S", *words, "--help"])
    assert "dist/x402sim" in " ".join(told.split())


# --- the containers -----------------------------------------------------------------------


class Podman:
    """Podman with its images, containers and settings in a folder, and a base image made of Debian's packages.

    No registry is needed: the packages come from where this machine has its own. Its settings of apt and pip,
    and the certificates that it trusts, are in the base image of the tests.
    """

    def __init__(self, folder: Path) -> None:
        missing = [each for each in NEEDED if shutil.which(each) is None]
        wanted = f"apt-get install --no-install-recommends {' '.join((*NEEDED, *NETWORK))}"
        assert not missing, f"no {', '.join(missing)}: {wanted}"
        folder.mkdir()
        containers, storage = folder / "containers.conf", folder / "storage.conf"
        containers.write_text(CONTAINERS)
        storage.write_text(
            f'[storage]\ndriver = "overlay"\ngraphroot = "{folder}/kept"\nrunroot = "{folder}/runs"\n'
        )
        own = {"CONTAINERS_CONF": containers, "CONTAINERS_STORAGE_CONF": storage, "TMPDIR": folder}
        self.environment = os.environ | {name: str(each) for name, each in own.items()}

    def run(self, *words: str, cwd: Path | None = None) -> str:
        """Run a command with these settings; return all that it printed, which is shown if it fails."""
        done = subprocess.run(
            words, cwd=cwd, env=self.environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
            text=True, errors="replace", timeout=STEP_S, check=False,
        )  # fmt: skip
        assert done.returncode == 0, f"{' '.join(words)}: {done.returncode}\n{done.stdout[-4000:]}"
        return done.stdout

    def make_base(self, folder: Path) -> None:
        """Make the image that stands in for Debian's own."""
        root, options = folder / "debian.tar", folder / "apt.conf"
        told = self.run("apt-config", "dump").splitlines()
        options.write_text("\n".join(each for each in told if each.startswith("Acquire::")))
        kept = shlex.join(each for each in SETTINGS if Path(each).exists())
        also = [f'--customize-hook=cp --recursive --parents {kept} "$1"'] if kept else []
        self.run("mmdebstrap", "--variant=apt", f"--aptopt={options}", *also, SUITE, str(root))
        changes = (f"ENV {each}={os.environ[each]}" for each in VARIABLES if each in os.environ)
        told = chain.from_iterable(("--change", each) for each in changes)
        self.run("podman", "import", *told, str(root), DEBIAN)
        root.unlink()


@pytest.fixture(scope="module")
def checkout(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of what git has, in which the pages' lines may write."""
    folder = tmp_path_factory.mktemp("checkout")
    words = "git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"
    listed = subprocess.run(words, cwd=ROOT, stdout=subprocess.PIPE, check=True).stdout.decode()
    for name in listed.rstrip("\0").split("\0"):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, folder / name)
    return folder


@pytest.fixture(scope="module")
def podman(checkout: Path) -> Iterator[Podman]:
    """Podman with both images of the Containerfile, in memory if there is room: disks are slow."""
    has_room = MEMORY.is_dir() and shutil.disk_usage(MEMORY).free > ROOM
    with TemporaryDirectory(dir=MEMORY if has_room else None) as name:
        podman = Podman(Path(name, "podman"))
        podman.make_base(Path(name))
        for each in ("x402sim", "x402sim-shop --target shop"):
            words = BUILD[0].replace("-t x402sim", f"-t {each} --pull=never --network host").split()
            podman.run(*words, cwd=checkout)
        yield podman
        podman.run("podman", "system", "reset", "--force")


@pytest.fixture
def runs(podman: Podman) -> Iterator[Callable[..., str]]:
    """Run a line of the page in the background, at a port of this test; return its URL."""

    def run(line: str, *options: str) -> str:
        port = free_port()
        words = line.replace(f"{HERE}:4020:", f"{HERE}:{port}:").split()
        podman.run("podman", "run", "--detach", *options, *words[2:])
        return f"http://{HERE}:{port}"

    yield run
    stop(podman)


def stop(podman: Podman) -> None:
    """Stop what runs, which must not wait until it is killed."""
    stopped = stopwatch()
    podman.run("podman", "stop", "--all", "--time", "30")
    assert stopped() < 20, "the first process of a container gets SIGTERM, too"


def answered(url: str, status: int = 200, **headers: str) -> httpx.Response:
    waited = stopwatch()
    with httpx.Client(trust_env=False) as http:
        while True:
            try:
                answer = http.get(url, headers=headers)
                if answer.status_code == status:
                    return answer
                told = f"{answer.status_code} {answer.text}"
            except httpx.TransportError as error:
                told = repr(error)
            assert waited() < READY_S, told


def bought(url: str, network: Network) -> httpx.Response:
    """Pay for what is sold at a URL, with the first account."""
    auth = PaymentAuth(Wallet(KEY), max_amount="0.05", network=network)
    with httpx.Client(auth=auth, trust_env=False, timeout=READY_S) as http:
        return http.get(url)


@pytest.mark.campaign
@pytest.mark.timeout(900)
def test_a_container_serves_and_pays(podman: Podman, runs: Callable[..., str]) -> None:
    url = runs(BUILD[1])
    answered(f"{url}/healthz")
    assert answered(f"{url}/_sim", 403)
    demo, pay, _ = RUN
    assert "Paid, served and indexed." in podman.run(*demo.split())
    paid = podman.run(*pay.replace(f"http://{HERE}:4020", url).split())
    assert "served, and paid" in paid
    assert f"x402sim {VERSION}" in podman.run("podman", "run", "--rm", "x402sim", "--version")


@pytest.mark.campaign
@pytest.mark.timeout(900)
def test_its_control_api_opens_with_a_token_alone(runs: Callable[..., str]) -> None:
    url = runs(BUILD[1], "--env", "X402SIM_CONTROL_TOKEN=word-of-this-test")
    answered(f"{url}/healthz")
    assert answered(f"{url}/_sim/state", 401)
    answered(f"{url}/_sim/state", Authorization="Bearer word-of-this-test")


@pytest.mark.campaign
@pytest.mark.timeout(900)
def test_it_runs_as_nobody_and_keeps_its_money(podman: Podman, runs: Callable[..., str]) -> None:
    safe = RUN[2], "--read-only", "--cap-drop", "ALL"
    url = runs(*safe, "--name", "first")
    answered(f"{url}/healthz")
    assert bought(f"{url}/api/perp/market", TESTNET).status_code == 200
    assert podman.run("podman", "exec", "first", "id", "-u").strip() == "10402"
    before = blocks_at(url)
    assert before > 0
    stop(podman)
    url = runs(*safe, "--name", "second")
    answered(f"{url}/healthz")
    assert blocks_at(url) >= before, "the chain is in the volume"


def blocks_at(url: str) -> int:
    """Return the number of the newest block."""
    call = {"jsonrpc": "2.0", "id": 1, "method": "eth_blockNumber", "params": []}
    return int(httpx.post(f"{url}/rpc", json=call, trust_env=False).json()["result"], 16)


@pytest.mark.campaign
@pytest.mark.timeout(900)
def test_compose_starts_a_world_the_service_and_a_shop(podman: Podman, checkout: Path) -> None:
    folder = checkout / COMPOSE[0].split()[-1]
    (folder / "shop.py").write_text(SHOP.replace(HERE, "world"))
    file, ports = folder / "compose.yaml", {4020: 0, 4021: 0, 8000: 0}
    text = file.read_text("utf-8")
    for each in ports:
        ports[each] = free_port()
        text = text.replace(f'"{HERE}:{each}:', f'"{HERE}:{ports[each]}:')
    file.write_text(text)
    world, service, shop = (f"http://{HERE}:{each}" for each in ports.values())
    try:
        for line in COMPOSE[1:]:
            words = line.partition("#")[0].split()
            podman.run(*words[:2], "--detach", *words[2:], cwd=folder)
            if words[-1] == "world":
                answered(f"{world}/facilitator/health")
        answered(f"{service}/healthz")
        answered(f"{shop}/weather", 402)
        assert bought(f"{shop}/weather", BASE_SEPOLIA).json() == {"weather": "sunny"}
        assert bought(f"{service}/api/perp/market", BASE_SEPOLIA).status_code == 200
        for name in ("world", "service"):
            podman.run("podman", "healthcheck", "run", f"container_{name}_1")
        kept = podman.run("podman", "exec", "container_service_1", "ls", "/data")
        assert "service.db" in kept
    finally:
        podman.run("podman-compose", "down", "--volumes", cwd=folder)
