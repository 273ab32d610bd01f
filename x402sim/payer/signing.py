"""What may be signed: every check between a 402 and a payer's signature, and the signature.

A server may be hostile or broken, and before money moves, a server can lie only in a 402. Read this
file from top to bottom: it bounds the cost of any lie.

1. `read_offer` (two steps) and `choose` (one step, the x402 standard) take an offer only if scheme,
   network, token and the token's EIP-712 domain equal the payer's own `Network`. So
   decimals, token and chain never come from the server.
2. `Signer.sign` compares the amount with both caps, signs, and counts the amount, under one lock. A
   signed authorization counts for good, used or not, because only the chain can tell. `take_back`
   uncounts a payment that was neither sent nor stored.
3. The signed message names the payee and the amount of the offer, a random nonce, and an end
   (validBefore) by the payer's own clock: the offer's timeout, but at most `max_window_s` from now.
   By Permit2, only if the user allows `permit2`: the message is for Permit2 and the x402 proxy of
   the scheme, at the addresses of our own table; the maximum of `upto` is the amount that counts.
   Only if the user allows it, by amount (`approve`), and the server offers a sponsoring, a permit
   (EIP-2612) is signed beside the message: for Permit2, the same amount and the same end.
4. `Allowed` is the permission of a user of `pay`: test networks, or the main networks that the user
   named, by a clock that the user trusts.

Other files decide two questions. `PaymentAuth` (`auth.py`) decides whether an earlier payment for
the same resource forbids another; `Guard` (`flow.py`) decides where a proof of payment may be sent.
Payments with a deliberate mistake are signed in `mistakes.py`, for test networks only. `run --on
URL` and `conformance` guard the user's key in their own rooms.
"""

import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import httpx
import msgspec

from x402sim.clock import Clock
from x402sim.payer.core import (
    PaymentFailed,
    SpendingCapExceeded,
    changed,
    proofs,
    settlement,
    signed_header,
)
from x402sim.payer.node import Allowance
from x402sim.payer.purchases import Payment, ResourcePayments, Unfinished
from x402sim.payer.reading import is_header_value
from x402sim.payer.wallet import AFTER_SIGNING_S, Wallet
from x402sim.protocol import x402
from x402sim.protocol.crypto import Address, checksum, parse_address, to_hex
from x402sim.protocol.eip3009 import Authorization, Permit
from x402sim.protocol.messages import BadMessage, PaymentRequired, decode
from x402sim.protocol.money import parse_base, to_base, to_decimal
from x402sim.protocol.networks import NETWORKS, Network
from x402sim.protocol.offers import PAYMENT_ID
from x402sim.protocol.permit2 import PERMIT2
from x402sim.protocol.permit2_payments import (
    FACILITATOR,
    METHOD,
    PROXIES,
    SPONSORED_PERMIT,
    UPTO,
    Permit2Payment,
    pays_by_permit2,
    permit2_payload,
    sponsored,
)
from x402sim.protocol.ways import MOST_WAYS, Way, network_called
from x402sim.protocol.x402 import PAYMENT_FLOW, PAYMENT_IDENTIFIER, SCHEME, named, unsupported_in
from x402sim.text.words import as_given, unknown

BEFORE_SIGNING_S = 600
"""The window of the public client libraries: from 600 s before signing to the server's timeout."""
LONGEST_TIMEOUT_S = 2**31
"""A server's timeout of this many seconds or more is an error."""


# --- 1. the offer: two steps ------------------------------------------------------------------


def read_offer(
    request: httpx.Request, response: httpx.Response, network: Network
) -> PaymentRequired:
    """Return the requirements of a 402, if payable on this network.

    Raises `PaymentFailed`.
    """
    try:
        offer: PaymentRequired = decode(response.content, PaymentRequired)
    except BadMessage as error:
        raise PaymentFailed(f"the 402 has no readable payment requirements: {error}") from error
    required = offer.payment_requirements
    for field, got, wanted, remedy in (
        ("scheme", required.scheme, "exact", "This payer knows no other scheme."),
        ("network", required.network, network.name, "Pass the server's network as `network`."),
        (
            "asset",
            required.asset.lower(),
            checksum(network.asset).lower(),
            f"Only the stablecoin of {network.name} is paid.",
        ),
        ("resource", required.resource, request.url.path, "Only the requested path is paid for."),
    ):
        if got != wanted:
            raise PaymentFailed(f"the 402 asks for {field} {got!r}, not {wanted!r}. {remedy}")
    if not is_header_value(offer.payment_id):
        raise PaymentFailed(
            f"the 402 has no usable payment id: {offer.payment_id[:80]!r} cannot be a header"
        )
    if wrong := _wrong_timeout(required.max_timeout_seconds):
        raise PaymentFailed(f"the 402 {wrong}")
    return offer


