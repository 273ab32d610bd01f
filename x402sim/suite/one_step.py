"""Services that are paid in one step: version 2 of the x402 standard, whose 402 is a header.

There is no settlement endpoint (`pay.path` is empty) and no payment id: the request itself pays,
and what it buys is in the same answer. `CASES` are the checks that make sense then; the 402 is
read in the words of the specification (2.1), and the payment is written in those of the standard.
"""

import base64
from collections.abc import Iterable, Mapping
from typing import Any

import httpx
import msgspec

from x402sim.protocol.header import authorization_of, decode_header
from x402sim.protocol.messages import BadMessage, decode
from x402sim.protocol.networks import Network
from x402sim.protocol.x402 import (
    PAYMENT_HEADERS,
    REQUIRED_HEADER,
    RESPONSE_HEADERS,
    exact_payload,
    from_base64,
)
from x402sim.suite.target import PaymentRequiredShape, ReceiptShape, Target

PAYMENT, RESPONSE = PAYMENT_HEADERS[2], RESPONSE_HEADERS[2]
CASES = frozenset({
    "spec/1/payer-pays-no-gas:the_payer_pays_no_gas",
    "spec/1/unpaid-402:an_unpaid_request_is_answered_402",
    "spec/1/unpaid-402:no_body_made_up_is_free",
    "spec/1/unpaid-402:no_other_method_is_free",
    "spec/1/unpaid-402:no_wrong_request_is_free",
    "spec/2.1/amount:a_larger_amount_is_refused",
    "spec/2.1/amount:a_smaller_amount_is_refused",
    "spec/2.1/amount:the_amount_is_a_string_of_digits",
    "spec/2.1/asset:the_asset_is_a_token_of_6_decimals",
    "spec/2.1/asset:the_asset_is_an_address",
    "spec/2.1/network:the_network_is_the_deployments",
    "spec/2.1/pay-to:another_payee_is_refused",
    "spec/2.1/pay-to:pay_to_is_the_merchants_address",
    "spec/2.1/requirements:requirements_have_their_fields",
    "spec/2.1/resource:the_resource_is_the_path",
    "spec/2.1/scheme:the_scheme_is_exact",
    "spec/2.1/timeout:the_timeout_is_an_integer",
    "spec/2.3/contents:what_the_header_says_is_done",
    "spec/2.8/networks:an_authorization_for_another_chain_is_refused",
    "spec/2.8/networks:the_chain_has_the_networks_id",
    "spec/4.1/receipt:everybody_gets_his_own_receipt",
    "spec/4.1/receipt:the_receipt_has_its_fields",
    "spec/4.1/receipt:the_transaction_of_the_receipt_is_the_payment",
    "spec/4.1/settle-on-chain:a_transfer_that_reverts_grants_nothing",
    "spec/4.1/settle-on-chain:the_transfer_is_on_the_ledger",
    "spec/4.1/settle-on-chain:what_was_not_settled_grants_nothing",
    "spec/5/exact-amount:amounts_made_up",
    "spec/5/exact-amount:another_amount_in_both",
    "spec/5/exact-amount:not_the_amount_required",
    "spec/5/exact-recipient:a_third_party_is_paid",
    "spec/5/exact-recipient:the_payer_pays_itself",
    "spec/5/nonce-once:a_nonce_belongs_to_its_payer",
    "spec/5/nonce-once:it_pays_once_for_its_own_id",
    "spec/5/nonce-once:one_id_at_the_same_time",
    "spec/5/nonce-once:two_ids_while_the_answer_is_held",
    "spec/5/signature-proves:a_broken_signature",
    "spec/5/signature-proves:a_field_was_changed_after_signing",
    "spec/5/signature-proves:signed_for_another_token",
    "spec/5/signature-proves:signed_with_another_key",
    "spec/5/stored-records:a_reverted_transfer_is_no_payment",
    "spec/5/stored-records:without_money_no_record_is_settled",
    "spec/5/window:after_valid_before",
    "spec/5/window:an_empty_window",
    "spec/5/window:before_valid_after",
    "spec/5/window:near_the_edges",
    "spec/5/window:presented_too_late",
    "kit/7/malformed-header:a_payment_header_that_is_none",
    "kit/7/malformed-header:a_window_without_end",
    "kit/7/other-methods:another_method",
})  # fmt: skip
"""What can be asked of a payment in one step. Not the texts of section 7: the standard has none."""
WHY_NOT = (
    f"not applicable: the service is paid in one step ({PAYMENT}), without a settlement endpoint "
    "and payment ids"
)
_NAMES = {"maxAmountRequired": "amount"}
"""Fields of 2.1 that the standard calls otherwise."""


