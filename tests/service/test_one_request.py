"""One paid request is short to read, and downwards: each file calls only those below it."""

import ast
import sys
import tomllib
from pathlib import Path
from typing import Any

import x402sim.service
from tests.rig import ServiceRig, scene
from tests.service.standard import sign

SERVICE = Path(x402sim.service.__file__).parent
MOST_LINES, MOST_OF_PAY = 640, 440
PROJECT = tomllib.loads((SERVICE.parents[1] / "pyproject.toml").read_text())
CONTRACTS = PROJECT["tool"]["importlinter"]["contracts"]
(WALK,) = (each["layers"] for each in CONTRACTS if each.get("containers") == ["x402sim.service"])
PLACES = {name: place for place, layer in enumerate(WALK) for name in layer.split(" | ")}


@scene
async def test_a_paid_request_runs_under_300_lines_and_is_read_downwards(rig: ServiceRig) -> None:
    lines: set[tuple[str, int]] = set()
    functions: set[tuple[str, int]] = set()
    calls: set[tuple[str, str]] = set()

    def trace(frame: Any, event: str, _: Any) -> Any:
        if (called := part(frame)) is None:
            return None
        caller = frame.f_back
        while caller is not None and part(caller) is None:
            caller = caller.f_back
        functions.add((frame.f_code.co_filename, frame.f_code.co_firstlineno))
        if caller is not None:
            calls.add((part(caller) or "", called))
        if event == "line":
            lines.add((frame.f_code.co_filename, frame.f_lineno))
        return trace

    await rig.ask(x_payment_id=await rig.buy())  # what is computed once is computed
    before = sys.gettrace()
    sys.settrace(trace)
    try:
        required = await rig.ask()
        asking = functions.copy()
        functions.clear()
        await rig.pay(required)
        paying = functions.copy()
        answer = await rig.ask(x_payment_id=required.json()["paymentId"])
        run, all_three = len(lines), functions | asking
        in_one_step = await rig.ask(**sign(rig, 2, await rig.ask()))
    finally:
        sys.settrace(before)
    assert answer.status_code == in_one_step.status_code == 200
    assert 150 < run < 300
    assert 500 < sum(len_of(*each) for each in all_three) < MOST_LINES
    assert 350 < sum(len_of(*each) for each in paying) < MOST_OF_PAY
    assert len({file for file, _ in paying}) <= 11
    assert ("payments", "reconcile") in calls
    assert [each for each in calls if PLACES[each[0]] > PLACES[each[1]]] == []


def len_of(file: str, first_line: int) -> int:
    """Return the lines of the function that begins there; of what stands in a function, 0."""
    tree = ast.parse(Path(file).read_text("utf-8"))
    found = (*tree.body, *(each for kind in tree.body for each in getattr(kind, "body", ())))
    return sum(
        (each.end_lineno or 0) - each.lineno + 1
        for each in found
        if isinstance(each, ast.FunctionDef | ast.AsyncFunctionDef)
        and min([each.lineno, *(one.lineno for one in each.decorator_list)]) == first_line
    )


def part(frame: Any) -> str | None:
    """Return the file of the service, or its folder, that a frame runs in."""
    file = Path(frame.f_code.co_filename)
    inside = file.is_relative_to(SERVICE)
    return file.relative_to(SERVICE).with_suffix("").parts[0] if inside else None
