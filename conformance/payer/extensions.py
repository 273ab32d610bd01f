"""Extensions of version 2: signing in instead of paying, and the name of a payment."""

import json
from collections.abc import Mapping
from functools import partial
from typing import Any

from x402sim.protocol import x402
from x402sim.suite import texts
from x402sim.suite.dialect import Dialect
from x402sim.suite.payer.case import Violation, case, demand, gets_what_it_paid, one_price, only
from x402sim.suite.payer.play import Purchase
from x402sim.suite.payer.shop import Shop, Story, Strike
from x402sim.suite.wire import How, Reply, Request, as_json

SIGN_IN = "sign-in-with-x"
VICTIM = "bank.example"


def _challenge(shop: Shop, domain: str, uri: str) -> Mapping[str, Any]:
    info = {
        "domain": domain,
        "uri": uri,
        "version": "1",
        "nonce": "a1b2c3d4e5f67890a1b2c3d4e5f67890",
        "issuedAt": "2026-01-15T10:30:00.000Z",
        "statement": "Sign in to read the report",
        "resources": [uri],
    }
    chains = [{"chainId": shop.network.caip2, "type": "eip191"}]
    return {SIGN_IN: {"info": info, "supportedChains": chains, "schema": {"type": "object"}}}


@demand(
    "A payer signs in at no site but the shop's",
    texts.derived(
        texts.BINDING_DOMAIN,
        so="a client that signs any domain undoes that: the shop signs in elsewhere",
    ),
)
def _signed_for_another(played: Purchase) -> Violation | None:
    for name, text in played.headers:
        said = x402.json_in(text)
        if name == SIGN_IN and isinstance(said, dict) and said.get("domain") == VICTIM:
            return Violation(
                demand="payer/sign-in",
                actual=f"it signed in at {VICTIM}, and gave the signature to the shop",
            )
    return None


def _members_only(shop: Shop, request: Request) -> Reply | None:
    """Serve a request with a sign-in: this wallet has paid before."""
    if SIGN_IN in request.headers:
        shop.served += 1
        return as_json({"report": shop.goods})
    return None


@demand(
    "Does a payer pay again, asked to sign in with a wallet of an earlier payment?",
    texts.silent(why="the extension is optional for clients"),
)
def _pays_again(played: Purchase) -> str | None:
    signs_in = any(name == SIGN_IN for name, _ in played.headers)
    if signs_in and not played.signed:
        return "it signs in, and pays nothing"
    return f"{'signs in; ' if signs_in else ''}payments: {len(played.signed)}"


def _strict(shop: Shop, request: Request) -> Reply | None:
    """Refuse a known id with another payment (409), as the extension says."""
    said = x402.json_in(request.headers.get("payment-signature"))
    if not isinstance(said, dict):
        return None
    info = ((said.get("extensions") or {}).get(x402.PAYMENT_IDENTIFIER) or {}).get("info") or {}
    named, payload = info.get("id"), json.dumps(said.get("payload"), sort_keys=True)
    if not isinstance(named, str):
        return None
    known = shop.ids.setdefault(named, payload)
    return None if known == payload else as_json({"error": "id is taken"}, 409)


@demand(
    "A payment sent again keeps the id, and a new payment has a new id",
    texts.explicit(texts.REUSES_ID),
    suffix="same",
)
def _same_id(played: Purchase) -> Violation | None:
    """Demand one payload for each id; a repeated payment keeps its id."""
    by_id: dict[str, str] = {}
    by_payload: dict[str, str] = {}
    for said in played.payments_said:
        extension = (said.get("extensions") or {}).get(x402.PAYMENT_IDENTIFIER) or {}
        named = (extension.get("info") or {}).get("id")
        if named is None:
            continue
        payload = json.dumps(said.get("payload"), sort_keys=True)
        if by_payload.setdefault(payload, named) != named:
            return Violation(actual="the same with another id", demand="payer/same-id")
        if by_id.setdefault(named, payload) != payload:
            return Violation(
                demand="payer/id",
                actual="the same id for another payment, which a server answers with 409",
            )
    return None


_LOST = Strike(settles=True, reply=lambda _, right: type(right)(status=right.status, how=How.LOST))
_extension = partial(
    case,
    absent=only([Dialect.V2], "extensions are of version 2, and are looked at in its headers"),
)
ROWS = [
    _extension("extension/sign-in-elsewhere", _signed_for_another)(
        Story(extensions=lambda shop: _challenge(shop, VICTIM, f"https://{VICTIM}/login"))
    ),
    _extension("extension/sign-in-instead", _pays_again)(
        Story(
            extensions=lambda shop: _challenge(shop, shop.origin.removeprefix("http://"), shop.url),
            first=_members_only,
        )
    ),
    _extension(
        "extension/identifier",
        _same_id,
        one_price(
            "Where payments have ids, a lost answer is still a single payment",
            "the same payload with the same id gets the answer again",
            texts.RESEND,
        ),
        gets_what_it_paid("who pays and gives up has lost the price"),
    )(Story(extensions=lambda shop: x402.IDENTIFIER_OFFER, paying=_strict, strikes=(_LOST,))),
]
