"""Misuses: each says which argument is wrong, what it may be, and the nearest right word."""

import re
from collections.abc import Awaitable, Callable
from typing import Any

import httpx
import pytest

from x402sim import Fault, LiveWorld, LocalServer, Settings, World, sweep
from x402sim.backends import FacilitatorSettings, Node, Reorgs
from x402sim.events import Begin, Check, End
from x402sim.population import Buy, Poisson
from x402sim.world.chains import parse_chain

NODE = Node("http://user:hush@127.0.0.1:9/key")
FAULT = {"victim": "facilitator", "does": "lose answer"}
ANSWER: dict[str, Any] = {"does": "answer"}
WRONG_FAULTS: list[tuple[dict[str, Any], str]] = [
    ({"does": "explode"}, "unknown kind of fault 'explode'. Possible: lose request, lose answer"),
    ({"does": "lose anser"}, "did you mean 'lose answer'?"),
    ({"skip": -1}, "skip of a fault: Expected `int` >= 0"),
    ({"times": True}, "times of a fault: Expected `int | null`, got `bool`"),
    ({"probability": "often"}, "probability of a fault: Expected `float`, got `str`"),
    ({"does": "delay answer"}, "a fault that does 'delay answer' needs `seconds`"),
    ({"status": 500}, "status of a fault is for 'answer' only, not for 'lose answer'"),
    ({"headers": {}}, "headers of a fault is for 'answer' only, not for 'lose answer'"),
    (ANSWER | {"headers": {"A": 1}}, "headers of a fault: Expected `str`, got `int`"),
    (ANSWER | {"headers": {"A": "1\r\nB: 2"}}, "A: '1\\r\\nB: 2' is no value of a header"),
    (ANSWER | {"headers": {"A": "a\x00"}}, "is no value of a header: printable ASCII"),
    (ANSWER | {"headers": {"A": "€"}}, "is no value of a header: printable ASCII"),
    (ANSWER | {"headers": {"A": " 1"}}, "without spaces around it"),
    (ANSWER | {"headers": {"": "1"}}, "headers of a fault: '' is no name of a header"),
    (ANSWER | {"headers": {"A:": "1"}}, "headers of a fault: 'A:' is no name of a header"),
    (ANSWER | {"headers": {"A": "1", "a": "2"}}, "headers of a fault: a stands there twice"),
    (ANSWER | {"headers": {"Content-Type": "a/b"}}, "not Content-Type: give `content_type`"),
    (ANSWER | {"headers": {"CONTENT-LENGTH": "9"}}, "not CONTENT-LENGTH: it is that of `body`"),
    (ANSWER | {"headers": {"transfer-encoding": "chunked"}}, "`body` is sent as it is"),
    (
        ANSWER | {"content_type": "a/b\r\nB: 2"},
        "content_type of a fault: 'a/b\\r\\nB: 2' is no value",
    ),
    (
        {"victim": "rpc", "caller": "payer"},
        "caller of a fault: unknown caller 'payer'. Possible: service, ",
    ),
    (
        {"caller": "facilitator"},
        "caller of a fault is for 'rpc', not for 'facilitator': facilitators call only the node",
    ),
    (
        {"victim": "rpc", "does": "crash after", "caller": "all"},
        "'crash after' kills the service that asks, and no facilitator; 'service' is possible",
    ),
    (ANSWER | {"status": 204, "body": "x"}, "body of a fault: an answer of status 204 has none"),
    ({"seconds": 1}, "seconds of a fault is for 'delay request' and 'delay answer' only, not for"),
    ({"does": "delay answer", "seconds": 0}, "seconds of a fault: Expected `float` > 0"),
]
MISUSES: list[tuple[Callable[[], Any], str]] = [
    (lambda: World(latency={"servce": 1}), "latency: unknown part 'servce'; did you mean 'service'"),
    (lambda: Reorgs(0.1, deeper=1.0), "deeper: expected 0 to below 1, or a reorganisation has no"),
    (lambda: World().play("repaly"), "unknown scenario 'repaly'; did you mean 'replay'?"),
    (lambda: sweep(lambda rate: 1, {"rate": [5]}), "unknown parameter 'seed'"),
    (lambda: World(journal="run.csv"), "journal: a run writes NDJSON, "),
    (lambda: World(chain="legder"), "unknown chain 'legder'; did you mean 'ledger'?"),
    (lambda: World(chain="http://"), "a node's URL is http://HOST:PORT"),
    (lambda: World(without=(("verificaton", "5/signature-proves"),)), "unknown rule table 'verificat"),
    (lambda: World(without=(("verification", "5/signature-prove"),)), "mean '5/signature-proves'?"),
    (lambda: World(without=(("transfer", "2.1/amount"),)), "unknown rule of 'transfer' '2.1/amount'"),
    (lambda: World(block_time_s=0), "block_time_s: expected a number from 0.01 to 86400, got 0"),
    (lambda: World(heartbeat_s=0), "heartbeat_s: expected a number from 0.01 to 86400, got 0"),
    (lambda: LocalServer(port=99999), "0 to 65535, not 99999"),
    (lambda: LocalServer(network="cronos"), "Possible: cronos-testnet"),
    (lambda: World(network="base-sepoila"), "did you mean 'base-sepolia'?"),
    (lambda: World(network=5), "network: expected a network, its name, or a list of them, got 5"),
    (lambda: World(service={}), "service: expected 1 to 20 by name, got 0"),
    (lambda: World(service={"chain": Settings()}), "'chain' is no name for a service"),
    (lambda: World(service={"a": Settings(facilitator="b")}), "settings of 'a': unknown facilitator"),
    (lambda: World(facilitator={"F": FacilitatorSettings()}), "'F' is no name for a facilitator"),
    (lambda: World(service=Settings(), on="http://127.0.0.1:1"), "service: http://127.0.0.1:1 has"),
    (lambda: World(on="tcp", chain=NODE), "tcp needs virtual time, which http://127.0.0.1:9 lacks"),
    (lambda: World(on="http://a", chain="anvil"), "chain anvil cannot be combined with http://a"),
    (lambda: parse_chain("ledger", token="0x12"), "a token can be named or deployed only on a node"),
    (lambda: Node(NODE.url, token="0x" + "12" * 20, deploy=True), "not both"),
    (lambda: Node(NODE.url, token="0x12"), "the token: expected 0x and 40 hex digits"),
    (lambda: Poisson(per_s=0), "per_s: expected a number above 0, got 0"),
    (lambda: Buy(wait="soon"), "not 'soon'"),
    *((lambda wrong=wrong: Fault(**FAULT | wrong), says) for wrong, says in WRONG_FAULTS),
    *(
        (lambda wrong=wrong: World(latency={"rpc": wrong}), "latency of 'rpc': a duration is seconds, ")
        for wrong in (True, "0.5", b"1", [], (), [0.1, "0.2"], [[0.1]], (0.1, True), -1, object,
                      float("nan"), float("inf"), {"median": 1}, None, [None], (-0.1, 0.5), [0.1, -0.1])
    ),
]  # fmt: skip


