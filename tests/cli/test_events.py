"""`events`: the reference of the events is complete, and made from their declarations."""

import json
import re

from tests.cli.runner import run
from x402sim import World
from x402sim.commands.event_reference import GROUPS, fields_of
from x402sim.events import KINDS, name_of


def shown(*options: str) -> str:
    done = run("events", *options)
    assert done.exit_code == 0
    return done.stdout


def test_every_event_is_in_one_group() -> None:
    assert sorted(kind.__name__ for kinds in GROUPS.values() for kind in kinds) == sorted(
        kind.__name__ for kind in KINDS
    )


def test_the_text_has_every_event_with_every_field_in_80_columns() -> None:
    text = shown()
    assert max(map(len, text.splitlines())) <= 80
    for kind in KINDS:
        _, after = text.split(f"\n\n{name_of(kind)}\n")
        section = after.split("\n\n")[0]
        assert section.startswith("  Written ")
        assert re.findall(r"^    (\w+)  +\S", section, re.MULTILINE) == [
            name for name, _ in fields_of(kind)
        ]


def test_the_lines_of_a_journal_are_as_the_reference_says() -> None:
    fields = {name_of(kind): [name for name, _ in fields_of(kind)] for kind in KINDS}
    _, *lines = World(seed=1).play("replay").journal.ndjson().splitlines()
    for line in map(json.loads, lines):
        assert list(line) == ["seq", "at_ms", "event", *fields[line["event"]]]
