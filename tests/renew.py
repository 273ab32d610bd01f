"""`python -m tests.renew`: write all generated files anew, and say which have changed.

`--only NAME` renews one of them (repeatable); without it, all, which takes half an hour on two cores.
Those that others are made from come first. Exit code 1: something could not be made.
"""

import argparse
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from tests import npm
from tests.evm import find
from x402sim.chain.node.anvil import VARIABLE
from x402sim.clock import stopwatch

ROOT = Path(__file__).parents[1]


@dataclass(frozen=True, slots=True)
class Generated:
    """Files that are made from something else by commands of Python, with semicolons between them."""

    what: str
    minutes: float
    patterns: str
    commands: str
    needs_anvil: bool = False

    def contents(self) -> dict[Path, bytes]:
        """Return the files as they are now."""
        files = (file for pattern in self.patterns.split() for file in ROOT.glob(pattern))
        return {file.relative_to(ROOT): file.read_bytes() for file in files}


MATRIX, STRANGERS = (
    "conformance/service/mutation_matrix.csv",
    "conformance/service/strangers_matrix.csv",
)
SPEED = "tests/bench/speed.md"
GENERATED = {
    "golden": Generated("golden journals", 0.1, "tests/golden/*", "-m tests.scenarios.golden"),
    "picture": Generated(
        "the README's plot", 0.1, "scenarios/replay.png", "-m tests.house.picture"
    ),
    "guide": Generated(
        "the guide's reference pages",
        0.1,
        "x402sim/guide/*.md x402sim/guide/*.json x402sim/guide/*.ts",
        "-m tests.house.reference",
    ),
    "public": Generated(
        "the list of what is public", 0.1, "tests/house/public.txt", "-m tests.house.public"
    ),
    "gas": Generated("tables of gas", 1, "x402sim/chain/ledger/gas.json", "-m tests.evm.measure"),
    "costs": Generated(
        "what each check costs", 0.1, "conformance/service/costs.json", "-m tests.suite.costs"
    ),
    "demands": Generated(
        "the page of demands", 0.1, "conformance/service/demands.md", "-m tests.suite.demands"
    ),
    "interop": Generated(
        "the guide's other programs", 0.1, "x402sim/guide/facilitator.md", "-m tests.interop"
    ),
    "mutants": Generated("the matrix of mutants", 10, MATRIX, f"-m tests.mutants --csv {MATRIX}"),
    "strangers": Generated(
        "the matrix of strangers, and its page",
        5,
        f"{STRANGERS} conformance/service/strangers.md",
        f"-m tests.strangers --csv {STRANGERS}; -m tests.strangers.page",
    ),
    "speed": Generated(
        "the page of speeds, on a machine that does nothing else",
        10,
        SPEED,
        f"-m tests.bench --write {SPEED}",
    ),
    "notebooks": Generated(
        "the notebooks' outputs",
        7,
        "notebooks/*.ipynb",
        "notebooks/execute.py",
        needs_anvil=True,
    ),
}
"""Everything that is generated, by the name that `--only` takes."""


def renew(each: Generated) -> tuple[bool, list[str]]:
    """Make files anew; return whether that went well, and the files that have changed."""
    before, went_well = each.contents(), True
    try:
        env = os.environ | ({VARIABLE: str(find.anvil())} if each.needs_anvil else {})
        for command in each.commands.split("; "):
            subprocess.run([sys.executable, *command.split()], cwd=ROOT, env=env, check=True)
    except (subprocess.CalledProcessError, npm.NotInstalled) as error:
        print(error)
        went_well = False
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
    wanted = parser.parse_args().only or [*GENERATED]
    said = []
    for number, name in enumerate(wanted, 1):
        each, elapsed = GENERATED[name], stopwatch()
        print(f"[{number}/{len(wanted)}] {name}: {each.what}, {each.minutes:g} min", flush=True)
        went_well, changed = renew(each)
        news = f"changed: {', '.join(changed)}" if changed else "as it was"
        said.append(f"{name:10} {elapsed():5.0f} s  {'' if went_well else 'FAILED, '}{news}")
    print("\n".join(["", *said]))
    return int(any("FAILED" in line for line in said))


if __name__ == "__main__":
    sys.exit(main())
