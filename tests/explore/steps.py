"""Does each step of a case in the world, and keeps the payers' knowledge.

The audit starts from that knowledge: the chain and the services must bear out every signed header, every
place of presentation, and every answer.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, assert_never, cast

import httpx
import msgspec

from tests.explore.case import (
    Act,
    Again,
    Buy,
    Cancel,
    Case,
    Deposit,
    Lie,
    Pause,
    Purchase,
    Reorganise,
    Service,
    Step,
    Strike,
    Submit,
    Unsold,
    Way,
)
from x402sim.protocol import cronos
from x402sim.protocol.crypto import Hash, to_hex
from x402sim.protocol.eip3009 import Authorization
from x402sim.protocol.header import authorization_of, encode_header
from x402sim.protocol.messages import PaymentRequirements, decode, encode
from x402sim.protocol.networks import Network
from x402sim.protocol.refusals import Refusal
from x402sim.protocol.routes import MARKET, QUOTE
from x402sim.protocol.x402 import (
    PAYMENT_HEADERS,
    encode_payment,
    named,
    requirements_v1,
    requirements_v2,
)
from x402sim.story.live import LiveWorld
from x402sim.story.payer import ORDER, Answer, Payer
from x402sim.story.stages import PAYER_TIMEOUT_S
from x402sim.world.faults import Fault
from x402sim.world.running_world import RunningWorld

# --- what the payers know -----------------------------------------------------------------

Key = tuple[Service, str]
"""A service and a payment id of it."""


@dataclass(frozen=True, slots=True)
class Signed:
    authorization: Authorization
    signature: bytes
    payer: Payer

    @property
    def nonce(self) -> str:
        return self.authorization.nonce.hex()

    @property
    def header(self) -> str:
        return encode_header(self.authorization, self.signature, self.payer.network)


@dataclass(frozen=True)
class Order:
    """A 402 of a service for purchase `number`, and how it is to be paid.

    `is_issued` is false where the payment id of another service is shown, which is refused.
    """

    service: Service
    required: Answer
    number: int
    is_deposit: bool
    way: Way
    is_issued: bool = True
    said_name: int | None = None
    """What its payer calls a payment in version 2."""

    @property
    def key(self) -> Key:
        return self.service, self.required.payment_id

    @property
    def name(self) -> int | None:
        """What a payment in this way is called."""
        return self.said_name if self.way == "PAYMENT-SIGNATURE" else None

    @property
    def is_named(self) -> bool:
        """Whether the payer can ask for the bought content by the 402's payment id."""
        return self.way != "X-PAYMENT"

    @cached_property
    def asked(self) -> tuple[str, int]:
        """The transfer that is asked for: to whom, in lower case, and base units."""
        wanted = self.required.requirements
        return wanted["payTo"].lower(), int(wanted["maxAmountRequired"])

    async def pay(self, payer: Payer, signed: Signed) -> Answer:
        if self.way == "two steps":
            return await payer.pay(self.required, signed.header)
        proof = self.proof(signed, payer.network)
        return await payer.send("POST", QUOTE, json=ORDER, headers=proof)

    def proof(self, signed: Signed, network: Network) -> dict[str, str]:
        payment_id = self.required.payment_id
        wanted: PaymentRequirements = decode(
            msgspec.json.encode(self.required.requirements), PaymentRequirements
        )
        paid = signed.authorization, signed.signature
        if self.way == "PAYMENT-SIGNATURE":
            accepted = requirements_v2(wanted, network)
            extra = {**(accepted.extra or {}), "paymentId": payment_id}
            accepted = msgspec.structs.replace(accepted, extra=extra)
            said = None if self.name is None else named(f"explored-payment-{self.name}")
            return {PAYMENT_HEADERS[2]: encode_payment(*paid, accepted, extensions=said)}
        proof = {
            PAYMENT_HEADERS[1]: encode_payment(*paid, requirements_v1(wanted, network, url=""))
        }
        return {**proof, "X-Payment-Id": payment_id} if self.is_named else proof


