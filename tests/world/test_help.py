"""What `help()` shows of the public names is true: the examples run, every option is there."""

import doctest
import inspect
import pydoc
import re
import sys
from dataclasses import fields
from enum import EnumType
from typing import Protocol, get_args

import msgspec
import pytest

from tests.house import names_of
from x402sim import Fault, Settings, World, backends, policies, population
from x402sim.payer import policies as of_payer
from x402sim.policies import PayerPolicy, ServicePolicy
from x402sim.population import Buy, Session
from x402sim.service import policies as of_service
from x402sim.world import world
from x402sim.world.transport import faults

pytestmark = pytest.mark.skipif(sys.flags.optimize > 1, reason="-OO leaves docstrings out")


@pytest.mark.parametrize(
    "module", [world, faults, of_service, of_payer], ids=lambda each: each.__name__
)
def test_the_examples_run(module) -> None:
    result = doctest.testmod(module)
    assert result.attempted > 0
    assert result.failed == 0


def test_every_option_of_a_world_is_explained() -> None:
    text = inspect.getdoc(World) or ""
    for name in inspect.signature(World).parameters:
        assert f"\n{name}\n    " in text, name


@pytest.mark.parametrize(
    "options", [Settings, Fault, ServicePolicy, PayerPolicy, Buy, Session], ids=lambda o: o.__name__
)
def test_every_field_is_explained_with_its_default(options: type) -> None:
    text = inspect.getdoc(options) or ""
    heads = [
        line.split(", ") for line in text.splitlines() if re.match(r"[a-z_]+(, [a-z_]+)*$", line)
    ]
    explained = [name for names in heads for name in names]
    fields = inspect.signature(options).parameters
    assert explained == list(fields)
    for name, field in fields.items():
        if field.default not in (field.empty, msgspec.UNSET) and "factory" not in str(field):
            block = re.split(rf"\n(?:.*, )?{name}(?:, .*)?\n", text)[1].split("\n\n")[0]
            block = re.split(r"\n(?=[a-z_])", block)[0]
            default = re.sub(r"'(.*)'", r'"\1"', repr(field.default)).removesuffix(".0")
            assert default in block, (name, default)
            assert "default" in block


@pytest.mark.parametrize("module", [policies, population, backends])
def test_help_of_a_module_is_two_screens_that_name_all_it_has(module) -> None:
    _, *lines = pydoc.render_doc(module, renderer=pydoc.plaintext).splitlines()
    assert len(lines) <= 48
    lines = lines[: lines.index("FILE")]  # a path may be as long as it likes
    assert max(map(len, lines)) <= 80
    for name in names_of(module):
        assert re.search(rf"\b{name}\b", "\n".join(lines)), name


def is_protocol(public: type) -> bool:
    return Protocol in public.__bases__


@pytest.mark.parametrize("module", [policies, population])
def test_help_of_a_class_names_each_argument_before_any_dunder(module) -> None:
    for name in names_of(module):
        public = getattr(module, name)
        if isinstance(public, type) and type(public) is not EnumType and not is_protocol(public):
            text = pydoc.render_doc(public, renderer=pydoc.plaintext).partition(" |  __")[0]
            told = re.split(r"\n \| *\n", text, maxsplit=1)[-1]  # Python 3.13 writes " |"
            for argument in inspect.signature(public).parameters:
                assert argument in told, (name, argument)


def test_every_kind_of_fault_is_explained() -> None:
    kinds = re.split(r"\n(?=\w+\n)", inspect.getdoc(Fault) or "")[2]
    for kind in get_args(faults.FaultType):
        assert re.search(rf'- (".+", )?"{kind}"(, ".+")?: \S', kinds), kind


def test_the_documentation_of_the_policies_names_them_all_and_the_default_first() -> None:
    text = inspect.getdoc(policies) or ""
    for name in names_of(policies):
        assert name in text, name
        assert inspect.getdoc(getattr(policies, name)), name
    for policy in (policies.ServicePolicy(), policies.PayerPolicy()):
        for field in (
            each.name
            for each in fields(policy)
            if each.name not in ("steps", "timeout_s", "within_s")
        ):
            default = type(getattr(policy, field)).__name__
            (line,) = (each for each in text.splitlines() if each.split()[:1] == [field])
            assert line.split()[1].rstrip(",:") == default
            assert len(line.split()) >= 1 + 2, "a default and an alternative"
