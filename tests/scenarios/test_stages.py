"""Against a URL a scenario is played if the stage has what it needs, and is skipped if not."""

from collections.abc import Iterator

import pytest

from tests.scenarios.golden import SIX
from tests.serve.driver import Server, started
from x402sim import LocalServer, World
from x402sim.events import name_of
from x402sim.spec.needs import Need
from x402sim.world.stages.deployment import PAYER_KEY
from x402sim.world.story.scenario import Scenario, shipped

SHIPPED = shipped()
IS_OUR_OWN = {Need.VIRTUAL_TIME, Need.OTHER_SERVICES}
"""What no URL has."""


@pytest.fixture(scope="module")
def bare() -> Iterator[Server]:
    """A service without a control API: nobody can turn its clock or fund a payer."""
    with started("--host", "0.0.0.0") as server:
        assert server.ready["control"] is None
        yield server


@pytest.fixture(scope="module")
def server() -> Iterator[LocalServer]:
    with LocalServer(seed=1) as running:
        yield running


def expect_skipped(scenario: Scenario, url: str, missing: list[Need]) -> None:
    run = World(on=url).play(scenario)
    offers = ", ".join(need.meaning for need in missing)
    assert (run.outcome, run.reason) == ("skipped", f"{url} does not offer {offers}")
    assert [name_of(entry.event) for entry in run.journal] == ["begin", "end"]


@pytest.mark.parametrize("scenario", SHIPPED, ids=lambda each: each.name)
def test_a_bare_url_gets_what_it_can_play(bare: Server, scenario: Scenario) -> None:
    url = bare.ready["service"]
    if scenario.needs:
        expect_skipped(scenario, url, list(scenario.needs))
    else:
        run = World(on=url).play(scenario)
        assert (run.outcome, run.reason) == ("passed", "")


def test_with_a_funded_payer_only_the_rest_is_missing(
    bare: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(PAYER_KEY, bare.ready["accounts"][0]["privateKey"])
    for scenario in SHIPPED:
        missing = [need for need in scenario.needs if need is not Need.FUNDS]
        if missing:
            expect_skipped(scenario, bare.ready["service"], missing)
        elif scenario.needs:
            run = World(on=bare.ready["service"]).play(scenario)
            assert (run.outcome, run.reason) == ("passed", "")


@pytest.mark.parametrize("name", SIX)
def test_a_started_server_can_play_all_but_virtual_time(server: LocalServer, name: str) -> None:
    (scenario,) = (each for each in SHIPPED if each.name == name)
    missing = [need for need in scenario.needs if need in IS_OUR_OWN]
    if missing:
        expect_skipped(scenario, server.url, missing)
        return
    run = World(on=server.url).play(scenario)
    assert (run.outcome, run.reason) == ("passed", "")
