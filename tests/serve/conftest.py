from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

from tests.serve.driver import Payer, Server
from tests.serve.hosted import hosted

if TYPE_CHECKING:
    from tests.serve.browser import Browser


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    """One server for all tests of a file, which bring their own wallets."""
    with hosted() as running:
        yield running


@pytest.fixture
def payer(server: Server) -> Payer:
    return server.payer()


@pytest.fixture(scope="module")
def browser() -> Iterator["Browser"]:
    """Chromium, with one page; at the end it has complained of nothing."""
    from tests.serve.browser import Browser  # it needs Node.js, and most tests here do not

    browser = Browser()
    yield browser
    browser.close()
    assert browser.said == []


@pytest.fixture
def shown(browser: "Browser") -> Iterator[Server]:
    """A server of its own, whose page the browser shows."""
    with hosted() as running:
        browser.do("setViewport", {"width": 1400, "height": 900})
        browser.open(f"{running.ready['control']}/ui")
        yield running
        browser.do("goto", "about:blank")
