"""What `help()` shows of the public names is true: the examples run, every option is there."""

import doctest
import inspect
import re
import sys
from typing import get_args

import msgspec
import pytest

from x402sim import Fault, Settings, World
from x402sim.payer import policies as of_payer
from x402sim.policies import PayerPolicy, ServicePolicy
from x402sim.population import Buy, Session
from x402sim.service import policies as of_service
from x402sim.world import faults, world

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


def test_every_kind_of_fault_is_explained() -> None:
    kinds = re.split(r"\n(?=\w+\n)", inspect.getdoc(Fault) or "")[2]
    for kind in get_args(faults.FaultType):
        assert re.search(rf'- (".+", )?"{kind}"(, ".+")?: \S', kinds), kind
