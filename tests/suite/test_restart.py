"""--restart over TCP: a service with a database keeps what was paid, one without it does not."""

import signal
from pathlib import Path
from typing import Any

from tests.serve.driver import Running, command
from tests.strangers.stranger import KEEP
from tests.suite.duo import Duo, conformance, service_env
from x402sim.suite.started import free_port

IDS = (
    "spec/3/record-outlives-cache",
    "spec/4.1/store-settled",
    "kit/5/session-survives-restart",
)


def judged(ready: dict[str, Any], folder: Path, *options: str) -> dict[str, Any]:
    """Run the suite against a service with these options, which starts again if it is killed."""
    port, pid = str(free_port()), folder / "pid"
    kept = ["bash", "-c", KEEP, str(pid), *command("service", "--port", port, *options)]
    with Running(program=kept, env=service_env(ready)) as service:
        assert service.line()
        done = conformance(
            f"http://127.0.0.1:{port}", "--world", ready["control"],
            "--restart", f"kill -9 $(cat {pid})", "--json", "--only", ",".join(IDS),
        )  # fmt: skip
        service.end(signal.SIGTERM)
    return done.results


def test_what_a_database_keeps_survives_the_restart(duo: Duo, tmp_path: Path) -> None:
    found = judged(duo.ready, tmp_path, "--db", str(tmp_path / "shop.db"))
    assert {each: found[each]["outcome"] for each in IDS} == dict.fromkeys(IDS, "passed")


def test_a_service_that_keeps_all_in_memory_fails(duo: Duo, tmp_path: Path) -> None:
    found = judged(duo.ready, tmp_path)
    assert {each: found[each]["outcome"] for each in IDS} == dict.fromkeys(IDS, "failed")
