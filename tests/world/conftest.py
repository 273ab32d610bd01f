"""The stages on which a story is played: in process, over TCP, and at a URL."""

import pytest


@pytest.fixture(params=["in-process", "tcp", "url"])
def on(request: pytest.FixtureRequest) -> str:
    """Each stage; the last is a real server in real time."""
    if request.param != "url":
        return request.param
    return request.getfixturevalue("server").url


@pytest.fixture(params=["in-process", "tcp"])
def virtual(request: pytest.FixtureRequest) -> str:
    return request.param
