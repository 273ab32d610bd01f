"""Plays a case in virtual time, ends the faults, lets time pass, and audits the world."""

import asyncio
import logging
from collections import Counter
from dataclasses import dataclass, field
from typing import Any, Literal, get_args

from tests.explore.audit import Audit, Door, Times, ask_everything
from tests.explore.case import Case, Deposit, Pause, Service, Step
from tests.explore.steps import Scene, perform
from tests.money import Law, Ledger, Violation
from tests.mutants.changes import Change, all_of, on_app
from x402sim import Settings, World, events
from x402sim.chain import contract
from x402sim.explorer.index import ExplorerSettings
from x402sim.journal import Entry, Journal
from x402sim.protocol import abi
from x402sim.protocol.crypto import to_hex
from x402sim.story.live import LiveWorld
from x402sim.story.payer import Payer
from x402sim.story.stages import in_process
from x402sim.world.chains import FixedBlocks
from x402sim.world.loop import Deadlock, TimeStandsStill, run_virtual
from x402sim.world.running_world import RunningWorld

QUIET_S = 1_600.0
"""The peace before the audit: twelve blocks of 60 s, and several runs of every background job."""
MOST_EVENTS = 60_000
MOST_AT_ONCE = 5_000
"""The most events of a world, and of one virtual second; more means that time stands still."""
_FINE = frozenset((502, 503))
_SERVICES = get_args(Service)


@dataclass(frozen=True, slots=True)
class Played:
    """A played case: the broken laws, the outcomes of payments, and the journal."""

    case: Case
    violations: list[Violation]
    counts: Counter[str]
    journal: Journal = field(repr=False)

    @property
    def laws(self) -> set[Law]:
        return {each.law for each in self.violations}


def play(case: Case, change: Change = all_of()) -> Played:  # noqa: B008 - it has no state
    """Play a case; `change` may put a defect into its services.

    The same case gives the same journal and the same violations.
    """
    return _Run(case, change).play()


