"""The offers of a 402, and payments for an offer: good, or wrong in one thing."""

import base64
import copy
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import msgspec

from x402sim.payer.wallet import Wallet
from x402sim.protocol import x402
from x402sim.protocol.crypto import PrivateKey, from_hex, keccak256, parse_address, sign, to_hex
from x402sim.protocol.eip3009 import Authorization, Domain, transfer_digest
from x402sim.protocol.money import base_in
from x402sim.protocol.networks import Network
from x402sim.protocol.permit2 import permit2_digest
from x402sim.protocol.permit2_payments import (
    FACILITATOR,
    METHOD,
    PERMIT2_METHOD,
    PROXIES,
    Permit2Payload,
    permit2_payload,
)
from x402sim.suite.dialect import Dialect
from x402sim.suite.drafts import in_permit2, permit2_of, with_value, without
from x402sim.suite.server.raw import Answer

BEFORE_S = 600
"""Seconds from the opening of a window until now, as in the public clients."""
MOST_TIMEOUT_S = 3600
"""The longest window in seconds, whatever the offer says."""


def required_in(dialect: Dialect, answer: Answer) -> dict[str, Any] | None:
    """Return the payment required of a 402 in a dialect, from header or body; None without it."""
    if dialect.version == 2:
        found = x402.json_in(answer.headers.get(x402.REQUIRED_HEADER.lower()))
    else:
        found = answer.json
    is_it = isinstance(found, dict) and found.get("x402Version") == dialect.version
    return found if is_it and isinstance(found.get("accepts"), list) else None


def offers_in(dialect: Dialect, answer: Answer) -> list[dict[str, Any]]:
    """Return the offers of a 402 in a version."""
    required = required_in(dialect, answer) or {}
    return [each for each in required.get("accepts", []) if isinstance(each, dict)]


def offers_of(dialect: Dialect, answer: Answer) -> Iterator[tuple[dict[str, Any], dict[str, Any]]]:
    """Yield the offers of the dialect's scheme and transfer method, each with its `extra`."""
    for each in offers_in(dialect, answer):
        given = each.get("extra")
        extra = given if isinstance(given, dict) else {}
        is_permit2 = extra.get(METHOD) == PERMIT2_METHOD
        is_its = dialect is Dialect.UPTO or is_permit2 is (dialect is Dialect.PERMIT2)
        if each.get("scheme") == dialect.scheme and is_its:
            yield each, extra


def payables(dialect: Dialect, answer: Answer, network: Network) -> Iterator[dict[str, Any]]:
    """Yield the offers that the case's payer can pay."""
    ours = x402.network_name(dialect.version, network)
    for each, extra in offers_of(dialect, answer):
        try:
            is_ours = parse_address(str(each.get("asset"))) == network.asset
            parse_address(str(each.get("payTo")))
            if dialect is Dialect.UPTO:
                parse_address(str(extra.get(FACILITATOR)))
        except ValueError:
            continue
        is_amount = base_in(each.get(dialect.amount)) is not None
        can_pay = dialect.by_permit2 or x402.unsupported_in(extra) is None
        if each.get("network") == ours and is_ours and is_amount and can_pay:
            yield each


def payable(dialect: Dialect, answer: Answer, network: Network) -> dict[str, Any] | None:
    """Return the first offer that the case's payer can pay; None without such an offer."""
    return next(payables(dialect, answer, network), None)


def is_meant(dialect: Dialect, answer: Answer, network: Network) -> bool:
    """Tell whether an offer is for the case's payer, perhaps with mistakes."""
    ours = x402.network_name(dialect.version, network)
    for each, _ in offers_of(dialect, answer):
        if each.get("network") == ours:
            try:
                return parse_address(str(each.get("asset"))) == network.asset
            except ValueError:
                return True
    return False


def receipt_in(dialect: Dialect, answer: Answer) -> dict[str, Any]:
    """Return the receipt in an answer; empty without a receipt."""
    found = x402.json_in(answer.headers.get(dialect.response_header.lower()))
    return found if isinstance(found, dict) else {}


