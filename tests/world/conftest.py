"""A server, and the stages on which a story is played: in process, over TCP, and at a URL."""

from collections.abc import Iterator

import pytest

from x402sim import LocalServer


@pytest.fixture(scope="module")
def server() -> Iterator[LocalServer]:
    with LocalServer(seed=1) as running:
        yield running


@pytest.fixture(params=["in-process", "tcp", "url"])
def on(request: pytest.FixtureRequest) -> str:
    """Each stage; the last is a real server in real time."""
    if request.param != "url":
        return request.param
    return request.getfixturevalue("server").url


@pytest.fixture(params=["in-process", "tcp"])
def virtual(request: pytest.FixtureRequest) -> str:
    return request.param