def _wrong_timeout(seconds: int) -> str:
    if 1 <= seconds < LONGEST_TIMEOUT_S:
        return ""
    return f"allows {seconds} seconds to pay; at least 1 is needed"


# --- 1. the offer: one step -------------------------------------------------------------------


class Rejected(msgspec.Struct, frozen=True):
    """An offer of a 402 that this payer does not take, and why.

    `offered` describes or numbers the offer.
    """

    offered: str
    why: str

    def __str__(self) -> str:
        return f"{self.offered}: {self.why}"


class StandardOffer(msgspec.Struct, frozen=True):
    """The offer of a 402 that a payer accepts; `about` is the resource as the server describes it.

    `takes_payment_ids`: the server has the extension payment-identifier, so that the payer can
    request an answer again.
    """

    accepted: x402.AnyRequirements
    amount_base: int
    about: x402.Resource | None
    takes_payment_ids: bool = False
    extensions: Mapping[str, Any] | None = None
    """The extensions of the 402, which the payer sends back; those unknown to it, unchanged."""


def choose(
    required: x402.AnyRequired,
    network: Network,
    over_caps: Callable[[int], str] = lambda _: "",
    *,
    permit2: bool = False,
) -> StandardOffer:
    """Return the first offer that this payer can take; raises `PaymentFailed` without one.

    Offers that are settled before the server works come after the other offers; last come offers by
    Permit2, if the payer takes such offers. `over_caps` returns why an amount in base units is not
    paid; else "".
    """
    about, extensions = None, dict[str, Any]()
    if isinstance(required, x402.RequiredV2):
        about, extensions = required.resource, required.extensions or {}
    takes_payment_ids = PAYMENT_IDENTIFIER in extensions
    rejected, is_over = list[Rejected](), False
    accepts: list[x402.AnyRequirements] = sorted(
        required.accepts[:MOST_WAYS],
        key=lambda each: (
            permit2 and pays_by_permit2(each),
            (each.extra or {}).get(PAYMENT_FLOW) == "upfront",
        ),
    )
    for each in accepts:
        why = _why_rejected(each, network, permit2)
        amount_base = 0 if why else parse_base(each.amount)
        over = over_caps(amount_base)
        if not why and not over:
            return StandardOffer(each, amount_base, about, takes_payment_ids, extensions)
        rejected.append(Rejected(_describe(each), why or over))
        is_over = is_over or not why  # only the cap forbids it
    listed = "; ".join(f"{number}. {each}" for number, each in enumerate(rejected, 1))
    raise (SpendingCapExceeded if is_over else PaymentFailed)(
        "the 402 offers no way to pay that this payer can take; nothing was signed. "
        + (listed or "It offers none at all")
    )


def _why_rejected(offered: x402.AnyRequirements, network: Network, permit2: bool) -> str:
    """Return why an offer is not taken; "" if the payer can take it."""
    name, extra = x402.network_name(offered.version, network), offered.extra or {}
    if not permit2 and offered.version == 2 and pays_by_permit2(offered):
        return f"{offered.scheme} by Permit2, paid only if told to: permit2=True"
    domain = {key: extra.get(key) for key in ("name", "version")}
    scheme = SCHEME
    if permit2 and offered.version == 2 and pays_by_permit2(offered):
        # the domain is the token's, which is not signed; a payer without Permit2 reads all of it
        domain = x402.domain_of(network) | {k: v for k, v in domain.items() if v is not None}
        scheme, extra = offered.scheme, {k: v for k, v in extra.items() if k != METHOD}
    for field, got, wanted in (
        ("scheme", offered.scheme, scheme),
        ("network", offered.network, name),
        ("asset", offered.asset.lower(), checksum(network.asset).lower()),
        ("the token's domain", domain, x402.domain_of(network)),
    ):
        if got != wanted:
            if field == "network" and (main := _main_network(offered, network, permit2)):
                return f"it asks for real money, on {main}; network={main!r} allows that"
            return f"{field} is {str(got)[:80]!r}, this payer pays {str(wanted)!r}"
    if (other := unsupported_in(extra)) is not None:
        return str(other)
    if wrong := _wrong_timeout(offered.max_timeout_seconds):
        return f"it {wrong}"
    try:
        parse_address(offered.pay_to)
        parse_base(offered.amount)
        if offered.scheme == UPTO:
            facilitator_of(offered)
    except ValueError as wrong_field:
        return str(wrong_field)
    return ""


