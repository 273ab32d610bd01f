"""Against a URL a scenario is played if the stage has what it needs, and is skipped if not."""

from collections.abc import Iterator

import pytest

from tests.scenarios.golden import SIX
from tests.serve.driver import Server, started
from x402sim import LocalServer, World
from x402sim.events import name_of
from x402sim.spec.needs import Need
from x402sim.story.stages import PAYER_KEY
from x402sim.world.scenario import Scenario, shipped

SHIPPED = shipped()


@pytest.fixture(scope="module")
def bare() -> Iterator[Server]:
    """A service without a control API: nobody can turn its clock or fund a payer."""
    with started("--host", "0.0.0.0") as server:
        assert server.ready["control"] is None
        yield server


def expect_all_but(lacks: set[Need], url: str, scenario: Scenario) -> None:
    """A scenario that needs something of this is skipped and says so; any other one passes."""
    run = World(on=url).play(scenario)
    missing = [need.meaning for need in scenario.needs if need in lacks]
    if missing:
        told = f"{url} does not offer {', '.join(missing)}"
        assert (run.outcome, run.reason) == ("skipped", told)
        assert [name_of(entry.event) for entry in run.journal] == ["begin", "end"]
    else:
        assert (run.outcome, run.reason) == ("passed", "")


@pytest.mark.parametrize("scenario", SHIPPED, ids=lambda each: each.name)
def test_a_bare_url_gets_what_it_can_play(
    bare: Server, monkeypatch: pytest.MonkeyPatch, scenario: Scenario
) -> None:
    """Without a funded payer, and with one, where that is needed."""
    expect_all_but(set(Need), bare.ready["service"], scenario)
    if Need.FUNDS in scenario.needs:
        monkeypatch.setenv(PAYER_KEY, bare.ready["accounts"][0]["privateKey"])
        expect_all_but({*Need} - {Need.FUNDS}, bare.ready["service"], scenario)


@pytest.mark.parametrize("name", SIX)
def test_a_started_server_can_play_all_but_virtual_time(server: LocalServer, name: str) -> None:
    (scenario,) = (each for each in SHIPPED if each.name == name)
    expect_all_but({Need.VIRTUAL_TIME, Need.OTHER_SERVICES}, server.url, scenario)