def reason_in(dialect: Dialect, answer: Answer) -> str:
    """Return an answer's reason for a failed settlement; empty without a reason.

    In version 1 and in MCP, `error` of the body may be the reason, too: in the specification's own
    example of a failed settlement over MCP, the answer is an offer with the reason in `error`.
    """
    reason = receipt_in(dialect, answer).get("errorReason")
    is_in_offer = dialect in (Dialect.V1, Dialect.MCP) and answer.status == 402
    required = required_in(dialect, answer) if is_in_offer else None
    error = reason or (required or {}).get("error")
    return error if isinstance(error, str) else ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Payment:
    """A payment before it is sent; each change makes a copy.

    `with_value` changes a value of the JSON under the old signature; `signed` changes the
    authorization and signs it anew. `permit` has further fields of a message of Permit2: spender,
    facilitator. The token is the domain's contract, and `auth` has the terms.
    """

    dialect: Dialect
    network: Network
    wallet: Wallet
    offer: Mapping[str, Any]
    auth: Authorization
    domain: Domain
    body: Mapping[str, Any]
    permit: Mapping[str, Any] = field(default_factory=dict)

    @property
    def nonce(self) -> str:
        """The nonce, as hex."""
        return to_hex(self.auth.nonce)

    @property
    def text(self) -> str:
        """The text of the header."""
        return base64.b64encode(json.dumps(self.body).encode()).decode()

    @property
    def header(self) -> tuple[str, str]:
        """The header with the payment."""
        return self.dialect.payment_header, self.text

    def with_value(self, path: str, value: Any) -> "Payment":
        """Return a copy with another value at a path of names with dots; None removes the field."""
        where = path.split(".")
        if self.permit and where[:2] == ["payload", "authorization"]:
            where[1:] = in_permit2(where[2]) if where[2:] else ["permit2Authorization"]
        if value is None:
            return replace(self, body=without(self.body, where))
        return replace(self, body=with_value(self.body, where, value))

    def signed(self, *, domain: Domain | None = None, **fields: Any) -> "Payment":
        """Return a copy with these fields of the authorization, signed anew by the wallet."""
        auth = msgspec.structs.replace(self.auth, **fields)
        domain = domain or self.domain
        key = PrivateKey(from_hex(self.wallet.private_key, 32))
        made: Permit2Payload | x402.ExactPayload
        if self.permit:
            message = permit2_of(auth, {**self.permit, "token": domain.verifying_contract})
            made = permit2_payload(message, sign(permit2_digest(message, domain.chain_id), key))
        else:
            made = x402.exact_payload(auth, sign(transfer_digest(auth, domain), key))
        payload = msgspec.to_builtins(made)
        body = {**copy.deepcopy(dict(self.body)), "payload": payload}
        return replace(self, auth=auth, domain=domain, body=body)


def paying(
    dialect: Dialect,
    network: Network,
    wallet: Wallet,
    required: Mapping[str, Any],
    offer: Mapping[str, Any],
    now_s: int,
    nonce: bytes,
) -> Payment:
    """Return a good payment of an offer."""
    timeout = offer.get("maxTimeoutSeconds")
    timeout_s = min(timeout, MOST_TIMEOUT_S) if isinstance(timeout, int) and timeout > 0 else 60
    auth = Authorization(
        wallet.address_bytes,
        parse_address(str(offer["payTo"])),
        int(offer[dialect.amount]),
        now_s - BEFORE_S,
        now_s + timeout_s,
        nonce,
    )
    body: dict[str, Any] = {"x402Version": dialect.version}
    if dialect.version == 2:
        if isinstance(required.get("resource"), dict):
            body["resource"] = required["resource"]
        body["accepted"] = dict(offer)
        if isinstance(required.get("extensions"), dict):
            body["extensions"] = _with_id(required["extensions"], nonce)
    else:
        body |= {"scheme": offer["scheme"], "network": offer["network"]}
    settler = parse_address(offer["extra"][FACILITATOR]) if dialect is Dialect.UPTO else None
    permit = {"spender": PROXIES[dialect.scheme], "facilitator": settler}
    empty = Payment(
        dialect=dialect,
        network=network,
        wallet=wallet,
        offer=offer,
        auth=auth,
        domain=network.domain,
        body=body,
        permit=permit if dialect.by_permit2 else {},
    )
    return empty.signed()


def _with_id(extensions: Mapping[str, Any], nonce: bytes) -> dict[str, Any]:
    found = copy.deepcopy(dict(extensions))
    offered = found.get(x402.PAYMENT_IDENTIFIER)
    info = offered.get("info") if isinstance(offered, dict) else None
    if isinstance(info, dict) and info.get("required") is True:
        info["id"] = f"pay_{nonce.hex()}"
    return found


# --- signing in with a wallet, as the challenge of a 402 asks --------------------------------


SIGN_IN = "sign-in-with-x"
HEADER = "SIGN-IN-WITH-X"
_PREFIX = b"\x19Ethereum Signed Message:\n"
_LINES = {
    "uri": "URI",
    "version": "Version",
    "chainId": "Chain ID",
    "nonce": "Nonce",
    "issuedAt": "Issued At",
    "expirationTime": "Expiration Time",
    "notBefore": "Not Before",
    "requestId": "Request ID",
}


def message(fields: Mapping[str, Any]) -> str:
    """Return the text for a wallet to sign (EIP-4361)."""
    shown = {**fields, "chainId": str(fields["chainId"]).rpartition(":")[2]}
    statement = [shown["statement"]] if shown.get("statement") else []
    lines = [
        f"{shown['domain']} wants you to sign in with your Ethereum account:",
        shown["address"],
        "",
        *statement,
        "",
        *(f"{title}: {shown[name]}" for name, title in _LINES.items() if shown.get(name)),
    ]
    if shown.get("resources"):
        lines += ["Resources:", *(f"- {each}" for each in shown["resources"])]
    return "\n".join(lines)


def digest(text: str) -> bytes:
    """Return the digest of a text (ERC-191)."""
    content = text.encode()
    return keccak256(_PREFIX + str(len(content)).encode() + content)


def proof(fields: Mapping[str, Any], signer: Wallet, address: str = "") -> tuple[str, str]:
    """Return the header of a wallet's sign-in; `address` claims another wallet's address."""
    claim = {**fields, "address": address or signer.address}
    key = PrivateKey(from_hex(signer.private_key, 32))
    claim["signature"] = to_hex(sign(digest(message(claim)), key))
    return HEADER, base64.b64encode(json.dumps(claim).encode()).decode()
