"""A recipe's hooks change the settings, the service, its application and the facilitator."""

from dataclasses import replace

import httpx

from tests.rig import ORDER
from x402sim import TESTNET
from x402sim.service.entitlements import Entitlements
from x402sim.service.settings import Settings
from x402sim.service.state import Service
from x402sim.world.assembly.hooks import Hooks
from x402sim.world.assembly.parts import Parts, Recipe, build
from x402sim.world.loop import run_virtual
from x402sim.world.transport.link import Asgi


class Open(Entitlements):
    def grants(self, payment_id: str, resource: str, now_ms: int) -> bool:
        return True


def opened(service: Service) -> Service:
    return replace(service, entitlements=Open(60))


def built(hooks: Hooks) -> Parts:
    return build(Recipe(network=TESTNET, seed=1, hooks=hooks))


async def ask(parts: Parts) -> httpx.Response:
    async with httpx.AsyncClient(transport=Asgi(parts.service_app)) as http:
        url = "http://service/api/perp/quote"
        return await http.post(url, json=ORDER, headers={"X-Payment-Id": "pay_none"})


def test_settings_reach_every_part_of_the_service() -> None:
    parts = built(Hooks(setup=lambda it: replace(it, settings=Settings(quote_price="0.000007"))))
    answer = run_virtual(lambda: ask(parts))
    assert answer.json()["paymentRequirements"]["maxAmountRequired"] == "7"


def test_a_crash_does_not_undo_it() -> None:
    async def crashed() -> httpx.Response:
        parts = built(Hooks(service=opened))
        parts.process.crash()
        await parts.process.runs()
        return await ask(parts)

    assert run_virtual(crashed).status_code == 200


def test_the_facilitator_can_be_replaced() -> None:
    seen = []
    built(Hooks(facilitator=lambda it: seen.append(it) or it))  # type: ignore[func-returns-value]
    assert [each.network for each in seen] == [TESTNET]