def left_out(target: Target, cases: Iterable[str]) -> dict[str, str]:
    """Return which of these cases do not apply to a target, by their names, and why."""
    return {name: WHY_NOT for name in cases if target.is_one_step and name not in CASES}


def completed(target: Target) -> Target:
    """Return a target with the places of the standard, if it is paid in one step."""
    if not target.is_one_step:
        return target
    nowhere = PaymentRequiredShape(
        error="", payment_id="", requirements="", message="", network="", max_timeout_s=None,
        description=False, asset=target.payment_required.asset,
    )  # fmt: skip
    receipt = ReceiptShape(
        success=f"/{RESPONSE}/success", payment_id="", tx_hash=f"/{RESPONSE}/transaction",
        timestamp="",
    )  # fmt: skip
    return msgspec.structs.replace(target, payment_required=nowhere, receipt=receipt)


def body_of(response: httpx.Response, target: Target) -> Any:
    """Return the JSON of an answer; in one step, with what the standard's headers say."""
    body = decoded(response.content)
    return _with_headers(body, response.headers) if target.is_one_step else body


def offers_of(response: httpx.Response) -> list[Any]:
    """Return the ways to pay in the header of a 402; none without it."""
    return offers(_with_headers(None, response.headers), {})


def _with_headers(body: Any, headers: httpx.Headers) -> Any:
    said = {name: _said(headers[name]) for name in (REQUIRED_HEADER, RESPONSE) if name in headers}
    return {**body, **said} if isinstance(body, dict) else said or body


def _said(text: str) -> Any:
    """Return the JSON in a header; None if there is none."""
    try:
        return decoded(from_base64(text))
    except BadMessage:
        return None


def offers(body: Any, networks: Mapping[str, Network]) -> list[Any]:
    """Return the ways to pay in the header of a 402, each in the words of the specification.

    A known network has its own name; `accepted` is the offer as it was made.
    """
    required = body.get(REQUIRED_HEADER) if isinstance(body, dict) else None
    required = required if isinstance(required, dict) else {}
    names = {network.caip2: name for name, network in networks.items()}
    resource = required.get("resource")
    url = resource.get("url") if isinstance(resource, dict) else None
    path = httpx.URL(url).path if isinstance(url, str) else url
    accepts = required.get("accepts")
    return [
        {
            **each,
            "maxAmountRequired": each.get("amount"),
            "network": names.get(str(each.get("network")), each.get("network")),
            "resource": path,
            "accepted": each,
            "of": resource,
        }
        for each in (accepts if isinstance(accepts, list) else ())
        if isinstance(each, dict)
    ]


def payment(header: str, wanted: Mapping[str, Any], changes: Mapping[str, Any] | None) -> bytes:
    """Return the header of a payment, given the specification's (2.3), also if it is malformed.

    `changes` replace fields of what was accepted; None leaves one out.
    """
    try:
        auth, signature = authorization_of(decode_header(header))
    except BadMessage:
        return _respelled(header.strip())
    accepted = {
        **wanted["accepted"],
        **{_NAMES.get(name, name): value for name, value in (changes or {}).items()},
    }
    said = {
        "x402Version": 2,
        "resource": wanted["of"],
        "accepted": {name: value for name, value in accepted.items() if value is not None},
        "payload": exact_payload(auth, signature),
    }
    return base64.b64encode(msgspec.json.encode(said))


def decoded(content: bytes) -> Any:
    """Return the JSON of an answer; None if it is not JSON."""
    try:
        return decode(content, Any)
    except BadMessage:
        return None


def _respelled(malformed: str) -> bytes:
    """Return what is no payment in base64, as the standard writes headers; no hex as it is."""
    try:
        return base64.b64encode(bytes.fromhex(malformed.removeprefix("0x")))
    except ValueError:
        return malformed.encode()
