"""The guide's reference pages, written from the code: `python -m tests.renew --only guide`.

So is its client of the control API in TypeScript, `guide/sim.ts`.
"""

import inspect
import json
import re
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from types import UnionType
from typing import Any, Literal, get_args, get_origin, get_type_hints

import msgspec
from msgspec import UnsetType
from msgspec.structs import fields

import x402sim
from x402sim import Decisions, events as declared
from x402sim.chain.rpc.app import documentation
from x402sim.cli import COMMANDS, load
from x402sim.commands.conformance import CAMPAIGN, SITE, judge_of
from x402sim.journal import HEADER, Journal
from x402sim.protocol.networks import TESTNET
from x402sim.protocol.states import PAYMENT, SESSION
from x402sim.report import frames
from x402sim.service.docs import pages
from x402sim.serving.control.app import ACTIONS, TABLE, openapi, unindented, usage
from x402sim.serving.control.messages import Ready
from x402sim.spec import decisions as book
from x402sim.spec.clauses import CLAUSES
from x402sim.suite.service.engine import all_checks
from x402sim.suite.subject import DEFAULT, SUBJECTS
from x402sim.text.templates import markdown_table
from x402sim.world.scenario import shipped

GUIDE = Path(__file__).parents[2] / "x402sim" / "guide"
TEMPLATE = Path(__file__).with_name("sim.template.ts")
NAMES = {"string": "string", "integer": "number", "number": "number", "boolean": "boolean", "null": "null"}  # fmt: skip
Json = dict[str, Any]
OF_DOCSTRINGS = "python"
"""The page of the guide that shows the first sentences of docstrings."""


JUDGES = [f"conformance {each}" for each in SUBJECTS if each != DEFAULT]
EXITS = """
Exit codes: 0, success (in `conformance`, every MUST held); 1, a failure was found; 2, the command could not start (in `conformance`,
also no verdict); 75, of `pay --state-dir`: another start has not ended, and nothing was signed; 130, Ctrl-C.
"""


def commands() -> str:
    about = "`x402sim COMMAND --help` shows the same in a terminal, as does `python -m x402sim COMMAND`."
    known = [*_commands({name: load(name) for name in COMMANDS})]
    rows = [
        (f"[{name}](#x402sim-{name.replace(' ', '-')})", command.help.splitlines()[0])
        for name, command in known
    ]
    shown = [each for _, command in known for each in _shown(command)]
    options = [each for each in shown if each.param_type_name == "option"]
    often = Counter(map(_row, options)).most_common()
    by_name = {row[0].split("`")[1]: row for row, count in reversed(often) if count > 1}
    shared = {*by_name.values()}  # of two meanings of one name, the more common
    several = dict.fromkeys(row for each in shown if (row := _row(each)) in shared)
    return (
        f"# Commands\n\n{about}\n\n{markdown_table(('command', 'what it does'), rows)}{EXITS}"
        f"\n## Options of several commands\n\n{_table((*row, '') for row in several)}"
        + "".join(_section(name, command, shared) for name, command in known)
    )


def _section(name: str, command: Any, shared: Collection[tuple[str, str]]) -> str:
    """Return the section of a command; options of several commands are named only."""
    every = _shown(command)
    own = [each for each in every if _row(each) not in shared]
    others = [f"`{each.opts[0]}`{_default(each)}" for each in every if _row(each) in shared]
    rows = [(*_row(each), _default(each)) for each in own]
    rows += [("[of several](#options-of-several-commands)", ", ".join(others), "")] * bool(others)
    _, *more = inspect.cleandoc(command.help).split("\n\n")  # the table of commands has the first
    parts = [
        f"## x402sim {name}\n",
        *(f"{_prose(each)}\n" for each in more),
        _table(rows),
        f"{command.epilog.strip()}\n" if command.epilog else "",
    ]
    return "".join(f"\n{each}" for each in parts if each)


def _commands(group: Mapping[str, Any], before: str = "") -> Iterator[tuple[str, Any]]:
    for name, command in group.items():
        if hasattr(command, "commands"):
            yield from _commands(command.commands, f"{before}{name} ")
        else:
            yield before + name, command
        if name == "conformance":
            yield from (
                (judge, judge_of(judge.split()[1]))
                for judge in [*JUDGES, f"conformance {CAMPAIGN}", f"conformance {SITE}"]
            )


def _shown(command: Any) -> list[Any]:
    """Return the arguments and options that `--help` shows."""
    return [each for each in command.params if not getattr(each, "hidden", False)]


def _prose(paragraph: str) -> str:
    """Return a paragraph of help as Markdown: behind a backspace, its lines stay as they are."""
    is_fixed = paragraph.startswith("\b")
    return f"```text\n{paragraph.removeprefix(chr(8)).strip()}\n```" if is_fixed else paragraph


def _table(rows: Iterable[tuple[str, str, str]]) -> str:
    """Return rows of name, meaning and default as a table."""
    shown = [(name, f"{meaning}{default}") for name, meaning, default in rows]
    return markdown_table(("argument or option", "meaning"), shown)


