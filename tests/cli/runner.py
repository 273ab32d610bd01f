"""Runs a command in this process, as a user types it."""

from click.testing import Result
from typer.testing import CliRunner

from x402sim.cli import app


def run(*words: object, stdin: str | None = None, env: dict[str, str] | None = None) -> Result:
    return CliRunner().invoke(app, [str(word) for word in words], input=stdin, env=env)


def assert_misuse(done: Result, *says: str) -> None:
    """It printed one line on stderr, or of a wrong option the usage, and exited with 2."""
    assert (done.exit_code, done.stdout) == (2, ""), done.output
    is_one_line = done.stderr.startswith("x402sim: ") and done.stderr.count("\n") == 1
    assert is_one_line or done.stderr.startswith("Usage: "), done.stderr
    told = " ".join(done.stderr.split())
    for text in says:
        assert text in told, told
