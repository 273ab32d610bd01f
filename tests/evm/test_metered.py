"""A good sold `upto`, on anvil as on the ledger: a settlement is lost, and found on the chain."""

from pathlib import Path
from typing import Any

import pytest

from tests.serve.test_metered import USED, Chat, approve, auth, earned, plain
from x402sim import Fault, LocalServer
from x402sim.backends import Anvil
from x402sim.events import SettlementAnswerLost, UsageMeasured, UsageSettled, name_of


def told_by(**chain: Any) -> list[str]:
    """Sell with a lost answer; return the events of the usages."""
    chat = Chat()
    with LocalServer(seed=1, sells={"GET /chat upto 0.05": chat}, **chain) as server:
        approve(server)
        server.fault(Fault(victim="facilitator", does="lose answer", path="/settle"))
        payer = auth(server)
        with plain(server, auth=payer) as http:
            assert http.get("/chat").text == "hello"
            assert http.get("/chat").text == "hello"
        assert (earned(server), chat.works) == (2 * USED, 2)
        transfers = [each.tx_hash for each in server.transfers()]
        assert [each.transaction for each in payer.settlements] == transfers
        kinds = SettlementAnswerLost | UsageMeasured | UsageSettled
        found = [each.event for each in server.journal if isinstance(each.event, kinds)]
    amounts = [getattr(each, "used_base", getattr(each, "settled_base", "")) for each in found]
    return [f"{name_of(each)} {base}" for each, base in zip(found, amounts, strict=True)]


@pytest.mark.thorough
def test_anvil_tells_what_the_ledger_tells(program: Path) -> None:
    assert told_by(chain=Anvil(program)) == told_by()