@dataclass(frozen=True, slots=True)
class Presented:
    """A header that was presented for an order, and the answers; `late` are those at the end."""

    order: Order
    signed: Signed
    answers: list[Answer] = field(default_factory=list)
    late: list[Answer] = field(default_factory=list)

    @property
    def key(self) -> Key:
        return self.order.key

    @property
    def in_two_steps(self) -> bool:
        """Whether it was presented at /api/pay."""
        return self.order.way == "two steps"

    @property
    def transfer(self) -> tuple[str, str, int]:
        """The transfer that pays: from, to, base units."""
        return to_hex(self.signed.authorization.from_), *self.order.asked

    @property
    def fits(self) -> bool:
        """Whether the authorization pays what this service asked: this recipient, this amount."""
        auth = self.signed.authorization
        return self.order.is_issued and self.order.asked == (to_hex(auth.to), auth.value)

    @property
    def has_receipt(self) -> bool:
        """Whether the payer got a readable receipt."""
        return any(each.status == 200 and each.body for each in self.answers)

    def is_final(self, answer: Answer) -> bool:
        """Tell whether an answer says that this payment is over, and was not charged."""
        if Refusal.ALREADY_SETTLED.text in f"{answer.error} {answer.reason}":
            return False  # by another header: this one was not looked at
        return answer.body.get("final") is True or (not self.in_two_steps and answer.status == 402)


@dataclass(frozen=True, slots=True)
class Book:
    """Everything that the payers and third parties of one world know."""

    shown: dict[tuple[Key, str, Way], Presented] = field(default_factory=dict)
    """Each header at each order, by the order's key, the nonce and the way."""
    orders: dict[int, Order] = field(default_factory=dict)
    """The order of each purchase, by its number."""
    signed: dict[int, list[Signed]] = field(default_factory=dict)
    """The headers of each purchase, oldest first."""
    asked: list[tuple[Key, Answer]] = field(default_factory=list)
    """The answers to payment ids that were shown."""
    sessions: dict[Key, Key] = field(default_factory=dict)
    """The payment id of each spent session, by service and session id."""
    submitted: set[str] = field(default_factory=set)
    """The authorizations that third parties submitted, by nonce."""

    @property
    def presented(self) -> list[Presented]:
        """Every header at every order, in the order of their first times."""
        return list(self.shown.values())

    def at(self, key: Key) -> list[Presented]:
        return [each for each in self.shown.values() if each.key == key]

    def sign(self, number: int, payer: Payer, order: Order) -> Signed:
        signed = Signed(*authorization_of(payer.sign(order.required)), payer)
        self.signed.setdefault(number, []).append(signed)
        return signed

    async def present(self, payer: Payer, order: Order, signed: Signed) -> Presented:
        """Present a header for an order, by a payer who may not be the signer."""
        place = order.key, signed.nonce, order.way
        shown = self.shown.setdefault(place, Presented(order, signed))
        shown.answers.append(await order.pay(payer, signed))
        return shown

    def authorizations(self) -> dict[str, list[Presented]]:
        """Return where each authorization was presented, by nonce."""
        found: dict[str, list[Presented]] = {}
        for each in self.shown.values():
            found.setdefault(each.signed.nonce, []).append(each)
        return found

    def ends_s(self) -> Iterator[float]:
        """Yield the times after which each header can no longer pay, in Unix seconds."""
        for headers in self.signed.values():
            yield from (float(each.authorization.valid_before) for each in headers)


# --- what they do -------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Scene:
    """A case in play: the world, the payers and their knowledge."""

    world: LiveWorld
    parts: RunningWorld
    case: Case
    payers: tuple[Payer, ...]
    third_party: Payer
    floor: int
    """The height at which the payers have their money; no reorganisation goes below it."""
    book: Book = field(default_factory=Book)

    def at(self, payer: Payer, service: Service, patience_s: float | None = None) -> Payer:
        """Return a payer as a client of a service; its next request has this patience."""
        there = payer.at(service)
        there.http.timeout = patience_s or PAYER_TIMEOUT_S
        return there

    def payer(self, number: int) -> Payer:
        return self.payers[number % len(self.payers)]

    def has(self, service: str) -> bool:
        """Whether the world has this service, or any other part."""
        return not service.startswith("service ") or service in self.parts.services

    def secrets(self) -> dict[Service, bytes]:
        """Return the secret of each service, which tells the services apart."""
        running = self.parts.services.items()
        return {cast(Service, name): each.service.env.secret for name, each in running}

    async def show(self, payer: Payer, order: Order) -> Answer:
        """Ask for what an order was for, with its payment id as the proof."""
        answer = await _ask(self, payer, order.number, payment_id=order.required.payment_id)
        self.book.asked.append((order.key, answer))
        return answer


