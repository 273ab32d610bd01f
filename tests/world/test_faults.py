"""What can go wrong: every kind, every moment, a crash, and who sees what of it.

A story is played in process, over TCP on virtual time, and against a server in real time.
"""

import asyncio
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Literal, get_args

import httpx
import pytest

from tests.world.playing import play, played
from x402sim import Fault, LiveWorld, LocalServer, PaymentAuth, PaymentFailed, World, events
from x402sim.protocol.header import Spelling
from x402sim.rng import Rng
from x402sim.story.payer import Payer
from x402sim.story.stages import START_S
from x402sim.world.faults import FaultedRequest, Faults, FaultType
from x402sim.world.process import RESTART_S

QUOTE, PAY, MARKET = "/api/perp/quote", "/api/pay", "/api/perp/market"
SETTLE = {"victim": "facilitator", "path": "/settle"}


# --- every kind, in front of the service ----------------------------------------------

BROKEN = {"RemoteProtocolError", "ReadError", "ConnectError"}
TEAPOT: dict[str, Any] = {"does": "answer", "status": 418, "body": '{"error": "teapot"}'}
KINDS = {
    "lose request": ({"does": "lose request"}, None, 0),
    "lose answer": ({"does": "lose answer"}, None, 1),
    "refuse": ({"does": "refuse"}, None, 0),
    "delay request": ({"does": "delay request", "seconds": 0.2}, 200, 1),
    "delay answer": ({"does": "delay answer", "seconds": 0.2}, 200, 1),
    "answer": (TEAPOT, 418, 0),
    "answer after the work": (TEAPOT | {"work_done": True}, 418, 1),
    "truncate": ({"does": "truncate"}, None, 1),
    "shorten": ({"does": "shorten"}, 200, 1),
    "duplicate": ({"does": "duplicate"}, 409, 1),
    "crash before": ({"does": "crash before"}, None, 0),
    "crash after": ({"does": "crash after"}, None, 1),
}
"""The fault, the status the payer sees, and how many transfers there are afterwards."""


@played("on")
async def test_each_fault_has_its_effects_on_payer_and_chain(
    world: LiveWorld, alice: Payer
) -> None:
    assert {wanted["does"] for wanted, *_ in KINDS.values()} == set(get_args(FaultType))
    moved = 0
    for kind, (wanted, status, transfers) in KINDS.items():
        required = await alice.ask()
        await world.fault(Fault(victim="service", path=PAY, **wanted))
        began = world.clock.now()
        paid = await alice.pay(required)
        took = world.clock.now() - began
        assert paid.status == status, kind
        assert (paid.error in BROKEN) == (status is None), kind
        assert took >= wanted.get("seconds", 0), kind
        moved += transfers
        assert len(await world.transfers(alice)) == moved, kind
        await world.advance(RESTART_S)
        assert (await alice.ask(payment_id=required.payment_id)).status in (200, 402), kind


def test_a_delay_is_before_or_after_the_work(virtual: str) -> None:
    def moved_at(does: str) -> float:
        async def story(world: LiveWorld, alice: Payer) -> None:
            await world.fault(Fault(victim="service", does=does, path=PAY, seconds=5))
            assert (await alice.buy()).status == 200

        run = play(story, virtual)
        assert run.steps["ended_s"].iloc[-1] == 5
        return float(run.transfers["t_s"].iloc[-1])

    assert moved_at("delay request") == 5
    assert moved_at("delay answer") == 0


# --- in front of the other parts: as the service sees it, and directly -----------


@played("on")
async def test_the_facilitator_asked_directly(world: LiveWorld, alice: Payer) -> None:
    required = await alice.ask()
    header = alice.sign(required)
    await world.fault(Fault(victim="facilitator", path="/verify", **TEAPOT))
    assert await world.ask_facilitator("verify", alice, required, header) == {"error": "teapot"}
    await world.fault(Fault(victim="facilitator", does="lose answer", path="/settle"))
    with pytest.raises(httpx.TransportError):
        await world.ask_facilitator("settle", alice, required, header)
    assert len(await world.transfers(alice)) == 1
    again = await world.ask_facilitator("settle", alice, required, header)
    assert again["error"] == "Authorization already used"


