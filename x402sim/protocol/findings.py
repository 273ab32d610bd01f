"""Reports the faults of a way to pay, a payment or an answer: found, wanted, and the remedy.

Each kind of answer (a receipt, or a facilitator's answer) has one function, named in
`recognize.TABLE`. The answer "not paid" is well formed and yet no reason to deliver, so "not paid"
is a finding, too.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, get_args
from urllib.parse import urlsplit

import msgspec

from x402sim.protocol import crypto
from x402sim.protocol.bazaar import faults_of_402
from x402sim.protocol.differences import (
    MILLISECONDS,
    domain_signed,
    is_milliseconds,
    partial_domain_signed,
    unlike,
)
from x402sim.protocol.eip3009 import (
    RECEIVE_TYPEHASH,
    TRANSFER_TYPEHASH,
    Authorization,
    Domain,
    is_early,
    is_late,
    permit_digest,
    transfer_digest,
)
from x402sim.protocol.header import SignedPayment
from x402sim.protocol.money import base_in, to_decimal
from x402sim.protocol.networks import Family, Network, family_of, hash_wanted, is_hash
from x402sim.protocol.permit2 import NAMES, OLDER_UPTO_PROXY, PERMIT2, UPTO_PROXY
from x402sim.protocol.permit2_payments import (
    FACILITATOR,
    METHOD,
    PERMIT2_METHOD,
    PERMIT2_RULES,
    SPENDER,
    SPONSORED,
    SPONSORED_PERMIT,
    UPTO,
    Permit2Case,
    PermitCase,
    SponsoredPermit,
    is_permit2,
    permit_of,
)
from x402sim.protocol.refusals import Refusal, is_final
from x402sim.protocol.rules import GRACE_S
from x402sim.protocol.ways import Dialect, Way, message_in, network_called
from x402sim.protocol.x402 import (
    PAYMENT_FLOW,
    REQUIRED_HEADER,
    SCHEME,
    TRANSFER_METHOD,
    PaymentFlow,
    RequirementsV2,
    Version,
)
from x402sim.protocol.x402_reasons import (
    BEGINNINGS,
    PENDING,
    WORDS,
    Meaning,
    PaymentFate,
    meaning_of,
)
from x402sim.text.words import moment

_NONE = "nothing"


@dataclass(frozen=True, slots=True)
class Finding:
    """One fault; `stops` tells whether the fault prevents a payment.

    `skipped` is no fault, but an offer for other payers (another chain, scheme or token), without a
    look here.
    """

    about: str
    seen: str
    wanted: str
    do: str
    stops: bool = True
    skipped: bool = False
    offers: tuple[int, ...] = ()
    """The offers of a 402 with the fault, from 1; empty for a single offer, or outside offers."""

    @property
    def mark(self) -> str:
        """The kind of finding, in a word."""
        return "not looked at" if self.skipped else "wrong" if self.stops else "note"


IN_THE_BODY = Finding(
    f"header {REQUIRED_HEADER}",
    "none, version 2 in the body",
    "it",
    "Send the same object as base64 in that header: clients of version 2 read no body.",
)
"""A 402 of version 2 without the header."""


def _skip(about: str, sent: Any, wanted: str, whose: str) -> Finding:
    do = f"Nothing, if you mean it: {whose} read it."
    return Finding(about, repr(sent)[:120], wanted, do, stops=False, skipped=True)


# --- a way to pay ------------------------------------------------------------------------


def of_way(way: Way, known: Mapping[str, Network], url: str | None = None) -> Iterator[Finding]:
    """Yield the faults of a way to pay; `url` is the requested URL."""
    fields, network = way.fields, way.network(known)
    seconds, sent = fields.get("maxTimeoutSeconds"), _shown(fields, "maxTimeoutSeconds")
    if (other := _of_others(way, network)) is not None:
        yield other
        for name in ("scheme", "network", "asset", "payTo", way.amount_name):
            if not isinstance(fields.get(name), str) or not fields[name]:
                do = f"Write {name} as a JSON string: every scheme and chain has it."
                yield Finding(name, _shown(fields, name), "a string", do)
        if type(seconds) not in (int, float):
            do = "Write a number, such as 300."
            yield Finding("maxTimeoutSeconds", sent, "a number", do)
        return
    if fields.get("scheme") != SCHEME and not _is_by_permit2(way):
        do = f"Write {SCHEME!r}, or the name of a scheme that your payers know."
        yield Finding("scheme", _shown(fields, "scheme"), SCHEME, do)
    yield from _of_network(way, network, known)
    yield from _of_token(way, network)
    yield from _of_facilitator(way)
    yield from _of_address(fields, "payTo")
    yield from _of_amount(way, network)
    if type(seconds) is not int or not 1 <= seconds < 2**31:
        do = "Write a number, such as 300."
        yield Finding("maxTimeoutSeconds", sent, "a whole number of seconds", do)
    elif seconds <= GRACE_S:
        do = f"Allow more: facilitators refuse what ends within {GRACE_S} s. Usual are 60 to 300."
        yield Finding("maxTimeoutSeconds", sent, f"more than {GRACE_S}", do)
    if url is not None:
        yield from _of_resource(way, url)


def _shown(fields: Mapping[str, Any], name: str) -> str:
    """Return a field, or the field sent under another spelling of the name."""
    if name in fields:
        return repr(fields[name])[:120]
    twins = _letters(name), _AMOUNTS.get(name)
    other = next((field for field in fields if _letters(field) in twins), None)
    return _NONE if other is None else f"{_NONE}, but {other!r}"[:120]


def _letters(name: str) -> str:
    return name.replace("_", "").replace("-", "").lower()


_AMOUNTS = {"amount": "maxamountrequired", "maxAmountRequired": "amount"}
"""The name of the amount in a version, and the letters of the other version's name."""


