"""How do refund delay and unspent balance depend on request rate and session length?"""

from x402sim import LiveWorld, World, summarize, sweep
from x402sim.backends import PoissonBlocks
from x402sim.report.plots import bands

GRID = {"rate_per_s": [0.05, 0.15, 0.3], "length_s": [60, 200]}


def experiment(rate_per_s: float, length_s: int, seed: int) -> dict[str, float]:
    async def story(world: LiveWorld) -> None:
        alice, rng = await world.payer("alice", balance="1.00"), world.rng("requests")
        session = (await alice.open_session("0.50", length_s)).body
        ends_s = session["expiresAt"] / 1000
        while (at_s := world.clock.now() + rng.expovariate(rate_per_s)) < ends_s:
            await world.advance(until_s=at_s)
            await alice.ask(session_id=session["sessionId"])
        await world.advance(length_s + 300)

    run = World(seed=seed, block_time_s=PoissonBlocks(5)).play(story)
    refunds = run.sessions[run.sessions["event"] == "refunded"]
    delay_s = (refunds["t_s"] - refunds["expires_s"]).mean()
    return {"delay_s": delay_s, "unspent": refunds["refunded"].sum()}


if __name__ == "__main__":
    table = summarize(sweep(experiment, GRID, seeds=range(200)), by=["rate_per_s", "length_s"])
    for result in "delay_s", "unspent":
        bands(table, "rate_per_s", result, by="length_s").figure.savefig(f"{result}.svg")
