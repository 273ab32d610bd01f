"""The rules of the house that no tool of .ci/run checks."""

import ast
import json
import os
import re
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest
from packaging.specifiers import SpecifierSet

import x402sim
from tests.house import PACKAGE, ROOT
from tests.house.reference import facts
from tests.renew import GENERATED
from tests.running import run

HEAVY = ("pandas", "matplotlib", "web3", "eth_account", "x402", "fastapi", "IPython")
FILES = sorted(PACKAGE.rglob("*.py"))
PUBLIC_NAMES = 26
PROJECT: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]


def test_importing_is_cheap() -> None:
    code = "import sys, x402sim, x402sim.cli, x402sim.world.server.local; "
    code += f"print([m for m in {HEAVY!r} if m in sys.modules])"
    assert run([sys.executable, "-c", code]).strip() == "[]"


def test_no_path_of_a_machine_is_in_the_product() -> None:
    names = run(["git", "ls-files", "--cached", "--others", "--exclude-standard"]).split()
    folders, registries = r"/(work|root|home|tmp)/[a-z]|\.\./shared", r"pythonhosted|pypi|npmjs"
    local = re.compile(rf"{folders}|({registries})\.(org|com)")
    for name in names:
        if Path(name).suffix not in {".png", ".ipynb", ".csv", ".ndjson", ".xz"}:
            text = (ROOT / name).read_text(encoding="utf-8")
            found = local.search(text)
            assert found is None or name.endswith("test_house.py"), f"{name}: {found}"


def test_nothing_is_left_at_the_top_level() -> None:
    names = {Path(each).parts[0] for each in run(["git", "ls-files"]).splitlines()}
    assert {each for each in names if not each.startswith(".")} == {
        "CHANGELOG.md", "CITATION.cff", "CONTRIBUTING.md", "LICENSE", "README.md", "SECURITY.md", "action.yml",
        "conformance", "notebooks", "pyproject.toml", "scenarios", "tests", "x402sim",
    }  # fmt: skip


# --- data is data, prose is prose ---------------------------------------------------------

READS = {
    "chain/node/evm_chain.py": "what a node says",
    "experiments/dependencies.py": "an experiment and what it imports, to notice a change; the name of a story",
    "experiments/reproduce.py": "a notebook's cells, which are compiled",
    "http/page.py": "the titles of a page, as anchors",
    "journal.py": "a line of a journal",
    "payer/diagnosis.py": "fields of a 402",
    "payer/reading.py": "what a service answers",
    "protocol/findings.py": "the reasons of any facilitator",
    "protocol/networks.py": "names of networks, and hashes",
    "protocol/crypto.py": "hex digits",
    "protocol/ways.py": "the headers of other protocols",
    "protocol/x402.py": "ids of payments",
    "protocol/money.py": "numbers",
    "protocol/recognize.py": "a message that somebody pastes",
    "protocol/rpc_values.py": "numbers",
    "protocol/seal.py": "ids of payments",
    "report/conformance.py": "marks of Markdown in texts of other parties",
    "report/bundle.py": "a user's program: its files that read data, a notebook's cells, what it imports",
    "report/html.py": "names of runs, as anchors",
    "service/environment.py": "URLs",
    "spec/ground.py": "the specification, a table of sentences",
    "suite/server/raw.py": "numbers in what a server sells",
    "suite/service/answers.py": "what a target answers",
    "suite/service/control_api.py": "hashes",
    "suite/service/background.py": "the names of a target's fields",
    "suite/service/look.py": "a header's name in a target's pages",
    "suite/service/preflight.py": "what a target answers, and the TLS library says",
    "text/environment.py": "names of the environment",
    "text/keys.py": "keys in values and texts that are shown",
    "suite/redact.py": "secrets in what was sent",
    "suite/service/second.py": "paths in a target's pages",
    "suite/service/target.py": "what is wrong in a target file, as msgspec says it",
    "text/words.py": "text of other parties, and times in it",
    "watch/proxy.py": "heads and targets of requests",
    "world/loop.py": "the line of a library that imports a user's file in the place of another",
    "world/server/connection.py": "header names",
    "world/server/log.py": "messages, and secrets in headers",
    "world/server/listen.py": "hosts and origins",
    "world/play.py": "a warning of Python",
    "world/scenario.py": "the name of a file that a user gives",
    "world/transport/link.py": "a query",
    "world/transport/faults.py": "messages, paths, and headers that a user gives",
    "world/ui.py": "paths",
    "world/world.py": "names that a user gives",
    "scenarios/open_pages.py": "the links of a page",
    "conformance/service/test_section_2_required.py": "what a target answers",
    "conformance/service/test_section_4_pages.py": "what a target answers",
    "conformance/service/test_section_7_malformed.py": "what a target answers",
    "conformance/server/offer.py": "what a server offers",
    "conformance/facilitator/supported.py": "what a facilitator answers",
    "conformance/service/test_section_9_versioning.py": "what a target answers",
}
"""Each file that takes texts apart, and whose: other people's, or data."""
TAKES_APART = {"re", "ast", "linecache", "tokenize"}
SHOWS = {"report/frame.py", "report/run.py", "world/control/app.py", "world/scenario.py"}
"""The files that make a docstring, or show one as it is."""