def _of_others(way: Way, network: Network | None) -> Finding | None:
    """Return the reason if a way to pay is for other payers, else None."""
    from difflib import get_close_matches  # takes long to import; most commands need it never

    fields, method = way.fields, way.extra.get("assetTransferMethod")
    scheme = fields.get("scheme")
    is_other = (
        isinstance(scheme, str) and scheme and not get_close_matches(scheme.lower(), [SCHEME])
    )
    if is_other and not _is_by_permit2(way):
        wanted = f"{SCHEME!r}, or in version 2 {UPTO!r}: no other is looked at"
        return _skip("scheme", scheme, wanted, "payers of that scheme")
    name = fields.get("network")
    if network is None and family_of(name) is Family.OTHER:
        return _skip("network", name, "an EVM chain: no other is looked at", "payers of that chain")
    if way.dialect is Dialect.TWO_STEPS:
        return None
    if method in ("permit2", "erc7710") and not _is_by_permit2(way):
        wanted = "'eip3009', or none: no other method is looked at"
        return _skip("extra.assetTransferMethod", method, wanted, "payers of that method")
    if way.extra.get(PAYMENT_FLOW) == "escrow":
        wanted = f"{' or '.join(map(repr, get_args(PaymentFlow)))}: no other is looked at"
        return _skip(f"extra.{PAYMENT_FLOW}", "escrow", wanted, "payers of that flow")
    contract = way.extra.get("verifyingContract")
    if isinstance(contract, str) and contract.lower() != str(fields.get("asset")).lower():
        shown = f"{contract[:42]}, {way.extra.get('name')}"
        wanted = "the token itself, or none: another contract settles in another way"
        return _skip("extra.verifyingContract", shown, wanted, "payers of that contract")
    if network is not None and _is_other_token(way, network):
        wanted = f"{network.token_symbol}: no other token of {network.name} is looked at"
        shown = f"{way.fields['asset']}, {way.extra['name']}"
        return _skip("asset", shown, wanted, "payers who hold that token")
    return None


def of_other_payment(fields: Mapping[str, Any], dialect: Dialect) -> Finding | None:
    """Return the reason if a payment of the standard is for other readers, else None."""
    accepted, payload = fields.get("accepted"), fields.get("payload")
    way = Way(dialect, accepted if isinstance(accepted, dict) else fields)
    if (other := _of_others(way, None)) is not None:
        return other
    if isinstance(payload, dict) and "authorization" not in payload:
        for name in ("permit2Authorization", "transaction", "permissionContext"):
            if name in payload and not (dialect is Dialect.V2 and is_permit2(payload)):
                wanted = "an authorization of EIP-3009: nothing else is looked at"
                return _skip("payload", ", ".join(map(str, payload)), wanted, "its facilitators")
    return None


def of_other_shape(fields: Mapping[str, Any], version: Any) -> Finding | None:
    """Return that a standard payment has a version's number and the other version's shape."""
    is_flat = "accepted" not in fields and {"scheme", "network"} <= fields.keys()
    if version == 2 and is_flat:
        seen, wanted = "version 1's: scheme and network beside payload", "version 2's: `accepted`"
        do = "Put the accepted requirements there, or write x402Version 1 and send X-PAYMENT."
        return Finding("shape", seen, wanted, do)
    if version == 1 and "accepted" in fields:
        seen, wanted = "version 2's: `accepted`", "version 1's: scheme and network beside payload"
        do = "Write x402Version 2 and send PAYMENT-SIGNATURE, or write scheme and network."
        return Finding("shape", seen, wanted, do)
    return None


def _is_by_permit2(way: Way) -> bool:
    """Tell whether an offer of version 2 is paid by Permit2: `upto`, or `exact` by this method."""
    scheme = way.fields.get("scheme")
    by_method = scheme == SCHEME and way.extra.get(METHOD) == PERMIT2_METHOD
    return way.dialect is Dialect.V2 and (scheme == UPTO or by_method)


