"""A check's access to the world around the target, through the control API `/_sim`, and its chain.

It injects faults, and reads the ledger and the journal; the chain is read through a node's
JSON-RPC.
"""

import re
from collections.abc import Awaitable, Callable, Collection
from functools import partial
from typing import Any, TypeVar

import httpx
import msgspec
from msgspec.structs import replace

from x402sim.clock import Clock
from x402sim.journal import Entry
from x402sim.payer.wallet import Wallet
from x402sim.protocol.messages import BadMessage, decode
from x402sim.report.results import Loss
from x402sim.suite import redact
from x402sim.suite.service.answers import Paid
from x402sim.suite.service.expect import expect_transfers
from x402sim.suite.service.setting import Setting
from x402sim.suite.verdict import Inconclusive, Lacking, NotApplicable, amounts
from x402sim.world.control.client import ControlClient, ControlError
from x402sim.world.control.messages import ExplorerQuery, Transfer
from x402sim.world.transport.faults import Fault, value_of

T = TypeVar("T")
NOBODY = "0x" + "00" * 20
"""The sender of minted tokens."""
VERIFY = partial(Fault, victim="facilitator", path="/verify")
SETTLE = partial(Fault, victim="facilitator", path="/settle")
"""Make a fault of a verification, or of a settlement."""
NOT_SETTLED = (
    '{"x402Version":1,"event":"payment.failed","network":"cronos-testnet",'
    '"timestamp":"2026-01-01T00:00:00.000Z","error":"Transaction failed on-chain"}'
)
"""What the facilitator answers to a settlement that has failed."""

HOLD_S = 0.5
"""How long the facilitator's answers are held back, so that concurrent requests meet."""
DISTURBING = ("mining", "force-revert")
"""What disturbs as a fault does, besides faults."""
SHOWN = 8
"""How many faults are shown at most beside the exchange of a failure."""

MOST_TOLD = 240
"""The characters of a refusal that a report shows."""


def paid_to(payee: str, base: int) -> str:
    """Return a transfer in words."""
    return f"{base} base units to {payee.lower()}"


