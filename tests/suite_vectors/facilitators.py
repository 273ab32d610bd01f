"""The family of a facilitator's verdicts: the judge's own plays, recorded as data.

Each row of the judge of facilitators is played with our facilitator, on a ledger whose clock stands
still. Each verification becomes a vector: the payment, the requirements, and the readable state of
the chain. The demand of the row becomes the expectation.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field, replace
from typing import Any

import httpx

from tests.suite_vectors.making import Maker, slug_of
from x402sim.chain.base import Call, ChainError, Reverted
from x402sim.clock import Clock
from x402sim.facilitator.app import facilitator_app
from x402sim.facilitator.engine import Facilitator
from x402sim.payer.wallet import Wallet
from x402sim.protocol import abi
from x402sim.protocol.crypto import checksum, to_hex, unwrapped
from x402sim.protocol.eip3009 import transfer_digest
from x402sim.protocol.networks import BASE_SEPOLIA
from x402sim.rng import Rng
from x402sim.spec.ground import Ground
from x402sim.suite import texts
from x402sim.suite.dialect import Dialect
from x402sim.suite.facilitator.case import is_paid, refused, unsettled
from x402sim.suite.facilitator.node import Node
from x402sim.suite.facilitator.payment import Answer, Draft
from x402sim.suite.facilitator.play import Play
from x402sim.suite.facilitator.room import PLAIN, FacilitatorRoom
from x402sim.suite.facilitator.subject import rows
from x402sim.suite.facilitator.truth import is_not_valid
from x402sim.suite.started import App, Running
from x402sim.suite.verdict import Inconclusive
from x402sim.world.chains import Accounts, ChainRequest, LedgerBackend

NOW_S = 1_800_000_000
"""The time at which every vector is judged."""
PAYERS = 24
SECTIONS = ("control", "fields", "spelling", "domain", "signature", "window", "nonce", "balance", "wallet")  # fmt: skip
BETWEEN = "-between"
"""The end of the slug of a row in which something happens after verify."""
REFUSES, PAYS = (refused, unsettled, is_not_valid), (is_paid,)
WORDS = {
    version: {sentence.text.split("`")[1]: sentence for sentence in sentences}
    for version, sentences in {
        1: (texts.WORD_FUNDS_V1, texts.WORD_VALID_AFTER_V1, texts.WORD_VALID_BEFORE_V1,
            texts.WORD_VALUE_V1, texts.WORD_SIGNATURE_V1, texts.WORD_RECIPIENT_V1),
        2: (texts.WORD_FUNDS, texts.WORD_VALID_AFTER, texts.WORD_VALID_BEFORE,
            texts.WORD_VALUE, texts.WORD_SIGNATURE, texts.WORD_RECIPIENT),
    }.items()
}  # fmt: skip
"""The words of section 9 that name one check; of what is malformed, any word may be said."""
MOST_SIGNATURE = 2000
"""Bytes of the longest signature that a vector has."""


@dataclass(frozen=True)
class Recorded:
    """A verification: what was asked in which state, and our answer."""

    draft: Draft
    state: dict[str, Any]
    answer: Answer


@dataclass(slots=True, kw_only=True, eq=False)
class RecordingPlay(Play):
    """A play without settlements; each verification is recorded."""

    recorded: list[Recorded] = field(default_factory=list)

    @property
    def wall_s(self) -> int:
        """The chain's time: there is one clock."""
        return self.now_s

    async def verify(self, draft: Draft) -> Answer:
        state = await state_of(self.room, draft)
        answer = await Play.verify(self, draft)
        self.recorded.append(Recorded(draft, state, answer))
        return answer

    async def settle(self, draft: Draft, *, patience_s: float | None = None) -> Answer:
        """Repeat the verdict of verify; nothing moves, and the time stands still."""
        last = self.recorded[-1].answer if self.recorded else None
        said = {"success": bool(last and last.is_valid), "transaction": "0x" + "00" * 32}
        answer = Answer(dialect=self.dialect, path="/settle", status=200, json=said)
        self.answers.append(answer)
        return answer


async def state_of(room: FacilitatorRoom, draft: Draft) -> dict[str, Any]:
    """Return the state of the chain around a payment, as a facilitator can read it."""
    chain, auth, token = room.chain, draft.auth, room.network.asset
    caller = room.relayer.address_bytes
    balance = await chain.call(Call(caller, token, abi.balance_of(auth.from_)))
    used = await chain.call(Call(caller, token, abi.authorization_state(auth.from_, auth.nonce)))
    code = await chain.code(auth.from_)
    signature = unwrapped(draft.signature) if code else draft.signature
    found: dict[str, Any] = {
        "time": room.clock.now_s(),
        "chainId": str(room.network.chain_id),
        "token": {
            "address": checksum(token),
            "name": room.network.token_name,
            "version": room.network.token_version,
        },
        "balance": str(int.from_bytes(balance)),
        "nonceUsed": bool(int.from_bytes(used)),
        "payerCode": to_hex(code),
        "transfer": await _tried(room, abi.transfer_with_authorization(auth, signature), token),
    }
    if code:
        asked = abi.is_valid_signature(transfer_digest(auth, room.network.domain), signature)
        try:
            found["isValidSignature"] = to_hex(await chain.call(Call(caller, auth.from_, asked)))  # fmt: skip
        except Reverted as why:
            found["isValidSignature"] = f"reverted: {why}"
    return found


