"""The guide's reference pages, written from the code: `python -m tests.renew --only guide`."""

import inspect
import json
import re
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import msgspec
from msgspec.structs import fields

import x402sim
from tests.house import typescript
from x402sim import Decisions
from x402sim.cli import COMMANDS, load
from x402sim.commands.book import GROUPS, as_markdown
from x402sim.protocol.networks import TESTNET
from x402sim.report import frames
from x402sim.service.docs import pages
from x402sim.spec import decisions as book
from x402sim.spec.clauses import CLAUSES
from x402sim.spec.markdown import table
from x402sim.world.control.app import ACTIONS, TABLE, unindented
from x402sim.world.control.messages import Ready

GUIDE = Path(__file__).parents[2] / "x402sim" / "guide"


def commands() -> str:
    """Return every command with its arguments and options."""
    about = "`x402sim COMMAND --help` shows the same in a terminal, as does `python -m x402sim COMMAND`."
    known = [*_commands({name: load(name) for name in COMMANDS})]
    rows = [
        (f"[{name}](#x402sim-{name.replace(' ', '-')})", command.help.splitlines()[0])
        for name, command in known
    ]
    return f"# Commands\n\n{about}\n\n{table(('command', 'what it does'), rows)}" + "".join(
        f"\n## x402sim {name}\n\n{_prose(command.help)}\n"
        + (f"\n{_table(command.params)}" if command.params else "")
        + (f"\n{_prose(command.epilog)}\n" if command.epilog else "")
        for name, command in known
    )


def _commands(group: Mapping[str, Any], before: str = "") -> Iterator[tuple[str, Any]]:
    for name, command in group.items():
        if hasattr(command, "commands"):
            yield from _commands(command.commands, f"{before}{name} ")
        else:
            yield before + name, command


def _prose(text: str) -> str:
    """Return a help text as Markdown: what stands after a backspace is shown as it is."""
    paragraphs = inspect.cleandoc(text).split("\n\n")
    return "\n\n".join(
        f"```text\n{each.removeprefix(chr(8)).strip()}\n```" if each.startswith("\b") else each
        for each in paragraphs
    )


def _table(params: Any) -> str:
    rows = []
    for each in params:
        option = ", ".join(f"`{name}`" for name in [*each.opts, *each.secondary_opts])
        is_argument = each.param_type_name == "argument"
        name = f"`{each.metavar or each.name.upper()}`" if is_argument else option
        value = "" if is_argument or not each.metavar else f" `{each.metavar}`"
        default = each.default
        simple = isinstance(default, int | float | str) and default not in (True, False, "", ...)
        shown = f" [default: {default}]" if simple and each.show_default else ""
        variables = [each.envvar] if isinstance(each.envvar, str) else each.envvar or []
        variable = f" (or `{'` or `'.join(variables)}`)" if variables else ""
        meaning = f"{each.help or ''}{shown}{variable}"
        rows.append((name + value, meaning.replace("*", "\\*")))
    return table(("argument or option", "meaning"), rows)


def control() -> str:
    """Return every action of the control API, with what it takes."""
    rows = [
        (f"`{method} /_sim{path}`", does, _taken(method, ACTIONS[method, path][1]))
        for method, path, _, does in TABLE
    ]
    about = """`x402sim serve` has it at `/_sim`; a GET of that shows this list, and one of `/_sim/openapi.json` the
OpenAPI document of it, with the schemas of what each takes and answers. A POST takes JSON, and a GET takes its fields in
the query. It has clients: in Python `LocalServer`, in TypeScript [`sim.ts`](typescript.md)."""
    return f"# Control API\n\n{about}\n\n{table(('action', 'what it does', 'takes'), rows)}"


def _taken(method: str, kind: Any) -> str:
    if kind is Any:
        return "the fields of a [fault](faults.md)"
    return ", ".join(
        f"`{field.encode_name}`" + ("" if field.required else " (optional)")
        for field in fields(kind)
    )


def errors() -> str:
    """Return the page of errors that a service shows, under our decisions."""
    page = pages.page("errors", Decisions(), TESTNET, "") or ""
    return page.replace("(payment-flow.md)", "(x402.md)")


