"""Issues payment requirements (the 402) without storing anything.

A payment id is sealed (`protocol.seal`). Its content is a random salt and the terms: resource,
amount, expiry and a session's duration. The seal also covers the other inputs of the requirements:
network, asset, payee and `max_timeout_s`. So an unpaid request costs no memory, ids survive a
restart, no two ids are equal, nobody can guess an id, and the service rejects foreign and invented
ids. A service that restarts with another network, asset, payee or `max_timeout_s` rejects the
unpaid ids of its former self, too: the payers' requirements would not match. Settled payments stay
good.

The id of a good of the user (`goods.py`) also contains the path, which no number here stands for.

The id of a payment in one step has a salt derived from the authorization. So one authorization
always has the same id for a resource.
Clauses: 2.1/*, 2.2/*, 8/timeout.
"""

import hmac
import struct
from functools import lru_cache

import msgspec
from msgspec.structs import replace

from x402sim.protocol.crypto import Address, checksum
from x402sim.protocol.eip3009 import Authorization
from x402sim.protocol.messages import PaymentRequired, PaymentRequirements
from x402sim.protocol.networks import Network
from x402sim.protocol.routes import AGENTS, MARKET, QUOTE, SESSIONS
from x402sim.protocol.seal import CONTENT_BYTES, Seal
from x402sim.rng import Stream
from x402sim.service.environment import Environment


class ForSale(msgspec.Struct, frozen=True):
    """A resource for sale: its number in payment ids, and its description."""

    number: int
    description: str


RESOURCES = {
    QUOTE: ForSale(0, "A quote for a perpetual position"),
    SESSIONS: ForSale(1, "The deposit of a session budget"),
    AGENTS: ForSale(2, "The list of agents"),
    MARKET: ForSale(3, "A snapshot of the perpetual market"),
}
"""The resources for sale, by path.

A number is never changed and never reused, because issued payment ids contain it: under another
number they would pay for another resource. A new resource takes the next number; a resource that
is removed leaves a gap.
"""
_OWN = 255  # the number of all goods of the user; the path follows the terms
_PATHS = {resource.number: path for path, resource in RESOURCES.items()}

PREFIX = "pay_"
_TERMS = struct.Struct(">BQQI")  # the resource's number, amount, expiry, duration
_SALT_BYTES = CONTENT_BYTES - _TERMS.size
LARGEST = 2**64 - 1
"""The largest amount and the latest expiry of terms."""


class IssuedTerms(msgspec.Struct, frozen=True):
    """The terms in a payment id: base units, Unix seconds, seconds."""

    resource: str
    amount_base: int
    expires_s: int
    duration: int = 0


def required_without_id(
    network: Network,
    pay_to: Address,
    max_timeout_s: int,
    resource: str,
    amount_base: int,
    description: str | None = None,
) -> PaymentRequired:
    """Return the 402 of a resource at one price, without a payment id (2.1/requirements).

    Its requirements have a description (2.1/description-shown).
    """
    requirements = PaymentRequirements(
        scheme="exact",
        network=network.name,
        pay_to=checksum(pay_to),
        asset=checksum(network.asset),
        max_amount_required=str(amount_base),
        max_timeout_seconds=max_timeout_s,
        resource=resource,
        description=description or RESOURCES[resource].description,
    )
    return PaymentRequired(
        error="Payment Required",
        payment_id="",
        payment_requirements=requirements,
        message=f"Payment of {amount_base} base units is required to access {resource}",
        network=network.name,
    )


class Issuer:
    """Issues payment requirements, and decodes its own payment ids."""

    def __init__(self, env: Environment, salts: Stream) -> None:
        self._env = env
        self._salts = salts
        key = hmac.digest(env.id_secret, b"payment ids", "sha256")
        context = "|".join(
            (
                env.network.name,
                env.network.asset.hex(),
                env.pay_to.hex(),
                str(env.settings.max_timeout_s),
            )
        )
        self._key, self._seal = key, Seal(key, context.encode())
        self._required = lru_cache(maxsize=64)(self._require)

    def issue(
        self, resource: str, amount_base: int, now_s: int, duration: int = 0
    ) -> PaymentRequired:
        """Return the body of a 402 (2.2/body) for one resource at one price.

        It can be paid for `max_timeout_s`, by default 300 seconds (8/timeout).
        """
        expires_s = now_s + self._env.settings.max_timeout_s
        terms = IssuedTerms(resource, amount_base, expires_s, duration)
        payment_id = self._sealed(terms, self._salts.randbytes(_SALT_BYTES))
        return replace(self._required(resource, amount_base), payment_id=payment_id)

    def _require(self, resource: str, amount_base: int) -> PaymentRequired:
        env = self._env
        pay_to = env.wallet if resource == SESSIONS else env.pay_to
        timeout_s, about = env.settings.max_timeout_s, self.description(resource)
        return required_without_id(env.network, pay_to, timeout_s, resource, amount_base, about)

    def description(self, resource: str) -> str:
        """Return the description of what is sold at a path."""
        ours = RESOURCES.get(resource)
        return self._env.shop.description(resource) or (ours.description if ours else resource)

    def requirements(self, resource: str, amount_base: int) -> PaymentRequirements:
        """Return the payment requirements of a resource at one price."""
        return self._required(resource, amount_base).payment_requirements

    def read(self, payment_id: str) -> IssuedTerms | None:
        """Return the terms a payment id was issued for (2.2/payment-id).

        None for an id that was not issued here with these settings, or of a removed resource.
        """
        content = self._seal.open(payment_id[4:]) if payment_id.startswith(PREFIX) else None
        if content is None:
            return None
        number, amount_base, expires_s, duration = _TERMS.unpack_from(content, _SALT_BYTES)
        path = _PATHS.get(number)
        if path is None:
            path = content[CONTENT_BYTES:].rstrip(b"\0").decode()  # a good of the user
            if self._env.shop.price(path) is None:
                return None
        return IssuedTerms(path, amount_base, expires_s, duration)

    def derive(self, resource: str, auth: Authorization) -> str:
        """Return the id of a payment in one step: one authorization, for one resource.

        Its amount is at most `LARGEST`. The terms expire with the authorization.
        """
        mac = hmac.digest(self._key, b"one step" + auth.from_ + auth.nonce, "sha256")
        terms = IssuedTerms(resource, auth.value, min(auth.valid_before, LARGEST))
        return self._sealed(terms, mac[:_SALT_BYTES])

    def _sealed(self, terms: IssuedTerms, salt: bytes) -> str:
        ours = RESOURCES.get(terms.resource)
        number, path = (ours.number, b"") if ours else (_OWN, terms.resource.encode())
        packed = _TERMS.pack(number, terms.amount_base, terms.expires_s, terms.duration)
        return PREFIX + self._seal.seal(salt + packed + path + b"\0" * (-len(path) % 3))
