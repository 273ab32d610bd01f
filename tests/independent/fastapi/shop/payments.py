"""Offers, settlement and entitlements."""

import asyncio
import logging
import secrets
import time
import uuid
from typing import Any
from weakref import WeakValueDictionary

from .chain import Facilitator, NoAnswer, Node, decode_header
from .config import ENTITLEMENT_SECONDS, OFFER_SECONDS, bug, on, settings
from .models import ApiError, Authorization, PaymentRequired, PayRequest, Requirements
from .store import Budget, Offer, Payment, Store

log = logging.getLogger("shop.payments")
ALPHABET = "abcdefghijkmnpqrstuvwxyz23456789"
LONGEST_WINDOW = 360 + 5

BALANCE, SIGNATURE, NONCE = "Insufficient USDC balance", "Invalid signature", "Nonce already used"
EXPIRED, SETTLED = "Authorization expired", "Payment already settled"
STATUS = {BALANCE: 402, SIGNATURE: 400, NONCE: 409, EXPIRED: 400, SETTLED: 409}


def now_ms() -> int:
    return time.time_ns() // 1_000_000


def settlement_error(text: str) -> ApiError:
    for status in (400, 402, 409):
        if on(f"settle_errors_{status}"):
            return ApiError(status, text)
    return ApiError(STATUS.get(text, 400), text)


def unanswered() -> ApiError:
    return ApiError(503, "The facilitator gave no answer; nothing was charged", Retry_After="5")


def not_known_yet() -> ApiError:
    text = "The settlement's outcome is not known yet; repeat the same request"
    return ApiError(503, text, Retry_After="2")


def _spec_text(reason: str, default: str) -> str:
    """Translate the facilitator's reason into the error texts we promise."""
    low = reason.lower()
    if "exceeds balance" in low or "insufficient" in low:
        return reason if bug("raw_balance_text") else BALANCE
    if "already used" in low:
        return reason if bug("raw_nonce_text") else NONCE
    if "expired" in low:
        return SIGNATURE if bug("expired_as_invalid") else EXPIRED
    if "not yet valid" in low:
        return "Authorization not yet valid"
    return SIGNATURE if "signature" in low else default


