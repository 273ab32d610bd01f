"""Charged and not served: how often, at services that treat lost answers in three ways?"""

from x402sim import Fault, LiveWorld, Settings, World, policies
from x402sim.population import Every

SERVICES = {
    "forget": policies.Forget(),
    "ask once": policies.AskOnce(),
    "reconcile": policies.Reconcile(),
}
PAYER = policies.PayerPolicy(retry=policies.SameAuthorization(times=9, wait_s=20))
NODE_FAILS = Fault(victim="rpc", does="refuse", contains="eth_getLogs", probability=0.5, times=None)


QUOTE = lambda payer, _: payer.fetch()  # noqa: E731


def lost(p: float) -> Fault:
    settle = {"victim": "facilitator", "path": "/settle"}
    return Fault(**settle, does="lose answer", probability=p, times=None)


def experiment(*, service: str, p: float, seed: int, payers: int = 60) -> dict[str, int]:
    async def story(world: LiveWorld) -> None:
        await world.fault(lost(p))
        await world.fault(NODE_FAILS)
        await world.population(payers, arrivals=Every(1), behaviour=QUOTE, policy=PAYER)

    settings = Settings(policy=policies.ServicePolicy(lost_answer=SERVICES[service]))
    orders = World(seed=seed, service=settings).play(story).orders
    charged = orders[orders["charged"]]
    return {"charged": len(charged), "unserved": int((~charged["served"]).sum())}
