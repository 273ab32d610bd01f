"""Published servers get the verdicts of conformance/verdicts.json."""

import pytest

from tests.interop.table import THOROUGH
from tests.published import failed, kept
from tests.suite_server.published import FILE, PUBLISHED, page, verdict
from x402sim.judging import judge

FEW = (
    "server/control",
    "server/header/version-answer",
    "server/order/refused",
    "server/order/refused-",
    "server/order/settled-lost",
    "server/order/settled-lost-",
    "server/path/head",
)
"""What CI judges of a few of them."""
LOST = ("lost", "cut", "twice", "empty", "page", "gateway")
LATEST = ("x402[fastapi] 2.25.0", "x402[flask] 2.25.0", "@x402/express 2.27.0", "@x402/hono 2.27.0")


def test_the_page_is_that_of_the_cases() -> None:
    """Renew it with `python -m tests.suite_server.published`."""
    assert FILE.read_text(encoding="utf-8") == page(), "python -m tests.renew --only cases"


def test_each_is_kept_with_its_version() -> None:
    names = {f"{name} {it.version}" for name, it in PUBLISHED.items()}
    assert names <= {*kept("server")}, "python -m tests.suite_server.published NAME"


@pytest.mark.parametrize("name", LATEST)
def test_a_settlement_whose_answer_is_lost_is_charged_and_never_served(name: str) -> None:
    """Measured before there was a judge: 24 of 24, for four middlewares and six faults."""
    losses = {check_id: it.lost for (check_id, _), it in kept("server")[name].failures.items()}
    found = [losses.get(f"server/order/settled-{each}") for each in LOST]
    assert found == ["0.01 USDC"] * len(LOST)
    assert ("server/header/version-answer" in losses) == name.startswith("x402[")
    assert ("server/path/head" in losses) == ("fastapi" not in name)


@THOROUGH
@pytest.mark.timeout(600)  # pip may install the version first
@pytest.mark.parametrize("name", ["x402[fastapi] 2.25.0", "fastapi-x402 0.1.8"])
def test_a_few_cases_are_judged_as_they_were(name: str) -> None:
    implementation, version = name.split()
    by_recipe = name in LATEST
    found = (
        judge("server", only=FEW, sdk=[f"{implementation}=={version}"])
        if by_recipe
        else verdict(implementation, FEW)
    )
    ids = {each.id for each in found.results}
    assert failed(found) == {it for it in kept("server")[name].failures if it[0] in ids} != set()


@pytest.mark.campaign
@pytest.mark.timeout(900)
@pytest.mark.parametrize("name", PUBLISHED)
def test_every_case_is_judged_as_it_was(name: str) -> None:
    assert failed(verdict(name)) == {*kept("server")[f"{name} {PUBLISHED[name].version}"].failures}