def _of_facilitator(way: Way) -> Iterator[Finding]:
    """Yield the faults of what an offer by Permit2 names beside the token: who settles `upto`."""
    if not _is_by_permit2(way):
        return
    named = way.extra.get(FACILITATOR)
    try:
        account = crypto.parse_address(named) if isinstance(named, str) else crypto.ZERO_ADDRESS
    except ValueError:
        account = crypto.ZERO_ADDRESS
    if way.fields["scheme"] == UPTO and account in (crypto.ZERO_ADDRESS, *NAMES):
        seen = NAMES.get(account) or _shown(way.extra, FACILITATOR)
        do = "Copy it from `extra` of the kind `upto` in the facilitator's GET /supported: the "
        do += "payer signs the account, and the proxy lets no other settle."
        yield Finding(f"extra.{FACILITATOR}", seen, "the account that settles", do)
    for name, value in way.extra.items():
        if isinstance(value, str) and value.lower() == crypto.to_hex(OLDER_UPTO_PROXY):
            do = "Update the package: @x402/evm 2.9 to 2.11 have this address, 2.12 has the other."
            wanted = f"{crypto.checksum(UPTO_PROXY)}, or none: payers know the proxy"
            yield Finding(f"extra.{name}", f"{value}: {NAMES[OLDER_UPTO_PROXY]}", wanted, do)


def _case(
    signed: SignedPayment, offered: RequirementsV2, network: Network, now_s: int
) -> Permit2Case:
    assert signed.permit2 is not None
    try:
        facilitator = crypto.parse_address(str((offered.extra or {}).get(FACILITATOR)))
    except ValueError:
        facilitator = crypto.ZERO_ADDRESS
    return Permit2Case(
        auth=signed.permit2,
        signature=signed.signature,
        accepted=offered,
        wanted=offered,
        network=network,
        facilitator=facilitator,
        now_s=now_s,
        settles=False,
    )


def of_permit2(
    signed: SignedPayment, offered: RequirementsV2, network: Network, now_s: int
) -> Iterator[Finding]:
    """Yield the faults of a payment by Permit2: each rule of a facilitator that it breaks."""
    case = _case(signed, offered, network, now_s)
    for rule in PERMIT2_RULES:
        if rule.holds(case):
            continue
        about, _, rest = rule.reason(case).partition(": wanted ")
        wanted, _, seen = rest.partition(", got ")
        if rule.refusal == SPENDER:
            seen += f", {NAMES.get(case.auth.spender, 'no x402 proxy')}"
        do = f"Sign another: a facilitator answers {rule.refusal}."
        wanted = wanted or "what a facilitator takes"
        yield Finding(about.partition(" ")[0], seen or about, wanted, do)


def of_sponsored(
    info: SponsoredPermit,
    signed: SignedPayment,
    offered: RequirementsV2,
    network: Network,
    now_s: int,
) -> Iterator[Finding]:
    """Yield the faults of an EIP-2612 permit for Permit2 beside a payment; raises `BadMessage`."""
    case, (permit, signature) = _case(signed, offered, network, now_s), permit_of(info)
    try:
        signer = crypto.recover(permit_digest(permit, network.domain), signature)
    except crypto.BadSignature:
        signer = None
    rows = {
        "from": (info.from_, crypto.checksum(case.auth.from_)),
        "asset": (info.asset, offered.asset),
        "spender": (info.spender, f"{crypto.checksum(PERMIT2)}, Permit2"),
        "amount": (info.amount, f"{case.auth.amount}, as signed beside it"),
        "deadline": (moment(permit.deadline, now_s), f"more than {GRACE_S} s left"),
    }
    for rule in SPONSORED:
        if not rule.holds(PermitCase(permit, info.asset, case)):
            name, do = rule.clause.partition("/")[2], f"Sign another: the word is {rule.refusal}."
            yield Finding(f"{SPONSORED_PERMIT}.{name}", *rows[name], do)
    if signer != permit.owner:
        seen = "no signature" if signer is None else f"signed by {crypto.checksum(signer)}"
        wanted = f"a signature of {info.from_} for the domain of {network.token_name}"
        yield Finding(f"{SPONSORED_PERMIT}.signature", seen, wanted, "Sign it with that key.")


def _is_other_token(way: Way, network: Network) -> bool:
    """Tell whether a way names another token by both address and domain."""
    try:
        asset = crypto.parse_address(way.fields.get("asset", ""))
    except (ValueError, TypeError):
        return False
    name, version = way.extra.get("name"), way.extra.get("version")
    is_named = isinstance(name, str) and isinstance(version, str)
    return (
        asset not in (network.asset, crypto.ZERO_ADDRESS)
        and is_named
        and name != network.token_name
    )


