"""`python -m tests.hostile`: the campaign with hostile input; prints its figures.

Exit code 1: something was violated. Each stage runs in a process of its own, so that its memory is
its own.
"""

import argparse
import asyncio
import json
import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

DECODERS = str(Path(__file__).parent / "test_decoders.py")
Stage = Callable[[argparse.Namespace], dict[str, Any]]


def _document(given: argparse.Namespace) -> dict[str, Any]:
    from tests.hostile.documented import documented

    return documented(given.seed, given.examples)


def _requests(given: argparse.Namespace) -> dict[str, Any]:
    from tests.hostile.attack import attack_and_measure
    from tests.hostile.memory import MEMORY, limited

    return limited(asyncio.run(attack_and_measure(given.seed, given.requests)), MEMORY)


def _wire(given: argparse.Namespace) -> dict[str, Any]:
    from tests.hostile.wire import over_tcp

    return asyncio.run(over_tcp(given.seed, given.wire))


def _decoders(given: argparse.Namespace) -> dict[str, Any]:
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider"]
    command += ["-o", "addopts=", "-W", "error", f"--hypothesis-seed={given.seed}", DECODERS]
    env = os.environ | {"X402SIM_DECODER_EXAMPLES": str(given.examples)}
    ran = subprocess.run(command, capture_output=True, text=True, env=env)
    counts = {kind: int(n) for n, kind in re.findall(r"(\d+) (passed|failed|error)", ran.stdout)}
    failed = re.findall(r"^(?:FAILED|ERROR) .*", ran.stdout, re.MULTILINE)
    return {
        "properties": counts.get("passed", 0),
        "examples_each": given.examples,
        "violated": len(failed) if ran.returncode == 1 else ran.returncode,
        "violations": failed
        if ran.returncode == 1
        else ([ran.stdout[-2000:]] * ran.returncode)[:1],
    }


def _payments(given: argparse.Namespace) -> dict[str, Any]:
    from tests.hostile.memory import PAYMENT, limited, payments

    return limited(asyncio.run(payments(given.payments)), PAYMENT)


STAGES: dict[str, tuple[str, Stage]] = {
    "document": ("Schemathesis on the OpenAPI document", _document),
    "requests": ("hostile requests to every part", _requests),
    "wire": ("malformed HTTP over TCP", _wire),
    "decoders": ("Hypothesis on every decoder", _decoders),
    "payments": ("what a payment leaves behind", _payments),
}


def main() -> int:
    """Run the stages; return the exit code."""
    given = _parser().parse_args()
    if given.stage:
        print(json.dumps(STAGES[given.stage][1](given)))
        return 0
    results = {name: _in_a_process(name) for name in STAGES}
    violated = sum(result["violated"] for result in results.values())
    if given.json:
        print(json.dumps({"violated": violated, "stages": results}, indent=2))
    else:
        for name, result in results.items():
            _print(STAGES[name][0], result)
        print("no violation" if not violated else f"{violated} violations")
    return 1 if violated else 0


def _in_a_process(name: str) -> dict[str, Any]:
    command = [sys.executable, "-m", "tests.hostile", *sys.argv[1:], "--stage", name]
    ran = subprocess.run(command, capture_output=True, text=True)
    if ran.returncode:
        return {"violated": 1, "violations": [f"the stage itself failed: {ran.stderr[-2000:]}"]}
    result: dict[str, Any] = json.loads(ran.stdout)
    return result


def _print(title: str, result: dict[str, Any]) -> None:
    print(title)
    for name, value in result.items():
        if name == "violations":
            for violation in value:
                print(f"  VIOLATION {violation}")
        elif isinstance(value, dict):
            print(f"  {name:32} " + ", ".join(f"{k}: {v}" for k, v in value.items()))
        else:
            print(f"  {name:32} {value}")
    print()


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m tests.hostile", description=__doc__)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--requests", type=int, default=20_000, help="hostile requests")
    parser.add_argument("--wire", type=int, default=2_000, help="malformed requests over TCP")
    parser.add_argument("--payments", type=int, default=3_000)
    parser.add_argument(
        "--examples",
        type=int,
        default=100,
        help="of Schemathesis for an operation, and of Hypothesis for a decoder",
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.add_argument("--stage", choices=list(STAGES), help="run this stage only; prints JSON")
    return parser


if __name__ == "__main__":
    sys.exit(main())
