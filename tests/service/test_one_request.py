"""One paid request is short to read: 402, payment, and the repeated request that is served."""

import sys
from pathlib import Path
from typing import Any

import x402sim.service
from tests.rig import ServiceRig, scene

SERVICE = str(Path(x402sim.service.__file__).parent)


@scene
async def test_the_lines_that_serve_a_paid_request_are_under_300(rig: ServiceRig) -> None:
    lines: set[tuple[str, int]] = set()

    def trace(frame: Any, event: str, _: Any) -> Any:
        if not frame.f_code.co_filename.startswith(SERVICE):
            return None
        if event == "line":
            lines.add((frame.f_code.co_filename, frame.f_lineno))
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        payment_id = await rig.buy()
        answer = await rig.ask(x_payment_id=payment_id)
    finally:
        sys.settrace(before)
    assert answer.status_code == 200
    assert 150 < len(lines) < 300
