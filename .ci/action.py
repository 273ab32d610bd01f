"""The step of `action.yml` that judges: inputs as a command, reports as what GitHub Actions shows.

It runs in the action's own environment. The inputs come as variables, and no shell reads them; the
subject is started with the environment that the caller's step has.
"""

import os
import shlex
import subprocess
import sys
from collections.abc import MutableMapping
from pathlib import Path

REPORTS = {
    "junit": "junit.xml",
    "json": "report.json",
    "html": "report.html",
    "sarif": "report.sarif",
    "markdown": "report.md",
    "annotations": "annotations.txt",
}
"""The file of each report: `x402sim conformance --report` goes by the suffix."""
OUTPUTS = ("junit", "html", "sarif")
NO_VERDICT = 2
ERROR = "::error title=x402sim conformance::"


def main(environment: MutableMapping[str, str]) -> int:
    """Judge, and show what came of it; return the exit code of `x402sim conformance`."""
    inputs = {name: environment.pop(f"INPUT_{name}") for name in ("ARGS", "REPORT", "BASE_URL")}
    try:
        command, files = read(**{name.lower(): value for name, value in inputs.items()})
    except ValueError as wrong:
        sys.stdout.write(f"{ERROR}{wrong}\n")
        return NO_VERDICT
    files["junit"].parent.mkdir(parents=True, exist_ok=True)
    for file in files.values():
        file.unlink(missing_ok=True)  # of an earlier step
    code = subprocess.run(command, env=environment, check=False).returncode  # noqa: S603 - no shell
    show(code, files, Path(environment["GITHUB_STEP_SUMMARY"]), Path(environment["GITHUB_OUTPUT"]))
    return code


def read(args: str, report: str, base_url: str) -> tuple[list[str], dict[str, Path]]:
    """Return the command, and where it writes each report; raises `ValueError`."""
    if base_url:
        raise ValueError(
            "base-url, world, target and the other inputs of before are written as on the command "
            "line now, as in `args: http://127.0.0.1:8000 --world http://127.0.0.1:4020/_sim`, and "
            "the key as `env: X402SIM_PAYER_KEY`"
        )
    if not report.isprintable() or not report.strip():
        raise ValueError("report is the path of a folder, in one line")
    try:
        words = shlex.split(args)
    except ValueError as wrong:
        raise ValueError(f"args: {wrong}: quote it as in a shell") from None
    if not words:
        raise ValueError(
            "give args, as in `args: payer -- node agent.js`, `args: http://127.0.0.1:8000`"
        )
    files = {form: Path(report, name) for form, name in REPORTS.items()}
    wanted = [word for file in files.values() for word in ("--report", str(file))]
    end = words.index("--") if "--" in words else len(words)  # what follows is the payer's command
    own = [*words[:end], *wanted, *words[end:]]
    return [sys.executable, "-I", "-m", "x402sim", "conformance", *own], files


def show(code: int, files: dict[str, Path], summary: Path, output: Path) -> None:
    """Print the annotations, and write summary and outputs; every report escapes what it quotes."""
    written = {form: file for form, file in files.items() if file.is_file()}
    told = written["annotations"].read_text("utf-8") if "annotations" in written else ""
    sys.stdout.write(told)
    if code and not told:  # wrong usage, or what --require demanded is missing in the end
        sys.stdout.write(f"{ERROR}no verdict, exit code {code}: see this step's log\n")
    with summary.open("a", encoding="utf-8") as out:
        if "markdown" in written:
            out.write(written["markdown"].read_text("utf-8"))
        elif code:
            out.write(f"## ❔ x402sim conformance: no verdict\n\nExit code {code}: see its log.\n")
    with output.open("a", encoding="utf-8") as out:
        out.write(f"exit-code={code}\n")
        out.writelines(f"{each}={written[each]}\n" for each in OUTPUTS if each in written)


if __name__ == "__main__":
    sys.exit(main(os.environ))
