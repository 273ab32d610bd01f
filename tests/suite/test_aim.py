"""A check's faults strike its own payments only: a refund may be on its way meanwhile."""

from typing import Any

import pytest

from x402sim import TESTNET
from x402sim.suite.control_api import ControlApi
from x402sim.suite.engine import all_checks
from x402sim.suite.local import judge
from x402sim.world.assembly.recipe import Recipe


def test_each_fault_of_the_facilitator_is_aimed(monkeypatch: pytest.MonkeyPatch) -> None:
    post, faults = ControlApi.post, []

    async def noted(self: ControlApi, path: str, body: Any = None) -> Any:
        if path == "faults" and body["victim"] == "facilitator":
            faults.append(body)
        return await post(self, path, body)

    monkeypatch.setattr(ControlApi, "post", noted)
    judge(Recipe(network=TESTNET, seed=2), checks=all_checks())
    assert len(faults) > 50
    assert [fault for fault in faults if not fault.get("contains")] == []