def _of_network(
    way: Way, network: Network | None, known: Mapping[str, Network]
) -> Iterator[Finding]:
    named = {way.dialect.name_of(candidate) for candidate in known.values()}
    if network is None:
        wanted = ", ".join(sorted(named))
        do = "Correct the name, or describe the network in a file: --network-file."
        if family_of(way.fields.get("network")) is Family.EVM:
            wanted = "a network whose token is known here"
            do = "Describe its token in a file (--network-file), to have its domain looked at."
        is_readable = way.dialect is not Dialect.TWO_STEPS and way.own_network() is not None
        yield Finding("network", _shown(way.fields, "network"), wanted, do, stops=not is_readable)
    elif way.fields["network"] not in named:
        right, do = way.dialect.name_of(network), f"Write it as {way.dialect.value} does."
        yield Finding("network", _shown(way.fields, "network"), repr(right), do)


def _of_token(way: Way, network: Network | None) -> Iterator[Finding]:
    if bad := list(_of_address(way.fields, "asset")):
        yield from bad
    elif network is not None and crypto.parse_address(way.fields["asset"]) != network.asset:
        wanted = f"{crypto.checksum(network.asset)}, {network.token_symbol} on {network.name}"
        do = "Offer that token, or describe yours in a file: --network-file."
        yield Finding("asset", _shown(way.fields, "asset"), wanted, do)
        network = None  # of a token that is not known, neither is the domain
    if way.dialect is Dialect.TWO_STEPS:
        return
    by_permit2 = _is_by_permit2(way)
    for name, right in (
        ("name", network and network.token_name),
        ("version", network and network.token_version),
    ):
        if by_permit2 and name not in way.extra:
            continue  # a message of Permit2 is in Permit2's domain
        wanted = f"{right!r}, as the token says" if right else f"the token's EIP-712 {name}"
        if way.extra.get(name) != right if right else not isinstance(way.extra.get(name), str):
            do = f"Put the {name} of the token's EIP-712 domain into `extra`: payers sign it."
            yield Finding(f"extra.{name}", _shown(way.extra, name), wanted, do)
    flow = way.extra.get(PAYMENT_FLOW)
    if flow not in (None, *get_args(PaymentFlow)):
        wanted = f"{' or '.join(map(repr, get_args(PaymentFlow)))}, or none"
        do = "Name a flow that payers know: they must not pay in another one."
        yield Finding(f"extra.{PAYMENT_FLOW}", repr(flow)[:80], wanted, do)
    own = PERMIT2_METHOD if by_permit2 else TRANSFER_METHOD
    if (method := way.extra.get(METHOD, own)) != own:
        do = "Name a method that payers know, or leave it out."
        yield Finding(f"extra.{METHOD}", repr(method)[:80], f"{own!r}, or none", do)


def _of_address(fields: Mapping[str, Any], name: str) -> Iterator[Finding]:
    try:
        address = crypto.parse_address(fields.get(name, ""))
    except (ValueError, TypeError):
        do = "Write the whole address."
        yield Finding(name, _shown(fields, name), "0x and 40 hex digits", do)
        return
    if address == crypto.ZERO_ADDRESS:
        do = "Set the merchant's address: the token refuses a transfer to nobody."
        yield Finding(name, "the zero address", "an account of yours", do)


MUCH = 1000
"""From so many tokens, an amount of whole tokens seems to be multiplied twice."""
LITTLE = 100
"""Below so many base units, an amount seems to be in tokens: 0.0001 with 6 decimals."""


def _of_amount(way: Way, network: Network | None) -> Iterator[Finding]:
    name, amount = way.amount_name, way.amount
    wanted = 'base units as a string of digits, such as "10000"'
    do = "Write the amount in base units, as a JSON string: 0.01 of a token with 6 decimals "
    base = base_in(amount)
    if base is None:
        yield Finding(name, _shown(way.fields, name), wanted, do + 'is "10000".')
    elif base == 0 and way.fields.get("scheme") != UPTO:  # of which nothing may be used
        do = "Ask for money, or serve the request without a 402."
        yield Finding(name, "'0'", "more than 0", do, stops=False)
    elif network is not None:
        yield from _of_size(name, base, network)


def _of_size(name: str, base: int, network: Network) -> Iterator[Finding]:
    """Yield a doubt about an amount: in tokens instead of base units, or multiplied twice."""
    unit, symbol = 10**network.decimals, network.token_symbol
    if network.decimals < 2:
        return
    shown = f"{base} = {to_decimal(base, network.decimals)} {symbol}"
    if base >= MUCH * unit and base % unit == 0:
        less = base // unit
        wanted = f"{less} = {to_decimal(less, network.decimals)} {symbol}, if that is the price"
        do = f"It looks multiplied by 10^{network.decimals} twice. If it is meant, leave it."
        yield Finding(name, shown, wanted, do, stops=False)
    elif base < LITTLE:
        wanted = f"{base * unit} = {base}.00 {symbol}, if that is the price"
        do = f"It looks like whole tokens: base units are 10^-{network.decimals} of one."
        yield Finding(name, shown, wanted, do, stops=False)


