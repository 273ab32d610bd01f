"""Cuts a release: `python -m tests.release` writes `dist/`, and publishes nothing.

`dist/` gets the wheel, the sdist, the standalone program and the package for Node.js, both for this
system and processor, the site of verdicts, RELEASE.md (commit, sizes, packages inside), and SHA-256 sums. Each is tried
outside the checkout: the wheel in an environment of its own, the sdist builds the same wheel, on
Linux the program runs in a root with no other file, and npm installs the package. The same commit
gives the same bytes on the same machine. A release takes some minutes. Exit code 1: something
failed, and nothing was written.
"""

import argparse
import hashlib
import os
import platform
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

from uv import find_uv_bin

from tests.npm import NotInstalled, node
from tests.release import checks
from tests.release.node import NAME as NODE, installed, pack
from tests.release.standalone import SUFFIX, Built, build, environment, install
from tests.running import ROOT, Failed, run
from x402sim.clock import stopwatch
from x402sim.version import VERSION

WHEEL, SDIST = f"x402sim-{VERSION}-py3-none-any.whl", f"x402sim-{VERSION}.tar.gz"
PROGRAM = f"x402sim-{VERSION}-{sysconfig.get_platform()}{SUFFIX}"
SITE = f"x402sim-{VERSION}-conformance.zip"
FILES = WHEEL, SDIST, PROGRAM, NODE, SITE
PAGE, SUMS = "RELEASE.md", "SHA256SUMS"


def main() -> int:
    """Cut it, and say so; return the exit code."""
    parser = argparse.ArgumentParser(prog="python -m tests.release", description=__doc__)
    to = ROOT / "dist"
    parser.add_argument("--out", type=Path, default=to, metavar="DIR", help="(%(default)s)")
    out: Path = parser.parse_args().out
    total = stopwatch()
    with TemporaryDirectory() as name:
        try:
            for line in cut(Path(name), out):
                print(f"{total():4.0f} s  {line}", flush=True)
        except (Failed, NotInstalled, subprocess.TimeoutExpired) as wrong:
            print(f"release: {wrong}")
            return 1
    print(f"\n{(out / PAGE).read_text('utf-8')}")
    return 0


def cut(folder: Path, out: Path) -> Iterator[str]:
    """Make and try everything in a folder, then write it to another; yield what was done."""
    if f"\n## {VERSION}" not in (ROOT / "CHANGELOG.md").read_text("utf-8"):
        raise Failed(f"CHANGELOG.md has nothing about {VERSION}")
    made = folder / "made"
    run([find_uv_bin(), "build", "--quiet", "--out-dir", made])
    yield "wheel and sdist"
    run([find_uv_bin(), "build", "--quiet", "--wheel", "--out-dir", folder / "again"])
    if (folder / "again" / WHEEL).read_bytes() != (made / WHEEL).read_bytes():
        raise Failed("the checkout builds another wheel than its sdist")
    yield "the checkout builds the same wheel as the sdist"
    python = environment(folder / "installed", made / WHEEL)
    place = checks.beside(folder, python.with_name(f"x402sim{SUFFIX}"), node())
    yield from (f"wheel: {each}" for each in checks.check(place))
    yield f"{SITE}: {place.run('conformance', 'site', '--out', str(made / SITE)).strip()}"
    install(python, f"{made / WHEEL}[standalone]")
    built = build(made / PROGRAM, python)
    yield f"{PROGRAM}, {built.file.stat().st_size:,} bytes"
    tried = checks.alone if sys.platform == "linux" else checks.beside
    place = tried(folder, built.file, node())
    yield from (f"program: {each}" for each in checks.check(place))
    place = checks.beside(folder, installed(pack(made / NODE, built.file), folder / "node"), node())
    yield f"{NODE}: {place.run('--version').strip()}, installed by npm"
    out.mkdir(parents=True, exist_ok=True)
    for each in FILES:
        shutil.copy(made / each, out / each)
    (out / SUMS).write_text("".join(f"{sha256(made / each)}  {each}\n" for each in FILES))
    (out / PAGE).write_text(page(out, built), encoding="utf-8")
    yield f"{out}"


def sha256(file: Path) -> str:
    """Return the SHA-256 of a file, in hex."""
    return hashlib.sha256(file.read_bytes()).hexdigest()


def page(out: Path, built: Built) -> str:
    """Return the page of what is in a release."""
    commit, changed = (
        run(["git", "rev-parse", "HEAD"]).strip(),
        run(["git", "status", "--porcelain"]),
    )
    files = (
        f"| `{each}` | {(out / each).stat().st_size:,} | `{sha256(out / each)}` |" for each in FILES
    )
    return f"""# x402sim {VERSION}

Commit {commit}{", with changes that are in none" if changed else ""}.

| file | bytes | SHA-256 |
| --- | --- | --- |
{chr(10).join(files)}

`sha256sum --check {SUMS}` compares them. The program, which is in the package for Node.js, too, needs {needs()},
and no Python: it has Python {platform.python_version()} inside, and these packages: {", ".join(built.packages)}.
"""


def needs() -> str:
    """Return what the program needs of its system."""
    if sys.platform == "linux":
        return f"{os.confstr('CS_GNU_LIBC_VERSION')} or newer"
    return f"{platform.platform(terse=True)} or newer"


if __name__ == "__main__":
    sys.exit(main())