async def perform(scene: Scene, step: Step) -> None:
    """Do what a step says; a step that is impossible in this world does nothing."""
    world = scene.world
    match step:
        case Buy() | Deposit():
            await _purchase(scene, step)
        case Again():
            await _again(scene, step)
        case Unsold():
            await _unsold(scene, step)
        case Submit() | Cancel():
            await _third_party(scene, step)
        case Strike(fault=fault):
            if scene.has(fault.victim):
                await world.fault(fault)
        case Lie():
            about = scene.payer(step.about).address
            await world.fault(fault_of(world, scene.book, about, step))
        case Act(does=does, given=given):
            if all(scene.has(str(each)) for each in given):
                await getattr(world, does)(*given)
        case Reorganise():
            await _reorganise(scene, step)
        case Pause(seconds=seconds):
            async with world.paused():
                await world.clock.sleep(seconds)
        case _:
            assert_never(step)


# --- payers ------------------------------------------------------------------------------


async def _purchase(scene: Scene, step: Purchase) -> None:
    """Ask, sign, wait and pay; then use what was paid for."""
    if not scene.has(step.service):
        return
    payer = scene.at(scene.payer(step.payer), step.service)
    required = await _ask(scene, payer, step.number)
    if not _is_402(required):
        return
    way = step.way if isinstance(step, Buy) else "two steps"
    name, is_deposit = step.name if isinstance(step, Buy) else None, isinstance(step, Deposit)
    order = Order(step.service, required, step.number, is_deposit, way, said_name=name)
    scene.book.orders[step.number] = order
    signed = scene.book.sign(step.number, payer, order)
    await scene.world.clock.sleep(step.wait_s)
    is_final = await _insist(scene, step, order, signed)
    if step.anew and is_final and scene.world.clock.now() < signed.authorization.valid_before:
        signed = scene.book.sign(step.number, payer, order)
        await _insist(scene, step, order, signed)
    if isinstance(step, Deposit):
        await _spend(scene, step, order)
    elif order.is_named:
        await scene.show(payer, order)


async def _ask(scene: Scene, payer: Payer, number: int, *, payment_id: str | None = None) -> Answer:
    """Ask for what a purchase is for, with or without a proof of payment."""
    step = next(each for each in scene.case.steps if getattr(each, "number", None) == number)
    if isinstance(step, Deposit):
        amount = f"{step.cents // 100}.{step.cents % 100:02}"
        return await payer.ask_session(amount, step.duration_s, payment_id=payment_id)
    return await payer.ask(payment_id=payment_id)


def _is_402(answer: Answer) -> bool:
    """Tell whether an answer is a whole 402, which can be paid."""
    return answer.status == 402 and {"paymentId", "paymentRequirements"} <= answer.body.keys()


async def _insist(scene: Scene, step: Purchase, order: Order, signed: Signed) -> bool:
    """Present one header until the answer is a receipt or final; tell whether it is final."""
    is_final = False
    for turn in range(max(1, step.tries)):
        if turn:
            await scene.world.clock.sleep(step.pause_s)
        payer = scene.at(signed.payer, order.service, step.patience_s)
        shown = await scene.book.present(payer, order, signed)
        is_final = shown.is_final(shown.answers[-1])
        if is_final or shown.has_receipt:
            break
    return is_final


async def _spend(scene: Scene, step: Deposit, order: Order) -> None:
    """Take the session that a deposit has opened, and spend it."""
    payer = scene.at(scene.payer(step.payer), order.service)
    opened = await scene.show(payer, order)
    if "sessionId" not in opened.body:
        return
    scene.book.sessions[order.service, str(opened.body["sessionId"])] = order.key
    for _ in range(step.spends):
        payer = scene.at(payer, order.service, step.patience_s)
        await payer.ask(session_id=str(opened.body["sessionId"]))
        await scene.world.clock.sleep(step.spend_pause_s)


async def _again(scene: Scene, step: Again) -> None:
    """Present the newest header of a purchase again, or a second one for the same order."""
    book = scene.book
    if step.of not in book.signed or not scene.has(step.service):
        return
    earlier, signed = book.orders[step.of], book.signed[step.of][-1]
    way = "two steps" if earlier.is_deposit else step.way
    order = replace(
        earlier, service=step.service, way=way, is_issued=earlier.service == step.service
    )
    payer = scene.at(scene.payer(step.by), step.service)
    if step.what == "new id":
        required = await _ask(scene, payer, step.of)
        if not _is_402(required):
            return
        order = replace(order, required=required, is_issued=True)
    elif step.what == "second header":
        if scene.world.clock.now() >= book.signed[step.of][0].authorization.valid_before:
            return  # the 402 is over, which is final, and a header for it would outlive that
        signed = book.sign(step.of, signed.payer, earlier)
    await book.present(payer, order, signed)