def _of_resource(way: Way, url: str) -> Iterator[Finding]:
    """Yield the faults of the named resource: the requested URL is wanted."""
    requested, named = urlsplit(url), way.resource
    if way.dialect is Dialect.TWO_STEPS and not way.is_paywall:
        if named != requested.path:
            do = "Name the path that was requested: a payer pays for nothing else."
            yield Finding("resource", repr(named)[:120], repr(requested.path), do)
        return
    wanted = repr(f"{requested.scheme}://{requested.netloc}{requested.path}")
    if named in (None, ""):
        do = "Name the URL: a payer wants to see the goods before the signature."
        yield Finding("resource", _NONE, wanted, do, stops=False)
        return
    try:
        shown = urlsplit(named if isinstance(named, str) else "")
    except ValueError:
        shown = urlsplit("")
    if shown[:3] != requested[:3]:  # scheme, host and path
        do = "Name the URL that was requested; some clients and facilitators compare it."
        if shown.netloc and shown.scheme != requested.scheme and shown.path == requested.path:
            do = "Behind a proxy, build the URL from X-Forwarded-Proto or the public address."
        yield Finding("resource", repr(named)[:120], wanted, do, stops=False)


# --- a payment ---------------------------------------------------------------------------


def of_window(auth: Authorization, now_s: int) -> Iterator[Finding]:
    """Yield the faults of an authorization's window at a time."""
    until, since = moment(auth.valid_before, now_s), moment(auth.valid_after, now_s)
    if is_milliseconds(auth.valid_after):
        do = "Sign Unix seconds: these seem to be milliseconds."
        yield Finding("validAfter", str(auth.valid_after), "seconds since 1970", do)
    elif auth.valid_before <= auth.valid_after:
        do = "Sign a window that opens before it closes."
        yield Finding("window", f"closes {until}", f"later than it opens, {since}", do)
    elif is_late(auth, now_s):
        yield Finding("validBefore", until, "a time to come", "Sign a new authorization.")
    elif is_milliseconds(auth.valid_before):
        do = "Sign Unix seconds: these seem to be milliseconds. Services refuse so long a window."
        yield Finding("validBefore", str(auth.valid_before), "seconds since 1970", do)
    elif is_early(auth, now_s):
        do = "Wait, or sign one that is valid already; 60 s ago is usual, for slow clocks."
        yield Finding("validAfter", since, "a time that has passed", do)
    elif is_late(auth, now_s + GRACE_S):
        do = "Sign a new authorization: hardly any time is left to settle the payment."
        yield Finding("validBefore", until, f"more than {GRACE_S} s left", do, stops=False)


def of_terms(auth: Authorization, way: Way) -> Iterator[Finding]:
    """Yield the differences between an authorization and the requirements."""
    do = "Sign exactly what the 402 requires."
    if str(auth.value) != str(way.amount):
        yield Finding("value", str(auth.value), f"{way.amount}, as {way.amount_name} says", do)
    to, wanted = crypto.checksum(auth.to), str(way.fields.get("payTo"))
    if to.lower() != wanted.lower():
        yield Finding("to", to, f"{wanted[:80]}, as payTo says", do)


def of_used(auth: Authorization, way: Way) -> Iterator[Finding]:
    """Yield the differences between a message of `upto` and the requirements with a used amount."""
    amount = base_in(way.amount)
    if amount is not None and amount > auth.value:
        do = "Settle the used amount, at most the maximum."
        yield Finding(way.amount_name, str(amount), f"at most {auth.value}, as signed", do)


def signer_of(
    auth: Authorization, signature: bytes, domain: Domain, typehash: bytes = TRANSFER_TYPEHASH
) -> crypto.Address | None:
    """Return the signer of an authorization for a token, or None."""
    try:
        return crypto.recover(transfer_digest(auth, domain, typehash), crypto.canonical(signature))
    except crypto.BadSignature:
        return None


def of_wallet(signature: bytes) -> str:
    """Return the kind of a contract's signature, in words; "" for the form of an account's."""
    if signature.endswith(crypto.UNDEPLOYED):
        return "a wrapper of ERC-6492: of a contract wallet that may not be deployed"
    if len(signature) > 65:
        return f"{len(signature)} bytes: of a contract wallet (EIP-1271)"
    return ""


