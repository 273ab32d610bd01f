"""A server on several networks: each has a chain and a token, and one facilitator settles on all."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.serve.driver import Server
from tests.serve.hosted import hosted
from tests.serve.paying import SHOP, asked_of_facilitator
from x402sim import LocalServer, World
from x402sim.events import Transfer
from x402sim.protocol import x402
from x402sim.protocol.networks import NETWORKS
from x402sim.report.money import balances as balances_of, transactions, transfers

FIRST, SECOND = NETWORKS["base-sepolia"], NETWORKS["base"]
PRICE = 10_000


def several(**more: Any) -> hosted:
    return hosted(network=[FIRST.name, SECOND.name], **more)


@pytest.fixture
def server() -> Iterator[Server]:
    with several() as running:
        yield running


def settle(server: Server, name: str, version: x402.Version = 2) -> dict[str, Any]:
    wallet = server.account().wallet
    body = asked_of_facilitator(wallet, NETWORKS[name], server.now_s(), version)
    answer: dict[str, Any] = server.http.post("/facilitator/settle", json=body).json()
    return answer


def balances(server: Server) -> list[str]:
    """Return what the merchant has on each network."""
    return [
        server.sim(f"balances?network={each.name}", accounts=[SHOP])[0] for each in (FIRST, SECOND)
    ]


def test_it_says_what_it_has(server: Server) -> None:
    kinds = server.http.get("/facilitator/supported").json()["kinds"]
    assert [(each["scheme"], each["network"]) for each in kinds] == [
        ("exact", "base-sepolia"), ("exact", "eip155:84532"),
        ("exact", "base"), ("exact", "eip155:8453"),
        ("upto", "eip155:84532"), ("upto", "eip155:8453"),
    ]  # fmt: skip
    for each in server.ready["networks"]:
        asked = {"jsonrpc": "2.0", "id": 1, "method": "eth_chainId", "params": []}
        answer = server.http.post(each["rpc"], json=asked).json()
        assert int(answer["result"], 16) == each["chainId"] == NETWORKS[each["network"]].chain_id
        state = server.http.get("/_sim/state", params={"network": each["network"]}).json()
        assert state["chain"]["chainId"] == each["chainId"]
    unknown = server.http.get("/_sim/state", params={"network": "bas"})
    assert (unknown.status_code, "did you mean 'base'" in unknown.text) == (400, True)


@pytest.mark.parametrize("version", [1, 2])
def test_a_payment_moves_money_on_its_network_only(server: Server, version: x402.Version) -> None:
    told = settle(server, "base", version)
    assert (told["success"], told["network"]) == (True, x402.network_name(version, SECOND))
    assert balances(server) == ["0", str(PRICE)]
    assert settle(server, "base-sepolia", version)["success"]
    assert balances(server) == [str(PRICE), str(PRICE)]
    elsewhere = settle(server, "polygon", version)
    assert (elsewhere["success"], elsewhere["errorReason"]) == (False, "invalid_network")


def test_what_happens_on_a_further_chain_carries_its_network() -> None:
    with several() as server:
        assert settle(server, "base")["success"]
        assert settle(server, "base-sepolia")["success"]
        journal = server.local.journal
        told = [entry.event for entry in journal if isinstance(entry.event, Transfer)]
        assert [each.actor for each in told[-2:]] == ["chain base", "chain"]
    moved = transfers(journal)
    paid = moved[moved["to_address"] == SHOP]
    assert list(paid["network"].astype("string").fillna("the first")) == ["base", "the first"]
    held = balances_of(journal).query("party == @paid['to'].iloc[0]")
    assert list(held["balance_base"]) == [PRICE, PRICE]
    assert "base" in set(transactions(journal)["network"])


def test_time_snapshots_and_reset_are_of_the_whole_world(server: Server) -> None:
    held = server.sim("snapshot")["snapshot"]
    assert settle(server, "base")["success"]
    server.sim("revert", snapshot=held)
    assert balances(server) == ["0", "0"]
    server.advance(1000)
    times = [
        server.http.get(f"/_sim/state?network={each}").json()["chain"]["timestamp"]
        for each in (FIRST.name, SECOND.name)
    ]
    assert all(abs(each - server.now_s()) <= 2 for each in times), "a block at the new time"
    assert settle(server, "base")["success"]
    server.sim("reset")
    assert balances(server) == ["0", "0"]


def test_healing_is_of_the_whole_world(server: Server) -> None:
    for each in FIRST, SECOND:
        server.sim(f"force-revert?network={each.name}", calls=1)
        server.sim(f"mining?network={each.name}", automine=False)
    server.sim("faults/clear")
    for each in FIRST, SECOND:
        state = server.http.get(f"/_sim/state?network={each.name}").json()
        assert state["chain"]["automine"]
        assert settle(server, each.name)["success"]


def test_each_chain_is_kept_in_a_file_of_its_own(tmp_path: Path) -> None:
    for expected in (PRICE, 2 * PRICE):
        with several(file=tmp_path / "w.db") as server:
            assert settle(server, "base")["success"]
            assert balances(server) == ["0", str(expected)]
    assert (tmp_path / "w.db.base.chain").exists()


def test_impossible_networks_are_refused() -> None:
    with pytest.raises(ValueError, match="tokens need the same decimals"):
        World(network=[FIRST, replace(SECOND, decimals=18)])
    with pytest.raises(ValueError, match="each needs a name of its own"):
        LocalServer(network=["base", "base"])
    with pytest.raises(ValueError, match="is one network, not several"):
        World(network=[FIRST, SECOND], chain="http://127.0.0.1:1")
