"""All that users build on, a name a line: `python -m tests.house.public` writes it to public.txt.

It is made from code, so a difference of that file shows what a change added, removed or renamed. The
guide's page `stability.md` says how each of it may change.
"""

import ast
import inspect
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import fields
from enum import Enum
from importlib import import_module
from pathlib import Path
from textwrap import dedent
from types import ModuleType
from typing import Any, get_args
from xml.etree import ElementTree as ET

import msgspec
import yaml
from click import UsageError

from tests.house import PACKAGE, ROOT
from x402sim import BASE_SEPOLIA, journal, pytest_plugin
from x402sim.cli import COMMANDS, load
from x402sim.commands import common, sweep
from x402sim.events import KINDS, name_of
from x402sim.protocol.refusals import Refusal, RequestError
from x402sim.report import conformance
from x402sim.report.results import CaseResult, Outcome, Result
from x402sim.service.environment import NEEDED, read_environment
from x402sim.suite.facilitator.room import Given as FacilitatorGiven
from x402sim.suite.payer.play import Task
from x402sim.suite.server.room import Given as ServerGiven
from x402sim.suite.service.target import Target
from x402sim.suite.subject import SUBJECTS, subject
from x402sim.text import console
from x402sim.world.control.app import ACTIONS
from x402sim.world.transport.faults import FaultType

FILE = Path(__file__).parent / "public.txt"
NAMES: dict[str, tuple[str, ...]] = {
    "x402sim": (), "x402sim.policies": (), "x402sim.population": (), "x402sim.backends": (),
    "x402sim.experiments": (), "x402sim.judging": (), "x402sim.payer.tools": ("ToolTransport", "call_paid", "tool_request"),
}  # fmt: skip
"""The modules that programs may import, each with its public names, by default `names_of`."""


def names_of(module: ModuleType) -> list[str]:
    """Return the names of a module that are public: its `__all__`, or all without underscore."""
    names: list[str] = getattr(module, "__all__", dir(module))
    return [name for name in names if name[0] != "_"]


def lines() -> list[str]:
    """Return what is public: the kind of thing, a colon, and its name, in order."""
    return sorted({f"{kind}: {name}" for kind, found in PARTS.items() for name in found()})


def python() -> Iterator[str]:
    """Yield each name, the parameters of a call, and the public members of a class."""
    for place, chosen in NAMES.items():
        module = import_module(place)
        for name in chosen or names_of(module):
            yield f"{place}.{name}"
            yield from _of(f"{place}.{name}", getattr(module, name))


def _of(path: str, value: Any) -> Iterator[str]:
    if callable(value) and not (inspect.isclass(value) and issubclass(value, Enum)):
        # how an enum is called is Python's, and differs between its versions
        yield from (f"{path}({each})" for each in _parameters(value))
    if not inspect.isclass(value):
        return
    ours = [each for each in value.__mro__ if each.__module__.startswith("x402sim")]
    names = {name for each in ours for name in (*vars(each), *_set_at_start(each))}
    for name in {name for name in names if name[0] != "_"}:
        yield f"{path}.{name}"
        member = inspect.getattr_static(value, name, None)
        member = getattr(member, "__func__", member)  # of a class method
        if inspect.isfunction(member):
            named = _parameters(member)
            yield from (f"{path}.{name}({each})" for each in named if each not in ("self", "cls"))


def _set_at_start(value: type) -> Iterator[str]:
    """Yield the attributes that `__init__` of a class sets, which `vars` of the class does not have."""
    start = inspect.unwrap(vars(value).get("__init__", type))
    if not inspect.isfunction(start) or start.__code__.co_filename[0] == "<":  # a dataclass's
        return
    for node in ast.walk(ast.parse(dedent(inspect.getsource(start)))):
        match node:
            case ast.Attribute(value=ast.Name("self"), attr=name, ctx=ast.Store()):
                yield name


def _parameters(value: Callable[..., Any]) -> list[str]:
    if inspect.isclass(value) and value.__init__ is Exception.__init__:
        return []
    return [*inspect.signature(value).parameters]


def plugin() -> Iterator[str]:
    """Yield the fixtures, the markers with what they take, and what a case gives its function."""
    yield from (f"fixture {name}" for name in vars(pytest_plugin) if name.startswith("x402_"))
    yield from (f"x402_payer.{each.name}" for each in fields(pytest_plugin.X402Payer))
    markers: list[str] = []

    class Config:
        def addinivalue_line(self, _: str, line: str) -> None:
            markers.append(line)

    pytest_plugin.pytest_configure(Config())
    yield from (f"marker {line.partition(':')[0]}" for line in markers)
    for name, given in _given().items():
        yield from (f"x402_{name}_case {each.name}" for each in fields(given))


def _given() -> dict[str, Any]:
    """Return what each subject that is started is given, with examples of values."""
    start = {"rpc_url": "http://127.0.0.1", "private_key": "0x", "network": BASE_SEPOLIA}
    text = {each.name: "http://127.0.0.1/" for each in fields(Task)}
    texts = {**text, "decimals": 6, "urls": (), "allowed_hosts": ()}
    shop = {"facilitator_url": "", "rpc_url": "", "pay_to": "", "state_dir": ""}
    return {
        "payer": Task(**texts),
        "facilitator": FacilitatorGiven(port=1, address="0x", **start),
        "server": ServerGiven(port=1, network=BASE_SEPOLIA, **shop),
    }


