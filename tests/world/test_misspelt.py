"""A name that does not exist is an error where it is written, and names the nearest one."""

from typing import Any

import httpx
import pytest

from x402sim import Fault, LocalServer, World
from x402sim.backends import Anvil, Deployment, InProcess, Ledger, Node, Tcp
from x402sim.spec.needs import Need, parse_needs

NO_VICTIM = "unknown victim 'facilitater'; did you mean 'facilitator'?"
FAULT = {"victim": "facilitator", "does": "lose answer"}


WRONG_FAULTS: list[tuple[dict[str, Any], str]] = [
    ({"does": "explode"}, "unknown kind of fault 'explode'. Possible: lose request, lose answer"),
    ({"does": "lose anser"}, "did you mean 'lose answer'?"),
    ({"skip": -1}, "skip of a fault: Expected `int` >= 0"),
    ({"times": True}, "times of a fault: Expected `int | null`, got `bool`"),
    ({"probability": "often"}, "probability of a fault: Expected `float`, got `str`"),
    ({"does": "delay answer"}, "a fault that does 'delay answer' needs `seconds`"),
    ({"status": 500}, "status of a fault is for 'answer' only, not for 'lose answer'"),
    ({"body": ""}, "body of a fault is for 'answer' only, not for 'lose answer'"),
    ({"content_type": "a/b"}, "content_type of a fault is for 'answer' only"),
    ({"work_done": False}, "work_done of a fault is for 'answer' only"),
    ({"seconds": 1}, "seconds of a fault is for 'delay request' and 'delay answer' only, not for"),
    ({"does": "answer", "seconds": 1}, "only, not for 'answer'"),
    ({"does": "delay answer", "seconds": 1, "status": 500}, "not for 'delay answer'"),
    ({"does": "delay answer", "seconds": 0}, "seconds of a fault: Expected `float` > 0"),
]


@pytest.mark.parametrize(("wrong", "says"), WRONG_FAULTS, ids=str)
def test_a_fault_says_what_is_wrong_with_it(wrong: dict[str, Any], says: str) -> None:
    with pytest.raises(ValueError, match=r"fault|victim") as raised:
        Fault(**FAULT | wrong)
    assert says in str(raised.value)


WRONG_BODIES: list[tuple[Any, str]] = [
    *((FAULT | wrong, says) for wrong, says in WRONG_FAULTS),
    (FAULT | {"victim": "facilitater"}, NO_VICTIM),
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


def test_the_error_of_a_path_is_one_line_and_names_the_whole_path(server: LocalServer) -> None:
    with pytest.raises(RuntimeError) as said:
        server.fault(Fault(victim="service", does="refuse", path="/market-data"))
    assert str(said.value).startswith(
        "the control API refused 'faults': unknown path of service '/market-data'; "
        "did you mean '/api/perp/market'? Possible: /api/perp/quote, /api/"
    )
    assert "docs" not in str(said.value), "no page"


def test_needs_are_names_between_commas() -> None:
    assert parse_needs("funds,  observe chain", "here") == (Need.FUNDS, Need.OBSERVE_CHAIN)
    assert parse_needs("", "here") == ()


WORDS = {
    "ledger": Ledger(),
    "anvil": Anvil(),
    "https://rpc.example": Node("https://rpc.example"),
    "in-process": InProcess(),
    "tcp": Tcp(),
    "http://127.0.0.1:1": Deployment("http://127.0.0.1:1"),
}


@pytest.mark.parametrize("text", WORDS)
def test_a_chain_and_a_stage_are_read_from_their_words(text: str) -> None:
    is_stage = isinstance(WORDS[text], InProcess | Tcp | Deployment)
    assert (World(on=text).on if is_stage else World(chain=text).chain) == WORDS[text]


def test_the_key_in_a_nodes_url_is_not_shown() -> None:
    node = Node("http://user:hush@127.0.0.1:9/key")
    assert "hush" not in repr(node) + node.name