async def _unsold(scene: Scene, step: Unsold) -> None:
    """Show a payment, or a session, with a method that nothing is sold by."""
    book = scene.book
    if step.of not in book.signed:
        return
    order, signed = book.orders[step.of], book.signed[step.of][-1]
    payer, proof = scene.at(signed.payer, order.service), order.proof(signed, scene.world.network)
    ids = [of for (service, of), key in book.sessions.items() if key == order.key]
    for path in (QUOTE, MARKET):
        await payer.send(step.method, path, headers=proof)
        for session_id in ids:
            await payer.send(step.method, path, headers={"X-Session-Id": session_id})


# --- third parties, and the chain --------------------------------------------------------


async def _third_party(scene: Scene, step: Submit | Cancel) -> None:
    """Submit or cancel the newest authorization of a purchase."""
    if step.of not in scene.book.signed:
        return
    signed = scene.book.signed[step.of][-1]
    if isinstance(step, Cancel):
        await signed.payer.cancel(signed.header)
        return
    scene.book.submitted.add(signed.nonce)
    if step.how == "chain":
        await scene.third_party.submit(signed.header)
    else:
        required = scene.book.orders[step.of].required
        try:
            await scene.world.ask_facilitator("settle", scene.third_party, required, signed.header)
        except (httpx.TransportError, ValueError):
            return  # the answer was lost or cut off


async def _reorganise(scene: Scene, step: Reorganise) -> None:
    """Replace the newest blocks, as deep as the chain has them above the payers' first money."""
    chain = scene.parts.chain
    height = await chain.height()
    depth = min(step.depth, height - scene.floor)
    if depth < 1:
        return
    lost: list[Hash] = []
    for number in range(height - depth + 1, height + 1) if step.drop else ():
        block = await chain.block(number)
        lost += block.tx_hashes if block else ()
    await scene.world.reorg(depth, [to_hex(each) for each in lost])


# --- lies ---------------------------------------------------------------------------------

_AT = "2027-01-15T08:00:00.000Z"
_ON_CHAIN = {"blockNumber": "0x1", "status": "0x1", "blockHash": "0x" + "ab" * 32}


def fault_of(world: LiveWorld, book: Book, payer: str, lie: Lie) -> Fault:
    """Return the fault that tells a lie; `payer` is the address that it is about."""

    def fault(victim: str, body: Any, contains: str = "", path: str = "", **how: Any) -> Fault:
        text = encode(body).decode()
        common = {"does": "answer", "status": 200, "body": text, "times": lie.times}
        return Fault(victim=victim, path=path, contains=contains, **common, **how)

    def on_chain(action: str, result: Any) -> Fault:
        return fault("explorer", {"jsonrpc": "2.0", "id": 1, "result": result}, action)

    match lie.lie:
        case "valid is invalid":
            answer = cronos.VerifyAnswer(False, "Invalid EIP-3009 signature")
            return fault("facilitator", answer, path="/verify")
        case "invalid is valid":
            return fault("facilitator", cronos.VerifyAnswer(True, None), path="/verify")
        case "invented hash" | "hash of another payment":
            settled = _settled(world, book, payer, lie)
            return fault("facilitator", settled, f'"{lie.amount_base}"', "/settle")
        case "failed though moved" | "failed and not moved":
            failed = cronos.Failed(
                x402_version=cronos.VERSION,
                network=world.network.name,
                timestamp=_AT,
                error=lie.error,
            )
            moved = lie.lie == "failed though moved"
            return fault("facilitator", failed, path="/settle", work_done=moved)
        case "transaction unknown":
            return on_chain("eth_get", None)
        case "transaction reverted":
            return on_chain("eth_getTransactionReceipt", _ON_CHAIN | {"status": "0x0"})
        case "wrong block":
            return on_chain("eth_getTransactionReceipt", _ON_CHAIN)
        case _ as unknown:
            assert_never(unknown)


def _settled(world: LiveWorld, book: Book, payer: str, lie: Lie) -> cronos.Settled:
    tx_hash = "0x" + world.rng(f"lie at {lie.at_s}").randbytes(32).hex()
    receipts = [each.body for shown in book.presented for each in shown.answers]
    earlier = [str(each["txHash"]) for each in receipts if "txHash" in each]
    if lie.lie == "hash of another payment" and earlier:
        tx_hash = earlier[-1]
    sender, to = payer, world.merchant
    if lie.is_refund:
        sender, to = to, sender
    return cronos.Settled(
        x402_version=cronos.VERSION,
        tx_hash=tx_hash,
        from_=sender,
        to=to,
        value=str(lie.amount_base),
        block_number=1,
        network=world.network.name,
        timestamp=_AT,
    )
