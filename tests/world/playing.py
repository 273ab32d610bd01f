"""Plays stories whose asserts must hold."""

import functools
import inspect
from collections.abc import Awaitable, Callable
from typing import Any

from x402sim import Answer, LiveWorld, Run, World
from x402sim.protocol.header import authorization_of
from x402sim.protocol.messages import decode, encode
from x402sim.protocol.x402 import RequirementsV1, encode_payment
from x402sim.report.reading import checks_of

Story = Callable[..., Awaitable[None]]


async def quote(world: LiveWorld) -> None:
    alice = await world.payer("alice", balance="1.00")
    paid = await alice.buy()
    served = await alice.ask(payment_id=paid.payment_id)
    world.expect(served.status, 200, "1/repeat-served")


def play(story: Story, on: str = "in-process", *, seed: int = 1, **wanted: Any) -> Run:
    """Play a story whose asserts and checks must hold; `alice`, if it takes her, has money."""

    @functools.wraps(story)
    async def meets_alice(world: LiveWorld) -> None:
        await story(world, alice=await world.payer("alice", balance="1.00"))

    takes_alice = "alice" in inspect.signature(story).parameters
    run = World(seed=seed, on=on, **wanted).play(meets_alice if takes_alice else story)
    assert run.outcome == "passed", (run.reason, [c for c in checks_of(run.journal) if not c.ok])
    return run


def played(stage: str = "", **wanted: Any) -> Callable[[Story], Any]:
    """Turn `async def test(world, …)` into a test that plays it.

    `stage` is the fixture that says where; without it the story is played in process.
    """

    def decorate(test: Story) -> Any:
        @functools.wraps(test)
        def run(**given: Any) -> None:
            on = given.pop(stage) if stage else "in-process"
            play(functools.partial(test, **given), on, **wanted)

        names = [*inspect.signature(test).parameters, stage]
        fixtures = [name for name in names if name not in ("world", "alice", "")]
        run.__signature__ = inspect.Signature(  # type: ignore[attr-defined]
            [inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY) for name in fixtures]
        )
        return run

    return decorate


def standard_payment(required: Answer, header: str) -> str:
    auth, signature = authorization_of(header)
    offered = required.body["accepts"][0]
    return encode_payment(auth, signature, decode(encode(offered), RequirementsV1))
