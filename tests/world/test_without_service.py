"""A world without a service: its merchant is the account it hands out, and no action pretends."""

from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from tests.serve.driver import Running


@pytest.fixture(scope="module")
def exported() -> Iterator[dict[str, str]]:
    """The settings that `serve --no-service` prints for a service; it runs meanwhile."""
    world = Running("serve", "--no-service", "--port", "0")
    lines = []
    while not (line := world.line()).startswith("Ctrl-C"):
        lines.append(line.strip())
    told = (line.removeprefix("export ").split("=") for line in lines if "export" in line)
    yield dict(told)
    world.close()


@pytest.fixture
def control(exported: dict[str, str]) -> Iterator[httpx.Client]:
    url = exported["FACILITATOR_URL"].removesuffix("/facilitator")
    with httpx.Client(base_url=f"{url}/_sim", trust_env=False) as client:
        yield client


@pytest.mark.parametrize(
    ("path", "body", "status"),
    [
        ("/crash", {}, 409),
        ("/indexer/run", {}, 409),
        ("/clock/skew", {"actor": "service", "seconds": 5}, 409),
        ("/clock/skew", {"actor": "facilitator", "seconds": 5}, 200),
        ("/faults", {"victim": "service", "does": "refuse"}, 409),
        ("/faults", {"victim": "facilitator", "does": "crash after"}, 409),
        ("/faults", {"victim": "facilitator", "does": "lose answer"}, 200),
        ("/faults", {"victim": "rpc", "does": "refuse"}, 200),
    ],
)
def test_what_acts_on_the_service_is_refused_and_only_that(
    control: Any, path: str, body: Any, status: int
) -> None:
    answer = control.post(path, json=body)
    assert answer.status_code == status, answer.text
    assert status == 200 or "has none" in answer.json()["reason"]
