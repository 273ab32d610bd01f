"""What does each step of a case do in the world?"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import assert_never

import httpx

from x402sim.explore.book import Book, Signed, Visit
from x402sim.explore.case import (
    Again,
    Buy,
    Cancel,
    Case,
    Crash,
    Deposit,
    DropWaiting,
    Lag,
    Lie,
    Pause,
    Purchase,
    Reorganise,
    Revert,
    RunIndexer,
    Service,
    Skew,
    Step,
    Strike,
    Submit,
)
from x402sim.explore.lies import fault_of
from x402sim.protocol.crypto import Hash, to_hex
from x402sim.world.story.live import LiveWorld
from x402sim.world.story.payer import QUOTE, SESSIONS, Answer, Payer


@dataclass(frozen=True, slots=True, kw_only=True)
class Scene:
    """A case that is being played: its world, its payers and what they know."""

    world: LiveWorld
    case: Case
    payers: tuple[Payer, ...]
    third_party: Payer
    floor: int
    """The height at which the payers have their money; no reorganisation goes below it."""
    book: Book = field(default_factory=Book)
    deposits: Mapping[int, Deposit] = field(default_factory=dict)
    there: dict[tuple[str, Service], Payer] = field(default_factory=dict)
    """The payers as clients of each service, by name."""

    def at(self, payer: Payer, service: Service) -> Payer:
        """Return a payer as a client of a service."""
        key = payer.name, service
        if key not in self.there:
            self.there[key] = payer.at(service)
        return self.there[key]

    def payer(self, number: int) -> Payer:
        """Return a payer of the case."""
        return self.payers[number % len(self.payers)]

    def has(self, service: str) -> bool:
        """Whether the world has this service, or any other part."""
        parts = self.world.stage.parts
        return parts is None or not service.startswith("service ") or service in parts.services


async def perform(scene: Scene, step: Step) -> None:
    """Do what a step says; a step that is impossible in this world does nothing."""
    world = scene.world
    match step:
        case Buy() | Deposit():
            await _purchase(scene, step)
        case Again():
            await _again(scene, step)
        case Submit() | Cancel():
            await _third_party(scene, step)
        case Strike(fault=fault):
            if scene.has(fault.victim):
                await world.fault(fault)
        case Lie():
            about = scene.payer(step.about).address
            await world.fault(fault_of(world, scene.book, about, step))
        case Crash(service=service):
            if scene.has(service):
                await world.crash(service)
        case RunIndexer(service=service):
            if scene.has(service):
                await world.run_indexer(service)
        case Skew(actor=actor, seconds=seconds):
            await world.skew(actor, seconds)
        case Lag(seconds=seconds):
            await world.explorer_lag(seconds)
        case Reorganise():
            await _reorganise(scene, step)
        case Revert(calls=calls):
            await world.force_revert(calls)
        case Pause(seconds=seconds):
            async with world.paused():
                await world.clock.sleep(seconds)
        case DropWaiting():
            await world.drop_waiting()
        case _:
            assert_never(step)


# --- payers ------------------------------------------------------------------------------


async def _purchase(scene: Scene, step: Purchase) -> None:
    """Ask, sign, wait and pay; then use what was paid for."""
    if not scene.has(step.service):
        return
    payer = scene.at(scene.payer(step.payer), step.service)
    required = await ask(payer, step)
    if not is_402(required):
        return
    resource = SESSIONS if isinstance(step, Deposit) else QUOTE
    scene.book.asked[step.number] = step.service, required, resource
    signed = scene.book.sign(step.number, payer, required)
    await scene.world.clock.sleep(step.wait_s)
    last = await _insist(scene, step, payer, required, signed)
    is_young = scene.world.clock.now() < signed.authorization.valid_before
    if step.anew and last.body.get("final") is True and is_young:
        signed = scene.book.sign(step.number, payer, required)
        await _insist(scene, step, payer, required, signed)
    if isinstance(step, Deposit):
        await _spend(scene, step, payer, required)
    else:
        await payer.ask(payment_id=required.payment_id)


async def ask(payer: Payer, step: Purchase) -> Answer:
    """Ask for what a purchase is for, without a proof of payment."""
    if isinstance(step, Deposit):
        return await payer.ask_session(_tokens(step.cents), step.duration_s)
    return await payer.ask()


def is_402(answer: Answer) -> bool:
    """Tell whether an answer is a whole 402, which can be paid."""
    return answer.status == 402 and {"paymentId", "paymentRequirements"} <= answer.body.keys()


async def _insist(
    scene: Scene, step: Purchase, payer: Payer, required: Answer, signed: Signed
) -> Answer:
    """Present one header until the answer is a receipt or final; return the last answer."""
    resource = SESSIONS if isinstance(step, Deposit) else QUOTE
    for turn in range(max(1, step.tries)):
        if turn:
            await scene.world.clock.sleep(step.pause_s)
        answer = await scene.book.present(payer, step.service, required, signed, resource)
        if answer.status == 200 or answer.body.get("final") is True:
            break
    return answer


async def _spend(scene: Scene, step: Deposit, payer: Payer, required: Answer) -> None:
    """Take the session that a deposit has opened, and spend it."""
    opened = await payer.ask_session(
        _tokens(step.cents), step.duration_s, payment_id=required.payment_id
    )
    if "sessionId" not in opened.body:
        return
    visit = Visit(step.service, str(opened.body["sessionId"]))
    scene.book.visits.append(visit)
    for _ in range(step.spends):
        answer = await payer.ask(session_id=visit.session_id)
        visit.sent.append(answer)
        if answer.status == 200:
            visit.served.append(answer)
        await scene.world.clock.sleep(step.spend_pause_s)


def _tokens(cents: int) -> str:
    return f"{cents // 100}.{cents % 100:02}"


async def _again(scene: Scene, step: Again) -> None:
    """Present the newest header of a purchase again."""
    if step.of not in scene.book.signed or not scene.has(step.service):
        return
    signed = scene.book.signed[step.of][-1]
    issuer, required, resource = scene.book.asked[step.of]
    payer = scene.at(scene.payer(step.by), step.service)
    if step.new_id:
        deposit = scene.deposits.get(step.of)
        required = await ask(payer, deposit or Buy(number=step.of))
        if not is_402(required):
            return
    is_issued = step.new_id or issuer == step.service
    await scene.book.present(payer, step.service, required, signed, resource, is_issued=is_issued)


# --- third parties, and the chain --------------------------------------------------------


async def _third_party(scene: Scene, step: Submit | Cancel) -> None:
    """Submit or cancel the newest authorization of a purchase."""
    if step.of not in scene.book.signed:
        return
    signed = scene.book.signed[step.of][-1]
    if isinstance(step, Cancel):
        await signed.payer.cancel(signed.header)
    elif step.how == "chain":
        await scene.third_party.submit(signed.header)
    else:
        _, required, _ = scene.book.asked[step.of]
        try:
            await scene.world.ask_facilitator("settle", scene.third_party, required, signed.header)
        except (httpx.TransportError, ValueError):
            return  # the answer was lost or cut off


async def _reorganise(scene: Scene, step: Reorganise) -> None:
    """Replace the newest blocks, as deep as the chain has them above the payers' first money."""
    parts = scene.world.stage.parts
    assert parts is not None
    height = await parts.chain.height()
    depth = min(step.depth, height - scene.floor)
    if depth < 1:
        return
    lost: list[Hash] = []
    for number in range(height - depth + 1, height + 1) if step.drop else ():
        block = await parts.chain.block(number)
        lost += block.tx_hashes if block else ()
    await scene.world.reorg(depth, [to_hex(each) for each in lost])
