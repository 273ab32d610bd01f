"""The signed domain and message: the token's name, version, chain and contract.

The JSON is right in all these payments; only recovering the signer shows the fault.
"""

from collections.abc import Callable

from msgspec.structs import replace

from x402sim.protocol import x402
from x402sim.protocol.crypto import Address
from x402sim.protocol.eip3009 import PERMIT_TYPEHASH, RECEIVE_TYPEHASH
from x402sim.protocol.permit2 import EXACT_PROXY, UPTO_PROXY
from x402sim.protocol.permit2_payments import UPTO
from x402sim.suite import texts
from x402sim.suite.dialect import BY_PERMIT2, Dialect
from x402sim.suite.facilitator.case import (
    Change,
    agreed,
    left_open,
    only,
    pays,
    refuses,
    wants,
)
from x402sim.suite.facilitator.payment import STANDARD, Draft

_OTHER_PROXY = {x402.SCHEME: UPTO_PROXY, UPTO: EXACT_PROXY}
OTHER = Address(bytes.fromhex("11" * 20))
_IS_WHOSE = "a signature for another token or chain is none for this one"
_NO_EXTRA = "the dialect of Cronos has no `extra`"


def _for(**parts: object) -> Change:
    return lambda draft: draft.signed(domain=replace(draft.network.domain, **parts))


def _named(name: str, version: str | None = None) -> Change:
    """Sign for another name of the token, and name the same in the requirements."""

    def change(draft: Draft) -> Draft:
        was = draft.network.domain
        told = {"name": name, "version": version or was.version}
        signed = draft.signed(domain=replace(was, **told))
        return signed.demanding("extra", told)

    return change


def _permitted(parts: Callable[[Draft], dict[str, Address]]) -> Change:
    """Return the change of further fields of Permit2's message."""
    return lambda draft: draft.signed(permit=parts(draft))


def _extra(**parts: object) -> Change:
    return lambda draft: draft.demanding("extra", {**draft.get("requirements.extra"), **parts})


_OTHERS: dict[str, dict[str, Change]] = {
    "name": {"another name": _for(name="Another Coin")},
    "version": {"another version": _for(version="7")},
    "chain": {"no chain's id": _for(chain_id=424_242), "Base's id": _for(chain_id=8453)},
    "contract": {"another contract": _for(verifying_contract=OTHER)},
}
_ONLY_PERMIT2 = only(BY_PERMIT2, "EIP-3009 names no contract but the token")
ROWS = [
    refuses(
        "domain/contract",
        "A payment for another spender than the scheme's proxy is refused",
        texts.P2_PROXY,
        texts.CALLS,
        changes={
            "the other scheme's proxy": _permitted(
                lambda draft: {"spender": _OTHER_PROXY[draft.dialect.scheme]}
            ),
            "another contract": _permitted(lambda _: {"spender": OTHER}),
        },
        so="another contract's transfer is not this settlement, and may go elsewhere",
        variant="spender",
        absent=_ONLY_PERMIT2,
    ),
    refuses(
        "domain/contract",
        "A payment for another facilitator is refused",
        texts.FACILITATOR,
        changes={"another account": _permitted(lambda _: {"facilitator": OTHER})},
        variant="facilitator",
        absent=only([Dialect.UPTO], "only `upto` names a facilitator"),
    ),
    *(
        refuses(
            f"domain/{slug}",
            f"A payment signed for another {slug} is refused",
            texts.SIGNATURE,
            texts.TOKEN_AND_NETWORK,
            changes=changes,
            so=_IS_WHOSE,
        )
        for slug, changes in _OTHERS.items()
    ),
    refuses(
        "domain/message",
        "A payment signed as another message is refused",
        texts.SIGNATURE,
        texts.CALLS,
        changes={
            "ReceiveWithAuthorization": lambda draft: draft.signed(typehash=RECEIVE_TYPEHASH),
            "Permit": lambda draft: draft.signed(typehash=PERMIT_TYPEHASH),
            "no type": lambda draft: draft.signed(typehash=bytes(32)),
        },
        so="the token takes a signature of TransferWithAuthorization there, and no other",
    ),
    refuses(
        "domain/named-wrongly",
        "A payment signed for a wrong token name is refused, though the requirements agree",
        texts.SIMULATE,
        texts.SIGNATURE,
        changes={"USD Coin": _named("USD Coin"), "version 7": _named("USDC", "7")},
        so="the token has a name of its own, for which this signature is none: the transfer "
        "must fail (x402-foundation/x402#3102)",
        only_simulated=True,
        absent={Dialect.CRONOS: _NO_EXTRA},
    ),
    pays(
        "domain/named-otherwise",
        left_open(
            "Does the facilitator accept requirements with a wrong or no name of the token?",
            texts.DOMAIN_NAME,
            why="the payment is good, and its requirements are wrong",
        ),
        agreed(
            "With any token name in the requirements, a payment called valid settles",
            texts.SIMULATE,
        ),
        changes={
            "another name": _extra(name="USD Coin"),
            "another version": _extra(version="7"),
            "no name": wants("extra", {}),
        },
        absent=only(STANDARD, _NO_EXTRA),
    ),
]
