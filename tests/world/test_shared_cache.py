"""A shared cache in front of a service: what it serves to whom did not pay, by headers."""

import pytest
from starlette.datastructures import Headers

from tests.own_parts import CacheControl
from tests.world.playing import played
from x402sim import LiveWorld, Settings, World
from x402sim.backends import SharedCache
from x402sim.policies import NoStore, ServicePolicy
from x402sim.story.payer import Answer, Payer
from x402sim.world.cache import storable_s

MARKET = "/api/perp/market"
NAIVE = SharedCache(default_s=60, obeys_headers=False)
LAW = "invariant/served-only-if-transferred"


async def paid(payer: Payer, **headers: str) -> Answer:
    asked = await payer.send("GET", MARKET)
    await payer.pay(asked)
    shown = {"X-Payment-Id": str(asked.payment_id), **headers}
    return await payer.send("GET", MARKET, headers=shown)


def served(cache: SharedCache, told: CacheControl | NoStore, **sent: str) -> bool:
    """Tell whether Eve, who paid nothing, gets what Alice has paid for."""
    answers = []

    async def story(world: LiveWorld) -> None:
        alice = await world.payer("alice", balance="1.00")
        eve = await world.payer("eve", balance="1.00")
        answers.append(await paid(alice, **sent))
        answers.append(await eve.send("GET", MARKET))

    settings = Settings(policy=ServicePolicy(cache=told))
    run = World(cache=cache, service=settings).play(story)
    first, second = answers
    leaked = second.status == 200
    assert first.status == 200
    assert second.status == (200 if leaked else 402)
    assert not leaked or second.body == first.body
    broken = run.summary.query("state == 'broken'")["law"].to_list()
    assert broken == ([LAW] if leaked else [])
    assert (run.outcome == "failed") == leaked, "a run with a leak has not passed"
    return leaked


BEARER = {"Authorization": "Bearer x"}


@pytest.mark.parametrize(
    ("control", "vary", "sent", "leaks"),
    [
        ("no-store", None, {}, False),
        (None, None, {}, True),
        ("public, max-age=60", None, {}, True),
        ("Max-Age=60", None, {}, True),
        ("private, max-age=60", None, {}, False),
        ("no-cache", None, {}, False),
        ("max-age=60, s-maxage=0", None, {}, False),
        ("max-age=0, s-maxage=60", None, {}, True),
        ("max-age=soon", None, {}, False),
        ("public, max-age=60", "Accept, X-Payment-Id", {}, False),
        ("public, max-age=60", "Accept", {}, True),
        ("public, max-age=60", "*", {}, False),
        ("max-age=60", None, BEARER, False),
        ("public, max-age=60", None, BEARER, True),
        ("s-maxage=60", None, BEARER, True),
        ("public, max-age=60", None, {"Cache-Control": "no-store"}, False),
    ],
)
def test_a_cache_that_obeys_leaks_what_the_headers_of_answer_and_request_allow(
    control: str | None, vary: str | None, sent: dict[str, str], leaks: bool
) -> None:
    assert served(SharedCache(), CacheControl(control, vary), **sent) is leaks


def test_a_cache_that_ignores_headers_leaks_all() -> None:
    assert served(NAIVE, NoStore())


MINUTE = Settings(policy=ServicePolicy(cache=CacheControl("max-age=60")))


@played(cache=SharedCache(0), service=MINUTE, invariants=False)
async def test_an_answer_is_kept_as_long_as_it_is_fresh(world: LiveWorld, alice: Payer) -> None:
    await paid(alice)
    await world.advance(59)
    fresh = await alice.send("GET", MARKET)
    renewed = await alice.send("GET", MARKET, headers={"Cache-Control": "no-cache"})
    await world.advance(2)
    stale = await alice.send("GET", MARKET)
    assert [answer.status for answer in (fresh, renewed, stale)] == [200, 402, 402]
    assert fresh.header("age") == "59"
    assert (await paid(alice)).status == 200


@played(cache=NAIVE)
async def test_a_402_is_stored_by_nobody_and_a_quote_neither(
    world: LiveWorld, alice: Payer
) -> None:
    assert len({(await alice.send("GET", MARKET)).payment_id for _ in range(3)}) == 3
    await alice.buy()
    assert (await alice.ask()).status == 402


@pytest.mark.parametrize(
    ("status", "expires", "lasts_s"),
    [
        (402, "Fri, 27 Nov 2026 10:10:00 -0000", 0),  # without a zone, beside one with it
        (200, "Fri, 27 Nov 2026 10:01:00 GMT", 60),
        (402, "Fri, 27 Nov 2026 10:01:00 GMT", 60),
        (200, "Fri, 27 Nov 2026 09:00:00 GMT", 0),
        (200, "0", 0),
    ],
)
def test_what_expires_at_a_date_is_kept_until_then(
    status: int, expires: str, lasts_s: float
) -> None:
    told = Headers({"Date": "Fri, 27 Nov 2026 10:00:00 GMT", "Expires": expires})
    assert storable_s(SharedCache(default_s=5), Headers({}), status, told) == lasts_s
