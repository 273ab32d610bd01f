"""What a facilitator asks of its node can fail, be lost and be late, as what a service asks can.

It calls nothing valid that it could not look at, and nothing failed that it has sent.
"""

import base64
from typing import Any

import httpx
import pytest

from tests.world.playing import play, played
from x402sim import Fault, LiveWorld, LocalServer, Payer, Settings, World, events
from x402sim.backends import FacilitatorSettings
from x402sim.protocol.messages import decode

RAW = "eth_sendRawTransaction"
ITS: dict[str, Any] = {"victim": "rpc", "caller": "facilitator"}
DOWN: dict[str, Any] = ITS | {"does": "refuse", "times": None}


def asking(header: str) -> dict[str, Any]:
    """Return the body of verify and settle in version 2, for a payment in one step."""
    payment = decode(base64.b64decode(header), dict)
    wanted = payment["accepted"]
    return {"x402Version": 2, "paymentPayload": payment, "paymentRequirements": wanted}


async def ask(world: LiveWorld, verb: str, header: str) -> Any:
    """Ask the facilitator in version 2."""
    async with world.stage.client("bob", "facilitator") as http:
        return (await http.post(f"/{verb}", json=asking(header))).json()


# --- whose calls -----------------------------------------------------------------------------

STRUCK = {None: {"service"}, "service": {"service"}, "facilitator": {"facilitator"}}
STRUCK["all"] = {"service", "facilitator"}


@pytest.mark.parametrize("caller", STRUCK)
def test_a_fault_says_whose_calls_of_the_node_it_strikes(server: LocalServer, caller: Any) -> None:
    """Over TCP: whoever asks the node by HTTP, and a facilitator that is asked to verify."""
    asked = {"jsonrpc": "2.0", "id": 1, "method": "eth_blockNumber"}
    given = {"victim": "rpc", "does": "refuse", "times": None}
    fault = given if caller is None else given | {"caller": caller}
    with httpx.Client(timeout=10) as http:
        body = standard_body(server)

        def verify() -> bool:
            answer = http.post(f"{server.facilitator_url}/verify", json=body).json()
            if not answer["isValid"]:
                assert answer["invalidReason"] == "unexpected_verify_error"
            return bool(answer["isValid"])

        def node() -> bool:
            try:
                return http.post(server.rpc_url, json=asked).status_code == 200
            except httpx.TransportError:
                return False

        assert (verify(), node()) == (True, True)
        assert http.post(f"{server.control_url}/faults", json=fault).status_code == 200
        (active,) = http.get(f"{server.control_url}/faults").json()
        assert active.get("caller") == caller
        assert (verify(), node()) == (
            "facilitator" not in STRUCK[caller],
            "service" not in STRUCK[caller],
        )
        http.post(f"{server.control_url}/faults/clear")
        assert (verify(), node()) == (True, True)


def standard_body(server: LocalServer) -> dict[str, Any]:
    """Return a payment in one step at a server, with what it is for."""
    bodies = []

    async def story(world: LiveWorld) -> None:
        alice = await world.payer("alice", balance="1.00")
        bodies.append(asking(alice.sign(await alice.ask(), steps=1)))

    World(on=server.url).play(story).raise_for_failure()
    return bodies[0]


def test_only_a_fault_for_facilitators_shows_their_calls_in_the_journal() -> None:
    def calls(**fault: Any) -> list[str]:
        """Return the methods that facilitators asked of their node, in order."""

        async def story(world: LiveWorld, alice: Payer) -> None:
            await world.fault(Fault(victim="rpc", does="delay answer", seconds=0.1, **fault))
            assert (await alice.buy()).status == 200

        sent = play(story).journal.events(events.RequestSent)
        return [each.path for each in sent if each.actor == "facilitator"]

    assert calls() == calls(caller="service") == []
    assert calls(caller="all", contains="nothing", times=None) == [
        "eth_getCode",  # to verify
        "eth_getCode",  # to settle
        "eth_call",
        "eth_gasPrice",
        "eth_getBlockByNumber",
        "eth_getTransactionCount",
        RAW,
        "eth_getTransactionReceipt",
        "eth_getTransactionByHash",
    ]


# --- before it is sent -----------------------------------------------------------------------


@played("virtual")
async def test_nothing_is_valid_that_could_not_be_looked_at(world: LiveWorld, alice: Payer) -> None:
    """In both dialects, of an account and of a contract, until the node answers again."""
    smart = await world.payer("smart", balance="1.00", wallet="smart")
    for payer in (alice, smart):
        required = await payer.ask()
        header, one_step = payer.sign(required), payer.sign(required, steps=1)
        await world.fault(Fault(**DOWN))
        for verb in ("verify", "settle"):
            answer = await world.ask_facilitator(verb, payer, required, header)
            assert answer["error"] == "Chain unavailable"
            answer = await ask(world, verb, one_step)
            is_good, reason = {
                "verify": ("isValid", "invalidReason"),
                "settle": ("success", "errorReason"),
            }[verb]
            assert (answer[is_good], answer[reason]) == (False, f"unexpected_{verb}_error")
        paid = await payer.pay(required, header)
        assert (paid.status, paid.body["final"]) == (502, False)
        assert not await world.transfers(payer)
        await world.heal()
        assert (await payer.pay(required, header)).status == 200
        assert len(await world.transfers(payer)) == 1


# --- when it is sent -------------------------------------------------------------------------

