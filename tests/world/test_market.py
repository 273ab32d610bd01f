"""Several services and facilitators in one world, each with its own settings."""

from typing import Any

import pytest

from x402sim import Fault, LiveWorld, Settings, World, events
from x402sim.backends import ExplorerSettings, FacilitatorSettings

SHOPS = {
    "dear": Settings(quote_price="0.05"),
    "cheap": Settings(quote_price="0.02", facilitator="slow"),
}
DESKS = {"fast": FacilitatorSettings(), "slow": FacilitatorSettings()}


@pytest.mark.parametrize("on", ["in-process", "tcp"])
def test_each_service_has_its_price_its_merchant_and_its_database(on: str) -> None:
    async def story(world: LiveWorld) -> None:
        assert world.services == ("dear", "cheap")
        alice = await world.payer("alice", balance="1.00")
        dear, cheap = alice, alice.at("cheap")
        first, second = await dear.ask(), await cheap.ask()
        assert (first.price_base, second.price_base) == (50_000, 20_000)
        assert first.requirements["payTo"] != second.requirements["payTo"]
        assert (await dear.pay(first)).status == (await cheap.pay(second)).status == 200
        assert (await cheap.ask(payment_id=second.payment_id)).status == 200
        assert (await dear.ask(payment_id=second.payment_id)).status == 402
        assert await world.balance(second.requirements["payTo"]) == 20_000
        assert await world.earned("dear") == await world.earned("service") == 50_000
        assert await world.earned() == 70_000
        session = await cheap.open_session("0.10", duration=60)
        assert (await cheap.ask(session_id=session.body["sessionId"])).status == 200
        await world.advance(120)
        assert (await cheap.session(session.body["sessionId"]))["refundTxHash"]

    run = World(on=on, service=SHOPS, facilitator=DESKS).play(story)
    assert run.outcome == "passed", run.reason
    asked = [e.event for e in run.journal if isinstance(e.event, events.RequestSent)]
    settled = {(each.actor, each.to) for each in asked if each.path.endswith("/settle")}
    assert settled == {("dear", "fast"), ("cheap", "slow")}
    gas_payers = {
        each.event.sender for each in run.journal if isinstance(each.event, events.TransactionMined)
    }
    assert len(gas_payers) == 3, "the token's owner, and each facilitator"


def test_the_report_knows_who_is_who() -> None:
    async def story(world: LiveWorld) -> None:
        alice = await world.payer("alice", balance="1.00")
        await alice.buy()
        await alice.at("cheap").buy()

    run = World(service=SHOPS, facilitator=DESKS).play(story)
    assert set(run.steps["payer"]) == {"alice"}
    assert list(run.transfers["to"])[-2:] == ["dear", "cheap"]
    assert len(run.payments.query("status == 'settled'")) == 2


def test_faults_crashes_clocks_and_latency_take_their_names() -> None:
    async def story(world: LiveWorld) -> None:
        alice = await world.payer("alice", balance="1.00")
        cheap = alice.at("cheap")
        await world.fault(Fault(victim="slow", does="lose answer", path="/settle"))
        before_s = world.clock.now()
        assert (await alice.buy()).status == 200
        assert world.clock.now() - before_s == pytest.approx(2 * 0.1)
        await cheap.ask()
        assert world.clock.now() - before_s == pytest.approx(2 * 0.1 + 1.5)
        await world.crash("cheap")
        await world.skew("cheap", 100)
        for payer, ahead_s in (alice, 0), (cheap, 100):
            opened = (await payer.open_session("0.10", duration=60)).body["expiresAt"] / 1000
            assert opened == pytest.approx(world.clock.now() + 60 + ahead_s, abs=5)
        with pytest.raises(ValueError, match="unknown service 'chaep'; did you mean 'cheap'"):
            await world.crash("chaep")
        with pytest.raises(ValueError, match="unknown service 'chaep'; did you mean 'cheap'"):
            alice.at("chaep")
        with pytest.raises(ValueError, match="there is a part named 'cheap'"):
            await world.payer("cheap")
        crashes.extend(each.process.crashes for each in parts_of(world).services.values())

    crashes: list[int] = []
    latency = {"dear": 0.05, "cheap": 0.75}
    run = World(service=SHOPS, facilitator=DESKS, latency=latency).play(story)
    assert run.outcome == "passed", run.reason
    assert crashes == [0, 1]