def states() -> str:
    """Return the page of states that a service shows, under our decisions."""
    return pages.page("states", Decisions(), TESTNET, "") or ""


def events() -> str:
    """Return every event of a journal with its fields."""
    return as_markdown(GROUPS)


def clauses() -> str:
    """Return every clause with the sentences that it comes from and its code."""
    about = "The clauses of the specification in our words, by section, each with its code."
    rows = [
        (f"`{c.id}`", c.level, c.text, " ".join((f"{c.ground.kind};", *c.ground.lines)), f"`{c.kept_by}`")
        for c in CLAUSES
    ]  # fmt: skip
    titles = ("clause", "level", "text", "ground", "kept by")
    return f"# Clauses\n\n{about}\n\n{table(titles, rows)}"


def decisions() -> str:
    """Return every decision; first those that can be switched, with the field that does it."""
    known = list(book.decisions())
    switched = [
        (f"`{d.id}`", f"`{d.field}`", d.question, d.choice, f"`{d.alternative!r}`: {d.alternatives}", d.reason)
        for d in known if d.field
    ]  # fmt: skip
    fixed = [
        (f"`{d.id}`", d.question, d.choice, d.alternatives, d.reason) for d in known if not d.field
    ]
    titles = ("id", "question", "choice", "alternatives", "reason")
    return f"""# Decisions

Where the specification is silent, we decided. The number in front of an id is its section.

## Those that can be switched

Each is a field of `x402sim.Decisions`, as in `Settings(decisions=Decisions({switched[0][1].strip("`")}=...))`, so
that an experiment can take the alternative.

{table(("id", "field", *titles[1:]), switched)}
## Those that are fixed

{table(titles, fixed)}"""


def columns() -> str:
    """Return every frame with its columns, as `help` shows them."""
    about = """`x402sim.report.frames` has a function for each frame, and a run an attribute: `run.orders`. The
units of the columns are in `run.orders.attrs["units"]`, too."""
    parts = [f"# Frames\n\n{about}\n\n{frames.CONVENTIONS}\n"]
    parts += [f"\n## {name}\n\n{table.__doc__}\n" for name, table in frames.TABLES.items()]
    return "".join(parts)


def python() -> str:
    """Return the public names; the site fills in their docstrings."""
    names = sorted(x402sim.__all__, key=str.lower)
    about = [(f"`{name}`", _sentence(getattr(x402sim, name))) for name in names]
    parts = [
        "# Python\n",
        "`import x402sim` offers these names; `help(x402sim.World)` shows one in full.\n",
        table(("name", "what it is"), about),
    ]
    return "\n".join(parts)


def _sentence(value: object) -> str:
    if isinstance(value, x402sim.Network):
        return f"The network `{value.name}`: chain id {value.chain_id}, token {value.token_name}."
    return re.split(r"\n\s*\n|(?<=\.)\s", inspect.getdoc(value) or "")[0].replace("\n", " ")


def serve_schema() -> str:
    """Return the JSON schema of what `serve --json` prints."""
    schema = unindented(msgspec.json.schema(Ready))
    head = {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "$id": schema["$defs"]["Ready"]["properties"]["schema"]["enum"][0],
        "title": "What `x402sim serve --json` prints first",
    }
    return json.dumps(head | schema, indent=2) + "\n"


PAGES: dict[str, Callable[[], str]] = {
    "commands": commands,
    "control": control,
    "errors": errors,
    "states": states,
    "events": events,
    "frames": columns,
    "clauses": clauses,
    "decisions": decisions,
    "python": python,
}
"""The generated pages, by their file's name."""
FILES: dict[str, Callable[[], str]] = {
    "serve.schema.json": serve_schema,
    "sim.ts": typescript.client,
}
"""The generated files that are no pages, by their names."""


if __name__ == "__main__":
    made = {f"{name}.md": make for name, make in PAGES.items()} | FILES
    for name, make in made.items():
        (GUIDE / name).write_text(make(), encoding="utf-8")