class ControlApi:
    """One check's access to the world; `changed_world` is set if it changes more than balances.

    Only a check that `may_disturb` injects faults of the facilitator or the chain: beside another,
    they would strike what the target does in the background, which that one counts on.
    """

    def __init__(self, setting: Setting, *, may_disturb: bool = True) -> None:
        self._setting, self._lasting = setting, setting.lasting_faults
        self._may_disturb = may_disturb
        self._mine: set[str] = set()
        self._faults: list[Fault] = []
        self._is_cleared = False
        self.changed_world = False

    @property
    def exists(self) -> bool:
        """Whether there is a world around the target."""
        return self._setting.control is not None

    async def get(self, path: str, kind: Any = Any) -> Any:
        """Read from the control API; raises `Inconclusive` if it does not answer 200."""
        return await self._answered(self._client().request("GET", path, kind=kind))

    async def post(self, path: str, body: dict[str, Any] | None = None) -> Any:
        """Act through the control API; raises `Inconclusive` if it does not answer 200."""
        self.changed_world |= path != "faucet"
        self._require_may_disturb(path in DISTURBING)
        return await self._answered(self._client().request("POST", path, body))

    async def _answered(self, answer: Awaitable[T]) -> T:
        """Return an answer of the control API; raises `Inconclusive` if there is none."""
        try:
            return await answer
        except ControlError as error:
            raise Inconclusive(redact.cut(str(error), MOST_TOLD)) from error

    def _client(self) -> ControlClient:
        if self._setting.control is None:
            raise Lacking("it needs the world around the target: give --world")
        return self._setting.control

    async def fault(self, fault: Fault, *, of: Wallet | None = None) -> None:
        """Inject a fault, which the engine clears after the check.

        `of` is the payer whose payments it strikes. One of the facilitator or the chain needs
        `disturbs=True` of the check; it raises `ValueError` without. What the chain's node says of
        one transaction, in `contains`, disturbs nobody else.
        """
        is_of_one = fault.victim == "rpc" and bool(fault.contains)
        self._require_may_disturb(fault.victim != "explorer" and not is_of_one)
        await self._inject(fault if of is None else replace(fault, contains=of.address))

    def _require_may_disturb(self, disturbs: bool) -> None:
        if disturbs and not self._may_disturb:
            raise ValueError("a check that disturbs the target's background says so: disturbs=True")

    async def _inject(self, fault: Fault) -> None:
        self._faults = [*([] if self._is_cleared else self._faults), fault]
        self._is_cleared = False
        await self.post("faults", msgspec.to_builtins(fault))

    async def hold(self, payer: Wallet, seconds: float = HOLD_S) -> None:
        """Hold back the facilitator's answers about a payer; without a world, nothing.

        That is so short that it disturbs nobody else.
        """
        if self.exists:
            late = Fault(victim="facilitator", does="delay answer", seconds=seconds, times=None)
            await self._inject(replace(late, contains=payer.address))

    async def watch(self, payer: Wallet) -> None:
        """Have the world note when its facilitator is asked about a payer, who pays only once.

        The note is a fault that delays one answer by a millisecond. If nobody asks, it stays until
        faults are cleared.
        """
        late = Fault(victim="facilitator", does="delay answer", seconds=0.001)
        await self._answered(self._client().fault(replace(late, contains=payer.address)))

    async def was_queried_about(self, payer: Wallet) -> bool:
        """Tell whether the facilitator was asked about a payer since `watch`."""
        return all(each["contains"] != payer.address for each in await self.get("faults"))

    async def lasting_fault(self, fault: Fault, of: str) -> None:
        """Inject a fault for requests that contain a text; it stays while the check waits.

        No other check may send that text.
        """
        self._lasting.add(of)
        self._mine.add(of)
        await self.fault(replace(fault, contains=of))

    async def clear_faults(self) -> None:
        """Remove every fault, but the lasting ones of other checks."""
        self._lasting -= self._mine
        self._mine.clear()
        self._is_cleared = True
        await self.post("faults/clear", {"keep": sorted(self._lasting)})

    def fault_lines(self) -> str:
        """Say what the world did instead of its work; empty if there was no fault, or too many."""
        return "\n".join(map(_fault_line, self._faults)) if len(self._faults) <= SHOWN else ""

    async def transfers(self, payer: Wallet) -> list[Transfer]:
        """Return a payer's transfers on the world's ledger."""
        return [each for each in await self._ledger(payer) if each.sender == payer.address]

    async def payments(self, payer: Wallet) -> list[str]:
        """Return what a payer has paid on the world's ledger, in words: `paid_to`."""
        return [paid_to(each.to, int(each.amount_base)) for each in await self.transfers(payer)]

    async def payments_base(self, payer: Wallet) -> list[int]:
        """Return the amounts of a payer's transfers, in base units."""
        return [int(each.amount_base) for each in await self.transfers(payer)]

    async def received(self, payer: Wallet) -> list[int]:
        """Return what others have transferred to a payer, in base units; mints do not count."""
        givers = (NOBODY, payer.address)
        found = [each for each in await self._ledger(payer) if each.to == payer.address]
        return [int(each.amount_base) for each in found if each.sender not in givers]

    async def _ledger(self, payer: Wallet) -> list[Transfer]:
        return await self._answered(self._client().transfers(payer.address))

    async def expect_payments(self, payer: Wallet, *amounts_base: int) -> None:
        """Fail unless the payer made exactly these payments; without a world, check nothing."""
        if self.exists:
            moved = await self.payments_base(payer)
            what = "payments of the payer, on the ledger"
            why = (
                f"what the payer paid in {len(moved)} transfers, beyond the {len(amounts_base)} due"
            )
            loss = self.loss(sum(moved) - sum(amounts_base), why)
            expect_transfers(what, amounts(moved), amounts(amounts_base), loss)

    def loss(self, base: int, why: str) -> Loss | None:
        """Return what was lost, in base units of the world's token; None if that is nothing."""
        if base <= 0:
            return None
        networks = self._setting.options.networks.values()
        decimals = next(iter(networks)).decimals  # the world's is the first
        return Loss(base=base, decimals=decimals, why=why)

    async def cached_entitlements(self) -> int:
        """Return how many entitlements are cached; only the service of this package shows it."""
        state = await self.get("state")
        if not isinstance(state, dict) or "cachedEntitlements" not in state:
            raise NotApplicable("only the service of this package shows its cache")
        return int(state["cachedEntitlements"])

    async def next_event(self) -> int:
        """Return the number of the next event in the world's journal."""
        return (await self._answered(self._client().who())).journal

    async def journal(self, since: int) -> list[Entry]:
        """Return the entries of the world's journal from number `since` on, oldest first."""
        return list(await self._answered(self._client().journal(since)))

    async def queries(self, since_s: float = 0) -> list[tuple[str, float]]:
        """Return the explorer's log: transaction and time (Unix seconds), oldest first."""
        path = f"explorer/queries?since={int(since_s * 1000)}"
        found = await self.get(path, list[ExplorerQuery])
        return [(each.tx_hash, each.at / 1000) for each in found]

    async def first_queries(
        self, tx_hashes: Collection[str], since_s: float = 0
    ) -> dict[str, float]:
        """Return when the explorer was first asked for each of these, the first one first."""
        found: dict[str, float] = {}
        for tx_hash, time_s in await self.queries(since_s):
            if tx_hash in tx_hashes and time_s >= since_s:
                found.setdefault(tx_hash, time_s)
        return found


