"""A check's access to the world around the target: the control API `/_sim`, the chain, payers.

The control API injects faults, and reads ledger and journal; a node's JSON-RPC reads the chain. The
payers sign payments, also wrong ones.
"""

import re
from collections.abc import Awaitable, Callable, Collection, Mapping
from dataclasses import replace
from functools import partial
from typing import Any, TypeVar

import httpx
import msgspec

from x402sim.clock import Clock
from x402sim.journal import Entry
from x402sim.payer import core
from x402sim.payer.wallet import AFTER_SIGNING_S, Wallet
from x402sim.protocol import abi
from x402sim.protocol.crypto import checksum, parse_address, to_hex
from x402sim.protocol.eip3009 import Authorization
from x402sim.protocol.header import Spelling, authorization_of, encode_header
from x402sim.protocol.messages import BadMessage, PaymentRequirements, decode
from x402sim.protocol.money import to_decimal
from x402sim.protocol.networks import BASE_SEPOLIA, TESTNET, Network, network_named
from x402sim.protocol.refusals import Refusal
from x402sim.serving.control.client import ControlClient, ControlError
from x402sim.serving.control.messages import ExplorerQuery, Transfer
from x402sim.suite import redact
from x402sim.suite.report.exchange import Exchange, Exchanges
from x402sim.suite.report.results import DemandKey, Loss
from x402sim.suite.service import expect
from x402sim.suite.service.answers import Challenge, Paid, TargetAnswer, whole
from x402sim.suite.service.setting import Setting
from x402sim.suite.verdict import CheckFailed, Inconclusive, Lacking, NotApplicable, amounts
from x402sim.world.faults import Fault, value_of

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
"""The facilitator's answer to a failed settlement."""

HOLD_S = 0.5
"""Seconds to hold back the facilitator's answers, so that concurrent requests meet."""
DISTURBING = ("mining", "force-revert")
"""Actions of the control API that disturb the target as a fault does."""
SHOWN = 8
"""The most faults that a report shows beside the exchange of a failure."""

BUDGET_DECIMALS = TESTNET.decimals
"""The decimals of the specification's token (2.1), in which --budget counts."""
MOST_TOLD = 240
"""Characters of a refusal in a report."""


def _paid_to(payee: str, base: int) -> str:
    return f"{base} base units to {payee.lower()}"


