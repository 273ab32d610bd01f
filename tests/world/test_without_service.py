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
    ("path", "body"),
    [
        ("/crash", {}),
        ("/indexer/run", {}),
        ("/clock/skew", {"actor": "service", "seconds": 5}),
        ("/faults", {"victim": "service", "does": "refuse"}),
        ("/faults", {"victim": "facilitator", "does": "crash after"}),
    ],
)
def test_what_acts_on_the_service_is_refused(control: Any, path: str, body: Any) -> None:
    answer = control.post(path, json=body)
    assert answer.status_code == 409, answer.text
    assert "has none" in answer.json()["reason"]


def test_what_acts_on_the_world_is_done(control: Any) -> None:
    for body in (
        {"victim": "facilitator", "does": "lose answer"},
        {"victim": "rpc", "does": "refuse"},
    ):
        assert control.post("/faults", json=body).status_code == 200
    assert (
        control.post("/clock/skew", json={"actor": "facilitator", "seconds": 5}).status_code == 200
    )


def test_the_merchant_is_the_account_that_is_printed(control: Any, exported: Any) -> None:
    assert control.get("/who").json()["payTo"] == exported["MERCHANT_ADDRESS"]