def parts_of(world: LiveWorld) -> Any:
    assert world.stage.parts is not None
    return world.stage.parts


def test_the_beginning_says_what_differs() -> None:
    async def story(world: LiveWorld) -> None: ...

    run = World(service=SHOPS, facilitator=DESKS, explorer=ExplorerSettings(lag_s=5), seed=3).play(
        story
    )
    begin = next(iter(run.journal)).event
    assert isinstance(begin, events.Begin)
    assert begin.options == {
        "service": "{'dear': Settings(quote_price='0.05'), "
        "'cheap': Settings(quote_price='0.02', facilitator='slow')}",
        "facilitator": "{'fast': FacilitatorSettings(), 'slow': FacilitatorSettings()}",
        "explorer": "ExplorerSettings(lag_s=5)",
    }
    plain = World(service=Settings(), facilitator=FacilitatorSettings()).play(story)
    assert plain.journal.ndjson() == World().play(story).journal.ndjson()


def test_the_order_of_the_services_does_not_change_what_one_draws() -> None:
    """What one service draws depends on its name and the seed, not on who else is there."""

    async def story(world: LiveWorld) -> None:
        await world.advance(900)

    def indexed_ms(*names: str) -> list[int]:
        run = World(service={name: Settings() for name in names}).play(story)
        ran = [e for e in run.journal if isinstance(e.event, events.IndexerRan)]
        return [e.at_ms for e in ran if e.event.actor == "b"]

    assert indexed_ms("a", "b") == indexed_ms("b") == indexed_ms("c", "b", "a") != []


def test_a_facilitator_that_does_not_simulate_pays_for_refusals() -> None:
    async def story(world: LiveWorld) -> None:
        poor = await world.payer("poor")
        assert (await poor.buy()).status != 200

    def gas(simulates: bool) -> int:
        settings = FacilitatorSettings(simulates=simulates)
        run = World(facilitator=settings).play(story)
        assert run.outcome == "passed", run.reason
        mined = [e.event for e in run.journal if isinstance(e.event, events.TransactionMined)]
        return sum(each.gas for each in mined if each.revert_reason is not None)

    assert gas(True) == 0
    assert gas(False) > 20_000


def test_an_explorer_looks_at_the_chain_at_intervals() -> None:
    async def story(world: LiveWorld) -> None:
        alice = await world.payer("alice", balance="1.00")
        await world.advance(10)
        payment_id = (await alice.buy()).payment_id
        for at_s in (100, 200, 700):
            await world.advance(at_s - waited[-1][0])
            await world.run_indexer()
            record = await alice.payment(payment_id)
            waited.append((at_s, record["block_number"] is not None))

    waited: list[tuple[int, bool]] = [(10, False)]
    explorer = ExplorerSettings(interval_s=600)
    assert World(explorer=explorer).play(story).outcome == "passed"
    assert [seen for _, seen in waited] == [False, False, False, True]


@pytest.mark.parametrize(
    ("wrong", "text"),
    [
        ({"service": {}}, "service: expected 1 to 20 by name, got 0"),
        ({"service": {"chain": Settings()}}, "'chain' is no name for a service"),
        ({"service": {"a/b": Settings()}}, "'a/b' is no name for a service"),
        ({"service": {"a": None}}, r"service\['a'\]: expected Settings, got None"),
        ({"service": SHOPS}, "the settings of 'cheap': unknown facilitator 'slow'"),
        ({"facilitator": {"Fast": FacilitatorSettings()}}, "'Fast' is no name for a facilit"),
        ({"facilitator": Settings()}, "facilitator: expected FacilitatorSettings, got Settings"),
        ({"explorer": 5}, "explorer: expected ExplorerSettings or None, got 5"),
        ({"latency": {"dear": 1}}, "latency: unknown part 'dear'"),
        ({"service": Settings(), "on": "http://127.0.0.1:1"}, "service: http://127.0.0.1:1 has"),
    ],
    ids=str,
)
def test_an_impossible_market_is_refused(wrong: dict[str, Any], text: str) -> None:
    with pytest.raises(ValueError, match=text):
        World(**wrong)