@pytest.mark.parametrize(
    ("misuse", "says"), MISUSES, ids=[f"{n} {says}" for n, (_, says) in enumerate(MISUSES)]
)
def test_a_misuse_is_explained_where_it_is_written(misuse: Callable[[], Any], says: str) -> None:
    with pytest.raises((TypeError, ValueError), match=re.escape(says)):
        misuse()


async def at_alice(world: LiveWorld, does: Callable[[Any], Any]) -> None:
    await does(await world.payer("alice", balance="1.00"))


STORIES: list[tuple[Callable[[Any], Any], str]] = [
    (lambda w: w.advance(-5), "seconds: time goes forward, by 0 or more, and not by -5"),
    (lambda w: w.advance(float("nan")), "0 or more, and not by nan"),
    (lambda w: w.skew("service", 1e12), "refused 'clock/skew': "),
    (lambda w: w.payer("a", balance="a lot"), "'a lot'"),
    (lambda w: at_alice(w, lambda a: w.payer("alice")), "there is a payer named 'alice' already"),
    (lambda w: at_alice(w, lambda a: w.ask_facilitator("setle", a, None, "0x")), "mean 'settle'?"),
    (lambda w: w.fault(Fault(victim="facilitator", does="refuse", path="/setle")), "mean '/settle'"),
    (lambda w: w.fault(Fault(victim="facilitater", does="refuse")), "did you mean 'facilitator'?"),
    (lambda w: w.reorg(500), "cannot replace the last 500 blocks; the last"),
    (lambda w: w.skew("servce", 1), "unknown actor 'servce'; did you mean 'service'?"),
    (lambda w: w.crash("servce"), "unknown service 'servce'; did you mean 'service'?"),
    (lambda w: w.expect(1, 1, "5/nonce-onse"), "did you mean '5/nonce-once'?"),
    (lambda w: at_alice(w, lambda a: a.at("shp").buy()), "unknown service 'shp'. Possible: service"),
]  # fmt: skip