class ControlApi:
    """One check's access to the world; `changed_world` is set by a change of more than balances.

    Only a check that `may_disturb` injects faults of the facilitator or the chain: beside another
    check, such faults would strike the background on which the other check counts.
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
        """Read from the control API; raises `Inconclusive` unless it answers 200."""
        return await self._answered(self._client().request("GET", path, kind=kind))

    async def post(self, path: str, body: dict[str, Any] | None = None) -> Any:
        """Act through the control API; raises `Inconclusive` unless it answers 200."""
        self.changed_world |= path != "faucet"
        self._require_may_disturb(path in DISTURBING)
        return await self._answered(self._client().request("POST", path, body))

    async def _answered(self, answer: Awaitable[T]) -> T:
        """Return an answer of the control API; raises `Inconclusive` without an answer."""
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

        `of` is the payer whose payments the fault strikes. A fault of facilitator or chain needs
        `disturbs=True` of the check, or raises `ValueError`; a fault of the node for a transaction
        in `contains` disturbs nobody else.
        """
        is_of_one = fault.victim == "rpc" and bool(fault.contains)
        self._require_may_disturb(fault.victim != "explorer" and not is_of_one)
        await self._inject(
            fault if of is None else msgspec.structs.replace(fault, contains=of.address)
        )

    def _require_may_disturb(self, disturbs: bool) -> None:
        if disturbs and not self._may_disturb:
            raise ValueError("a check that disturbs the target's background says so: disturbs=True")

    async def _inject(self, fault: Fault) -> None:
        self._faults = [*([] if self._is_cleared else self._faults), fault]
        self._is_cleared = False
        await self.post("faults", msgspec.to_builtins(fault))

    async def hinder(self, payer: Wallet, fault: Fault | None) -> None:
        """Let no settlement of a payer succeed: by a fault that lasts; without one, by reverts."""
        if fault is None:
            await self.post("force-revert", {"calls": 1, "account": payer.address})
        else:
            await self.fault(msgspec.structs.replace(fault, times=None), of=payer)

    async def accept_all(
        self, payer: Wallet, wanted: Mapping[str, Any], tx_hash: Any, contains: str
    ) -> None:
        """Let the facilitator call each request that contains a text valid, and then settled.

        No money moves: the answers are about `wanted`, the requirements.
        """
        settled = {
            "x402Version": 1,
            "event": "payment.settled",
            "txHash": tx_hash,
            "from": payer.address,
            "to": wanted["payTo"],
            "value": wanted["maxAmountRequired"],
            "blockNumber": 1,
            "network": wanted["network"],
            "timestamp": "2026-01-01T00:00:00.000Z",
        }
        for fault, said in ((VERIFY, {"isValid": True, "invalidReason": None}), (SETTLE, settled)):
            body = msgspec.json.encode(said).decode()
            await self.fault(
                fault(does="answer", status=200, body=body, times=None, contains=contains)
            )

    async def hold(self, payer: Wallet, seconds: float = HOLD_S) -> None:
        """Hold back the facilitator's answers about a payer; without a world, do nothing.

        The pause is too short to disturb another check.
        """
        if self.exists:
            late = Fault(victim="facilitator", does="delay answer", seconds=seconds, times=None)
            await self._inject(msgspec.structs.replace(late, contains=payer.address))

    async def watch(self, payer: Wallet) -> None:
        """Have the world note when its facilitator gets a request about a payer, who pays once.

        The note is a fault that delays one answer by a millisecond. Without a request, the fault
        stays until faults are cleared.
        """
        late = Fault(victim="facilitator", does="delay answer", seconds=0.001)
        await self._answered(
            self._client().fault(msgspec.structs.replace(late, contains=payer.address))
        )

    async def was_queried_about(self, payer: Wallet) -> bool:
        """Tell whether the facilitator got a request about a payer since `watch`."""
        return all(each["contains"] != payer.address for each in await self.get("faults"))

    async def lasting_fault(self, fault: Fault, of: str) -> None:
        """Inject a fault for requests that contain a text; it stays while the check waits.

        No other check may send the text.
        """
        self._lasting.add(of)
        self._mine.add(of)
        await self.fault(msgspec.structs.replace(fault, contains=of))

    async def clear_faults(self) -> None:
        """Remove every fault, except the lasting faults of other checks."""
        self._lasting -= self._mine
        self._mine.clear()
        self._is_cleared = True
        await self.post("faults/clear", {"keep": sorted(self._lasting)})

    @property
    def faults(self) -> Exchanges:
        """The world's faults, for a report; none if there are too many."""
        shown = self._faults if len(self._faults) <= SHOWN else ()
        return tuple(Exchange(_fault_line(each)) for each in shown)

    async def transfers(self, payer: Wallet) -> list[Transfer]:
        """Return a payer's transfers on the world's ledger."""
        return [each for each in await self._ledger(payer) if each.sender == payer.address]

    async def payments_base(self, payer: Wallet) -> list[int]:
        """Return the amounts of a payer's transfers, in base units."""
        return [int(each.amount_base) for each in await self.transfers(payer)]

    async def received(self, payer: Wallet) -> list[int]:
        """Return transfers by others to a payer, in base units; mints do not count."""
        givers = (NOBODY, payer.address)
        found = [each for each in await self._ledger(payer) if each.to == payer.address]
        return [int(each.amount_base) for each in found if each.sender not in givers]

    async def _ledger(self, payer: Wallet) -> list[Transfer]:
        return await self._answered(self._client().transfers(payer.address))

    async def expect_paid(self, what: str, challenge: Challenge, payer: Wallet) -> None:
        """Fail unless the payer has paid a 402: its amount to its payee, and nothing else."""
        moved = [_paid_to(each.to, int(each.amount_base)) for each in await self.transfers(payer)]
        wanted = _paid_to(str(challenge.requirements["payTo"]), challenge.amount_base)
        expect.transfers(what, moved, [wanted])

    async def expect_payments(self, payer: Wallet, *amounts_base: int) -> None:
        """Fail unless the payer made exactly these payments; without a world, check nothing."""
        if self.exists:
            moved = await self.payments_base(payer)
            what = "payments of the payer, on the ledger"
            why = (
                f"what the payer paid in {len(moved)} transfers, beyond the {len(amounts_base)} due"
            )
            loss = self.loss(sum(moved) - sum(amounts_base), why)
            expect.transfers(what, amounts(moved), amounts(amounts_base), loss)

    def loss(self, base: int, why: str) -> Loss | None:
        """Return a loss in base units of the world's token; None for 0 or less."""
        if base <= 0:
            return None
        networks = self._setting.options.networks.values()
        decimals = next(iter(networks)).decimals  # the world's is the first
        return Loss(base=base, decimals=decimals, why=why)

    async def cached_entitlements(self) -> int:
        """Return the number of cached entitlements; only the service of this package shows it."""
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
        """Return the time of each hash's first query to the explorer, earliest first."""
        found: dict[str, float] = {}
        for tx_hash, time_s in await self.queries(since_s):
            if tx_hash in tx_hashes and time_s >= since_s:
                found.setdefault(tx_hash, time_s)
        return found


