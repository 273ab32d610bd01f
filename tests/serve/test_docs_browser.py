"""/docs in headless Chromium: account 0 of a local mock server pays what is asked for, and only there."""

import re
from collections.abc import Iterator

import pytest

from tests.serve.browser import Browser
from tests.serve.driver import started
from tests.serve.hosted import hosted
from tests.suite.deployment import Deployment

pytestmark = [pytest.mark.thorough, pytest.mark.timeout(400)]  # npm installs Chromium, of 65 MB


@pytest.fixture(autouse=True)
def _answers_of_any_status(browser: Browser) -> Iterator[None]:
    """The browser tells of each answer that is an error; these are none of the page."""
    yield
    browser.said = [each for each in browser.said if not re.search(r"status of 40[124]", each)]


def asks(browser: Browser, url: str, operation: str) -> None:
    """Open /docs at an operation, and send its example."""
    browser.do("goto", "about:blank")
    browser.do("goto", f"{url}/docs#{operation}")
    browser.do("waitForSelector", f"#{operation} form")
    browser.do("click", f"#{operation} button.main")
    browser.sees(f"#{operation} .status.warn", "402")


@pytest.mark.parametrize(
    ("operation", "says"),
    [("quote", "entryPrice"), ("market", "fundingRate"), ("createSession", "session_")],
)
@pytest.mark.parametrize("ahead_s", [0, 3600])
def test_account_0_pays_from_the_docs(
    browser: Browser, operation: str, says: str, ahead_s: int
) -> None:
    with hosted() as server:
        server.advance(ahead_s)
        asks(browser, server.ready["service"], operation)
        browser.sees(f"#{operation} .next button", "Pay with account 0")
        assert server.account(0).transfers == 0
        browser.do("click", f"#{operation} .next button.main")
        browser.sees("#pay .status.good", "200")
        browser.sees("#pay pre", "txHash")
        browser.do("click", "#pay .next.done button")
        browser.do("click", f"#{operation} button.main")
        browser.sees(f"#{operation} .status.good", "20")
        browser.sees(f"#{operation} pre", says)
        assert server.account(0).transfers == 1
        browser.do("goto", "about:blank")


@pytest.fixture(params=["a control token", "a service alone"])
def closed(request: pytest.FixtureRequest) -> Iterator[str]:
    """The URL of a service whose world a page cannot control."""
    if request.param == "a control token":
        with started("--control-token", "secret", "--quiet") as server:
            yield server.ready["service"]
    else:
        deployment = Deployment()
        yield deployment.url
        deployment.close()


def test_nobody_pays_where_the_page_may_not(browser: Browser, closed: str) -> None:
    asks(browser, closed, "quote")
    browser.do("waitForNetworkIdle")
    shown = "return page.$$eval('#quote .next button', (all) => all.map((it) => it.innerText))"
    assert browser.run(shown) == ["Go to POST /api/pay"]
    browser.do("goto", "about:blank")
