"""The system's clock is set back while a server runs."""

import json
import time

from tests.serve.driver import until
from x402sim import LocalServer, Settings
from x402sim.clock import Clock
from x402sim.service import background
from x402sim.serving.log import Form

BACK_S = 10_800


def test_blocks_and_background_work_go_on_and_it_is_told(monkeypatch) -> None:
    ahead, lines, rounds = 0.0, list[bytes](), list[float]()
    settings = Settings(indexer_interval_s=0.2)
    server = LocalServer(seed=1, block_time_s=0.2, service=settings)
    server.clock = Clock(lambda: time.time() + ahead, time.monotonic)
    server.log_form = Form(lines.append, is_json=True, pause_s=0.01)
    run = background.indexer.run
    monkeypatch.setattr(background.indexer, "run", lambda it: rounds.append(1) or run(it))
    with server:
        until(lambda: rounds)
        ahead, height, count = -BACK_S, server.parts.chain.machine.state.height, len(rounds)
        until(lambda: server.parts.chain.machine.state.height > height + 2)
        until(lambda: len(rounds) > count + 2)
        until(lambda: any(b"the system's clock" in line for line in lines))
        (note,) = [each for each in server.journal if each.event.__class__.__name__ == "Note"]
    assert note.event.data == {"seconds": -BACK_S}
    (line,) = [json.loads(line) for line in lines if b"the system's clock" in line]
    assert line["notes"][0].startswith("the system's clock was set by -10800 s; the chain's time")