LIMIT = '{"jsonrpc": "2.0", "id": 1, "error": {"code": -32005, "message": "daily limit"}}'
SAYS = {"does": "answer", "status": 200}
SENDING: dict[str, dict[str, Any]] = {
    "refused": {"does": "refuse"},
    "lost": {"does": "lose request"},
    "its answer is lost": {"does": "lose answer"},
    "its answer is half a JSON": {"does": "shorten"},
    "it arrives twice": {"does": "duplicate"},
    "its answer is late": {"does": "delay answer", "seconds": 15},
    "500 after it arrived": {"does": "answer", "status": 500, "work_done": True},
    "no JSON-RPC after it arrived": SAYS | {"body": "[]", "work_done": True},
    "null instead": SAYS | {"body": '{"jsonrpc": "2.0", "id": 1, "result": null}'},
}
"""What happens to a transaction that a facilitator sends."""


@pytest.mark.parametrize("how", SENDING)
@played("virtual")
async def test_what_was_sent_is_settled_once_whatever_became_of_the_sending(
    world: LiveWorld, alice: Payer, how: str
) -> None:
    for count, times in enumerate((1, 2), 1):
        await world.fault(Fault(**ITS | SENDING[how] | {"contains": RAW, "times": times}))
        assert (await alice.buy()).status == 200
        assert len(await world.transfers(alice)) == count
        await world.heal()
    assert (await alice.buy()).status == 200, "the nonces have no gap"


# --- after it is sent ------------------------------------------------------------------------

SILENT: dict[str, dict[str, Any]] = {
    "it is not reached": {"does": "refuse"},
    "it answers half a JSON": {"does": "shorten"},
    "it is asked too often": SAYS | {"body": LIMIT},
    "it is busy": {"does": "answer", "status": 429, "headers": {"Retry-After": "60"}},
}
"""How a node does not say what became of a transaction."""


@pytest.mark.parametrize("how", SILENT)
def test_what_was_sent_is_pending_and_not_failed(virtual: str, how: str) -> None:
    silent = ITS | SILENT[how] | {"contains": "eth_getTransactionReceipt", "times": None}

    async def story(world: LiveWorld, alice: Payer) -> None:
        one_step = alice.sign(await alice.ask(), steps=1)
        await world.fault(Fault(**silent))
        pending = await ask(world, "settle", one_step)
        assert (pending["success"], pending["errorReason"]) == (False, "settlement_pending")
        await world.heal()
        settled = await ask(world, "settle", one_step)
        assert settled["success"], settled
        assert settled["transaction"] == pending["transaction"]
        assert len(await world.transfers(alice)) == 1

        await world.fault(Fault(**silent))
        assert (await alice.buy()).status == 200, "the service asks a node of its own, which knows"
        assert len(await world.transfers(alice)) == 2
        # which fails, too, after it has looked whether the nonce is free
        await world.fault(Fault(victim="rpc", does="refuse", skip=1, times=None))
        required = await alice.ask()
        header = alice.sign(required)
        unknown = await alice.pay(required, header)
        assert (unknown.status, unknown.body["final"]) == (502, False)
        assert len(await world.transfers(alice)) == 3
        await world.heal()
        assert (await alice.pay(required, header)).status == 200
        assert len(await world.transfers(alice)) == 3

    play(story, virtual, facilitator=FacilitatorSettings(receipt_timeout_s=6))


@played("virtual")
async def test_a_chain_that_is_set_back_leaves_no_gap_in_the_nonces(
    world: LiveWorld, alice: Payer
) -> None:
    await world.fault(Fault(**ITS, does="delay answer", seconds=0.1, times=None))
    assert (await alice.buy()).status == 200
    taken = await world.stage.ask("snapshot", {})
    for _ in range(3):
        assert (await alice.buy()).status == 200
    await world.stage.ask("revert", taken)
    assert (await alice.buy()).status == 200
    assert len(await world.transfers(alice)) == 2


@played(
    service={"a": Settings(), "b": Settings(facilitator="slow")},
    facilitator={"fast": FacilitatorSettings(), "slow": FacilitatorSettings()},
)
async def test_each_facilitator_of_a_market_has_a_node_that_fails(world: LiveWorld) -> None:
    alice = await world.payer("alice", balance="1.00")
    shop = alice.at("b")
    await world.fault(Fault(**DOWN))
    assert (await shop.buy()).status == 502
    await world.heal()
    assert (await shop.buy()).status == 200


def test_what_the_node_took_and_answered_with_an_error_is_found() -> None:
    """A node that stands for several may pass a transaction on, and then fail."""
    failed = '{"jsonrpc": "2.0", "id": 1, "error": {"code": -32000, "message": "internal error"}}'

    async def story(world: LiveWorld, alice: Payer) -> None:
        header = alice.sign(await alice.ask(), steps=1)
        does = SAYS | {"body": failed, "contains": RAW}
        await world.fault(Fault(**ITS, **does, work_done=True))
        taken = await ask(world, "settle", header)
        assert (taken["success"], len(await world.transfers(alice))) == (True, 1)

        header = alice.sign(await alice.ask(), steps=1)
        await world.fault(Fault(**ITS, **does))
        refused = await ask(world, "settle", header)
        assert (refused["success"], refused["transaction"]) == (False, "")
        assert len(await world.transfers(alice)) == 1

    play(story).raise_for_failure()