def _main_network(offered: x402.AnyRequirements, own: Network, permit2: bool) -> str:
    """Return the name of another network, a main one, on which an offer could be paid; else ""."""
    main = network_called(offered.network, NETWORKS)
    if main is None or main is own or main.is_test or _why_rejected(offered, main, permit2):
        return ""
    return main.name


def facilitator_of(offered: x402.AnyRequirements) -> Address | None:
    """Return the account that may settle an offer of `upto`; None for other schemes. Raises
    `ValueError` for an offer without the account.
    """
    if offered.scheme != UPTO:
        return None
    try:
        return parse_address(str((offered.extra or {}).get(FACILITATOR)))
    except ValueError as wrong:
        raise ValueError(f"extra.{FACILITATOR}, who settles: {wrong}") from None


def _describe(offered: x402.AnyRequirements) -> str:
    what = f"{offered.amount[:30]} of {offered.asset[:42]}"
    return f"{offered.scheme[:20]} {what} on {offered.network[:40]}"


# --- 2. the caps ------------------------------------------------------------------------------


class Signer:
    """Signs for a `PaymentAuth`: one wallet on networks of equal decimals, within caps.

    `max_amount_base` caps one payment, and `max_total_base` all payments together, in base units.
    """

    def __init__(
        self,
        wallet: Wallet,
        network: Network,
        *,
        max_amount: str,
        max_total: str,
        max_window_s: int,
        clock: Clock,
        approve: str = "0",
    ) -> None:
        """Take the caps as decimal strings of the token; raises `ValueError`. `approve` is the
        largest permit.
        """
        if not isinstance(wallet, Wallet):  # notebooks pass the key
            raise ValueError(f"wallet: expected Wallet, got {as_given(wallet)}")
        self.max_amount_base = to_base(max_amount, network.decimals, name="max_amount")
        self.max_total_base = to_base(max_total, network.decimals, name="max_total")
        self.approve_base = to_base(approve, network.decimals, name="approve")
        if max_window_s < 1:
            raise ValueError(f"max_window_s must be at least 1, not {max_window_s}")
        self.signed_base = 0
        """The amount signed for so far, in base units."""
        self.max_payments: int | None = None
        """How many payments may be signed; None is any number."""
        self._payments = 0
        self._wallet, self._clock, self._decimals = wallet, clock, network.decimals
        self._max_window_s = max_window_s
        self._lock = threading.Lock()

    def sign(
        self,
        required: PaymentRequired | x402.AnyRequired,
        network: Network,
        permit2: bool = False,
        allowed: Allowance | None = None,
    ) -> Payment:
        """Sign the payment that a 402 requires, within the caps; raises `PaymentFailed`.

        With `permit2`, an offer by Permit2 is signed if there is no other; with `allowed`, also a
        permit of at most `approve`, if Permit2 may take less than the payment.
        """
        with self._lock:  # without the lock, two threads could each find room for their amount
            offer = self.chosen(required, network, permit2)
            try:
                if isinstance(offer, PaymentRequired):
                    payment = self._sign_two_steps(offer, network)
                else:
                    payment = self._sign_one_step(offer, network, allowed)
            except ValueError as error:
                raise PaymentFailed(f"the 402 cannot be paid: {error}") from error
            self.signed_base += payment.auth.value
            self._payments += 1
        return payment

    def take_back(self, payment: Payment) -> None:
        """Count a signed payment no more: it was not sent, and is forgotten."""
        with self._lock:
            self.signed_base -= payment.auth.value
            self._payments -= 1

    def chosen(
        self,
        required: PaymentRequired | x402.AnyRequired,
        network: Network,
        permit2: bool = False,
    ) -> PaymentRequired | StandardOffer:
        """Return the offer of a 402 that `sign` would sign now; raises `PaymentFailed`."""
        if self._payments == self.max_payments:
            raise SpendingCapExceeded(f"max_payments={self.max_payments} are signed already")
        if not isinstance(required, PaymentRequired):
            over_caps = partial(self._over_caps, network=network)
            return choose(required, network, over_caps, permit2=permit2)
        try:
            parse_address(required.payment_requirements.pay_to)
            amount_base = parse_base(required.payment_requirements.max_amount_required)
        except ValueError as error:
            raise PaymentFailed(f"the 402 cannot be paid: {error}") from error
        if over := self._over_caps(amount_base, network):
            raise SpendingCapExceeded(f"the 402 asks for {_tokens(amount_base, network)}; {over}")
        return required

    def take_over(
        self, payments: ResourcePayments, left: Unfinished, *, is_all: bool = False
    ) -> None:
        """Take over what another object has signed for a purchase, and count it, expired or not.

        `is_all`: a shared folder has it, and nothing else is unfinished. Raises `PaymentFailed`
        for amounts in another unit than that of the caps.
        """
        others = {each.decimals for each in left.payments} - {self._decimals}
        if others:
            raise PaymentFailed(
                f"an unfinished payment is of a token of {others.pop()} decimals, and the caps "
                f"are of a token of {self._decimals}",
                "Finish it with a payer of its own network, or use another folder",
            )
        with self._lock:
            self.signed_base += payments.resume(left, is_all=is_all)

    def _sign_two_steps(self, offer: PaymentRequired, network: Network) -> Payment:
        requirements = offer.payment_requirements
        allowed_s = min(requirements.max_timeout_seconds, self._max_window_s)
        shorter = msgspec.structs.replace(requirements, max_timeout_seconds=allowed_s)
        auth = self._wallet.authorize(shorter, self._clock.now_s())
        header = signed_header(auth, self._wallet, network)
        return Payment(
            auth=auth,
            proof=proofs(offer.payment_id),
            shown=f"payment id {offer.payment_id[:12]}…",
            amount=_tokens(auth.value, network),
            decimals=network.decimals,
            settlement=settlement(offer.payment_id, header, msgspec.to_builtins(requirements)),
        )

    def _sign_one_step(
        self, offer: StandardOffer, network: Network, allowed: Allowance | None
    ) -> Payment:
        now_s, most_s = self._clock.now_s(), self._max_window_s
        permit_nonce = None
        if allowed and allowed.base < offer.amount_base <= self.approve_base:
            permit_nonce = allowed.permit_nonce
        auth, header = sign(offer, self._wallet, network, now_s, most_s, permit_nonce=permit_nonce)
        return Payment(
            auth=auth,
            proof=proof(offer, header),
            shown=f"authorization {to_hex(auth.nonce)[:12]}…",
            amount=_tokens(auth.value, network),
            decimals=network.decimals,
            version=offer.accepted.version,
            note=short_window_note(offer, auth),
            by_permit2=pays_by_permit2(offer.accepted),
        )

    def _over_caps(self, amount_base: int, network: Network) -> str:
        """Return why an amount is above a cap; else ""."""
        left_base = self.max_total_base - self.signed_base
        if amount_base > self.max_amount_base:
            cap = "max_amount"
            allowed = f"{cap} allows {_tokens(self.max_amount_base, network)} for one payment"
        elif amount_base > left_base:
            cap = "max_total"
            total = _tokens(self.max_total_base, network)
            allowed = f"{_tokens(left_base, network)} is left of {cap} {total}"
        else:
            return ""
        return f"{allowed}. Raise {cap} to pay it."