def _row(each: Any) -> tuple[str, str]:
    """Return what an argument or option is called, and the meaning."""
    option = ", ".join(f"`{name}`" for name in [*each.opts, *each.secondary_opts])
    is_argument = each.param_type_name == "argument"
    name = f"`{each.metavar or each.name.upper()}`" if is_argument else option
    value = "" if is_argument or not each.metavar else f" `{each.metavar}`"
    variables = [each.envvar] if isinstance(each.envvar, str) else each.envvar or []
    variable = f" (or `{'` or `'.join(variables)}`)" if variables else ""
    return name + value, f"{each.help or ''}{variable}".replace("*", "\\*")


def _default(each: Any) -> str:
    default = each.default
    simple = isinstance(default, int | float | str) and default not in (True, False, "", ...)
    return f" [{default}]" if simple and each.show_default else ""


def control() -> str:
    rows = [
        (f"`{method} /_sim{path}`", does, _taken(method, ACTIONS[method, path][1]))
        for method, path, _, does in TABLE
    ]
    about = """`x402sim serve` has the API at `/_sim`: a GET of `/_sim` answers this list, a GET of `/_sim/openapi.json` the
OpenAPI document, with the schemas of requests and answers. A POST takes JSON, and a GET takes the fields in the query.
Clients are `LocalServer` in Python, and [`sim.ts`](typescript.md) in TypeScript."""
    return (
        f"# Control API\n\n{about}\n\n{markdown_table(('action', 'what it does', 'takes'), rows)}"
    )


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


STATES = """# States

The service makes these moves and no other: each SQL statement that changes a state takes from this
table the expected states and the new state. `GET /api/payments/{{paymentId}}` shows the
status of a payment, `GET /api/sessions/{{sessionId}}` the status of a session.

## Payments

Each payment header that is presented for a payment id is one attempt. At most one attempt is settled,
and only a settled attempt grants access. `not submitted`, `in flight` and `maybe submitted` are shown
as `pending`: the header may still be used, because anybody who has seen a signed authorization can
submit it. Of an attempt that is `new` there is no record.

{payment}
A reorganisation of the chain may undo a transfer, or make a transfer after all. The indexer looks at
every attempt again, and the record follows, until enough blocks are on top (decision `8/final-depth`).

## Sessions

A session pays only while it is `active` and its deposit is `settled`. A session that is `refunding` is
shown as `expired`.

{session}"""


def states() -> str:
    tables = {}
    for name, machine in (("payment", PAYMENT), ("session", SESSION)):
        rows = [(move.before, f"when {move.event}", move.after, move.does) for move in machine]
        tables[name] = markdown_table(("In state", "", "It is then", "The service"), rows)
    return STATES.format(**tables)


GROUPS: Mapping[str, Sequence[type[declared.Event]]] = {
    "The story": get_args(declared.StoryEvent),
    "The chain": get_args(declared.ChainEvent),
    "The service": get_args(declared.ServiceEvent),
    "HTTP exchanges": get_args(declared.ExchangeEvent | declared.PartEvent),
}
"""The events by who records them."""
INTRODUCTION = (
    f"A journal is NDJSON. Its first line is `{HEADER.decode().strip()}`, and each further line "
    "is one event: `seq` (counts from 0), `at_ms` (Unix milliseconds), `event` (its name), and "
    "its fields in the order they have here. Units are in the names: `_base` is base units of "
    "the token, `_ms` Unix milliseconds, `_s` and `seconds` seconds, `_wei` wei."
)
_JSON = {str: "string", int: "integer", float: "number", bool: "boolean", Any: "any JSON"}


def events() -> str:
    """Return every event of a journal with its fields."""
    parts = [f"# Events of a journal\n\n{INTRODUCTION}\n"]
    for group, kinds in GROUPS.items():
        parts.append(f"\n## {group}\n")
        for kind in kinds:
            hints = get_type_hints(kind)
            rows = [(f"`{name}`", _json(hints[name])) for name in kind.__struct_fields__]
            text = f"\n### {declared.name_of(kind)}\n\n{' '.join(kind.meaning.split())}\n\n"
            parts.append(text + markdown_table(("field", "JSON"), rows))
    return "".join(parts)


def _json(annotation: Any) -> str:
    """Return the JSON type of an annotation: "integer or null", "used or canceled"."""
    origin, arguments = get_origin(annotation), get_args(annotation)
    if annotation is type(None):
        return "null"
    if annotation is UnsetType:
        return "absent"
    if origin is Literal:
        return " or ".join(f'"{each}"' for each in arguments)
    if origin is UnionType:
        is_number = float in arguments  # JSON's number includes integers
        members = [each for each in arguments if not (is_number and each is int)]
        return " or ".join(_json(each) for each in members)
    if origin is dict:
        return f"object of {_json(arguments[1])}"
    if origin is tuple:
        return f"array of {_json(arguments[0])}"
    return _JSON[annotation]


