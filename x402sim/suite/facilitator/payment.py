"""A request to a facilitator, its wrong variants, and the answer.

A `Draft` is the request of verify and settle before it is sent. A case changes a value of the JSON
by a name that is the same in all dialects. An `Answer` is read as leniently as a shop may read it:
success is any 2xx that claims success.
"""

import base64
import copy
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import msgspec

from x402sim.payer.wallet import Wallet
from x402sim.protocol import abi, x402
from x402sim.protocol.crypto import Address, PrivateKey, checksum, from_hex, sign, to_hex
from x402sim.protocol.eip3009 import (
    TRANSFER_TYPEHASH,
    Authorization,
    Domain,
    Permit,
    transfer_digest,
)
from x402sim.protocol.networks import Network
from x402sim.protocol.permit2 import (
    PERMIT2,
    Permit2Authorization,
    permit2_digest,
    typed_digest,
    witness_hash,
)
from x402sim.protocol.permit2_payments import (
    FACILITATOR,
    METHOD,
    PERMIT2_METHOD,
    PROXIES,
    permit2_payload,
    sponsored,
)
from x402sim.suite.dialect import BY_PERMIT2, OF_FACILITATORS, Dialect
from x402sim.suite.drafts import in_permit2, permit2_of, with_value, without
from x402sim.suite.redact import redacted
from x402sim.suite.report.exchange import Message
from x402sim.text.words import printable

PRICE_BASE = 10_000
"""The price of a payment in base units: 0.01."""
TIMEOUT_S = 300
"""The seconds to pay, if the two clocks agree."""
BEFORE_S = 600
"""Seconds from the opening of a window until now, as in the public clients."""
RESOURCE = "https://shop.example/report"


STANDARD = OF_FACILITATORS[:4]
VERSION_2 = STANDARD[1:]

_AUTHORIZATION = ("from", "to", "value", "validAfter", "validBefore", "nonce")