def _fault_line(fault: Fault) -> str:
    place = f"the world's {fault.victim}{fault.path}"
    if fault.does != "answer":
        return f"{place}: {fault.does}"
    done = ", after the work was done" if value_of(fault, "work_done") else ""
    shown = redact.cut(value_of(fault, "body"), 300) or "without a body"
    for name, value in value_of(fault, "headers").items():
        shown += f", {name}: {redact.cut(value, 300)}"
    return f"{place} answered {value_of(fault, 'status')} {shown}{done}"


def another_chain(network: Network) -> int:
    """Return the chain id of another test network, whose money is worth nothing."""
    return next(i.chain_id for i in (TESTNET, BASE_SEPOLIA) if i.chain_id != network.chain_id)


TX_HASH = re.compile(r"0x[0-9a-fA-F]{64}")


class ChainView:
    """One check's read access to the chain."""

    def __init__(self, setting: Setting) -> None:
        self._setting = setting

    async def call(self, method: str, *params: Any) -> Any:
        """Call a JSON-RPC method; raises `Inconclusive` without a result."""
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

    async def receipt(self, paid: Paid) -> dict[str, Any]:
        """Return the chain's receipt of a payment's transaction; raises `Inconclusive`."""
        if (found := await self.mined(paid)) is None:
            raise Inconclusive("the chain does not know the transaction of the payment's receipt")
        return found

    async def mined(self, paid: Paid) -> dict[str, Any] | None:
        """Return the chain's receipt of a payment's transaction, or None."""
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
    """Return an observation as soon as it `holds`, or the last of eleven in `within_s` seconds."""
    for _ in range(10):
        if holds(seen := await look()):
            return seen
        await clock.sleep(within_s / 10)
    return await look()


# --- payers ----------------------------------------------------------------------------------