def of_signature(
    auth: Authorization, signature: bytes, network: Network, known: Mapping[str, Network]
) -> Iterator[Finding]:
    """Yield the faults of a signature, and the domain of a signature made for another token."""
    if (by := of_wallet(signature)) != "":
        digest = crypto.to_hex(transfer_digest(auth, network.domain))
        do = (
            f"Ask the chain: eth_call of isValidSignature({digest}, signature) at `from` answers "
            "0x1626ba7e if the wallet has signed (EIP-1271). A wallet that is not deployed has to "
            "be deployed first, or a facilitator's verify may do it. If `from` is an ordinary "
            "account, send the 65 bytes r, s, v."
        )
        wanted = "65 bytes of an account: a contract's are not looked at"
        yield Finding("signature", by, wanted, do, stops=False, skipped=True)
        return
    signer, payer = signer_of(auth, signature, network.domain), crypto.checksum(auth.from_)
    if signer == auth.from_:
        if crypto.canonical(signature) != signature:
            do = "Write r, s and v as 65 bytes, with a low s and v 27 or 28."
            v = crypto.low_v(signature)
            form = f"another form of it, {len(signature)} bytes" if v is None else f"v is {v}"
            yield Finding("signature", form, "the form that the token accepts", do)
        return
    wanted = (
        f"a signature of {payer} (`from`) for {network.token_name} version "
        f"{network.token_version}, chain id {network.chain_id}"
    )
    if (other := _signed_for(auth, signature, network, known)) is not None:
        do = "Sign the EIP-712 domain of the token that is to be paid."
        yield Finding("signature", f"`from` has signed it, but for {other}", wanted, do)
    elif signer is None:
        form = f"{len(signature)} bytes that no key gives"
        yield Finding("signature", form, wanted, "Send the 65 bytes r, s, v of the signature.")
    else:
        do = (
            "Sign with the key of `from`, and change nothing afterwards: any change lets another "
            "signer appear. If `from` is a contract (EIP-1271), only the chain can tell."
        )
        yield Finding("signature", f"signed by {crypto.checksum(signer)}", wanted, do)


def _signed_for(
    auth: Authorization, signature: bytes, network: Network, known: Mapping[str, Network]
) -> str | None:
    """Return the message signed by `from` instead, among usual mistakes, or None."""
    own = network.domain
    if signer_of(auth, signature, own, RECEIVE_TYPEHASH) == auth.from_:
        return "receiveWithAuthorization, which only the payee can submit"
    domains = [candidate.domain for candidate in known.values()]
    try:
        other = domain_signed(auth, crypto.canonical(signature), own, domains)
        if other is None:
            return partial_domain_signed(auth, crypto.canonical(signature), own)
    except crypto.BadSignature:
        return None
    return ", ".join(f"{name} {its}" for name, _, its in unlike(own, other))


# --- an answer about a payment -----------------------------------------------------------

Fields = Mapping[str, Any]
_ASK = (
    "Do not deliver for it. Ask the chain: Transfer events of the token, or "
    "authorizationState(from, nonce)."
)


def is_paid(fields: Fields) -> bool:
    """Tell whether a receipt, of any dialect, reports a payment with a hash."""
    transaction = fields.get("transaction", fields.get("txHash"))
    return fields.get("success") is True and is_hash(transaction, fields.get("network"))


def is_pending(fields: Fields) -> bool:
    """Tell whether a receipt of the standard reports a transaction not mined yet."""
    return fields.get("success") is False and fields.get("errorReason") == PENDING


def _moves_nothing(fields: Fields) -> str:
    """Return why a success needs no transaction, by the scheme's text; "" without a reason."""
    if str(fields.get("amount")) == "0":
        return "the amount is 0, as `upto` settles what was not used"
    scheme = fields.get("scheme")
    if isinstance(scheme, str) and scheme != SCHEME:
        return f"the scheme is {scheme[:40]!r}"
    extra = fields.get("extra")
    if isinstance(extra, dict):
        inner = (value for value in extra.values() if isinstance(value, dict))
        if not _OF_CHANNELS.isdisjoint((*extra, *(name for part in inner for name in part))):
            return "a voucher of a channel, which is claimed later"
    return ""


_OF_CHANNELS = {"channelId", "channelState", "chargedCumulativeAmount", "voucher"}


def _of_hash(fields: Fields, name: str, network: Any) -> Iterator[Finding]:
    if not is_hash(fields.get(name), network):
        of = f" of {network}" if isinstance(network, str) and network else ""
        form = hash_wanted(network)
        wanted = f"the hash of a transaction{of}{f': {form}' if form else ''}"
        yield Finding(name, _shown(fields, name), wanted[:200], _ASK)


def _of_payer(fields: Fields, network: Any) -> Iterator[Finding]:
    if fields.get("payer") in (None, "") or family_of(network) is Family.OTHER:
        return
    try:
        crypto.parse_address(fields["payer"])
    except (ValueError, TypeError):
        do = "Name who has paid, or leave the field out."
        yield Finding("payer", _shown(fields, "payer"), "0x and 40 hex digits", do, stops=False)


def _of_chain(fields: Fields, known: Mapping[str, Network], *, stops: bool) -> Iterator[Finding]:
    name = fields.get("network")
    if network_called(name, known) is None and family_of(name) is Family.UNKNOWN:
        wanted = 'a name of CAIP-2 such as "eip155:84532", or one of version 1 as "base-sepolia"'
        do = "Name the network, so that the transaction can be looked up."
        yield Finding("network", _shown(fields, "network"), wanted, do, stops)