async def _tried(room: FacilitatorRoom, data: bytes, token: Any) -> str:
    """Return "ok", or why the call of transferWithAuthorization reverts."""
    try:
        await room.chain.call(Call(room.relayer.address_bytes, token, data))
    except Reverted as why:
        return f"reverted: {why}"
    return "ok"


@asynccontextmanager
async def room_of(name: str) -> AsyncIterator[FacilitatorRoom]:
    """Open a room with our facilitator, on a clock that stands still."""
    rng, network, clock = Rng(0), BASE_SEPOLIA, Clock(lambda: float(NOW_S))
    owner, relayer = (Wallet(rng.secret(f"{who} of {name}")) for who in ("owner", "relayer"))
    payers = [Wallet(rng.secret(f"payer {number} of {name}")) for number in range(PAYERS)]
    accounts = Accounts(funded=tuple(payers), owner=owner, facilitators={"facilitator": relayer})
    chain = LedgerBackend().open(ChainRequest(network=network, clock=clock, accounts=accounts, secret=rng.secret(name))).chain  # fmt: skip
    assert chain.controls is not None
    await chain.controls.mine()
    ours = Facilitator(chain=chain, clock=clock, network=network, account=relayer.address_bytes, started_s=clock.now())  # fmt: skip
    app = facilitator_app(ours)
    async with AsyncExitStack() as stack:
        stack.callback(chain.close)
        http = httpx.AsyncClient(transport=httpx.ASGITransport(app))
        await stack.enter_async_context(http)
        yield FacilitatorRoom(
            kind=PLAIN, network=network, subject=App(lambda given: app), rng=rng, name=name,
            clock=clock, chain=chain, node=Node(app), rpc_url="", owner=owner, relayer=relayer,
            payers=payers[::-1], http=http, running=Running("http://facilitator"), _stack=stack,
        )  # fmt: skip


def demand(row: Any) -> tuple[Ground, bool] | None:
    """Return the demand of a row on verify: ground and verdict; None for an open question."""
    for each in row.demands:
        for tests, verdict in ((REFUSES, False), (PAYS, True)):
            if each.test in tests:
                return each.ground, verdict
    return None


async def recorded(row: Any, dialect: Any) -> list[tuple[str, Recorded]]:
    async with room_of(f"{row.section}/{row.name}-{dialect}") as room:
        play = await RecordingPlay(room=room, dialect=dialect, name=room.name, patience_s=5).ready()
        try:
            observed = await row.play(play)
        except (Inconclusive, ChainError):
            return []
        tried = observed if isinstance(observed, list) else [observed]
        names = {id(each.draft): each.about for each in tried if hasattr(each, "about")}
        return [(names.get(id(it.draft), ""), it) for it in play.recorded]


def facilitator() -> Maker:
    """Make a vector of each verification of each row."""
    made = Maker("facilitator")
    for row in rows():
        kind = row.kind or PLAIN
        if row.section not in SECTIONS or kind.chain != "ledger" or kind.ahead_s:
            continue
        if row.name.endswith(BETWEEN):
            continue
        for dialect in (Dialect.V1, Dialect.V2):
            if dialect not in row.absent and not (
                row.section == "spelling" and dialect.version == 1
            ):
                for about, it in asyncio.run(recorded(row, dialect)):
                    _add(made, row, dialect, about, it)
    return made


def _add(made: Maker, row: Any, dialect: Any, about: str, it: Recorded) -> None:
    if it.answer.status != 200 or len(it.draft.signature) > MOST_SIGNATURE or len(it.draft.content) > 8 * MOST_SIGNATURE:  # fmt: skip
        return None
    slug = "-".join(filter(None, (row.section, row.name, slug_of(about), dialect)))
    if slug in made.slugs:  # verified once more, after the payment
        return None
    body = it.draft.body
    given = {"version": dialect.version, "payment": body.get("paymentPayload"), "requirements": body.get("paymentRequirements"), "state": it.state}  # fmt: skip
    title = ": ".join(filter(None, (row.demands[0].title, about)))
    demanded, word = demand(row), it.answer.reason
    if demanded is None:
        sentences = row.demands[0].ground.sentences or (texts.IS_VALID,)
        why = "the verdict is left open; only verify, settle and the chain must agree"
        return made.add(slug, title, "verify", given, None, texts.silent(*sentences, why=why))
    ground, verdict = demanded
    ground = replace(ground, sentences=ground.sentences or (texts.IS_VALID,))
    assert it.answer.is_valid is verdict, (slug, it.answer.how)
    expect = {"isValid": verdict}
    is_malformed = row.section == "spelling" or row.slug.startswith("lacks")
    sentence = None if is_malformed else WORDS[dialect.version].get(word)
    named = word if sentence else ""
    return made.add(slug, title, "verify", given, expect, ground, named, sentence)