@pytest.mark.parametrize(("misuse", "says"), STORIES, ids=[says for _, says in STORIES])
def test_a_misuse_in_a_story_fails_the_run_and_names_its_line(
    misuse: Callable[[Any], Any], says: str
) -> None:
    async def story(world: LiveWorld) -> None:
        await misuse(world)

    run = World().play(story)
    assert says in run.reason
    assert run.place.startswith("test_misuse.py:")


# --- faults, and words -------------------------------------------------------------------

WRONG_BODIES: list[tuple[Any, str]] = [
    *((FAULT | wrong, says) for wrong, says in WRONG_FAULTS),
    (FAULT | {"victim": "facilitater"}, "unknown victim 'facilitater'; did you mean 'facilitator'"),
    (FAULT | {"time": 2}, "unknown field of a fault 'time'; did you mean 'times'?"),
    ({"victim": "service"}, "a fault needs 'does', as in {\"victim\""),
    ([], 'a fault is an object such as {"victim"'),
    (FAULT | {"path": "/setle"}, "did you mean '/settle'?"),
]


def test_the_control_api_answers_400_with_that_text(server: LocalServer) -> None:
    for body, says in WRONG_BODIES:
        answer = httpx.post(f"{server.control_url}/faults", json=body)
        assert answer.status_code == 400, body
        assert says in answer.json()["reason"]
    assert httpx.get(f"{server.control_url}/faults").json() == []


SERVED = {
    "service": ["", "/api/pay", "/quote", "pay", "/api/payments/pay_1", "/api/sessions/session_12"],
    "facilitator": ["/settle", "settle", "/facilitator/v2/x402/verify"],
    "explorer": ["/api", "/getBlockNumber"],
    "rpc": ["/", "/rpc/"],
}
NOT_SERVED = {
    "service": ["/settle", "/api/payments/", "/v1/api/pay", "/api/sessions/12"],
    "facilitator": ["/service/v2/x402/verify", "/quote"],
    "rpc": ["/api"],
}


@pytest.mark.parametrize("victim", SERVED)
def test_a_fault_is_for_a_path_that_the_victim_serves(server: LocalServer, victim: str) -> None:
    for path in (*SERVED[victim], *NOT_SERVED.get(victim, ())):
        body = {"victim": victim, "does": "refuse", "path": path}
        answer = httpx.post(f"{server.control_url}/faults", json=body)
        if path in SERVED[victim]:
            assert answer.json() == {"standing": 1}, path
        else:
            assert answer.status_code == 400, path
            assert f"unknown path of {victim} {path!r}" in answer.json()["reason"]
        httpx.post(f"{server.control_url}/faults/clear")


def test_the_error_of_a_path_names_the_whole_path_and_no_page(server: LocalServer) -> None:
    with pytest.raises(RuntimeError, match=r"path of service .*mean '/api/perp/market'") as said:
        server.fault(Fault(victim="service", does="refuse", path="/market-data"))
    assert "docs" not in str(said.value)


# --- what the control API refuses -----------------------------------------------------

REFUSED: dict[str, Callable[[LiveWorld], Awaitable[None]]] = {
    "fault": lambda world: world.fault(Fault(victim="service", does="refuse", path="/nowhere")),
    "skew": lambda world: world.skew("nobody", 5),
    "set_facilitator": lambda world: world.set_facilitator("nobody", simulates=False),
    "crash": lambda world: world.crash("nobody"),
    "reorg": lambda world: world.reorg(99),
    "reorg of no hash": lambda world: world.reorg(1, drop=["0x12"]),
}


@pytest.mark.parametrize("name", REFUSED)
def test_an_action_that_is_refused_is_not_recorded(name: str) -> None:
    async def story(world: LiveWorld) -> None:
        with pytest.raises(RuntimeError, match="refused"):
            await REFUSED[name](world)
        world.expect(1, 1, "4.1/receipt")

    first, *rest, check, end = list(World(seed=1).play(story).journal)
    assert [type(each.event) for each in (first, check, end)] == [Begin, Check, End]
    assert rest == []
