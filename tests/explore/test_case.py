"""A case is data: it survives JSON, prints as a program, and has every kind of step."""

from typing import get_args

import msgspec
import pytest

from x402sim import Fault
from x402sim.explore.campaign import failure_of
from x402sim.explore.case import Buy, Case, Deposit, Lie, Reorganise, Step, Strike, Submit, kind_of
from x402sim.explore.draw import draw
from x402sim.explore.play import play
from x402sim.explore.program import program


@pytest.mark.parametrize("adversary", [False, True])
def test_a_drawn_case_survives_json_and_its_program(adversary: bool) -> None:
    for seed in range(200):
        case = draw(seed, adversary=adversary)
        assert msgspec.json.decode(msgspec.json.encode(case), type=Case) == case
        names: dict[str, object] = {}
        text = program(case).replace("play(", "dict(case=").replace("print(", "str(")
        exec(text.split("str(")[0], names)
        assert names["played"] == {"case": case}


def test_the_same_seed_draws_the_same_case() -> None:
    assert draw(7, adversary=True) == draw(7, adversary=True)
    assert draw(7, adversary=True) != draw(7, adversary=False)


def test_only_an_adversary_lies_and_submits() -> None:
    plain = {type(step) for seed in range(400) for step in draw(seed, adversary=False).steps}
    hostile = {type(step) for seed in range(400) for step in draw(seed, adversary=True).steps}
    assert hostile == set(get_args(Step))
    assert hostile - plain == {Lie, Submit}


def test_every_step_has_a_kind() -> None:
    kinds = {kind_of(step) for seed in range(2000) for step in draw(seed, adversary=True).steps}
    assert {"buy: X-PAYMENT", "crash", "lie: invented hash", "fault: rpc crash before"} <= kinds
    assert len(kinds) > 60


def test_the_program_replays_the_journal_byte_for_byte(capsys: pytest.CaptureFixture[str]) -> None:
    case = Case(
        seed=3,
        latency={"rpc": 0.1},
        steps=(
            Buy(number=0),
            Deposit(at_s=2.5, number=1),
            Strike(fault=Fault(victim="facilitator", does="lose answer")),
            Reorganise(at_s=30.0, depth=2),
        ),
    )
    exec(program(case), {})
    assert capsys.readouterr().out.split()[-1] == play(case).journal.sha256()


def test_the_same_case_breaks_the_same_laws() -> None:
    for seed in range(5):
        first, second = (play(draw(seed, adversary=True)) for _ in range(2))
        assert failure_of(first) == failure_of(second)
        assert first.journal.sha256() == second.journal.sha256()