def names_in(tree: ast.Module) -> set[str]:
    """Return the modules that a file imports, and all names and attributes that it has."""
    found = set()
    for node in ast.walk(tree):
        match node:
            case ast.Import(names=names):
                found |= {each.name for each in names}
            case ast.ImportFrom(module=str(module)):
                found.add(module)
            case ast.Name(id=name) | ast.Attribute(attr=name):
                found.add(name)
    return found


def test_nothing_is_read_from_our_own_docstrings_sentences_or_source() -> None:
    """A file that begins to take texts apart is listed above, with whose they are."""
    folders = ((PACKAGE, PACKAGE), (ROOT / "scenarios", ROOT), (ROOT / "conformance", ROOT))
    files = {str(each.relative_to(to)): each for of, to in folders for each in of.rglob("*.py")}
    docstrings = {"__doc__", "getdoc", "cleandoc", "getsource", "getsourcelines", "get_docstring"}
    watched = re.compile(rf"\b(?:{'|'.join((*TAKES_APART, *docstrings, 'eval'))})\b")
    texts = {name: file.read_text(encoding="utf-8") for name, file in files.items()}
    names = {
        name: names_in(ast.parse(text)) for name, text in texts.items() if watched.search(text)
    }
    assert {name for name, found in names.items() if found & TAKES_APART} == {*READS}
    assert {name for name, found in names.items() if found & docstrings} == SHOWS
    assert {name for name, found in names.items() if "eval" in found} == set()


def test_what_the_program_knows_of_itself_is_the_same_without_docstrings() -> None:
    code = "import json; from tests.house.reference import facts; print(json.dumps(facts()))"
    told = run([sys.executable, "-OO", "-c", code])
    assert json.loads(told) == json.loads(json.dumps(facts()))


@pytest.mark.thorough
@pytest.mark.timeout(900)
def test_the_tests_of_what_prose_carried_pass_without_docstrings() -> None:
    """The README's line under PYTHONOPTIMIZE=2, of the tests of all that was once read from prose.

    The whole line is for a release; it skips what shows docstrings.
    """
    tests = (
        "report/test_frames.py", "report/test_whole.py",
        "report/test_market.py", "cli/test_list.py", "cli/test_diff.py",
        "house/test_events.py", "house/test_guide.py::test_a_reference_page_is_current",
        "spec", "scenarios/test_golden.py", "suite/test_engine.py", "chain/test_rpc.py",
        "world/test_help.py",
    )  # fmt: skip
    words = [sys.executable, "-m", "pytest", "-q", *(f"tests/{each}" for each in tests)]
    run(words, env=os.environ | {"PYTHONOPTIMIZE": "2"})


# --- the package -------------------------------------------------------------------------


def test_what_is_renewed_exists() -> None:
    """A pattern that matches nothing hides every change of what it should watch."""
    for name, each in GENERATED.items():
        missing = [pattern for pattern in each.patterns.split() if not [*ROOT.glob(pattern)]]
        assert not missing, name


IMPORTS = re.compile(r"^from (tests[\w.]*) import (\([^)]*\)|.*)", re.MULTILINE)


def test_what_one_test_file_uses_stands_in_it() -> None:
    """A module beside the tests is what several files share, or a program."""
    texts = {file: file.read_text("utf-8") for file in (ROOT / "tests").rglob("*.py")}
    users: dict[str, set[Path]] = {}
    for file, text in texts.items():
        for package, names in IMPORTS.findall(text):
            for each in (package, *(f"{package}.{name}" for name in re.findall(r"\w+", names))):
                users.setdefault(each, set()).add(file)
    alone = []
    for file, text in texts.items():
        if file.match("test_*.py") or file.name == "conftest.py" or file.match("interop/python/*"):
            continue  # the last are programs of other Pythons
        used_by = [*users.get(".".join(file.relative_to(ROOT).with_suffix("").parts), ())]
        if "__main__" not in text and len(used_by) == 1 and used_by[0].match("test_*.py"):
            alone.append((file.name, used_by[0].name))
    assert alone == []


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


def test_the_log_of_changes_begins_with_the_next_ones_and_has_this_version() -> None:
    lines = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8").splitlines()
    first, *versions = (line for line in lines if line.startswith("## "))
    assert first == "## Unreleased"
    assert f"## {x402sim.__version__}" in versions
