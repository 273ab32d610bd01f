"""Gas prices, a facilitator whose coins run out, and what `run.costs` says of both."""

import pytest

from tests.evm import find
from x402sim import LiveWorld, Run, World
from x402sim.backends import FacilitatorSettings
from x402sim.chain.base import GAS_LIMIT, PLENTY_WEI
from x402sim.chain.node.anvil import VARIABLE
from x402sim.population import Every, Session
from x402sim.protocol.networks import NETWORKS, Network
from x402sim.story.payer import Answer

CHAINS = ["ledger", pytest.param("anvil", marks=pytest.mark.thorough)]
OWN = Network("my-net", 4711, b"\xab" * 20, "My Dollar", "MYD", "3", base_fee_gwei=0.5)
COIN, HELD_WEI = 2500.0, 5 * 10**17
Losses = dict[str, int]


@pytest.fixture(scope="module", params=CHAINS)
def bought(request: pytest.FixtureRequest) -> tuple[Run, Losses]:
    """Payments, one that reverts, sessions and a replaced block, at prices that change; and how
    much native money each sender has lost.
    """
    lost: Losses = {}

    async def story(world: LiveWorld) -> None:
        alice = await world.payer("alice", balance="1.00")
        await alice.buy()
        chain = world.stage.parts.chain
        head = await chain.block(await chain.height())
        sent = await chain.transaction(head.tx_hashes[0])
        await world.force_revert(1)
        asked = await alice.ask()
        await alice.pay(asked, alice.sign(asked))
        visits = Session(deposit="0.10", requests=4, wait=3, duration=300)
        await world.population(3, arrivals=Every(7), behaviour=visits)
        await world.reorg(1)
        await world.advance(900)
        lost["facilitator"] = HELD_WEI - await chain.native_balance(sent.call.sender)
        lost["token owner"] = PLENTY_WEI - await chain.native_balance(chain.owner)

    with pytest.MonkeyPatch.context() as patch:
        if request.param == "anvil":
            patch.setenv(VARIABLE, str(find.anvil()))
        world = World(
            seed=1,
            chain=request.param,
            block_time_s=5,
            gas_price_gwei=lambda at_s: 0.02 + at_s / 10_000,
            coin_price=COIN,
            facilitator=FacilitatorSettings(native=HELD_WEI / 10**18),
        )
        return world.play(story).raise_for_failure(), lost


def test_the_fees_are_what_the_native_balances_have_lost(bought: tuple[Run, Losses]) -> None:
    run, lost = bought
    costs = run.costs
    paid = dict.fromkeys(lost, 0)
    for row in costs.dropna(subset="tx").itertuples():
        paid[row.party] += row.gas * row.gas_price_wei
    assert paid == lost
    assert min(lost.values()) > 0
    assert costs["fee"].sum() == pytest.approx(sum(lost.values()) / 1e18 * COIN)
    assert costs["gas_price_wei"].nunique() >= 3


# --- what gas costs ----------------------------------------------------------------------


@pytest.mark.parametrize("price", [0.5, 7000, lambda at_s: 40 if at_s < 100 else 6000.5])
def test_a_payment_pays_the_price_of_the_moment(price) -> None:
    async def story(world: LiveWorld) -> None:
        alice = await world.payer("alice", balance="1.00")
        await alice.buy()
        await world.advance(200)
        await alice.buy()

    paid = World(gas_price_gwei=price).play(story).transactions
    wei = [round((price(t_s) if callable(price) else price) * 10**9) for t_s in paid["t_s"]]
    assert paid["gas_price_wei"].to_list() == wei
    assert len(wei) == 3


@pytest.mark.parametrize("chain", CHAINS)
@pytest.mark.parametrize("network", [*NETWORKS.values(), OWN], ids=lambda network: network.name)
def test_gas_costs_what_it_costs_on_the_network_and_a_coin_pays_for_it(
    chain: str, network: Network, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was Cronos's 5000 gwei everywhere: a relayer with one coin had too little for two calls."""
    if chain == "anvil":
        monkeypatch.setenv(VARIABLE, str(find.anvil()))
    bought: list[int] = []

    async def story(world: LiveWorld) -> None:
        alice = await world.payer("alice", balance="1.00")
        bought.extend([(await alice.buy()).status for _ in range(2)])

    held = 2 if network.name.startswith("cronos") else 1
    settings = FacilitatorSettings(native=held)
    run = World(chain=chain, network=network, facilitator=settings).play(story)
    assert bought == [200, 200]
    assert {*run.transactions["gas_price_wei"]} == {network.base_fee_wei}


def test_a_facilitator_without_coins_settles_nothing_more() -> None:
    """It says that the transaction failed, as Cronos's does, and nobody is charged."""
    price_gwei, used = 10, 102_888
    coins = (GAS_LIMIT + used) * price_gwei / 1e9  # for one payment, and the limit of another
    answers: list[Answer] = []

    async def story(world: LiveWorld) -> None:
        alice = await world.payer("alice", balance="1.00")
        for _ in range(3):
            asked = await alice.ask()
            answers.append(await alice.pay(asked, alice.sign(asked)))
        await world.advance(3600)

    settings = FacilitatorSettings(native=coins)
    run = World(gas_price_gwei=price_gwei, facilitator=settings).play(story)
    assert [answer.status for answer in answers] == [200, 200, 502]
    assert "Transaction failed on-chain" in str(answers[-1].body)
    assert run.payments["status"].to_list() == ["settled", "settled", "failed"]
    assert run.orders["charged"].to_list() == [True, True, False]