class Wallets:
    """One check's payers; signatures of the user's own payer stay within the budget."""

    def __init__(self, setting: Setting, world: ControlApi) -> None:
        self._setting, self._world = setting, world

    async def payer(
        self, amount: str = "1000.00", *, of: Callable[[Wallet], bool] = lambda wallet: True
    ) -> Wallet:
        """Return a payer with funds: a new wallet that the world mints for, or the user's own.

        `of` chooses among new wallets.
        """
        if self._world.exists:
            while not of(wallet := self.stranger()):
                pass
            await self.fund(wallet, amount)
            return wallet
        if self._setting.options.payer is None:
            raise Lacking("it needs a funded payer: give --payer-key or --world")
        return self._setting.options.payer

    async def fund(self, wallet: Wallet, amount: str) -> None:
        """Mint an amount for a wallet in the world, in tokens."""
        await self._world.post("faucet", {"address": wallet.address, "amount": amount})

    def stranger(self) -> Wallet:
        """Return a new wallet without any funds."""
        self._setting.wallets_drawn += 1
        rng = self._setting.rng.stream(f"wallet {self._setting.wallets_drawn}")
        return Wallet(rng.randbytes(32), nonces=lambda: rng.randbytes(32))

    def network(self, challenge: Challenge) -> Network:
        """Return the network of a 402, with the 402's token; raises `Inconclusive`."""
        try:
            network = network_named(
                str(challenge.requirements.get("network")), self._setting.options.networks
            )
            asset = parse_address(str(challenge.requirements.get("asset")))
        except ValueError as error:
            raise Inconclusive(f"the 402 cannot be paid: {error}") from error
        if self._setting.is_real_money(network):
            raise Lacking("it would pay on mainnet; give --allow-mainnet to pay with real money")
        if asset != network.asset and not network.is_test and not self._world.exists:
            raise Lacking(
                f"the 402 names another token of {network.name} than the one that is known"
            )
        spends = self._setting.options.payer is not None and not self._world.exists
        if spends and network.decimals != BUDGET_DECIMALS:
            raise Lacking(
                f"the token on {network.name} has {network.decimals} decimals, and --budget counts "
                f"in tokens of {BUDGET_DECIMALS}, which the specification demands: judge the "
                "service without --payer-key, or with --world"
            )
        return replace(network, asset=asset)

    def sign(
        self,
        challenge: Challenge,
        payer: Wallet,
        *,
        spelling: Spelling | None = None,
        by: Wallet | None = None,
        network: Network | None = None,
        window_s: tuple[int, int] | None = None,
        **changes: Any,
    ) -> str:
        """Return a payment header for a 402; its amount counts against the budget.

        `changes` replace fields of the authorization before signing (`to`, `value`,
        `valid_after`, `valid_before`, `nonce`); `by` signs instead of the payer;
        `network` signs for another chain or token, and `window_s` gives the validity from now.
        """
        network, now_s = network or self.network(challenge), self._setting.clock.now_s()
        if window_s is not None:
            after_s, before_s = window_s
            changes |= {"valid_after": now_s + after_s, "valid_before": now_s + before_s}
        try:
            auth = payer.authorize(_to_pay(challenge.requirements), now_s)
        except ValueError as error:
            raise Inconclusive(f"the 402 cannot be paid: {error}") from error
        auth = core.changed(auth, changes)
        signer = by or payer
        self._allow(challenge, signer, auth, network)
        signature = signer.sign(auth, network.domain)
        self._setting.signatures |= redact.spellings(signature)
        spelling = spelling or self._setting.target.pay.spelling
        return encode_header(auth, signature, network, spelling)

    def resigned(self, challenge: Challenge, header: str, change: Callable[[bytes], bytes]) -> str:
        """Return a header whose signature is changed."""
        auth, signature = authorization_of(header)
        spelling = self._setting.target.pay.spelling
        return encode_header(auth, change(signature), self.network(challenge), spelling)

    def rewrite_header(self, challenge: Challenge, header: str, **changes: Any) -> str:
        """Return a header with fields of its authorization changed after signing."""
        spelling = self._setting.target.pay.spelling
        return core.rewritten_header(header, self.network(challenge), spelling, **changes)

    async def cancel(self, challenge: Challenge, header: str, payer: Wallet) -> None:
        """Cancel an authorization on the world's chain, in a transaction of its payer."""
        auth, _ = authorization_of(header)
        signature = payer.sign_cancellation(auth.nonce, self.network(challenge).domain)
        data = abi.cancel_authorization(auth.from_, auth.nonce, signature)
        sent = await self._send(challenge, payer, data)
        if sent["revertReason"] is not None:
            raise Inconclusive(f"the authorization was not cancelled: {sent['revertReason']}")

    async def submit(self, challenge: Challenge, header: str, sender: Wallet) -> None:
        """Submit an authorization to the world's chain, as anyone who has seen it may."""
        data = abi.transfer_with_authorization(*authorization_of(header))
        await self._send(challenge, sender, data)

    async def _send(self, challenge: Challenge, sender: Wallet, data: bytes) -> Any:
        asset = challenge.requirements["asset"]
        call = {"from": sender.address, "to": asset, "data": to_hex(data)}
        return await self._world.post("send", call)

    def _allow(
        self, challenge: Challenge, signer: Wallet, auth: Authorization, network: Network
    ) -> None:
        """Count an amount that the user's own key will sign; raises `Lacking` for a forbidden one.

        `network` has judged the 402's own network and token already.
        """
        setting, options = self._setting, self._setting.options
        if self._world.exists or options.payer is None or signer.address != options.payer.address:
            return
        own, payee = self.network(challenge), parse_address(challenge.requirements["payTo"])
        if not network.is_test and network.chain_id != own.chain_id:
            raise Lacking(f"it would sign for a main network, {network.caip2}")
        if not own.is_test:
            setting.main_network = setting.main_network or own.caip2
            if own.caip2 != setting.main_network:
                raise Lacking(
                    f"an earlier 402 asked to pay on {setting.main_network}, and this one on "
                    f"another main network, {own.caip2}"
                )
        if options.pay_to not in (None, payee):
            raise Lacking(f"the 402 asks to pay {checksum(payee)}, which is not --pay-to")
        if options.pay_to is not None and auth.to not in (payee, auth.from_):
            raise Lacking(f"it would sign a payment to {checksum(auth.to)}, which is not --pay-to")
        if auth.valid_before > setting.clock.now() + AFTER_SIGNING_S:
            raise Lacking(f"it could be used for more than {AFTER_SIGNING_S} s: give --world")
        has, most_base = "the budget has", options.budget_base
        if setting.planned_base is not None:
            has, most_base = "for what was planned, the budget has", setting.planned_base
        if auth.value > (left_base := most_base - setting.signed_base):
            amount, left = (to_decimal(each, BUDGET_DECIMALS) for each in (auth.value, left_base))
            raise Lacking(f"it would sign for {amount}; {has} {left} left: see --budget")
        setting.signed_base += auth.value

    def expect_settled(self, answer: TargetAnswer) -> None:
        """Fail unless a valid payment was settled.

        Raises `Inconclusive` if the user's own payer lacks funds, or the target fails.
        """
        if answer.is_receipt:
            return
        may_be_short = Refusal.INSUFFICIENT_BALANCE.text in answer.text
        if (answer.status >= 500 or may_be_short) and not self._world.exists:
            raise Inconclusive(f"the payment could not be made: {answer.summary}")
        raise CheckFailed(
            "a valid payment", "a receipt", answer.summary, demand=DemandKey.VALID_PAYMENT
        )


def _to_pay(requirements: dict[str, Any]) -> PaymentRequirements:
    """Return the requirements that a payer needs; raises `ValueError` if a part is missing.

    Other missing or odd fields do not stop a payment: the checks of section 2.1 report them.
    """
    seconds = whole(requirements.get("maxTimeoutSeconds"))
    needed = {name: requirements.get(name) for name in ("payTo", "asset", "maxAmountRequired")}
    known = {"scheme": "exact", "network": "", "resource": ""}
    known_s = seconds if seconds is not None and seconds > 0 else AFTER_SIGNING_S
    return msgspec.convert({**known, **needed, "maxTimeoutSeconds": known_s}, PaymentRequirements)
