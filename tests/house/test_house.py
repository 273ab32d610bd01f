"""The rules of the house that no tool of .ci/run checks."""

import re
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest
from packaging.specifiers import SpecifierSet

import x402sim
from tests.house import PACKAGE, ROOT
from tests.renew import GENERATED

HEAVY = ("pandas", "matplotlib", "web3", "eth_account", "x402", "fastapi", "IPython")
FILES = sorted(PACKAGE.rglob("*.py"))
PUBLIC_NAMES = 26
PROJECT: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]


def run(*command: str) -> str:
    return subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, text=True, check=True).stdout


def test_importing_is_cheap() -> None:
    code = "import sys, x402sim, x402sim.cli, x402sim.world.server.serve; "
    code += f"print([m for m in {HEAVY!r} if m in sys.modules])"
    assert run(sys.executable, "-c", code).strip() == "[]"


def test_no_path_of_a_machine_is_in_the_product() -> None:
    names = run("git", "ls-files", "--cached", "--others", "--exclude-standard").split()
    folders, registries = r"/(work|root|home|tmp)/[a-z]|\.\./shared", r"pythonhosted|pypi|npmjs"
    local = re.compile(rf"{folders}|({registries})\.(org|com)")
    for name in names:
        if Path(name).suffix not in {".png", ".ipynb", ".csv", ".ndjson", ".xz"}:
            text = (ROOT / name).read_text(encoding="utf-8")
            found = local.search(text)
            assert found is None or name.endswith("test_house.py"), f"{name}: {found}"


def test_nothing_is_left_at_the_top_level() -> None:
    names = {Path(each).parts[0] for each in run("git", "ls-files").splitlines()}
    assert {each for each in names if not each.startswith(".")} == {
        "CHANGELOG.md", "CONTRIBUTING.md", "LICENSE", "README.md", "SECURITY.md", "action.yml",
        "conformance", "notebooks", "pyproject.toml", "scenarios", "tests", "x402sim",
    }  # fmt: skip


# --- the package -------------------------------------------------------------------------


def test_what_is_renewed_exists() -> None:
    """A pattern that matches nothing hides every change of what it should watch."""
    for name, each in GENERATED.items():
        missing = [pattern for pattern in each.patterns.split() if not [*ROOT.glob(pattern)]]
        assert not missing, name


def test_public_names_are_few_and_exist() -> None:
    assert len(x402sim.__all__) <= PUBLIC_NAMES
    for name in x402sim.__all__:
        assert getattr(x402sim, name) is not None
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        x402sim.nothing  # noqa: B018


# --- the project -------------------------------------------------------------------------


def test_classifiers_and_readme_name_every_python_that_can_install_it() -> None:
    wanted = SpecifierSet(PROJECT["requires-python"])
    installable = [f"3.{minor}" for minor in range(40) if wanted.contains(f"3.{minor}.0")]
    named = [text.rpartition(":: ")[2] for text in PROJECT["classifiers"]]
    assert [text for text in named if text.startswith("3.")] == installable
    assert f"3.{sys.version_info.minor}" in installable
    *others, last = installable
    assert f"Python {', '.join(others)} or {last}" in (ROOT / "README.md").read_text()


def test_no_address_is_named_that_nobody_has_registered() -> None:
    """The project has no page, repository or package of its own yet."""
    assert "urls" not in PROJECT
    for name in ("README.md", "pyproject.toml", "action.yml", "CONTRIBUTING.md", "SECURITY.md"):
        text = (ROOT / name).read_text()
        assert not re.findall(r"(?i)github\.com/x402sim|uses: x402sim/|\bx402sim/x402sim\b", text)
        assert not re.findall(r"pip install (?:-\w+ )*x402sim\b", text), name