def _tokens(amount_base: int, network: Network) -> str:
    """Return an amount in words: "0.01 devUSDC.e"."""
    return f"{to_decimal(amount_base, network.decimals)} {network.token_symbol}"


# --- 3. the signature of a payment in one step ------------------------------------------------


def sign(
    offer: StandardOffer,
    wallet: Wallet,
    network: Network,
    now_s: int,
    max_window_s: int = AFTER_SIGNING_S,
    *,
    by: Wallet | None = None,
    changes: Mapping[str, Any] | None = None,
    permit_nonce: int | None = None,
) -> tuple[Authorization, str]:
    """Return a new authorization for an offer, and its payment header; raises `ValueError`.

    The window ends at the server's timeout, but at most `max_window_s` from now. A defective payer
    makes `changes` to the authorization, or lets another wallet (`by`) sign. If the offer is paid
    by Permit2, the header has Permit2's message with the terms of the authorization, and with
    `permit_nonce`, the token's next for this owner, an EIP-2612 permit of the same amount and end.
    """
    auth = wallet.authorization(
        to=parse_address(offer.accepted.pay_to),
        amount_base=offer.amount_base,
        valid_after=now_s - BEFORE_SIGNING_S,
        valid_before=now_s + min(offer.accepted.max_timeout_seconds, max_window_s),
    )
    auth = changed(auth, changes or {})
    extensions = dict(offer.extensions or {})
    offered = extensions.pop(PAYMENT_IDENTIFIER, None)
    if offer.takes_payment_ids:
        extensions |= named(wallet.name_of(auth), offered)
    if pays_by_permit2(offer.accepted):
        assert isinstance(offer.accepted, x402.RequirementsV2)
        spender, account = PROXIES[offer.accepted.scheme], facilitator_of(offer.accepted)
        message = wallet.permit2_authorization(spender, network.asset, auth, account)
        signature = (by or wallet).sign_permit2(message, network.chain_id)
        if permit_nonce is not None:
            terms = message.amount, permit_nonce, message.deadline
            permit = Permit(message.from_, PERMIT2, *terms)
            proof = (by or wallet).sign_permit(permit, network.domain)
            sponsors = extensions.get(SPONSORED_PERMIT)
            extensions |= sponsored(permit, network.asset, proof, sponsors)
        payment = Permit2Payment(
            x402_version=2,
            accepted=offer.accepted,
            payload=permit2_payload(message, signature),
            resource=offer.about,
            extensions=extensions or None,
        )
        return auth, x402.to_base64(payment)
    signature = (by or wallet).sign(auth, network.domain)
    return auth, x402.encode_payment(
        auth, signature, offer.accepted, offer.about, extensions or None
    )


