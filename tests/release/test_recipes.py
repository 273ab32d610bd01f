"""The recipes of the container and of the program promise what they can: at a glance, without building."""

import subprocess
import sys
from typing import Any

import pytest
import yaml

from tests.house import ROOT, blocks
from tests.release.podman import DEBIAN, NEEDED, SUITE

FOLDER = ROOT / "x402sim" / "guide" / "container"
STAGES = [
    each.splitlines() for each in (FOLDER / "Containerfile").read_text("utf-8").split("\nFROM ")[1:]
]
COMPOSE: dict[str, Any] = yaml.safe_load((FOLDER / "compose.yaml").read_text("utf-8"))


@pytest.mark.parametrize("name", COMPOSE["services"])
def test_a_service_of_compose_can_harm_nobody_else(name: str) -> None:
    service = COMPOSE["services"][name]
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


def test_ci_installs_what_the_thorough_tests_need() -> None:
    installed = (ROOT / ".ci" / "run").read_text("utf-8").replace('"', " ").split()
    assert set(NEEDED) <= {*installed}


def test_the_line_that_builds_the_program_needs_python_alone() -> None:
    """What it builds, and the two lines after it, are in test_release.py."""
    page = (ROOT / "x402sim" / "guide" / "without-python.md").read_text("utf-8")
    build, *others = blocks(page, "sh")[0].splitlines()
    assert others == ["dist/x402sim demo", "dist/x402sim serve"]
    python, *words = build.split()
    assert python == "python3"
    done = subprocess.run(
        [sys.executable, "-S", *words, "--help"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    assert "dist/x402sim" in " ".join(done.stdout.split())