class Payments:
    def __init__(self, store: Store, facilitator: Facilitator, node: Node) -> None:
        self._store, self._facilitator, self._node = store, facilitator, node
        self._entitlements: dict[str, tuple[str, int]] = {}  # resource and time, by payment id
        self._used_once: set[str] = set()
        self._locks: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()

    # Offers

    def required(
        self, resource: str, amount: int, description: str, duration: int | None = None
    ) -> PaymentRequired:
        """Issue an offer, and return the 402 that carries it."""
        opaque = "".join(secrets.choice(ALPHABET) for _ in range(20))
        if on("uuid_payment_ids"):
            opaque = str(uuid.uuid4())
        if bug("clock_ids"):
            opaque = str(int(time.time()))
        payment_id = opaque if bug("bare_payment_id") else f"pay_{opaque}"
        config = settings()
        pay_to, asset = config.merchant_address, config.token_address
        if on("lowercase_addresses"):
            pay_to, asset = pay_to.lower(), asset.lower()
        terms: dict[str, Any] = {
            "scheme": "exact",
            "network": config.network,
            "payTo": pay_to,
            "asset": asset,
            "maxAmountRequired": str(amount),
            "maxTimeoutSeconds": 3600 if bug("timeout_3600") else OFFER_SECONDS,
            "resource": resource,
        }
        issued = {"issued_at": time.time(), "duration": duration}
        self._store.save(Offer(payment_id=payment_id, terms=terms, **issued))
        shown = terms if on("no_description") else terms | {"description": description}
        if bug("amount_as_number"):
            shown = shown | {"maxAmountRequired": amount}
        units = f"{amount:,}" if on("message_grouped") else str(amount)
        tokens = f"{amount / 1_000_000:.2f} USDC"
        told = f"{units} base units ({tokens}) are required"
        body = {
            "error": "Payment required" if bug("error_text_case") else "Payment Required",
            "paymentId": payment_id,
            "paymentRequirements": shown,
            "message": f"{tokens} is required" if bug("message_in_tokens") else told,
            "network": str(config.chain_id) if bug("network_is_chain_id") else config.network,
        }
        if on("x402_compat"):
            more = {"mimeType": "application/json", "extra": {"paymentId": payment_id}}
            body |= {"x402Version": 1, "accepts": [shown | more]}
        return PaymentRequired(body)

    # Settlement

    async def pay(self, request: PayRequest) -> dict[str, Any]:
        payment_id = request.paymentId.lower() if on("ids_any_case") else request.paymentId
        lock = self._locks.setdefault(payment_id, asyncio.Lock())
        async with lock:
            return await self._pay(payment_id, request)

    async def _pay(self, payment_id: str, request: PayRequest) -> dict[str, Any]:
        echo = request.paymentRequirements
        offer = self._store.get(Offer, payment_id)
        if offer is None and bug("foreign_id_accepted"):
            offer = Offer(payment_id=payment_id, terms=echo.model_dump(), issued_at=time.time())
            self._store.save(offer)
        if offer is None:
            raise ApiError(400 if on("unknown_id_400") else 404, "Unknown payment id")
        try:
            authorization, header = decode_header(request.paymentHeader)
        except ApiError:
            raise (
                settlement_error(SIGNATURE)
                if on("bad_header_is_signature")
                else ApiError(400, "Invalid payment header")
            )
        if offer.state == "settling":
            await self.reconcile(offer)
            if offer.state == "settling" and offer.authorization_key != authorization.key:
                raise ApiError(
                    409, "An earlier payment for this id is still being settled", Retry_After="5"
                )
        same = offer.authorization == authorization.model_dump(by_alias=True)
        if offer.state == "burnt" or (offer.state == "settled" and not bug("double_settle")):
            # A payer whose first answer was lost still gets the receipt, once.
            if not (
                same and offer.state == "settled" and (on("repeat_receipt") or not offer.delivered)
            ):
                raise settlement_error(SETTLED)
            return self._receipt(offer)

        issued = Requirements.model_validate(offer.terms)
        if not (echo.same_terms(issued) or on("issued_terms_win") or bug("echo_trusted")):
            raise ApiError(400, "Payment requirements differ from those issued")
        terms = echo if bug("echo_trusted") else issued
        if offer.state != "settling" and time.time() > offer.issued_at + OFFER_SECONDS:
            raise ApiError(400, "Payment requirements expired")
        try:
            await self._settle(offer, terms, authorization, header)
        except ApiError:
            if bug("burnt_id"):
                self._store.save(offer, state="burnt")
            raise
        return self._receipt(offer)

    def _receipt(self, offer: Offer) -> dict[str, Any]:
        payment = self._store.get(Payment, offer.payment_id)
        assert payment is not None and offer.settled_ms is not None
        self._store.save(offer, delivered=True)
        moment = offer.settled_ms // (1000 if bug("receipt_in_seconds") else 1)
        told = {"success": True, "paymentId": offer.payment_id, "txHash": payment.tx_hash}
        return told | {"timestamp": moment}

    async def _settle(
        self, offer: Offer, terms: Requirements, authorization: Authorization, header: str
    ) -> None:
        self._check(terms, authorization)
        amount = authorization.value if bug("overpay_accepted") else terms.maxAmountRequired
        wanted = terms.model_dump(exclude={"resource"}) | {
            "payTo": authorization.to,
            "asset": settings().token_address,
            "maxAmountRequired": amount,
        }
        try:
            reason = await self._facilitator.verify(header, wanted)
        except NoAnswer:
            raise unanswered() from None
        if reason is not None and not bug("verify_answer_ignored"):
            raise settlement_error(_spec_text(reason, SIGNATURE))
        if bug("entitled_after_verify"):
            self._entitle(offer)
        # The lower end of the window is left to the token, whose clock decides.
        if authorization.validBefore <= time.time():
            raise settlement_error(_spec_text("expired", EXPIRED))
        retried = offer.state == "settling"
        if not retried:
            await self._claim(offer, authorization)

        outcome = await self._facilitator.settle(header, wanted)
        found = outcome.tx_hash
        if found is None and outcome.sent and not bug("lost_settlement"):
            # Whatever the facilitator said or failed to say: has the authorization been used since we claimed it?
            try:
                found = await self._node.transfer_of(
                    authorization.from_, authorization.nonce, terms.payTo, int(amount)
                )
            except NoAnswer:
                if outcome.error is None or retried:
                    raise not_known_yet() from None
        if found:
            self._record(offer, authorization, found, outcome.block)
        elif (
            (outcome.error is None and (retried or outcome.sent)) and not bug("lost_settlement")
        ) or (retried and outcome.error and "already used" in outcome.error):
            raise not_known_yet()
        else:
            # After an earlier attempt that may still reach the chain, the claim stays.
            if not retried:
                self._release(offer)
            if outcome.error is None:
                raise unanswered()
            raise settlement_error(_spec_text(outcome.error, "Settlement failed"))

    @staticmethod
    def _check(terms: Requirements, authorization: Authorization) -> None:
        value, price = int(authorization.value), int(terms.maxAmountRequired)
        exact = value >= price if bug("overpay_accepted") else value == price
        asset = authorization.asset or terms.asset
        if (
            not exact
            or authorization.to.lower() != terms.payTo.lower()
            or asset.lower() != terms.asset.lower()
        ):
            raise settlement_error(SIGNATURE)
        if (
            on("strict_window")
            and authorization.validBefore - authorization.validAfter > LONGEST_WINDOW
        ):
            raise ApiError(400, "Authorization validity window is too long")

    async def _claim(self, offer: Offer, authorization: Authorization) -> None:
        """Reserve the authorization for this offer; it must be unused, or somebody else's transfer would pay for it."""
        try:
            if await self._node.is_used(authorization.from_, authorization.nonce):
                raise settlement_error(_spec_text("Authorization already used", NONCE))
        except NoAnswer:
            log.warning("node unavailable; the facilitator alone decides about the nonce")
        others = (each for each in self._store.all(Offer) if each is not offer)
        if any(authorization.key == each.authorization_key for each in others):
            # One authorization pays for one offer, whatever the facilitator says about it.
            raise settlement_error(_spec_text("Authorization already used", NONCE))
        self._store.save(offer, state="settling", **self._by(authorization))

    @staticmethod
    def _by(authorization: Authorization) -> dict[str, Any]:
        told = authorization.model_dump(by_alias=True)
        return {"authorization": told, "authorization_key": authorization.key}

    def _release(self, offer: Offer) -> None:
        self._store.save(offer, state="issued", authorization=None, authorization_key=None)

    async def reconcile(self, offer: Offer) -> None:
        """Ask the chain how a settlement without an answer ended; it may still be open."""
        authorization = Authorization.model_validate(offer.authorization)
        try:
            tx_hash = await self._node.transfer_of(
                authorization.from_,
                authorization.nonce,
                offer.terms["payTo"],
                int(offer.terms["maxAmountRequired"]),
            )
        except NoAnswer:
            return
        if tx_hash:
            self._record(offer, authorization, tx_hash)
        elif time.time() > authorization.validBefore + 60:
            self._release(offer)

    async def reconcile_open(self) -> None:
        """Finish settlements whose answer was lost, also when the client does not come back."""
        for offer in self._store.all(Offer):
            lock = self._locks.setdefault(offer.payment_id, asyncio.Lock())
            if offer.state == "settling" and not lock.locked():
                async with lock:
                    await self.reconcile(offer)

    def _record(
        self, offer: Offer, authorization: Authorization, tx_hash: str, block: int | None = None
    ) -> None:
        moment, terms = now_ms(), offer.terms
        payer, payee, amount = authorization.from_, terms["payTo"], terms["maxAmountRequired"]
        shown = f"{int(amount) / 1_000_000:.2f}" if bug("record_in_tokens") else amount
        seen_payer, seen_payee = (payee, payer) if bug("record_swapped") else (payer, payee)
        payment = Payment(
            payment_id=offer.payment_id,
            tx_hash=tx_hash,
            from_address=seen_payer,
            to_address=seen_payee,
            amount=shown,
            resource_url=terms["resource"],
            status="settled",
            timestamp=moment,
            block_number=block if bug("block_at_creation") else None,
        )
        self._store.save(payment)
        if offer.duration is not None and offer.settled_ms is None:
            length = offer.duration * (1000 if bug("duration_times_1000") else 1)
            token = secrets.token_hex(16)
            budget = Budget(
                id=token if bug("bare_session_id") else f"session_{token}",
                payment_id=offer.payment_id,
                payer=payer,
                deposited=int(amount),
                expires_at=time.time() + length,
            )
            self._store.save(budget)
        self._store.save(offer, state="settled", settled_ms=moment, **self._by(authorization))
        self._entitle(offer)

    # Entitlements

    def _entitle(self, offer: Offer) -> None:
        self._entitlements[offer.payment_id] = offer.terms["resource"], now_ms()

    def entitled(self, payment_id: str, resource: str) -> bool:
        granted = payment_id not in self._used_once and self._entitled(payment_id, resource)
        if granted and bug("one_use"):
            self._used_once.add(payment_id)
        return granted

    def _entitled(self, payment_id: str, resource: str) -> bool:
        def fits(paid: str) -> bool:
            return paid == resource or bug("any_resource")

        cached, since_ms = self._entitlements.get(payment_id, ("", 0))
        if now_ms() - since_ms < ENTITLEMENT_SECONDS * 1000 and fits(cached):
            return True
        record = None if bug("cache_only") else self._store.get(Payment, payment_id)
        return record is not None and record.status == "settled" and fits(record.resource_url)

    def clear_entitlements(self) -> None:
        oldest = now_ms() - ENTITLEMENT_SECONDS * 1000
        kept = {key: each for key, each in self._entitlements.items() if each[1] > oldest}
        self._entitlements = kept

    def session_of(self, payment_id: str) -> Budget | None:
        mine = (each for each in self._store.all(Budget) if each.payment_id == payment_id)
        return next(mine, None)