def clauses() -> str:
    """Return every clause with the sentences that it comes from and its code."""
    about = "The clauses of the specification in our words, by section, each with its code."
    rows = [
        (f"`{c.id}`", c.level, c.text, " ".join((f"{c.ground.kind};", *c.ground.lines)), f"`{c.kept_by}`")
        for c in CLAUSES
    ]  # fmt: skip
    titles = ("clause", "level", "text", "ground", "kept by")
    return f"# Clauses\n\n{about}\n\n{markdown_table(titles, rows)}"


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

{markdown_table(("id", "field", *titles[1:]), switched)}
## Those that are fixed

{markdown_table(titles, fixed)}"""


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
        markdown_table(("name", "what it is"), about),
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


# --- the client in TypeScript -------------------------------------------------------------
# Its types and methods are those of the OpenAPI document and of the ready line's schema; what is the
# same whatever the API has is in `sim.template.ts`.


def client() -> str:
    """Return the file."""
    api = openapi()
    _, ready = msgspec.json.schema_components([Ready], ref_template="#/components/schemas/{name}")
    named = {**ready, **api["components"]["schemas"]}
    del named["ErrorBody"]  # it is thrown as an error
    types = "\n".join(interface(*each) for each in named.items())
    methods = "\n".join(
        method(verb.upper(), path, about)
        for path, item in api["paths"].items()
        for verb, about in item.items()
    )
    text = TEMPLATE.read_text(encoding="utf-8")
    return text.replace("// TYPES\n", types).replace("  // METHODS\n", methods)


def interface(name: str, schema: Json) -> str:
    """Return the declaration of an object's type."""
    about = schema["description"].partition("\n")[0]
    return f"/** {about} */\nexport interface {name} {{\n{''.join(members(schema))}}}\n"


def members(schema: Json) -> Iterator[str]:
    for name, each in schema["properties"].items():
        if "description" in each:
            yield f"  /** {each['description']} */\n"
        yield f"  {member(name, each, schema)};\n"


def member(name: str, each: Json, of: Json) -> str:
    return f"{name}{'' if name in of.get('required', ()) else '?'}: {type_of(each)}"


def type_of(schema: Json) -> str:
    match schema:
        case {"$ref": path}:
            return str(path).rpartition("/")[2]
        case {"enum": values}:
            return " | ".join(map(json.dumps, values))
        case {"anyOf": kinds}:
            return " | ".join(map(type_of, kinds))
        case {"type": "array", "prefixItems": each}:
            return f"[{', '.join(map(type_of, each))}]"
        case {"type": "array", "items": each}:
            return f"{type_of(each)}[]"
        case {"type": "object", "additionalProperties": dict(each)}:
            return f"Record<string, {type_of(each)}>"
        case {"properties": each}:
            return f"{{ {'; '.join(member(*it, schema) for it in each.items())} }}"
        case {"pattern": str(pattern)} if pattern.startswith("^0x"):
            return "`0x${string}`"  # as viem has it
    return NAMES[schema["type"]]


def method(verb: str, path: str, about: Json) -> str:
    ((media, answer),) = about["responses"]["200"]["content"].items()
    if verb == "POST":
        body, is_needed = about["requestBody"], about["requestBody"]["required"]
        taken = body["content"]["application/json"]["schema"]
    else:
        query, is_needed = [each for each in about["parameters"] if "name" in each], False
        taken = {"properties": {each["name"]: each["schema"] for each in query}}
    has_fields = "$ref" in taken or taken["properties"]
    given = f"given: {type_of(taken)}{'' if is_needed else ' = {}'}" if has_fields else ""
    sent = f'"{path}", {"given" if has_fields else "{}"}'
    if media == "application/json":
        gives, call = type_of(answer["schema"]), f'this.#json("{verb}", {sent})'
    else:
        gives, call = "JournalEvent[]", f"this.#events({sent})"
    head = f"{about['operationId']}({given}): Promise<{gives}>"
    return f"  /** {about['summary']} */\n  {head} {{\n    return {call};\n  }}\n"


# --- what is written ----------------------------------------------------------------------

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
    "sim.ts": client,
}
"""The generated files that are no pages, by their names."""


def facts() -> dict[str, Any]:
    """Return what the program knows of itself, in words: it is data, so that `python -OO` has the same."""
    shown = {name: each(Journal()) for name, each in frames.TABLES.items()}
    return {
        "commands": {name: load(name).help for name in COMMANDS},
        "frames": {
            name: (frames.TABLES[name].__doc__, frame.dtypes.astype(str).to_dict(), frame.attrs)
            for name, frame in shown.items()
        },
        "pages": {name: page() for name, page in PAGES.items() if name != OF_DOCSTRINGS},
        "rpc": documentation(),
        "control": usage(),
        "scenarios": [
            (each.name, each.title, each.covers, each.needs, each.description) for each in shipped()
        ],
        "checks": [
            (each.name, each.title, each.level, each.ground.lines, each.needs)
            for each in all_checks()
        ],
        "clauses": [(each.id, each.text, each.kept_by, each.ground.lines) for each in CLAUSES],
    }


if __name__ == "__main__":
    made = {f"{name}.md": make for name, make in PAGES.items()} | FILES
    for name, make in made.items():
        (GUIDE / name).write_text(make(), encoding="utf-8")