class _Run:
    def __init__(self, case: Case, change: Change) -> None:
        self._case, self._change = case, change
        self._found: list[Violation] = []
        self._counts: Counter[str] = Counter()
        self._journal = Journal()
        self._door = Door()
        self._second, self._at_once = 0, 0
        self._main: asyncio.Task[Any] | None = None

    def play(self) -> Played:
        handler = logging.Handler(logging.ERROR)
        handler.emit = self._logged
        log = logging.getLogger("x402sim")
        log.addHandler(handler)
        propagates, log.propagate = log.propagate, False
        try:
            run_virtual(self._play)
        except (Deadlock, TimeStandsStill) as stuck:
            self._break(Law.TIME_PASSES, str(stuck))
        except asyncio.CancelledError:
            pass  # time stood still, which is recorded already
        except Exception as bug:  # noqa: BLE001 - whatever a world raises is what the run found
            self._exception(repr(bug))
        finally:
            log.removeHandler(handler)
            log.propagate = propagates
        violations = list(dict.fromkeys(self._found))
        return Played(self._case, violations, self._counts, self._journal)

    def _break(self, law: Law, how: str) -> None:
        self._found.append(Violation(law, how))

    def _exception(self, text: str) -> None:
        self._break(Law.NO_EXCEPTION, text)

    def _logged(self, record: logging.LogRecord) -> None:
        """Take an error that has an exception: of background work, or of a request."""
        raised = record.exc_info[1] if record.exc_info else None
        self._exception(f"{record.getMessage()}: {raised!r}")

    async def _play(self) -> None:
        self._main = asyncio.current_task()
        asyncio.get_running_loop().set_exception_handler(
            lambda _, context: self._exception(str(context.get("exception") or context["message"]))
        )
        world = all_of(self._change, on_app(self._door.before))(_recipe(self._case))
        async with in_process(world) as stage:
            self._journal = stage.journal
            live = await LiveWorld.start(stage)
            self._journal.listeners.append(self._watch)
            try:
                await self._tell(await _scene(live, stage.parts, self._case))
            finally:
                await stage.close_clients()

    async def _tell(self, scene: Scene) -> None:
        """Play every step, end the faults, let time pass, and audit."""
        live = scene.world
        self._door.clock = live.clock
        started_s = live.clock.now()
        async with asyncio.TaskGroup() as group:
            for step in self._case.steps:
                group.create_task(self._step(scene, started_s + step.at_s, step))
        await live.heal()
        if any(isinstance(step, Pause) for step in self._case.steps):
            owner = str(live.info.token_owner)
            # a reorganisation may have lost it
            await live.stage.transact(owner, to_hex(abi.UNPAUSE))
        sessions_s = [step.duration_s for step in self._case.steps if isinstance(step, Deposit)]
        ends_s = [*scene.book.ends_s(), live.clock.now() + max(sessions_s, default=0)]
        await live.clock.sleep_until(max(ends_s) + QUIET_S)
        granted = await ask_everything(scene)
        ledger = await Ledger.read(scene.parts.chain)
        audit = Audit(scene, ledger, Times(self._journal), self._door, granted)
        self._found += audit.violations()
        self._counts += audit.counts

    async def _step(self, scene: Scene, at_s: float, step: Step) -> None:
        await scene.world.clock.sleep_until(at_s)
        await perform(scene, step)

    def _watch(self, entry: Entry) -> None:
        """Look at each event: server errors, and time that stands still."""
        event, second = entry.event, entry.at_ms // 1000
        self._at_once = self._at_once + 1 if second == self._second else 0
        self._second = second
        is_stuck = self._at_once > MOST_AT_ONCE or entry.seq > MOST_EVENTS
        if is_stuck and self._main and not self._main.cancelling():
            self._break(Law.TIME_PASSES, f"more than {MOST_AT_ONCE} events in one second")
            self._main.cancel()
        is_service = isinstance(event, events.AnswerSent) and event.actor in _SERVICES
        if is_service and event.status >= 500 and event.status not in _FINE:
            how = f"{event.actor} answered {event.status} to {event.path}"
            self._break(Law.NO_SERVER_ERROR, how)


def _recipe(case: Case) -> World:
    latency: dict[str, Any] = dict(case.latency)
    at_first = case.services if case.market else 1
    if case.jitter:
        latency = {to: (median_s, case.jitter) for to, median_s in latency.items()}
    return World(
        seed=case.seed,
        block_time_s=case.block_time_s and FixedBlocks(case.block_time_s, phase=0),
        explorer=ExplorerSettings(lag_s=case.explorer_lag_s),
        service={name: Settings(phase=0) for name in _SERVICES[:at_first]},
        latency=latency,
    )


async def _scene(live: LiveWorld, parts: RunningWorld, case: Case) -> Scene:
    while len(parts.services) < case.services:
        await live.another_service()
    payers = []
    for number, balance in enumerate(case.balances):
        kind = case.wallets[number] if number < len(case.wallets) else "key"
        held: Literal["key", "smart"] = "smart" if kind == "smart" else "key"
        made = await live.payer(f"payer {number}", balance=balance or None, wallet=held)
        if kind == "delegated":
            await _delegate(parts, made)
        payers.append(made)
    return Scene(
        world=live,
        parts=parts,
        case=case,
        payers=tuple(payers),
        third_party=await live.payer("third party"),
        floor=await parts.chain.height(),
    )


async def _delegate(parts: RunningWorld, payer: Payer) -> None:
    """Give an account the code of a smart wallet owned by the account (EIP-7702)."""
    chain, account, code = parts.chain.controls, payer.wallet.address_bytes, contract.wallet_code()
    at = contract.wallet_address(account)
    await chain.set_code(at, code, {})
    await chain.set_code(account, b"\xef\x01\x00" + at, contract.wallet_storage(account))
