"""The metadata of pyproject.toml is true: the Pythons it names, and the addresses it gives."""

import re
import sys
import tomllib
from pathlib import Path
from typing import Any

from packaging.specifiers import SpecifierSet

ROOT = Path(__file__).parents[2]
PROJECT: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
MINORS = [
    text.rpartition(":: ")[2]
    for text in PROJECT["classifiers"]
    if text.startswith("Programming Language :: Python :: 3.")
]


def test_the_classifiers_name_every_python_that_can_install_it() -> None:
    wanted = SpecifierSet(PROJECT["requires-python"])
    installable = [str(minor) for minor in range(40) if wanted.contains(f"3.{minor}.0")]
    assert [minor.rpartition("3.")[2] for minor in MINORS] == installable
    assert str(sys.version_info.minor) in installable


def test_the_readme_names_the_same_pythons() -> None:
    *others, last = [minor.rpartition(" ")[2] for minor in MINORS]
    said = f"Python {', '.join(others)} or {last}"
    assert said in (ROOT / "README.md").read_text()


def test_no_address_is_named_that_nobody_has_registered() -> None:
    """The project has no page, repository or package of its own yet."""
    assert "urls" not in PROJECT
    for name in ("README.md", "pyproject.toml", "action.yml", "CONTRIBUTING.md", "SECURITY.md"):
        text = (ROOT / name).read_text()
        assert not re.findall(r"(?i)github\.com/x402sim|uses: x402sim/|\bx402sim/x402sim\b", text)
        assert not re.findall(r"pip install (?:-\w+ )*x402sim\b", text), name
