"""The file x402sim.toml in the current folder: options of `serve`, `watch` and the judges.

A table for each command, `[serve]`, `[watch]`, `[conformance]`, `[conformance.server]`, whose keys
are the options without `--`. An option of the command line, or of the environment, has precedence.
"""

from pathlib import Path
from typing import Any

import typer

from x402sim.commands.common import Misuse
from x402sim.text.words import as_given, printable, unknown

FILE = Path("x402sim.toml")
SERVERS = ("serve", "watch")
"""The commands with one table each; each judge has its own."""
COMMAND_LINE_ONLY = "allow-mainnet"
"""Allows real money; the file may come with somebody else's code."""


def defaults(command: Any, name: str) -> dict[str, Any] | None:
    """Return the values that the file has for a command, by the names of its parameters.

    `name` is the name of its table, such as "conformance server". None without a file, or without a
    table. Raises `Misuse` for a file that cannot be read, and an unknown key.
    """
    if not FILE.exists():
        return None
    from x402sim.text.toml_file import read_toml  # which most commands need not

    try:
        table: Any = read_toml(FILE)
    except (OSError, ValueError) as wrong:
        raise Misuse(f"{FILE}: {getattr(wrong, 'strerror', None) or wrong}") from wrong
    for word in name.split():
        table = table.get(word, {})
        if not isinstance(table, dict):
            raise Misuse(f"{FILE}: {word} is a table, [{word}], not {as_given(table)}")
    options = {
        option.removeprefix("--"): each
        for each in command.params
        for option in each.opts
        if option.startswith("--") and option != "--help"
    }
    found = {}
    for key, value in table.items():
        if isinstance(value, dict):  # the table of a judge
            continue
        if key == COMMAND_LINE_ONLY:
            raise Misuse(f"{FILE}: {key} would allow real money: give --{key} on the command line")
        if key not in options:
            raise Misuse(f"{FILE}: {unknown(f'option of {name}', key, options)}")
        option, wanted = options[key], ""
        is_list = isinstance(value, list)
        if is_list != option.multiple and not (option.multiple and isinstance(value, str)):
            wanted = "a list" if option.multiple else "one value"
        elif option.is_flag != isinstance(value, bool):
            wanted = "true or false" if option.is_flag else "a text or a number"
        if wanted:
            raise Misuse(f"{FILE}: {key}: {wanted} is wanted, not {as_given(value)}")
        found[option.name] = [value] if option.multiple and not is_list else value
    if found:
        shown = ", ".join(f"--{key}" for key in table if not isinstance(table[key], dict))
        typer.echo(f"x402sim: {FILE} sets {printable(shown)}", err=True)
    return found
