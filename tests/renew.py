"""`python -m tests.renew`: write all generated files anew, and say which have changed.

`--only NAME` renews one of them (repeatable); without it, all, which takes half an hour on two cores.
`--only check` is for who has added a check, or a mutant: it renews all that depends on it, by judging
everything by what is new. `--check ID` does the same for a check that was changed.
Those that others are made from come first. Exit code 1: something could not be made.
"""

import argparse
import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from tests import npm
from tests.evm import find
from tests.running import ROOT
from x402sim.chain.node.anvil import VARIABLE
from x402sim.clock import stopwatch


@dataclass(frozen=True, slots=True)
class Generated:
    """Files that are made from something else by programs, with semicolons between them.

    A program is a module of the tests, or what Python is started with: a file, or an option.
    """

    what: str
    minutes: float
    patterns: str
    programs: str
    needs_anvil: bool = False
    in_part: bool = False
    """Whether it renews only what the others have not: it is no part of all."""

    def contents(self) -> dict[Path, bytes]:
        """Return the files as they are now."""
        files = (file for pattern in self.patterns.split() for file in ROOT.glob(pattern))
        return {file.relative_to(ROOT): file.read_bytes() for file in files}

    def commands(self, ids: Sequence[str] = ()) -> Iterator[list[str]]:
        """Yield the words of each program; one that takes what is new takes these ids of checks, too."""
        for each in self.programs.split("; "):
            is_module = each[0] != "-" and "/" not in each.split()[0]
            more = [f"--check={name}" for name in ids if "--new" in each]
            yield [sys.executable, *(f"-m tests.{each}" if is_module else each).split(), *more]


JUDGED = "conformance/service"
MATRIX, INDEPENDENT = f"{JUDGED}/mutation_matrix.csv", f"{JUDGED}/independent_matrix.csv"
GUIDE, SPEED = "x402sim/guide", "tests/bench/speed.md"
PAGES = f"{GUIDE}/*.md {GUIDE}/*.json {GUIDE}/*.ts"
JUDGE = "independent --new --csv; independent.page; mutants --new --csv"
GENERATED = {
    "golden": Generated("golden journals", 0.1, "tests/golden/*", "scenarios.golden"),
    "picture": Generated("the README's plot", 0.1, "scenarios/replay.png", "house.picture"),
    "guide": Generated("the guide's reference pages", 0.1, PAGES, "house.reference"),
    "gas": Generated("tables of gas", 1, "x402sim/chain/ledger/gas.json", "evm.measure"),
    "costs": Generated("what each check costs", 0.1, f"{JUDGED}/costs.json", "suite.costs"),
    "interop": Generated(
        "the guide's other programs", 0.1, f"{GUIDE}/facilitator.md {GUIDE}/metered.md", "interop"
    ),
    "mutants": Generated("the matrix of mutants", 10, MATRIX, "mutants --csv"),
    "independent": Generated(
        "the matrix of independent implementations, and its page",
        5,
        f"{INDEPENDENT} {JUDGED}/independent.md",
        "independent --csv; independent.page",
    ),
    "vectors": Generated(
        "the vectors, who confirms each, and the guide's tables",
        1,
        f"conformance/vectors/*.json {GUIDE}/vectors.md",
        "suite_vectors",
    ),
    "check": Generated(
        "all of these that depend on a new check or mutant",
        4,
        f"{JUDGED}/*.json {JUDGED}/*.md {JUDGED}/*.csv",
        f"suite.by_hand; suite.costs; {JUDGE}",
        in_part=True,
    ),
    "speed": Generated(
        "the page of speeds, on a machine that does nothing else",
        10,
        SPEED,
        f"bench --write {SPEED}",
    ),
    "notebooks": Generated(
        "the notebooks' outputs", 7, "notebooks/*.ipynb", "notebooks/execute.py", needs_anvil=True
    ),
}
"""Everything that is generated, by the name that `--only` takes."""


def renew(each: Generated, ids: Sequence[str] = ()) -> tuple[bool, list[str]]:
    """Make files anew; return whether that went well, and the files that have changed."""
    before, went_well = each.contents(), True
    try:
        env = os.environ | ({VARIABLE: str(find.anvil())} if each.needs_anvil else {})
        for command in each.commands(ids):
            subprocess.run(command, cwd=ROOT, env=env, check=True)
    except (subprocess.CalledProcessError, npm.NotInstalled) as error:
        print(error)
        went_well = False
    except KeyboardInterrupt:
        sys.exit("interrupted")
    after = each.contents()
    files = sorted(before.keys() | after.keys())
    return went_well, [str(file) for file in files if before.get(file) != after.get(file)]


def main() -> int:
    """Run the command; return its exit code."""
    parser = argparse.ArgumentParser(prog="python -m tests.renew", description=__doc__)
    names = "; ".join(
        f"{name}: {each.what}, {each.minutes:g} min" for name, each in GENERATED.items()
    )
    parser.add_argument("--only", action="append", metavar="NAME", choices=GENERATED, help=names)
    parser.add_argument("--check", action="append", metavar="ID", default=[],
                        help="a check that was changed: renew what depends on it; repeatable")  # fmt: skip
    given = parser.parse_args()
    wanted = given.only or [name for name, each in GENERATED.items() if not each.in_part]
    if given.check:
        wanted = ["check"]
    said = []
    for number, name in enumerate(wanted, 1):
        each, elapsed = GENERATED[name], stopwatch()
        print(f"[{number}/{len(wanted)}] {name}: {each.what}, {each.minutes:g} min", flush=True)
        went_well, changed = renew(each, given.check)
        news = f"changed: {', '.join(changed)}" if changed else "as it was"
        said.append(f"{name:10} {elapsed():5.0f} s  {'' if went_well else 'FAILED, '}{news}")
    print("\n".join(["", *said]))
    return int(any("FAILED" in line for line in said))


if __name__ == "__main__":
    sys.exit(main())
