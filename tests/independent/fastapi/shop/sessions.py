"""Budgets: deduction, expiry and refund."""

import asyncio
import logging
import secrets
import time
from datetime import UTC, datetime
from typing import Any

from eth_account import Account
from eth_utils import keccak
from fastapi import Response

from .chain import Facilitator, NoAnswer, Node
from .config import bug, on, settings
from .store import Budget, Store

log = logging.getLogger("shop.sessions")
PAUSES = (0, 1, 2, 4, 8)  # seconds before each try of a refund that takes place in a row


def view(budget: Budget) -> dict[str, Any]:
    return {
        "id": budget.id,
        "state": budget.state,
        "deposited": str(budget.deposited),
        "released": str(budget.released),
        "remaining": str(budget.deposited - budget.released),
        "refundTxHash": budget.refund_tx,
        "expiresAt": datetime.fromtimestamp(budget.expires_at, UTC).isoformat(),
    }


def hand_over(budget: Budget, body: dict[str, Any], response: Response, *, receipt: bool) -> None:
    """Put the session's id where clients of this deployment look for it."""
    if on("session_by_repeat") and receipt:
        return
    if on("session_snake"):
        body["session_id"] = budget.id
    elif on("session_nested"):
        body["session"] = view(budget)
    elif on("session_location"):
        response.headers["Location"] = f"/api/sessions/{budget.id}"
    elif on("session_claim"):
        body["claim"] = f"/api/sessions/claim/{budget.payment_id}"
    else:
        body["sessionId"] = budget.id


class Sessions:
    def __init__(self, store: Store, facilitator: Facilitator, node: Node) -> None:
        self._store, self._facilitator, self._node = store, facilitator, node

    def find(self, session_id: str) -> Budget | None:
        """Return a session that may still be used."""
        budget = self._store.get(Budget, session_id)
        is_open = budget and budget.state == "open" and budget.expires_at > time.time()
        return budget if is_open else None

    @staticmethod
    def covers(budget: Budget, price: int) -> bool:
        rest = budget.deposited - budget.released
        return rest > price if bug("last_unit_unspendable") else rest >= price

    async def deduct(self, session_id: str, price: int) -> bool:
        budget = self.find(session_id)
        if budget is None or not self.covers(budget, price):
            return False
        before = budget.released
        if bug("overspend_race"):
            await asyncio.sleep(0.02)
        taken = 2 * price if bug("double_deduction") else price
        self._store.save(budget, released=before + taken)
        return True

    async def expire(self) -> None:
        """End sessions whose time is over, and pay back what they did not spend."""
        now = time.time()
        budgets = self._store.all(Budget)
        for budget in budgets:
            if budget.state == "open" and budget.expires_at <= now:
                self._store.save(budget, state="expired")
        for budget in budgets:
            if budget.state != "expired" or budget.refund_after > now:
                continue
            rest = budget.deposited if bug("refund_full") else budget.deposited - budget.released
            if rest <= 0:
                self._store.save(budget, state="closed")
                continue
            for pause in PAUSES if on("one_loop") or bug("refund_given_up") else PAUSES[:1]:
                await asyncio.sleep(pause)
                try:
                    tx_hash = await self._refund(budget, rest)
                except NoAnswer:
                    tx_hash = None
                if tx_hash:
                    self._store.save(budget, state="refunded", refund_tx=tx_hash)
                    break
                tries = budget.refund_tries + 1
                later = time.time() + min(2**tries, 60)
                self._store.save(budget, refund_tries=tries, refund_after=later)
                log.warning("refund of %s not done yet (try %d)", budget.id, tries)
            if bug("refund_given_up") and budget.refund_tries >= len(PAUSES):
                self._store.save(budget, state="closed")

    async def _refund(self, budget: Budget, rest: int) -> str | None:
        """The nonce follows from the session, so the token itself refuses a second refund."""
        config = settings()
        nonce = keccak(text=f"refund of {budget.id}")
        if bug("refund_twice"):
            nonce = secrets.token_bytes(32)
        wallet = Account.from_key(config.private_key).address
        proof = (wallet, "0x" + nonce.hex(), budget.payer, rest)
        if budget.refund_tries and (done := await self._node.transfer_of(*proof)):
            return done
        terms = {"scheme": "exact", "network": config.network, "asset": config.token_address}
        terms |= {"payTo": budget.payer, "maxAmountRequired": str(rest), "maxTimeoutSeconds": 300}
        header = await self._node.sign_transfer(budget.payer, rest, nonce)
        outcome = await self._facilitator.settle(header, terms)
        if outcome.error:
            log.warning("refund of %s: %s", budget.id, outcome.error)
        if bug("refund_twice"):
            return outcome.tx_hash
        return outcome.tx_hash or await self._node.transfer_of(*proof)
