"""Servers that others have published get the verdicts that conformance/servers.md tells."""

import pytest

from tests.interop.table import THOROUGH
from tests.published import failed, summary
from tests.suite_server.published import FILE, KEPT, PUBLISHED, page, verdict

FEW = (
    "server/control",
    "server/header/version-answer",
    "server/order/refused",
    "server/order/refused-",
    "server/order/settled-lost",
    "server/order/settled-lost-",
    "server/path/head",
)
"""What CI judges of three of them."""
LOST = ("lost", "cut", "twice", "empty", "page", "gateway")


def test_the_page_is_that_of_the_cases_and_of_the_verdicts_that_are_kept() -> None:
    """Renew it with `python -m tests.suite_server.published`."""
    assert FILE.read_text(encoding="utf-8") == page(), "python -m tests.renew --only cases"


def test_each_is_kept_with_its_version() -> None:
    assert {name: it["version"] for name, it in KEPT.all().items()} == {
        name: it.version for name, it in PUBLISHED.items()
    }, "python -m tests.suite_server.published NAME"


@pytest.mark.parametrize("name", ["FastAPI", "Flask", "Express", "Hono"])
def test_a_settlement_whose_answer_is_lost_is_charged_and_never_served(name: str) -> None:
    """Measured before there was a judge: 24 of 24, for four middlewares and six faults."""
    losses = {each["id"]: each.get("lost") for each in KEPT.all()[name]["failed"]}
    found = [losses.get(f"server/order/settled-{each}") for each in LOST]
    assert found == ["0.01 USDC"] * len(LOST)
    assert ("server/header/version-answer" in losses) == (name in ("FastAPI", "Flask"))
    assert ("server/path/head" in losses) == (name != "FastAPI")


@THOROUGH
@pytest.mark.parametrize("name", ["FastAPI", "Express", "fastapi-x402"])
def test_a_few_cases_are_judged_as_they_were(name: str) -> None:
    judged = verdict(name, FEW).results
    ids = {each.id for each in judged}
    kept = {each for each in failed(KEPT.all()[name]) if each[0] in ids}
    assert failed(summary(judged)) == kept != set()


@pytest.mark.campaign
@pytest.mark.timeout(900)
@pytest.mark.parametrize("name", PUBLISHED)
def test_every_case_is_judged_as_it_was(name: str) -> None:
    assert failed(summary(verdict(name).results)) == failed(KEPT.all()[name])