@dataclass(frozen=True, slots=True, kw_only=True)
class Draft:
    """A request of verify and settle before it is sent; each change makes a copy.

    `with_value` and `without` change one value of the JSON under the old signature. `signed`
    changes the authorization and signs it anew, under the old requirements. `demanding` changes
    both copies of the requirements, under the old authorization.

    `permit` has further fields of a message of Permit2: token, spender, facilitator. Of the other
    fields, `auth` has the terms: the deadline is the second before `valid_before`.
    """

    dialect: Dialect
    network: Network
    wallet: Wallet
    auth: Authorization
    signature: bytes
    body: Mapping[str, Any]
    permit: Mapping[str, Any] = field(default_factory=dict)

    # --- the places of values --------------------------------------------------------------

    def path(self, name: str) -> tuple[str, ...]:
        """Return the path of a value in the JSON.

        A name is a field of the authorization, `signature`, or a field after `requirements.`,
        `accepted.`, `payment.`, `payload.` or `body.`; the amount is `amount` in every dialect.
        Raises `KeyError` for a name that the dialect does not have.
        """
        part, _, field = name.rpartition(".")
        field = self.dialect.amount if field == "amount" else field
        is_cronos = self.dialect is Dialect.CRONOS
        payment = "paymentHeader" if is_cronos else "paymentPayload"
        match part:
            case "":
                if name == "signature":
                    return (payment, "payload", "signature")
                if name not in _AUTHORIZATION:
                    raise KeyError(name)
                if self.permit:
                    return (payment, "payload", *in_permit2(name))
                own = () if is_cronos else ("authorization",)
                return (payment, "payload", *own, name)
            case "requirements":
                return ("paymentRequirements", field)
            case "accepted" if self.dialect.version == 2:
                return (payment, "accepted", field)
            case "accepted" if field in ("scheme", "network"):
                return (payment, field)
            case "accepted" if field == "asset" and is_cronos:
                return (payment, "payload", field)
            case "payment":
                return (payment, field)
            case "payload":
                return (payment, "payload", field)
            case "body":
                return (field,)
            case _:
                raise KeyError(name)

    def get(self, name: str) -> Any:
        """Return a value of the JSON."""
        found: Any = self.body
        for key in self.path(name):
            found = found[key]
        return found

    def with_value(self, name: str, value: Any) -> "Draft":
        """Return a copy with another value in one place and the old signature."""
        return replace(self, body=with_value(self.body, self.path(name), value))

    def without(self, name: str) -> "Draft":
        """Return a copy without a field."""
        return replace(self, body=without(self.body, self.path(name)))

    def signed(
        self,
        *,
        domain: Domain | None = None,
        typehash: bytes = TRANSFER_TYPEHASH,
        by: Wallet | None = None,
        permit: Mapping[str, Any] | None = None,
        **fields: Any,
    ) -> "Draft":
        """Return a copy with these fields of `Authorization`, signed anew.

        `domain` and `typehash` are the signed domain and type, `by` is the signer. A message of
        Permit2 gets the domain's chain and, as the token, the domain's contract; `permit` has its
        other fields. The requirements stay.
        """
        auth = msgspec.structs.replace(self.auth, **fields)
        key = PrivateKey(from_hex((by or self.wallet).private_key, 32))
        domain = domain or self.network.domain
        draft = replace(self, auth=auth)
        if self.permit:
            own = {**self.permit, "token": domain.verifying_contract, **(permit or {})}
            message = (draft := replace(draft, permit=own)).message
            digest = permit2_digest(message, domain.chain_id)
            if typehash != TRANSFER_TYPEHASH:
                digest = typed_digest(domain.chain_id, typehash, message, witness_hash(message))
        else:
            digest = transfer_digest(auth, domain, typehash)
        return draft._written().sealed(sign(digest, key))

    @property
    def message(self) -> Permit2Authorization:
        """The signed message of a payment by Permit2."""
        return permit2_of(self.auth, self.permit)

    @property
    def call(self) -> tuple[Address, bytes]:
        """The contract that moves the money, and the calldata."""
        if not self.permit:
            data = abi.transfer_with_authorization(self.auth, self.signature)
            return self.network.asset, data
        return self.message.spender, abi.settle(self.message, self.auth.value, self.signature)

    def using(self, amount_base: int) -> "Draft":
        """Return the request to settle in `upto`, for the amount used."""
        return self.with_value("requirements.amount", str(amount_base))

    def sponsored(self, by: Wallet | None = None) -> tuple["Draft", tuple[Permit, bytes]]:
        """Return a copy with the payer's EIP-2612 permit for Permit2, and the permit."""
        auth = self.auth
        permit = Permit(auth.from_, PERMIT2, auth.value, 0, auth.valid_before - 1)
        signature = (by or self.wallet).sign_permit(permit, self.network.domain)
        extension = sponsored(permit, self.network.asset, signature)
        return self.with_value("payment.extensions", extension), (permit, signature)

    def sealed(self, signature: bytes) -> "Draft":
        """Return a copy with another signature."""
        return replace(self, signature=signature).with_value("signature", to_hex(signature))

    def demanding(self, field: str, value: Any) -> "Draft":
        """Return a copy with another value in the requirements, and in the payer's accepted copy,
        if any; nothing is signed anew.
        """
        changed = self.with_value(f"requirements.{field}", value)
        if self.dialect.version == 2 or field in ("scheme", "network"):
            changed = changed.with_value(f"accepted.{field}", value)
        elif field == "asset" and self.dialect is Dialect.CRONOS:
            changed = changed.with_value("accepted.asset", value)
        return changed

    def _written(self) -> "Draft":
        """Return a copy with the authorization written into the JSON."""
        auth, draft = self.auth, self
        if self.permit:
            sent = msgspec.to_builtins(permit2_payload(self.message, b""))
            return self.with_value("payload.permit2Authorization", sent["permit2Authorization"])
        times: Any = (auth.valid_after, auth.valid_before)
        if self.dialect is not Dialect.CRONOS:
            times = map(str, times)
        values = (checksum(auth.from_), checksum(auth.to), str(auth.value), *times)
        for name, value in zip(_AUTHORIZATION, (*values, to_hex(auth.nonce)), strict=True):
            draft = draft.with_value(name, value)
        return draft

    @property
    def content(self) -> bytes:
        """The bytes of the request."""
        body = dict(self.body)
        if self.dialect is Dialect.CRONOS and isinstance(body.get("paymentHeader"), dict):
            header = json.dumps(body["paymentHeader"]).encode()
            body["paymentHeader"] = base64.b64encode(header).decode()
        return json.dumps(body).encode()


def drafted(
    dialect: Dialect,
    network: Network,
    wallet: Wallet,
    to: Address,
    times: tuple[int, int],
    nonce: bytes,
    amount_base: int = PRICE_BASE,
    facilitator: Address | None = None,
) -> Draft:
    """Return a payment, good at both times in Unix seconds; in `upto`, for one facilitator."""
    after_s, before_s = min(times) - BEFORE_S, max(times) + TIMEOUT_S
    auth = Authorization(wallet.address_bytes, to, amount_base, after_s, before_s, nonce)
    wanted: dict[str, Any] = {
        "scheme": dialect.scheme,
        "network": x402.network_name(dialect.version, network),
        dialect.amount: str(amount_base),
        "asset": checksum(network.asset),
        "payTo": checksum(to),
        "maxTimeoutSeconds": before_s - min(times),  # a strict facilitator takes no longer window
    }
    paid: dict[str, Any] = {"scheme": wanted["scheme"], "network": wanted["network"]}
    body: dict[str, Any] = {"x402Version": dialect.version}
    if dialect is Dialect.CRONOS:
        paid |= {"payload": {"asset": checksum(network.asset)}}
        body["paymentHeader"] = {"x402Version": 1, **paid}
    elif dialect is Dialect.V1:
        wanted |= {
            "resource": RESOURCE,
            "description": "one report",
            "mimeType": "application/json",
            "extra": x402.domain_of(network),
        }
        body["paymentPayload"] = {"x402Version": 1, **paid, "payload": {}}
    else:
        wanted["extra"] = x402.domain_of(network)
        if dialect is Dialect.PERMIT2:
            wanted["extra"] |= {METHOD: PERMIT2_METHOD}
        elif facilitator is not None:
            wanted["extra"] |= {FACILITATOR: checksum(facilitator)}
        resource = {"url": RESOURCE, "description": "one report", "mimeType": "application/json"}
        body["paymentPayload"] = {
            "x402Version": 2,
            "resource": resource,
            "accepted": copy.deepcopy(wanted),
            "payload": {},
        }
    body["paymentRequirements"] = wanted
    permit = {"spender": PROXIES[dialect.scheme], "facilitator": facilitator}
    empty = Draft(
        dialect=dialect,
        network=network,
        wallet=wallet,
        auth=auth,
        signature=b"",
        body=body,
        permit=permit if dialect in BY_PERMIT2 else {},
    )
    return empty.signed()


