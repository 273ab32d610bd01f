"""What do the payers know? Every header they signed, where it was presented, what was answered.

The audit starts from here: these are the claims that the chain and the services must bear out.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field

from x402sim.explore.case import Service
from x402sim.protocol.eip3009 import Authorization
from x402sim.protocol.header import authorization_of, decode_header
from x402sim.world.story.payer import Answer, Payer

Key = tuple[Service, str]
"""A service and a payment id of it."""


@dataclass(frozen=True, slots=True)
class Signed:
    """A signed payment header, and its authorization."""

    header: str
    authorization: Authorization
    payer: Payer

    @property
    def nonce(self) -> str:
        """The nonce in hex, as in the journal."""
        return self.authorization.nonce.hex()


@dataclass(frozen=True, slots=True)
class Presented:
    """A header that was presented at a service for one of its payment ids, and the answers."""

    service: Service
    required: Answer
    signed: Signed
    resource: str
    is_issued: bool
    """Whether the payment id is one of this service; another's is refused."""
    answers: list[Answer] = field(default_factory=list)

    @property
    def key(self) -> Key:
        """The service and the payment id."""
        return self.service, self.required.payment_id

    @property
    def fits(self) -> bool:
        """Whether the authorization pays what this service asked: this recipient, this amount."""
        if not self.is_issued:
            return False
        wanted, auth = self.required.requirements, self.signed.authorization
        asked = wanted["payTo"].lower(), wanted["maxAmountRequired"]
        return asked == ("0x" + auth.to.hex(), str(auth.value))

    @property
    def tx_hashes(self) -> list[str]:
        """The transactions that receipts named."""
        return [str(each.body["txHash"]) for each in self.answers if "txHash" in each.body]


@dataclass(frozen=True, slots=True)
class Visit:
    """A session that a payer used: the requests that were served, and those that were sent."""

    service: Service
    session_id: str
    served: list[Answer] = field(default_factory=list)
    sent: list[Answer] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Book:
    """Everything that the payers and third parties of one world know."""

    presented: list[Presented] = field(default_factory=list)
    signed: dict[int, list[Signed]] = field(default_factory=dict)
    """The headers of each purchase, by its number, oldest first."""
    asked: dict[int, tuple[Service, Answer, str]] = field(default_factory=dict)
    """The 402 of each purchase, with its service and resource."""
    visits: list[Visit] = field(default_factory=list)

    def sign(self, number: int, payer: Payer, required: Answer) -> Signed:
        """Sign a 402 for a purchase, and keep the header."""
        header = payer.sign(required)
        signed = Signed(header, authorization_of(decode_header(header))[0], payer)
        self.signed.setdefault(number, []).append(signed)
        return signed

    async def present(
        self,
        payer: Payer,
        service: Service,
        required: Answer,
        signed: Signed,
        resource: str,
        *,
        is_issued: bool = True,
    ) -> Answer:
        """Present a header for a 402 of a service, by a payer who may not be the signer."""
        entry = Presented(service, required, signed, resource, is_issued)
        same = [
            each
            for each in self.presented
            if (each.key, each.signed.nonce) == (entry.key, signed.nonce)
        ]
        if same:
            entry = same[0]
        else:
            self.presented.append(entry)
        answer = await payer.pay(required, signed.header)
        entry.answers.append(answer)
        return answer

    def authorizations(self) -> dict[str, list[Presented]]:
        """Return where each authorization was presented, by nonce."""
        found: dict[str, list[Presented]] = {}
        for each in self.presented:
            found.setdefault(each.signed.nonce, []).append(each)
        return found

    def ends_s(self) -> Iterator[float]:
        """Yield the times after which each header can no longer pay, in Unix seconds."""
        for headers in self.signed.values():
            yield from (float(each.authorization.valid_before) for each in headers)
