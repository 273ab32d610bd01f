"""Every event is declared with its units, recorded somewhere, and handled by reports.

The journal's format is pinned here.
"""

import ast
from hashlib import sha256
from typing import Any, Literal, get_args, get_origin, get_type_hints

import msgspec
from msgspec import UNSET, UnsetType

from tests.house import PACKAGE, ROOT
from x402sim import Fault, events
from x402sim.events import KINDS, name_of
from x402sim.journal import VERSION, Journal
from x402sim.report import diff, trace
from x402sim.report.frames import TABLES
from x402sim.report.reading import Reading
from x402sim.world.faults import DEFAULTS

CODE = [
    file
    for folder in (PACKAGE, ROOT / "conformance", ROOT / "scenarios")
    for file in sorted(folder.rglob("*.py"))
    if file.parent != PACKAGE / "events"
]
NAMES = {kind.__name__: name_of(kind) for kind in KINDS}
FORMAT = (6, "f56e1919d1d6f420")
"""The version of a journal, and the hash of all its fields in order; the guide's `events` has them."""


def example(annotation: Any) -> Any:
    """A value of a field's type, as JSON has it."""
    origin, arguments = get_origin(annotation), get_args(annotation)
    if origin is Literal:
        return arguments[0]
    if origin is dict:
        return {"a": "b"}
    if UnsetType in arguments:
        return example(arguments[0])
    if origin is tuple:
        return ["a frame"]
    return {str: "1", int: 1, bool: True}[arguments[0] if arguments else annotation]


def made(kind: type[events.Event]) -> events.Event:
    fields = get_type_hints(kind)
    told = {name: example(fields[name]) for name in kind.__struct_fields__}
    return msgspec.convert({"event": name_of(kind), **told}, events.Event)


def test_the_union_has_every_event() -> None:
    leaves = {
        each.__name__
        for each in vars(events).values()
        if isinstance(each, type)
        and issubclass(each, events.BaseEvent)
        and each.__name__[0] != "_"
        and each is not events.BaseEvent
    }
    assert leaves == set(NAMES)
    assert len(set(NAMES.values())) == len(KINDS)


def test_the_format_of_a_line_is_the_one_of_this_version() -> None:
    """The order of the fields is part of the format: a change of it is a new version."""
    lines = [f"{name_of(kind)}: {' '.join(kind.__struct_fields__[1:])}".rstrip() for kind in KINDS]
    found = sha256("\n".join(lines).encode()).hexdigest()[:16]
    assert (VERSION, found) == FORMAT, "raise journal.VERSION"
    for kind in KINDS:
        assert kind.__struct_fields__[0] == "actor"
        journal = Journal()
        journal.record(1, made(kind))
        _, line = journal.ndjson().splitlines()
        named = ["seq", "at_ms", "event", *kind.__struct_fields__]
        assert list(msgspec.json.decode(line)) == named
        assert Journal.load(journal.ndjson()).ndjson() == journal.ndjson()


def test_the_actor_of_an_event_matches_its_kind() -> None:
    its_own = {"world": get_args(events.StoryEvent)}
    named = (events.ServiceEvent, events.ExchangeEvent, events.PartEvent, events.ChainEvent)
    anyone = {each for group in named for each in get_args(group)}
    for kind in KINDS:
        actors = get_args(get_type_hints(kind)["actor"])
        for name, group in its_own.items():
            assert (kind in group) == (actors == (name,)), kind
        assert (kind in anyone) == (actors == ()), kind
        defaults = {each.name: each.default for each in msgspec.structs.fields(kind)}
        assert (kind in get_args(events.ChainEvent)) == (defaults["actor"] == "chain"), kind


def test_every_event_is_recorded_somewhere() -> None:
    missing = set(NAMES)
    for text in (file.read_text("utf-8") for file in CODE):
        if any(f"{name}(" in text for name in missing):
            nodes = ast.walk(ast.parse(text))
            calls = (ast.unparse(node.func) for node in nodes if isinstance(node, ast.Call))
            missing -= {call.rpartition(".")[2] for call in calls}
    assert missing == set()


def test_every_report_takes_every_event() -> None:
    whole = Journal()
    for kind in KINDS:
        journal = Journal()
        for each in journal, whole:
            each.record(1, made(kind))
        assert len(trace.lines(Reading(journal))) <= 1
        assert diff.describe(journal, Journal())
    for table in TABLES.values():
        table(whole)


def test_an_injected_fault_has_the_fields_of_a_fault() -> None:
    ours, its = (
        {field.name: field.default for field in msgspec.structs.fields(kind)}
        for kind in (events.FaultInjected, Fault)
    )
    assert ours.pop("actor") == "world"
    assert list(ours) == list(its)
    absent = {
        "headers": UNSET,
        "caller": UNSET,
        "when": UNSET,
    }  # unless given, so that a journal without them is as it was
    assert ours == its | DEFAULTS | absent
    assert [name for name, default in its.items() if default is UNSET] == [*DEFAULTS]