# --- an answer with headers ----------------------------------------------------------------


@played("on")
async def test_an_answer_has_the_headers_that_it_is_given(world: LiveWorld, alice: Payer) -> None:
    wanted = {
        "Location": "/elsewhere?a=b",
        "Retry-After": "7",
        "WWW-Authenticate": 'Payment id="1"',
    }
    given = {"victim": "service", "does": "answer", "path": MARKET, "headers": wanted}
    for status, body in ((308, ""), (429, "busy"), (204, ""), (304, "")):
        await world.fault(Fault(**given, status=status, body=body, content_type="text/plain"))
        answer = await alice.http.get(MARKET)
        assert (answer.status_code, answer.text) == (status, body)
        assert {name: answer.headers.get(name) for name in wanted} == wanted
        assert answer.headers.get_list("content-type") == ["text/plain"]
        length = [] if status in (204, 304) else [str(len(body))]
        assert answer.headers.get_list("content-length") == length


def test_a_facilitator_that_redirects_is_followed_by_whom_it_may(server: LocalServer) -> None:
    """A client of its own may follow; the service does not, and charges nobody."""
    server.reset()
    there = f"{server.facilitator_url}/v2/x402/supported"
    fault = {"victim": "facilitator", "does": "answer", "status": 308}
    server.fault(Fault(**fault, path="/supported", headers={"Location": there}))
    asked = httpx.get(f"{server.facilitator_url}/supported", follow_redirects=True)
    assert [each.headers["location"] for each in asked.history] == [there]
    assert asked.json() == httpx.get(there).json()

    wallet, settle = server.wallets[0], f"{server.facilitator_url}/v2/x402/settle"
    server.fault(Fault(**fault, path="/settle", headers={"Location": settle}))
    payer = PaymentAuth(wallet, version=2)
    for status, transfers in ((502, 0), (200, 1)):
        assert httpx.get(server.url + MARKET, auth=payer).status_code == status
        assert len(server.transfers(wallet.address)) == transfers


def test_an_answer_without_content_has_a_date_and_no_length(server: LocalServer) -> None:
    server.reset()
    call = {"jsonrpc": "2.0", "method": "eth_chainId"}  # a notification
    for is_short in (False, True):
        if is_short:
            server.fault(Fault(victim="rpc", does="shorten"))
        answer = httpx.post(server.rpc_url, json=call)
        assert answer.status_code == 204
        assert "date" in answer.headers
        assert "content-length" not in answer.headers


# --- when it strikes -----------------------------------------------------------------


async def statuses(payer: Payer, count: int) -> list[int | None]:
    return [(await payer.ask()).status for _ in range(count)]


MOMENTS: list[tuple[dict[str, Any], list[int]]] = [
    ({}, [0]),
    ({"times": 2}, [0, 1]),
    ({"skip": 1}, [1]),
    ({"skip": 2, "times": 2}, [2, 3]),
    ({"times": None}, [0, 1, 2, 3, 4]),
    ({"skip": 3, "times": None}, [3, 4]),
    ({"path": "/quote", "times": 3}, [0, 1, 2]),
    ({"path": "/pay"}, []),
    ({"contains": "BTC-USD"}, [0]),
    ({"contains": "ETH-USD"}, []),
    ({"probability": 0.0, "times": None}, []),
]
"""The fields of a fault, and which of five requests it strikes."""


@played("on")
async def test_the_moment(world: LiveWorld, alice: Payer) -> None:
    for moment, struck in MOMENTS:
        await world.fault(Fault(victim="service", **{"path": "/quote"} | TEAPOT | moment))
        seen = await statuses(alice, 5)
        assert [n for n, status in enumerate(seen) if status == 418] == struck, moment
        assert all(status in (402, 418) for status in seen), moment
        await world.heal()
    for status in (418, 429):  # the first one that fits strikes
        await world.fault(Fault(victim="service", does="answer", status=status, path="/quote"))
    assert await statuses(alice, 3) == [418, 429, 402]


