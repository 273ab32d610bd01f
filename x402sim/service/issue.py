"""Issues payment requirements (the 402) without storing anything.

A payment id is a MAC + the encrypted terms; the MAC is also the cipher's IV. The terms are
resource, amount, expiry and a session's duration, after a random salt. The MAC covers them,
and this deployment's network, asset and payee. So an unpaid request costs no memory, ids
survive a restart, no two are equal, nobody can guess one, and the service rejects an id that
was invented or issued elsewhere.
Clauses: 2.1/*, 2.2/*, 8/timeout.
"""

import base64
import hmac
import re
import struct

import msgspec

from x402sim.protocol.crypto import checksum
from x402sim.protocol.messages import PaymentRequired, PaymentRequirements
from x402sim.rng import Stream
from x402sim.service.setup import Setup

QUOTE = "/api/perp/quote"
SESSIONS = "/api/sessions/create"
AGENTS = "/api/agents"


class Resource(msgspec.Struct, frozen=True):
    """A resource for sale: its number in payment ids, and its description."""

    number: int
    description: str


RESOURCES = {
    QUOTE: Resource(0, "A quote for a perpetual position"),
    SESSIONS: Resource(1, "The deposit of a session budget"),
    AGENTS: Resource(2, "The list of agents"),
}
"""The resources for sale, by path.

A number is never changed and never reused, because issued payment ids contain it: under another
number they would pay for another resource. A new resource takes the next number; a resource that
is removed leaves a gap.
"""
_PATHS = {resource.number: path for path, resource in RESOURCES.items()}

PREFIX = "pay_"
_SPELLING = re.compile("pay_[A-Za-z0-9_-]{60}")
_MAC_BYTES = 16
_TERMS = struct.Struct(">BQQI")  # the resource's number, amount, expiry, duration
_SALT_BYTES = 45 - _MAC_BYTES - _TERMS.size  # 45 bytes are 60 letters of base64 without padding


class Terms(msgspec.Struct, frozen=True):
    """The terms in a payment id: base units, Unix seconds, seconds."""

    resource: str
    amount_base: int
    expires_s: int
    duration: int = 0


class Issuer:
    """Issues payment requirements, and decodes its own payment ids."""

    def __init__(self, setup: Setup, salts: Stream) -> None:
        self._setup = setup
        self._salts = salts
        self._key = hmac.digest(setup.id_secret, b"payment ids", "sha256")
        self._context = "|".join(
            (
                setup.network.name,
                setup.network.asset.hex(),
                setup.pay_to.hex(),
                str(setup.settings.max_timeout_s),
            )
        ).encode()

    def issue(
        self, resource: str, amount_base: int, now_s: int, duration: int = 0
    ) -> PaymentRequired:
        """Return the body of a 402 (2.2/body) for one resource at one price.

        It can be paid for 300 seconds (8/timeout).
        """
        terms = Terms(resource, amount_base, now_s + self._setup.settings.max_timeout_s, duration)
        requirements = self.requirements(terms)
        return PaymentRequired(
            error="Payment Required",
            payment_id=self._seal(terms),
            payment_requirements=requirements,
            message=f"Payment of {amount_base} base units is required to access {resource}",
            network=requirements.network,
        )

    def requirements(self, terms: Terms) -> PaymentRequirements:
        """Return the payment requirements issued under these terms (2.1/requirements).

        They have a description (2.1/description-shown).
        """
        setup = self._setup
        pay_to = setup.wallet if terms.resource == SESSIONS else setup.pay_to
        return PaymentRequirements(
            scheme="exact",
            network=setup.network.name,
            pay_to=checksum(pay_to),
            asset=checksum(setup.network.asset),
            max_amount_required=str(terms.amount_base),
            max_timeout_seconds=setup.settings.max_timeout_s,
            resource=terms.resource,
            description=RESOURCES[terms.resource].description,
        )

    def read(self, payment_id: str) -> Terms | None:
        """Return the terms a payment id was issued for (2.2/payment-id).

        None if it was not issued here, or its resource was removed.
        """
        if not _SPELLING.fullmatch(payment_id):
            return None
        raw = base64.urlsafe_b64decode(payment_id.removeprefix(PREFIX))
        mac, sealed = raw[:_MAC_BYTES], raw[_MAC_BYTES:]
        plain = self._cipher(mac, sealed)
        if not hmac.compare_digest(mac, self._mac(plain)):
            return None
        number, amount_base, expires_s, duration = _TERMS.unpack(plain[_SALT_BYTES:])
        path = _PATHS.get(number)
        return Terms(path, amount_base, expires_s, duration) if path else None

    def _seal(self, terms: Terms) -> str:
        number = RESOURCES[terms.resource].number
        packed = _TERMS.pack(number, terms.amount_base, terms.expires_s, terms.duration)
        plain = self._salts.randbytes(_SALT_BYTES) + packed
        mac = self._mac(plain)
        return PREFIX + base64.urlsafe_b64encode(mac + self._cipher(mac, plain)).decode()

    def _mac(self, plain: bytes) -> bytes:
        return hmac.digest(self._key, self._context + plain, "sha256")[:_MAC_BYTES]

    def _cipher(self, mac: bytes, text: bytes) -> bytes:
        """Encipher or decipher at most 32 bytes under the MAC of their plain text."""
        stream = hmac.digest(self._key, b"cipher" + mac, "sha256")[: len(text)]
        return (int.from_bytes(text) ^ int.from_bytes(stream)).to_bytes(len(text))