def of_settlement(fields: Fields, known: Mapping[str, Network]) -> Iterator[Finding]:
    """Yield the faults of a receipt of the standard, or of the equal answer of settle."""
    success, network = fields.get("success"), fields.get("network")
    reason = fields.get("errorReason")
    if type(success) is not bool:
        return  # its shape says it
    yield from _of_chain(fields, known, stops=success or is_pending(fields))
    yield from _of_payer(fields, network)
    if success and fields.get("transaction") == "" and (why := _moves_nothing(fields)):
        wanted = "the hash of a transaction, as the scheme 'exact' has it"
        whose = "payers of the schemes upto and batch-settlement"
        do = f"Nothing, if it was paid so: {whose} read it. In 'exact' it is no proof of payment."
        yield Finding("transaction", f"''; {why}", wanted, do, stops=False, skipped=True)
    elif success:
        yield from _of_hash(fields, "transaction", network)
    if success:
        if reason:
            do = "Leave errorReason out of a success; a payer cannot tell which of them holds."
            yield Finding("errorReason", repr(reason)[:120], _NONE, do)
    elif is_pending(fields):
        yield from _of_hash(fields, "transaction", network)
        wanted = "a transaction that is mined"
        do = (
            "It is not paid yet, and may still be: settle the same payment again, or ask the chain "
            "for the transaction. Do not deliver, and do not sign another."
        )
        yield Finding("success", f"false, {PENDING}", wanted, do)
    else:
        do = meaning_of(str(reason), fields.get("transaction")).do
        yield from _of_refusal("success", fields, "errorReason", do)
        if fields.get("transaction"):
            yield from _of_hash(fields, "transaction", network)


def _of_refusal(name: str, fields: Fields, reason: str, do: str) -> Iterator[Finding]:
    why = fields.get(reason)
    if isinstance(why, str) and why:
        yield Finding(name, f"false: {why[:100]}", "true", do)
        return
    yield Finding(name, "false", "true", f"The answer does not say why. {do}")
    wanted = "the reason in a word, such as 'insufficient_funds'"
    yield Finding(reason, _shown(fields, reason), wanted, "Say why: a payer cannot correct it.")


_NOT_JUDGED = (
    "Verify moves no money, and this reason is no known word for what is wrong: verify the same "
    "payment again, or correct what the reason says. The old one can be used until it expires."
)


def of_verified(fields: Fields, known: Mapping[str, Network]) -> Iterator[Finding]:
    """Yield the faults of the answer of verify."""
    valid, reason = fields.get("isValid"), fields.get("invalidReason")
    if type(valid) is not bool:
        return
    yield from _of_payer(fields, fields.get("network"))
    if not valid:
        meaning = meaning_of(str(reason))
        is_known = meaning.fate is not PaymentFate.UNKNOWN
        yield from _of_refusal(
            "isValid", fields, "invalidReason", meaning.do if is_known else _NOT_JUDGED
        )
    elif reason:
        do = "Leave invalidReason out if the payment is valid."
        yield Finding("invalidReason", repr(reason)[:120], _NONE, do)


ERROR_FIELDS = frozenset(
    {
        *("error", "errors", "errorType", "errorCode", "errorMessage", "detail", "details"),
        *("errorReason", "invalidReason"),
    }
)
"""Every error of services and hosted facilitators has a key from this list."""
_WORD = re.compile(r"(?<![A-Za-z0-9])[A-Za-z0-9]+(?:_[A-Za-z0-9]+)+")
# Tried at the beginning of a run of letters only: at each letter, 20,000 of them took seconds.
_HASH = re.compile(r"0x[0-9a-fA-F]{64}(?![0-9a-fA-F])")
MOST_TEXT = 20_000
"""The most characters of an error to search for words."""


def of_error(fields: Fields, known: Mapping[str, Network]) -> Iterator[Finding]:
    """Yield the meaning of an error for the payment sent with the request.

    Services pass on a facilitator's answer as an object or inside a text: known words and a hash
    count anywhere, and of several words the least certain word.
    """
    error, final = fields.get("error"), fields.get("final")
    seen = message_in(fields) or "an error without words"
    ours = Refusal.named(error) if isinstance(error, str) else None
    if ours is not None and is_final(ours.text, final if isinstance(final, bool) else None):
        yield Finding("error", seen[:200], "a receipt", ours.row.remedy)
        return
    begins = (begin for begin in BEGINNINGS if seen.startswith(begin))
    word = known_word_in(fields) or next(begins, "")
    if not word:
        do = f"If a payment was sent with the request: {Meaning.UNCLEAR.do}"
        yield Finding("error", seen[:200], "a receipt", do)
        return
    shown = seen if word in seen else f"{word}: {seen}"
    yield Finding("error", shown[:200], "a receipt", meaning_of(word, _hash_in(fields)).do)


def of_error_in(fields: Fields) -> Iterator[Finding]:
    """Yield the meaning of the only known word in a message, at any place."""
    if word := known_word_in(fields):
        yield Finding("error", word, "a receipt", meaning_of(word, _hash_in(fields)).do)