@pytest.mark.parametrize("spelling", ["hex", "base64"])
@played()
async def test_contains_looks_into_payment_headers(
    world: LiveWorld, alice: Payer, spelling: Spelling
) -> None:
    """Which spelling a service passes on is its choice, and not the fault's business."""
    required = await alice.ask()
    header = alice.rewrite_header(alice.sign(required, nonce=b"\x33" * 32), spelling=spelling)
    fault = {"victim": "service", "path": PAY, "contains": "0x" + "33" * 32, "times": None}
    await world.fault(Fault(**fault | TEAPOT))
    for asked, strikes in ((header, True), ("0x7b7d", False), ("no header", False), ("", False)):
        assert ((await alice.pay(required, asked)).status == 418) is strikes


@pytest.mark.parametrize("version", [None, 1, 2])
@pytest.mark.parametrize("of", ["payment", "payer"])
def test_contains_looks_at_the_headers_that_show_a_payment(
    server: LocalServer, version: Literal[1, 2] | None, of: str
) -> None:
    """The first request, which is answered 402, shows none, whatever the payer calls itself."""
    wallet = server.wallets[0]
    contains = wallet.address if of == "payer" else "payment"
    server.fault(Fault(victim="service", contains=contains, **TEAPOT))
    asked, paid = [], PaymentAuth(wallet, version=version)
    with httpx.Client(auth=paid, headers={"user-agent": "payment"}) as http:
        http.event_hooks["response"] = [lambda answer: asked.append(answer.status_code)]
        with suppress(PaymentFailed):
            http.get(f"{server.url}/api/perp/market")
    assert asked[:2] == [402, 418]


def test_a_story_leaves_no_fault_behind(server: LocalServer) -> None:
    async def story(world: LiveWorld) -> None:
        await world.fault(Fault(victim="service", times=None, **TEAPOT))
        await world.skew("service", 100)
        await world.explorer_lag(100)
        await world.mining(automine=False)
        await world.force_revert(5)
        with pytest.raises(ValueError, match="cannot be sent to a deployment"):
            await world.fault(lambda asked: None)
        raise ValueError("and then it broke")

    assert World(on=server.url).play(story).outcome == "failed"
    assert httpx.get(f"{server.control_url}/faults").json() == []
    assert httpx.get(f"{server.control_url}/state").json()["chain"]["automine"] is True

    async def as_ever(world: LiveWorld) -> None:
        paid = await (await world.payer("alice", balance="1.00")).buy()
        assert abs(paid.body["timestamp"] / 1000 - world.clock.now()) < 50
        assert (await world.run_indexer())["matched"] >= 1

    play(as_ever, server.url)


def test_chance_is_the_seeds_and_about_as_likely_as_said() -> None:
    def struck(seed: int) -> list[bool]:
        faults = Faults(Rng(seed))
        faults.add(Fault(victim="service", does="refuse", probability=0.3, times=None))
        return [faults.next_for("service", "/", b"") is not None for _ in range(2000)]

    assert struck(1) == struck(1) != struck(2)
    assert 520 <= sum(struck(1)) <= 680  # 600 expected, 20 the standard deviation


# --- the service dies ----------------------------------------------------------------


def test_a_crash_breaks_requests_in_flight_and_repeats_none(on: str) -> None:
    async def story(world: LiveWorld, alice: Payer) -> None:
        slow = Fault(**SETTLE, does="delay answer", seconds=0.3)
        await world.fault(slow)
        required = await alice.ask()
        header = alice.sign(required)
        paying = asyncio.create_task(alice.pay(required, header))
        await world.clock.sleep(0.15)
        await world.crash()
        broken = await paying
        assert broken.status is None
        assert broken.error in BROKEN
        again = await alice.pay(required, header)
        assert again.error in (None, "Payment already settled")
        assert (await alice.ask(payment_id=required.payment_id)).status == 200
        assert len(await world.transfers(alice)) == 1

    run = play(story, on)
    assert len(list(run.journal.of(events.PaymentSettled))) == 1