# --- answers ---------------------------------------------------------------------------------


STANDARD_REASONS = frozenset(
    {
        "insufficient_funds",
        "invalid_exact_evm_payload_authorization_valid_after",
        "invalid_exact_evm_payload_authorization_valid_before",
        "invalid_exact_evm_payload_authorization_value",
        "invalid_exact_evm_payload_authorization_value_mismatch",
        "invalid_exact_evm_payload_signature",
        "invalid_exact_evm_payload_recipient_mismatch",
        "invalid_network",
        "invalid_payload",
        "invalid_payment_requirements",
        "invalid_scheme",
        "unsupported_scheme",
        "invalid_x402_version",
        "invalid_transaction_state",
        "unexpected_verify_error",
        "unexpected_settle_error",
        "settlement_pending",
    }
)
"""The words of section 9 in both versions, and settlement_pending, which came later."""
SHOWN = 400
"""The most characters of an answer in a report."""
_BARE_HASH = re.compile(r"[0-9a-fA-F]{64}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """An answer; without one, `status` is 0, and `failure` says why.

    `json` is None for a body that is no JSON.
    """

    dialect: Dialect
    path: str
    status: int = 0
    json: Any = None
    text: str = ""
    seconds: float = 0
    failure: str = ""
    is_late: bool = False
    """Whether the failure is a time-out."""

    @property
    def fields(self) -> dict[str, Any]:
        """The JSON object; empty for other JSON."""
        return self.json if isinstance(self.json, dict) else {}

    @property
    def is_valid(self) -> bool:
        """Whether the answer is a 2xx with isValid true."""
        return self.status // 100 == 2 and self.fields.get("isValid") is True

    @property
    def demand_on_settle(self) -> str:
        """The demand on settle after this answer of verify: refuse the same payment."""
        kind = self.status // 100
        refuses = self.path.endswith("/verify") and (
            kind == 4 or (kind == 2 and self.fields.get("isValid") is False)
        )
        return "settle-checks" if refuses else ""

    @property
    def succeeded(self) -> bool:
        """Whether the answer is a 2xx that reports a settlement."""
        if self.status // 100 != 2:
            return False
        if self.dialect is Dialect.CRONOS:
            return self.fields.get("event") == "payment.settled"
        return self.fields.get("success") is True

    @property
    def transaction(self) -> str:
        """The named transaction hash, in small letters and with 0x; empty without a hash."""
        found = self.fields.get("txHash" if self.dialect is Dialect.CRONOS else "transaction")
        if not isinstance(found, str):
            return ""
        return f"0x{found.lower()}" if _BARE_HASH.fullmatch(found) else found.lower()

    @property
    def reason(self) -> str:
        """The reason of a refusal, in the answer's words; empty without a reason."""
        for name in ("invalidReason", "errorReason", "error"):
            if isinstance(found := self.fields.get(name), str):
                return found
        return ""

    @property
    def is_pending(self) -> bool:
        """Whether the answer says that the settlement is pending."""
        return "pending" in self.reason or (self.dialect is Dialect.CRONOS and self.status == 504)

    @property
    def is_server_error(self) -> bool:
        """Whether the status is a 5xx."""
        return self.status // 100 == 5

    @property
    def message(self) -> Message:
        """The answer, for a report."""
        if not self.status:
            return Message(f"no answer ({self.failure})")
        text = redacted(self.text[: 2 * SHOWN])
        shown = text if len(text) <= SHOWN else f"{text[:SHOWN]}…"
        late = f" after {self.seconds:.1f} s" if self.seconds > 1 else ""
        return Message(f"{self.status}{late}", body=printable(shown))

    @property
    def how(self) -> str:
        """The answer in short."""
        return str(self.message)
