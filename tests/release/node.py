"""Packs x402sim for Node.js: `python -m tests.release.node` writes `dist/x402sim-VERSION.tgz`.

The package has the client of the control API (`sim.ts` of the guide), fixtures for vitest, and the
standalone program, so it is for the system and the processor of the machine that packs it.
"""

import argparse
import json
import shutil
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

from tests import npm
from tests.release import standalone
from tests.running import ROOT, Failed, run
from x402sim.version import VERSION

NAME = f"x402sim-{VERSION}.tgz"
SOURCES = Path(__file__).with_name("npm_x402sim")
GUIDE = ROOT / "x402sim" / "guide"
TOOLS = ROOT / "tests" / "interop" / "npm_vitest"
ENTRIES = ("index", "vitest")


def pack(to: Path, program: Path) -> Path:
    """Write the package with this program to a file, and return it.

    Raises `Failed`, and `NotInstalled` without npm's registry.
    """
    tools = npm.packages(TOOLS)
    with TemporaryDirectory() as name:
        folder = Path(name)
        made = folder / "package"
        (made / "program").mkdir(parents=True)
        (folder / "node_modules").symlink_to(tools)
        (folder / "package.json").write_text(json.dumps(manifest(), indent=2))
        for each in (GUIDE / "sim.ts", *SOURCES.glob("*.ts")):
            shutil.copy(each, folder)
        run(
            [npm.node(), tools / "typescript" / "bin" / "tsc", "--strict", "--skipLibCheck",
             "--declaration", "--target", "es2022", "--module", "nodenext", "--types", "node",
             "--outDir", made, "index.ts", "vitest.ts"],
            cwd=folder,
        )  # fmt: skip
        shutil.copy(program, made / "program" / f"x402sim{standalone.SUFFIX}")
        for each in (SOURCES / "README.md", ROOT / "LICENSE", folder / "package.json"):
            shutil.copy(each, made)
        done = npm.run(made, "pack", str(made), "--pack-destination", str(folder))
        if done.returncode:
            raise Failed(f"npm pack: {done.stderr}")
        to.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(folder / NAME, to)
    return to


def manifest() -> dict[str, object]:
    """Return `package.json`: for this system and processor, as Node.js names them."""
    system, processor = run([npm.node(), "-p", "process.platform + ' ' + process.arch"]).split()
    return {
        "name": "x402sim",
        "version": VERSION,
        "description": "Simulation and conformance test kit for pay-per-request HTTP APIs (x402)",
        "license": "MIT",
        "type": "module",
        "bin": {"x402sim": f"program/x402sim{standalone.SUFFIX}"},
        "exports": {
            "." if each == "index" else f"./{each}": {
                "types": f"./{each}.d.ts",
                "default": f"./{each}.js",
            }
            for each in ENTRIES
        },
        "engines": {"node": ">=20"},
        "os": [system],
        "cpu": [processor],
        **({"libc": ["glibc"]} if system == "linux" else {}),
        "peerDependencies": {"vitest": ">=3"},
        "peerDependenciesMeta": {"vitest": {"optional": True}},
    }


def installed(package: Path, folder: Path) -> Path:
    """Install a package in an empty folder, without a registry; return its program. Raises `Failed`."""
    folder.mkdir()
    (folder / "package.json").write_text("{}")
    done = npm.run(folder, "install", "--offline", str(package))
    if done.returncode:
        raise Failed(f"npm install {package.name}: {done.stderr}")
    return folder / "node_modules" / ".bin" / "x402sim"


def main() -> int:
    """Build the program unless one is given, pack, and say what was packed."""
    parser = argparse.ArgumentParser(prog="python -m tests.release.node", description=__doc__)
    to = ROOT / "dist" / NAME
    parser.add_argument("--out", type=Path, default=to, metavar="FILE", help="(%(default)s)")
    parser.add_argument(
        "--program", type=Path, metavar="FILE", help="a standalone program that is built already"
    )
    given = parser.parse_args()
    try:
        with TemporaryDirectory() as name:
            program = given.program
            if program is None:
                print("building the standalone program: some minutes", flush=True)
                python = standalone.environment(Path(name, "environment"), f"{ROOT}[standalone]")
                program = standalone.build(Path(name, "x402sim"), python).file
            packed = pack(given.out, program)
        print(f"{packed}, {packed.stat().st_size:,} bytes")
    except (Failed, npm.NotInstalled, subprocess.TimeoutExpired) as failed:
        print(f"node: {failed}")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