def test_background_work_begins_anew_and_only_once(virtual: str) -> None:
    async def story(world: LiveWorld) -> None:
        await world.advance(100)
        for _ in range(3):
            await world.crash()
        await world.advance(901)

    ran_s = play(story, virtual).backlog["t_s"].to_list()
    assert ran_s == [403, 703, 1003], "every 300 s since the last of three starts"


# --- clocks, the explorer, the chain -------------------------------------------------


@played("virtual")
async def test_each_actor_has_a_clock_of_its_own(world: LiveWorld, alice: Payer) -> None:
    now_ms = world.clock.now_ms()

    async def paid_at() -> tuple[float, float]:
        paid = await alice.buy()
        newest = [entry.event for entry in list(world.stage.journal)[-12:]]
        (block,) = {e.block_time_s for e in newest if isinstance(e, events.TransactionMined)}
        return paid.body["timestamp"] - now_ms, block * 1000 - now_ms

    assert await paid_at() == (0, 0)
    await world.skew("service", 30)
    assert await paid_at() == (30_000, 0)
    await world.skew("service", -30.5)
    assert await paid_at() == (-30_500, 0)
    await world.heal()
    await world.skew("chain", 20)
    assert await paid_at() == (0, 20_000)
    await world.skew("chain", 0)
    assert await paid_at() == (0, 20_000), "no block is older than its parent"

    required = await alice.ask()
    await world.skew("facilitator", 3600)
    settled = await world.ask_facilitator("settle", alice, required, alice.sign(required))
    assert settled["timestamp"] == "2027-01-15T09:00:00.000Z"


@played()
async def test_the_lag_is_in_seconds_since_the_block_by_the_explorers_clock(
    world: LiveWorld, alice: Payer
) -> None:
    await alice.buy()
    await world.explorer_lag(190)
    await world.skew("explorer", 100)
    await world.clock.sleep(89)
    assert (await world.run_indexer())["matched"] == 0
    await world.clock.sleep(1)
    assert (await world.run_indexer())["matched"] == 1


# --- faults of the user's own ------------------------------------------------------------


def every_second_settlement() -> Callable[[FaultedRequest], Fault | None]:
    seen = 0

    def rule(asked: FaultedRequest) -> Fault | None:
        nonlocal seen
        if asked.victim != "facilitator" or not asked.path.endswith("/settle"):
            return None
        assert asked.json["paymentRequirements"]["maxAmountRequired"] == "10000"
        assert asked.at_s >= START_S
        assert asked.sent.startswith(asked.path.encode() + b"?\n{")
        seen += 1
        return Fault(victim="facilitator", does="refuse") if seen % 2 == 0 else None

    return rule


def test_a_fault_may_be_a_function_of_the_request(virtual: str) -> None:
    async def story(world: LiveWorld, alice: Payer) -> None:
        await world.fault(every_second_settlement())
        assert [(await alice.buy()).status for _ in range(4)] == [200, 502, 200, 502]
        await world.heal()
        assert (await alice.buy()).status == 200

    run = play(story, virtual)
    (note,) = run.journal.events(events.Note)
    assert note.data == {"rule": "every_second_settlement.rule"}


def test_a_fault_function_that_returns_no_fault_fails_the_run() -> None:
    async def story(world: LiveWorld) -> None:
        await world.fault(lambda asked: "refuse")  # type: ignore[arg-type, return-value]
        alice = await world.payer("alice", balance="1.00")
        assert (await alice.buy()).status == 200

    run = World(seed=1).play(story)
    assert run.outcome == "failed"
    assert "<lambda> returned 'refuse'; a function of a request returns" in run.reason