def known_word_in(fields: Fields) -> str:
    """Return the least certain known word in a message; "" without a known word."""
    found = [word for word in _WORD.findall(_text_of(fields)) if word in WORDS]
    return max(found, key=lambda each: list(Meaning).index(WORDS[each]), default="")


def _hash_in(fields: Fields) -> bool:
    return _HASH.search(_text_of(fields)) is not None


def _text_of(fields: Fields) -> str:
    return msgspec.json.encode(fields).decode("utf-8", "replace")[:MOST_TEXT]


def of_error_word(fields: Fields) -> Iterator[Finding]:
    """Yield the refusal in a 402 with a word of the standard."""
    error = fields.get("error")
    if isinstance(error, str) and error in WORDS:
        yield Finding("error", error, "an offer that refuses nothing", meaning_of(error).do)


def of_receipt(fields: Fields, known: Mapping[str, Network]) -> Iterator[Finding]:
    """Yield the faults of a receipt of our two steps (4.1)."""
    if fields.get("success") is not True:
        do = "It is not paid: an error has `error`, and no receipt."
        yield Finding("success", _shown(fields, "success"), "true", do)
        return
    yield from _of_hash(fields, "txHash", None)
    at = fields.get("timestamp")
    if type(at) is int and at < MILLISECONDS:
        do = "Write Unix milliseconds: these seem to be seconds."
        yield Finding("timestamp", str(at), "milliseconds since 1970", do, stops=False)


def of_cronos_settled(fields: Fields, known: Mapping[str, Network]) -> Iterator[Finding]:
    """Yield the faults of the answer of settle of Cronos' facilitator."""
    match fields.get("event"):
        case "payment.settled":
            yield from _of_hash(fields, "txHash", fields.get("network"))
            yield from _of_chain(fields, known, stops=True)
        case "payment.failed":
            why = _shown(fields, "error")
            do = meaning_of(str(fields.get("error")), fields.get("txHash")).do
            yield Finding("event", f"payment.failed: {why}", "payment.settled", do)
        case other:
            wanted = "payment.settled or payment.failed"
            yield Finding("event", repr(other)[:80], wanted, "Write one of these two.")


def of_supported(fields: Fields, known: Mapping[str, Network]) -> Iterator[Finding]:
    """Yield the faults of the answer of supported."""
    kinds = [kind for kind in fields.get("kinds") or () if isinstance(kind, dict)]
    if not kinds:
        do = "List what is settled: shops refuse to start without."
        yield Finding("kinds", "an empty list", "at least one kind", do)
    for number, each in enumerate(kinds, 1):
        version, name = each.get("x402Version"), each.get("network")
        is_caip2 = isinstance(name, str) and ":" in name
        if version in (1, 2) and is_caip2 != (version == 2):
            wanted = "a name of CAIP-2, such as 'eip155:84532'" if version == 2 else "a plain name"
            do = f"Clients and shops look for it as version {version} writes it."
            yield Finding(f"network of kind {number}", repr(name)[:80], wanted, do)
    if any(kind.get("x402Version") == 2 for kind in kinds):
        for name, kind in (("extensions", list), ("signers", dict)):
            if not isinstance(fields.get(name), kind):
                wanted = f"{'a list' if kind is list else 'an object'}, which may be empty"
                do = "Add it: version 2 demands it of supported."
                yield Finding(name, _shown(fields, name), wanted, do)


def of_declaration(fields: Fields, version: Version | None) -> Iterator[Finding]:
    """Yield why no index lists a resource that is declared for the Bazaar; payments do not stop."""
    for fault in faults_of_402(fields, version):
        seen = f"{fault.seen[:200]}: no index lists the resource"
        yield Finding(fault.about, seen, fault.wanted, fault.do, stops=False)


def listed_in(fields: Fields) -> list[Any] | None:
    """Return the resources in an answer of discovery or search; None for another answer."""
    items, found = fields.get("items"), fields.get("resources")
    if isinstance(items, list):
        return items
    is_search = isinstance(found, list) and not any(isinstance(entry, str) for entry in found)
    return found if is_search else None


def of_listing(fields: Fields, known: Mapping[str, Network]) -> Iterator[Finding]:
    """Yield the faults of a list of discovery, without those of ways to pay."""
    for number, each in enumerate(listed_in(fields) or (), 1):
        if not isinstance(each, dict):
            yield Finding(f"item {number}", repr(each)[:80], "an object", "List resources.")
            continue
        for name in ("resource", "type"):
            if not isinstance(each.get(name), str) or not each[name]:
                do = "Name it: whoever looks for resources needs it."
                yield Finding(f"{name} of item {number}", _shown(each, name), "a string", do)
        if not isinstance(each.get("accepts"), list) or not each["accepts"]:
            do = "List the ways to pay it."
            yield Finding(f"accepts of item {number}", _shown(each, "accepts"), "a list", do)
