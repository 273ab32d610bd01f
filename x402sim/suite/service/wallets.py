"""The wallets of a check: its payers, their payment headers and the budget."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import msgspec

from x402sim.payer import core
from x402sim.payer.wallet import AFTER_SIGNING_S, Wallet
from x402sim.protocol import abi
from x402sim.protocol.crypto import parse_address, to_hex
from x402sim.protocol.eip3009 import Authorization
from x402sim.protocol.header import Spelling, authorization_of
from x402sim.protocol.messages import PaymentRequirements
from x402sim.protocol.money import to_decimal
from x402sim.protocol.networks import Network, network_named
from x402sim.protocol.refusals import Refusal
from x402sim.report.results import Demand
from x402sim.suite.service.answers import Challenge, TargetAnswer
from x402sim.suite.service.control_api import ControlApi
from x402sim.suite.service.places import whole
from x402sim.suite.service.setting import Setting
from x402sim.suite.verdict import CheckFailed, Inconclusive, Lacking


class Wallets:
    """One check's payers; signatures of the user's own payer stay within the budget."""

    def __init__(self, setting: Setting, world: ControlApi) -> None:
        self._setting, self._world = setting, world

    async def payer(
        self, amount: str = "1000.00", *, of: Callable[[Wallet], bool] = lambda wallet: True
    ) -> Wallet:
        """Return a payer with funds: a new one that the world mints for, or the user's own.

        `of` says which new one is wanted.
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
        """Return the network of a 402, with the token it names; raises `Inconclusive`."""
        try:
            network = network_named(
                str(challenge.requirements.get("network")), self._setting.options.networks
            )
            asset = parse_address(str(challenge.requirements.get("asset")))
        except ValueError as error:
            raise Inconclusive(f"the 402 cannot be paid: {error}") from error
        if self._setting.is_real_money(network):
            raise Lacking("it would pay on mainnet; give --allow-mainnet to pay with real money")
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
        self._count(payer, auth)
        spelling = spelling or self._setting.target.pay.spelling
        return core.signed_header(auth, by or payer, network, spelling)

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

    def _count(self, payer: Wallet, auth: Authorization) -> None:
        """Count a signature of the user's own payer; raises `Skipped` beyond the budget."""
        own = self._setting.options.payer
        if self._world.exists or own is None or payer.address != own.address:
            return
        left_base = self._setting.options.budget_base - self._setting.signed_base
        if auth.value > left_base:
            amount, left = to_decimal(auth.value, 6), to_decimal(left_base, 6)
            raise Lacking(f"it would sign for {amount}; the budget has {left} left: see --budget")
        self._setting.signed_base += auth.value

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
            "a valid payment", "a receipt", answer.summary, demand=Demand.VALID_PAYMENT
        )


def _to_pay(requirements: dict[str, Any]) -> PaymentRequirements:
    """Return what a payer must know of requirements; raises `ValueError` if they do not say it.

    Nothing else keeps a check from paying: that it is missing, or has another type, is for the
    checks of section 2.1 to say.
    """
    seconds = whole(requirements.get("maxTimeoutSeconds"))
    needed = {name: requirements.get(name) for name in ("payTo", "asset", "maxAmountRequired")}
    known = {"scheme": "exact", "network": "", "resource": ""}
    known_s = seconds if seconds is not None and seconds > 0 else AFTER_SIGNING_S
    return msgspec.convert({**known, **needed, "maxTimeoutSeconds": known_s}, PaymentRequirements)