def commands() -> Iterator[str]:
    """Yield each command with each of its options and arguments."""
    for name in COMMANDS:
        command = load(name)
        yield from _command(name, command)
        if name == "conformance":
            for other in SUBJECTS:
                context = command.make_context(name, [other, "--help"], resilient_parsing=True)
                yield from _command(f"{name} {other}", context.command)


def _command(name: str, command: Any) -> Iterator[str]:
    yield name
    for each in command.params:
        is_option = each.param_type_name == "option"
        names = [*each.opts, *each.secondary_opts] if is_option else [each.metavar or each.name]
        yield from (f"{name} {option}" for option in names)
    for sub, inner in getattr(command, "commands", {}).items():
        yield from _command(f"{name} {sub}", inner)


def exit_codes() -> Iterator[str]:
    """Yield the exit codes of the commands."""
    for code in (0, common.NOT_ALL_HELD, UsageError.exit_code, sweep.INTERRUPTED):
        yield str(code)


def variables() -> Iterator[str]:
    """Yield the environment variables that a command reads, or gives to what it starts."""
    written = b"".join(file.read_bytes() for file in PACKAGE.rglob("*.py"))
    yield from (name.decode() for name in re.findall(rb'"(X402SIM_[A-Z_]+)"', written))
    yield console.VARIABLE
    given = _given()
    yield from given["payer"].environment(Path())
    yield from given["facilitator"].environment()
    yield from given["server"].environment()
    asked: set[str] = set()

    class Reading(dict[str, str]):
        def get(self, name: str, default: Any = None) -> Any:
            asked.add(name)
            return super().get(name, default)

    key, url = f"0x{1:064x}", "http://127.0.0.1"
    read_environment(Reading(dict.fromkeys(NEEDED, url) | {"PRIVATE_KEY": key}))
    yield from asked


def control() -> Iterator[str]:
    """Yield the paths of the control API with their fields."""
    for (method, path), (_, kind) in ACTIONS.items():
        yield f"{method} /_sim{path}"
        if kind is not Any:
            taken = (each.encode_name for each in msgspec.structs.fields(kind))
            yield from (f"{method} /_sim{path} {name}" for name in taken)


def journals() -> Iterator[str]:
    """Yield the version of the journal's format, and the events with their fields."""
    yield f"version {journal.VERSION}"
    for kind in KINDS:
        yield from (f"{name_of(kind)}, {field}" for field in kind.__struct_fields__)


def ids() -> Iterator[str]:
    """Yield the ids of all checks, with the subject that they judge."""
    for name in SUBJECTS:
        yield from (f"{name} {case.id}" for case in subject(name).cases())


def target_keys() -> Iterator[str]:
    """Yield the keys of a target file."""
    for field in msgspec.structs.fields(Target):
        inner = field.type if inspect.isclass(field.type) else object
        if not issubclass(inner, msgspec.Struct):
            yield field.name
        else:
            yield from (f"{field.name}.{name}" for name in inner.__struct_fields__)


def _results() -> list[Result]:
    """Return results of which reports have all that they can have."""
    case = CaseResult(title="it", outcome=Outcome.PASSED)
    left = CaseResult(title="it", outcome=Outcome.SKIPPED, reason="why")
    return [
        Result(
            id=f"spec/1/{outcome}", level="MUST", section="1", title="it", outcome=outcome,
            reason="why", cases=(case, left),
        )
        for outcome in Outcome
    ]  # fmt: skip


def reports() -> Iterator[str]:
    """Yield the keys of the JSON report, the elements of JUnit, and the keys of SARIF."""
    schema = msgspec.json.decode((PACKAGE / "report" / "conformance.schema.json").read_bytes())
    yield from (f"JSON {path}" for path in _schema(schema, schema))
    results = _results()
    yield from (f"JUnit {path}" for path in _xml(conformance.as_junit("", "", results)))
    yield from (f"SARIF {path}" for path in _keys(conformance.as_sarif("", results)))


def _schema(schema: Mapping[str, Any], whole: Mapping[str, Any], path: str = "") -> Iterator[str]:
    if reference := schema.get("$ref"):
        schema = whole["$defs"][reference.rpartition("/")[2]]
    for name, inner in schema.get("properties", {}).items():
        yield f"{path}{name}"
        yield from _schema(inner, whole, f"{path}{name}.")
    yield from _schema(schema["items"], whole, path) if "items" in schema else ()


def _xml(document: bytes) -> Iterator[str]:
    for element in ET.fromstring(document).iter():
        yield element.tag
        yield from (f"{element.tag} {name}" for name in element.attrib)


def _keys(value: Any, path: str = "") -> Iterator[str]:
    if isinstance(value, list):
        for each in value:
            yield from _keys(each, path)
    if isinstance(value, dict):
        for name, inner in value.items():
            yield f"{path}{name}"
            yield from _keys(inner, f"{path}{name}.")


def action() -> Iterator[str]:
    """Yield the inputs and outputs of the action of GitHub."""
    document = yaml.safe_load((ROOT / "action.yml").read_bytes())
    yield from (f"{kind[:-1]} {name}" for kind in ("inputs", "outputs") for name in document[kind])


PARTS: dict[str, Callable[[], Iterator[str]]] = {
    "action": action,
    "check": ids,
    "command": commands,
    "control": control,
    "environment": variables,
    "error": lambda: (each.text for kind in (Refusal, RequestError) for each in kind),
    "exit code": exit_codes,
    "fault": lambda: iter(get_args(FaultType)),
    "journal": journals,
    "python": python,
    "pytest": plugin,
    "report": reports,
    "target": target_keys,
}


if __name__ == "__main__":
    FILE.write_text("\n".join(lines()) + "\n", encoding="utf-8")