def short_window_note(offer: StandardOffer, auth: Authorization) -> str:
    """Return a sentence if an authorization ends sooner than its offer allows; "" if not."""
    signed_s = auth.valid_before - auth.valid_after - BEFORE_SIGNING_S
    if signed_s >= offer.accepted.max_timeout_seconds:
        return ""
    return (
        f" It was signed for {signed_s} s, and the server allows "
        f"{offer.accepted.max_timeout_seconds} s: if that is why, raise max_window_s."
    )


def proof(offer: StandardOffer, header: str) -> dict[str, str]:
    """Return the headers of a request that pays.

    If the 402 names a payment id in `extra`, the request shows the id, too: after a lost answer the
    id gives access.
    """
    accepted = offer.accepted
    payment = {x402.PAYMENT_HEADERS[accepted.version]: header}
    payment_id = (accepted.extra or {}).get(PAYMENT_ID)
    if isinstance(payment_id, str) and is_header_value(payment_id):
        payment |= proofs(payment_id)
    return payment


# --- 4. what a user of `pay` allows -----------------------------------------------------------

CLOCKS_AGREE_S = 60
"""Seconds that a world's clock may be off before the payer is asked to believe the world."""


@dataclass(frozen=True, slots=True)
class Allowed:
    """The networks and the clock that a user of `pay` trusts.

    `known` are the networks, from our table and the user's file. `keys` are play money: the server
    has published the keys, so no lie costs the user anything.
    """

    known: Mapping[str, Network]
    keys: list[str]
    clock: Clock
    chosen: frozenset[str] = frozenset()
    """The networks named by the user: no other network may have real money."""

    def only(self, name: str) -> "Allowed":
        """Return a copy with only the network of a name or CAIP-2 name; raises `ValueError`."""
        found = {each: it for each, it in self.known.items() if name in (each, it.caip2)}
        if not found:
            raise ValueError(f"--network {unknown('network', name, self.known)}")
        return replace(self, known=found, chosen=frozenset(found))

    def is_play(self, network: Network, wallet: Wallet) -> bool:
        """Whether the money is not real, or belongs to a key that the server has published."""
        return network.is_test or wallet.private_key in self.keys

    def clock_for(self, network: Network, wallet: Wallet) -> Clock:
        """Return the clock to sign by: this machine's, for real money of the user's own key."""
        return self.clock if self.is_play(network, wallet) else Clock()

    def why_not(self, network: Network, wallet: Wallet) -> str:
        """Return why the user has not allowed to sign on a network; "" if it is allowed."""
        name = network.name
        if NETWORKS.get(name) is network and not network.is_test and name not in self.chosen:
            return f"the 402 asks for real money, on {name}; --network {name} allows that"
        is_off = abs(self.clock.now() - Clock().now()) > CLOCKS_AGREE_S
        if is_off and not self.is_play(network, wallet):
            return f"--world is believed for test networks only: its clock is wrong, not {name}'s"
        return ""

    def is_as_shown(self, auth: Authorization, network: Network, way: Way) -> bool:
        """Whether an authorization pays the amount and the payee of the offer shown to the user.

        A 402 can offer one price in the body and another in the header.
        """
        signed = (str(auth.value), checksum(auth.to).lower(), network)
        shown = (way.amount, str(way.fields.get("payTo")).lower(), way.network(self.known))
        return signed == shown