def _fault_line(fault: Fault) -> str:
    """Return a fault in one line."""
    place = f"the world's {fault.victim}{fault.path}"
    if fault.does != "answer":
        return f"{place}: {fault.does}"
    done = ", after the work was done" if value_of(fault, "work_done") else ""
    shown = redact.cut(value_of(fault, "body"), 300) or "without a body"
    for name, value in value_of(fault, "headers").items():
        shown += f", {name}: {redact.cut(value, 300)}"
    return f"{place} answered {value_of(fault, 'status')} {shown}{done}"


TX_HASH = re.compile(r"0x[0-9a-fA-F]{64}")


class ChainView:
    """One check's read access to the chain."""

    def __init__(self, setting: Setting) -> None:
        self._setting = setting

    async def call(self, method: str, *params: Any) -> Any:
        """Call a JSON-RPC method; raises `Inconclusive` if there is no result."""
        if self._setting.rpc is None:
            raise Lacking("it needs read access to the chain: give --rpc-url or --world")
        call = {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}
        try:
            answer = decode((await self._setting.rpc.post("", json=call)).content, Any)
        except (httpx.TransportError, BadMessage) as error:
            raise Inconclusive(f"the chain's node did not answer: {error!r}") from error
        if not isinstance(answer, dict) or "result" not in answer:
            raise Inconclusive(f"the chain's node has no result: {redact.cut(str(answer), 200)}")
        return answer["result"]

    async def mined(self, paid: Paid) -> dict[str, Any] | None:
        """Return the chain's receipt of a payment's transaction; None if there is none."""
        tx_hash = paid.receipt.at(self._setting.target.receipt.tx_hash)
        if not isinstance(tx_hash, str) or not TX_HASH.fullmatch(tx_hash):
            return None
        look = partial(self.call, "eth_getTransactionReceipt", tx_hash)
        return await eventually(self._setting.clock, look) or None


async def eventually(
    clock: Clock,
    look: Callable[[], Awaitable[T]],
    holds: Callable[[T], bool] = bool,
    *,
    within_s: float = 1,
) -> T:
    """Return what is seen as soon as it `holds`, or in the last of eleven tries within a time."""
    for _ in range(10):
        if holds(seen := await look()):
            return seen
        await clock.sleep(within_s / 10)
    return await look()
